"""Everything that one run holds, and the two doors out of it: the decoder's thread and a tool call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
from jsonschema import Draft202012Validator

from agent_runtime import events
from agent_runtime.agent import Agent
from agent_runtime.budget import Budget
from agent_runtime.decoding.decoder import Decoder, Timed, now_ns
from agent_runtime.knowledge import Knowledge
from agent_runtime.sandboxes.contract import Sandbox, ToolResult
from agent_runtime.tool_definition import Tool
from agent_runtime.traces import RunTrace, conventions, fail
from agent_runtime.transcript import Transcript

T = TypeVar("T")


@dataclass(frozen=True)
class Proposal:
    """One untried edit, as the patch tool's arguments."""

    path: str
    arguments: dict[str, Any]
    edited: str
    """The file's text after the edit: what makes proposals distinct."""
    score: float


@dataclass
class Run:
    """The state of one run; the loop's functions take it and nothing else."""

    agent: Agent
    task: str
    test: str | None
    decoder: Decoder
    sandbox: Sandbox
    transcript: Transcript
    known: Knowledge
    budget: Budget
    trace: RunTrace
    emit: Callable[[events.Event], None]
    background: anyio.abc.TaskGroup
    worker: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    """The decoder is synchronous and stateful: one thread at a time, in order."""
    committed: anyio.Event = field(default_factory=anyio.Event)
    """Set once the last call's tokens are in the KV cache."""
    calls: int = 0
    patches_tried: int = 0
    proposals: list[Proposal] = field(default_factory=list)

    @cached_property
    def tools(self) -> dict[str, Tool]:
        """The agent's tools by name."""
        return {tool.name: tool for tool in self.agent.tools}

    @cached_property
    def validators(self) -> dict[str, Draft202012Validator]:
        """The tools' own, un-narrowed schemas, ready to check a call: about 70 µs each."""
        return {tool.name: Draft202012Validator(tool.parameters) for tool in self.agent.tools}

    async def in_decoder(self, function: Callable[..., T], *args: Any) -> T:
        """Run decoder work on its thread; a cancelled run waits for the pass that is under way (milliseconds)."""
        return await anyio.to_thread.run_sync(lambda: function(*args), limiter=self.worker)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None = None, *, quiet: bool = False
    ) -> ToolResult:
        """One tool call with its span, on the host or in the sandbox.

        `timeout` is in seconds and never exceeds what is left of the run. A `quiet` call emits no event: its
        caller tells what it amounts to.
        """
        limit = self.budget.for_call(self.agent.tool_timeout if timeout is None else timeout)
        if name == "run_tests":
            given = {} if self.test is None else {"command": self.test}
            arguments = {"test_timeout": self.agent.test_timeout, **given, **arguments}
        self.calls += 1
        started = now_ns()
        tool = self.tools.get(name)
        with self.trace.execute_tool(name, f"call-{self.calls}") as span:
            if tool is not None and tool.where == "host":
                result = await tool.invoke(arguments, limit)
            else:
                sent, parameters = (name, arguments) if tool is None else tool.sandbox_call(arguments)
                result = await self.sandbox.call(sent, parameters, limit)
                self.trace.record_call(result.phases, started, now_ns())
            span.set_attributes(
                {
                    conventions.TOOL_OK: result.ok,
                    conventions.TOOL_TIMED_OUT: result.timed_out,
                    conventions.TOOL_OUTPUT_BYTES: result.total_bytes,
                    **self.trace.content(conventions.TOOL_CALL_ARGUMENTS, json.dumps(dict(arguments))),
                    **self.trace.content(conventions.TOOL_CALL_RESULT, result.text),
                }
            )
            if result.error is not None:
                fail(span, result.error.kind, result.error.message)
        if not quiet:
            self.emit(
                events.ToolReturned(
                    step=self.budget.steps,
                    tool=name,
                    ok=result.ok,
                    text=result.text,
                    timed_out=result.timed_out,
                    tool_ms=(now_ns() - started) / 1e6,
                )
            )
        return result


def record(trace: RunTrace, phase: Timed) -> None:
    """Put a phase that the decoder measured into the trace."""
    trace.record(phase.name, phase.start_ns, phase.end_ns, dict(phase.attributes))
