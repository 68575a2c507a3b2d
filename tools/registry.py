"""The built-in tools by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict

from agent_runtime.tools.noop import noop
from agent_runtime.tools.workspace import Outcome


@dataclass(frozen=True)
class ToolEntry:
    """How the server runs a tool."""

    function: Callable[..., Outcome]

    inline: bool = False
    """Runs in the server's process: a few milliseconds at most, starts no process."""

    reads_only: bool = False
    """Leaves the workspace as it is."""


TOOLS: Dict[str, ToolEntry] = {
    "noop": ToolEntry(noop, inline=True, reads_only=True),
}
