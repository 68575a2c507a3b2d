"""The built-in tools by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent_runtime.tools.inspection import inspect
from agent_runtime.tools.noop import noop
from agent_runtime.tools.patch import patch, undo
from agent_runtime.tools.run_tests import run_tests
from agent_runtime.tools.search import search
from agent_runtime.tools.shell import shell
from agent_runtime.tools.user_tool import user_tool
from agent_runtime.tools.workspace import Outcome


@dataclass(frozen=True)
class ToolEntry:
    """How the server runs a tool."""

    function: Callable[..., Outcome]

    inline: bool = False
    """Runs in the server's process: a few milliseconds at most, starts no process."""

    reads_only: bool = False
    """Leaves the workspace as it is."""


TOOLS: dict[str, ToolEntry] = {
    "inspect": ToolEntry(inspect, inline=True, reads_only=True),
    "noop": ToolEntry(noop, inline=True, reads_only=True),
    "patch": ToolEntry(patch, inline=True),
    "run_tests": ToolEntry(run_tests),
    "search": ToolEntry(search, reads_only=True),
    "shell": ToolEntry(shell),
    "undo": ToolEntry(undo, inline=True),
    "user_tool": ToolEntry(user_tool),
}
