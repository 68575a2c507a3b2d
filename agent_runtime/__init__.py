"""Coding agents with the shortest possible loop: an in-process diffusion model, sandboxed tools, traces.

What lives here: the agent, its loop, the transcript and the command line. `decoding`, `tools`,
`sandboxes` and `traces` know nothing of this level; only `loop` knows all four.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_runtime.agent import Agent, RunResult
    from agent_runtime.session import run, stream
    from agent_runtime.tool_definition import Tool, tool

__all__ = ["Agent", "RunResult", "Tool", "run", "stream", "tool"]

_HOMES = {
    "Agent": "agent_runtime.agent",
    "RunResult": "agent_runtime.agent",
    "Tool": "agent_runtime.tool_definition",
    "run": "agent_runtime.session",
    "stream": "agent_runtime.session",
    "tool": "agent_runtime.tool_definition",
}


def __getattr__(name: str) -> Any:
    # Lazy, because `agent-runtime --help` must answer in 0.3 s and pydantic alone takes 0.15 s.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    if name in {"run", "stream"}:
        return getattr(importlib.import_module(_HOMES[name]), name)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
