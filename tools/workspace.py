"""What a tool gets (`Workspace`) and what it gives back (`Outcome`)."""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH118
from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any


class OutsideWorkspace(Exception):
    """A path that leads out of the workspace."""


def resolve(root: str, path: str) -> str:
    """The absolute path of `path` (relative to `root`), symlinks followed.

    Raises `OutsideWorkspace` where that lies outside `root`.
    """
    resolved = os.path.realpath(os.path.join(root, path))
    if resolved != root and not resolved.startswith(root.rstrip("/") + "/"):
        raise OutsideWorkspace(f"{path} leads out of the repository; name a path inside it")
    return resolved


@dataclass(frozen=True)
class Workspace:
    """Where a call works and until when."""

    root: str
    """Absolute path of the repository's copy; no symlink in it."""

    tmp: str
    """Absolute path of a private scratch directory outside `root`; spilled output lies here."""

    python: str
    """The interpreter that runs the repository's code."""

    package: str
    """Path that holds `agent_runtime.tools` (a zip or a directory), for `PYTHONPATH` of a subprocess."""

    deadline: float
    """On `time.monotonic()`'s clock: when a tool must have ended. The server kills it half a second later."""

    output_cap: int = 64 * 1024
    """Bytes kept of each output stream of a command; the rest goes to a file in `tmp`."""

    def remaining(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    def resolve(self, path: str) -> str:
        """The absolute path of `path` (relative to `root`), symlinks followed.

        Raises `OutsideWorkspace` where that lies outside `root`.
        """
        return resolve(self.root, path)

    def relative(self, path: str) -> str:
        """`path` as the transcript names it: relative to `root`, with forward slashes."""
        return os.path.relpath(path, self.root)


@dataclass
class Outcome:
    """What one call of a tool came to."""

    ok: bool
    text: str
    """What the transcript gets: the same for the same workspace, so no times, process ids or addresses."""

    data: dict[str, Any] = field(default_factory=dict)
    """The same, structured; JSON values only."""

    error: dict[str, str] | None = None
    """`{"kind": …, "message": …}` where `ok` is false because the call could not be carried out."""

    timed_out: bool = False
    truncated: bool = False
    total_bytes: int = 0
    """Bytes of output before the cap, where `truncated`."""


def failure(kind: str, message: str, **data: Any) -> Outcome:
    """A call that could not be carried out; `message` is one sentence that says what to do instead."""
    return Outcome(ok=False, text=message, data=data, error={"kind": kind, "message": message})
