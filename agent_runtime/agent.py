"""What a user defines, and what a run gives back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from agent_runtime.tool_definition import Tool, builtin_tools

Status = Literal["solved", "unsolved", "cancelled", "failed"]


def _default_tools() -> tuple[Tool, ...]:
    return tuple(builtin_tools().values())


class Agent(BaseModel):
    """A coding agent: a model, a set of typed tools, a budget."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, use_attribute_docstrings=True)

    name: str = "coder"
    """Shown in traces and events."""

    model: str = "small"
    """`small` (ships with the package), `uniform` (random logits, a baseline), a checkpoint folder, or a hub name."""

    instructions: str = "Fix the repository so that its tests pass."
    """The system turn."""

    tools: tuple[Tool, ...] = Field(default_factory=_default_tools)
    """The tools that the agent may call; the built-in ones by default. `finish` is always among them."""

    sandbox: Literal["docker", "local"] = "docker"
    """Where tools run. `local` does not isolate: use it only for code that you trust."""

    image: str | None = None
    """The sandbox image; the project's own recipe is built once when this is left out."""

    max_steps: int = Field(default=100, ge=1)
    """Steps (one tool call each) before the run ends unsolved."""

    max_tokens: int = Field(default=32_768, ge=256)
    """Transcript tokens before the run ends unsolved."""

    timeout: float = Field(default=300.0, gt=0)
    """Seconds of wall clock for the whole run."""

    tool_timeout: float = Field(default=30.0, gt=0)
    """Seconds that one tool call may take; afterwards nothing of it is left alive."""

    test_timeout: float = Field(default=10.0, gt=0)
    """Processor seconds that one test may take before it counts as failed: what an endless loop costs."""

    edit_canvases: bool = True
    """Offer `patch` only as ranked edits of one line: small models repair by infilling, they do not write."""

    candidates: int = Field(default=64, ge=1)
    """Edits that one `patch` step may try, best first, before the step ends."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seeds the canvas noise: the same seed, model and repository give the same run."""

    @field_validator("tools")
    @classmethod
    def _distinct_and_ending(cls, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        names = [tool.name for tool in tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two tools are called {twice[0]!r}: names must differ")
        return tools if "finish" in names else (*tools, builtin_tools()["finish"])

    def with_tools(self, *extra: Tool) -> Agent:
        """The same agent with more tools."""
        return self.model_copy(update={"tools": self._distinct_and_ending((*self.tools, *extra))})


class RunResult(BaseModel):
    """How a run ended."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    status: Status
    """`solved` only when the tests passed on the final state of the workspace."""

    reason: str
    """One sentence that says why the run ended."""

    steps: int
    """Steps taken: one decoded tool call each."""

    patches_tried: int
    """Patches whose tests were run."""

    patch: str
    """The change against the repository as it was, in git's format; empty when nothing changed."""

    run_dir: Path
    """The folder that holds events.jsonl, patch.diff, result.json and the trace."""

    trace: Path
    """The trace in Jaeger's JSON format."""

    seconds: float
    """Wall clock of the whole run."""

    tests: dict[str, Any] | None
    """The last complete test result, or None when no tests ran."""

    latency: dict[str, Any]
    """Per phase: n, p50, p95, p99 in milliseconds and the share of wall time."""
