"""The folder that a run leaves behind.

Each event is one `write` of one whole line to a file that was opened for appending, so a killed process
leaves at worst a missing last line, never a broken one in the middle.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_runtime.errors import UsageError
from agent_runtime.events import Event


def new_run_id() -> str:
    """A sortable, unique name: UTC time and six random hex digits."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def state_folder() -> Path:
    """Where runs go by default: `$XDG_STATE_HOME/agent-runtime`, never the user's repository."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "agent-runtime"


class RunFolder:
    """Writes `events.jsonl`, `patch.diff` and `result.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._writing():
            path.mkdir(parents=True, exist_ok=True)
            if (path / "events.jsonl").exists():
                raise UsageError(f"{path} already holds a run: give --out another folder")
            self._events = os.open(path / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, event: Event) -> None:
        """Add one event as one line. Raises `UsageError` where the disk is full, like all that writes here."""
        line = event.model_dump_json().encode() + b"\n"
        with self._writing():
            while line:  # a disk that fills up takes the beginning of a line before it refuses the rest
                line = line[os.write(self._events, line) :]

    def write_patch(self, patch: bytes) -> None:
        """Keep the patch byte for byte."""
        with self._writing():
            (self.path / "patch.diff").write_bytes(patch)

    def write_result(self, result: dict[str, Any]) -> None:
        """Replace `result.json` in one rename, so that a reader never sees half of it."""
        temporary = self.path / ".result.json"
        with self._writing():
            temporary.write_text(json.dumps(result, indent=2) + "\n")
            temporary.replace(self.path / "result.json")

    def close(self) -> None:
        """Close the event file; the folder stays."""
        os.close(self._events)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = f"the run folder {self.path} cannot be written: {error.strerror}"
            raise UsageError(f"{reason}; give --out a folder on a disk with free space") from error
