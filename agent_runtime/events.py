"""What happens during a run, as it happens: one event, one line of `events.jsonl`."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True)

    at: float = Field(default_factory=time.time)


class RunStarted(_Event):
    """The run has a folder; nothing else exists yet."""

    kind: Literal["run_started"] = "run_started"
    run_id: str
    agent: str
    model: str
    repo: str
    task: str
    sandbox: str
    run_dir: str


class Progress(_Event):
    """Long set-up work goes on: an image is built, a checkpoint is loaded."""

    kind: Literal["progress"] = "progress"
    message: str


class SandboxReady(_Event):
    """The sandbox answers and holds the repository."""

    kind: Literal["sandbox_ready"] = "sandbox_ready"
    image: str
    isolates: bool
    files: int
    ready_ms: float


class CallDecoded(_Event):
    """The model has said which tool to call."""

    kind: Literal["call_decoded"] = "call_decoded"
    step: int
    tool: str
    arguments: dict[str, Any]
    prefilled_tokens: int
    prefill_ms: float
    decode_ms: float
    forward_passes: int
    canvas_length: int


class PatchTried(_Event):
    """One candidate edit of a patch step has been tested."""

    kind: Literal["patch_tried"] = "patch_tried"
    step: int
    candidate: int
    path: str
    line: int
    text: str
    passed: bool
    outcome: str
    tool_ms: float


class ToolReturned(_Event):
    """A tool has answered."""

    kind: Literal["tool_returned"] = "tool_returned"
    step: int
    tool: str
    ok: bool
    text: str
    timed_out: bool
    tool_ms: float


class RunFinished(_Event):
    """The run is over and its folder complete."""

    kind: Literal["run_finished"] = "run_finished"
    status: str
    reason: str
    steps: int
    patches_tried: int
    seconds: float


Event: TypeAlias = Annotated[
    RunStarted | Progress | SandboxReady | CallDecoded | PatchTried | ToolReturned | RunFinished,
    Field(discriminator="kind"),
]
