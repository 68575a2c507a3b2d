"""What a run's folder tells besides its trace, as far as it is there: events, result, patch."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunFiles:
    """Empty where a file is missing, for a run may have been killed at any moment."""

    started: dict[str, Any]
    """The event with which the run began: agent, model, task, repo."""
    by_step: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """The events of each step, in their order."""
    result: dict[str, Any] = field(default_factory=dict)
    patch: str = ""


def read_run_files(folder: Path) -> RunFiles:
    """Reads what there is; lines and files that are no JSON are left out, the trace is what counts here."""
    events = [event for line in _text(folder / "events.jsonl").splitlines() if (event := _object(line))]
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if isinstance(event.get("step"), int):
            by_step[event["step"]].append(event)
    started = next((event for event in events if event.get("kind") == "run_started"), {})
    result = _object(_text(folder / "result.json"))
    return RunFiles(started, dict(by_step), result, _text(folder / "patch.diff"))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
