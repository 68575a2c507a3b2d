"""The agent loop: chat, execute the tool, observe; until the tests pass or the budget is gone.

while budget:
    call = chat(run)                    # prefill what is new, decode one tool call on a canvas
    result = execute_tool(run, call)    # in the sandbox, while the call's tokens are committed
    observe(run, call, result)          # append to the transcript; note what is now known
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import anyio
from jsonschema.exceptions import best_match

from agent_runtime import decoding, events, repair
from agent_runtime.chat import render_prompt, render_response
from agent_runtime.context import Run, record
from agent_runtime.decoding.call import ToolCall
from agent_runtime.decoding.decoder import Decoded, Timed, now_ns
from agent_runtime.errors import DecodingError, UsageError
from agent_runtime.knowledge import sayable
from agent_runtime.sandboxes.contract import ToolResult
from agent_runtime.suspects import suspects
from agent_runtime.traces import conventions

NOT_FOUND = 127
"""A shell's exit code for a command that is not there."""


@dataclass
class Ending:
    """Why the loop stopped."""

    status: Literal["solved", "unsolved"]
    reason: str


async def loop(run: Run) -> Ending:
    """Take steps until the agent finishes or the budget is used up."""
    begin(run)
    while (reason := run.budget.exhausted()) is None:
        run.budget.steps += 1
        with run.trace.step(run.budget.steps):
            call = await chat(run)
            if call.name == "finish":
                return ending(run, call)
            result = await execute_tool(run, call)
            await observe(run, call, result)
    return Ending("solved" if run.known.tests_pass else "unsolved", reason)


def begin(run: Run) -> None:
    """Open the transcript: system turn, user turn, the model's turn begun."""
    declared: dict[str, dict[str, Any]] = {
        name: {"description": tool.description, "parameters": tool.parameters} for name, tool in run.tools.items()
    }
    declare = run.decoder.declares_tools
    run.transcript.append(render_prompt(run.agent.instructions, declared, run.task, declare=declare))
    run.committed.set()


async def chat(run: Run) -> ToolCall:
    """Decode the next tool call: prefill the new tokens, then denoise one schema-constrained canvas."""
    await run.committed.wait()
    if run.agent.edit_canvases:
        await repair.propose(run)
    proposal = run.proposals[0].arguments if run.proposals else None
    schemas = sayable(run.tools, run.known, proposal, guided=run.agent.edit_canvases)
    with run.trace.chat() as span:
        started = now_ns()
        grammar = await run.in_decoder(decoding.compile_calls, schemas, run.decoder.tokenizer)
        run.trace.record(conventions.CONSTRAINT, started, now_ns(), {"agent_runtime.tools": len(schemas)})
        new = run.transcript.since(run.decoder.position)
        prefill: Timed = await run.in_decoder(run.decoder.prefill, new)
        seed = run.agent.seed * 1_000_003 + run.budget.steps
        decoded: Decoded = await run.in_decoder(
            lambda: run.decoder.decode(grammar, seed=seed, deadline=run.budget.deadline)
        )
        for phase in (prefill, *decoded.phases):
            record(run.trace, phase)
        span.set_attributes(_chat_attributes(run, decoded, len(new)))
    call = checked(run, decoded)
    run.transcript.append_ids(decoded.tokens)
    run.budget.tokens = len(run.transcript)
    run.committed = anyio.Event()
    run.background.start_soon(commit, run, run.committed)
    run.emit(
        events.CallDecoded(
            step=run.budget.steps,
            tool=call.name,
            arguments=dict(call.arguments),
            prefilled_tokens=len(new),
            prefill_ms=prefill.ms,
            decode_ms=sum(phase.ms for phase in decoded.phases),
            forward_passes=decoded.forward_passes,
            canvas_length=decoded.canvas_length,
        )
    )
    return call


def checked(run: Run, decoded: Decoded) -> ToolCall:
    """The decoded call; a call that its tool's own schema does not admit is a bug in the grammar, told loudly."""
    call = decoded.value
    if not isinstance(call, ToolCall):
        raise DecodingError("the model answered with text where a tool call was due")
    error = best_match(run.validators[call.name].iter_errors(dict(call.arguments)))
    if error is not None:
        raise DecodingError(f"the grammar let through a call of {call.name!r} that is not valid: {error.message}")
    return call


async def commit(run: Run, done: anyio.Event) -> None:
    """Write the decoded call into the KV cache; this runs while the tool does."""
    record(run.trace, await run.in_decoder(run.decoder.commit))
    done.set()


async def execute_tool(run: Run, call: ToolCall) -> ToolResult:
    """Carry out one call: a patch with its tests where edits are tried, a sandbox call, or a host tool."""
    if call.name == "patch" and run.agent.edit_canvases:
        return await repair.try_patches(run)
    return await run.call_tool(call.name, call.arguments)


async def observe(run: Run, call: ToolCall, result: ToolResult) -> None:
    """Append the tool's answer to the transcript and note what is now known."""
    run.transcript.append(render_response(call.name, result.text))
    run.budget.tokens = len(run.transcript)
    run.known.called(call.name)
    match call.name:
        case "inspect" if result.ok:
            run.known.inspected.add(str(call.arguments["path"]))
        case "run_tests":
            await note_tests(run, result)
        case "patch" if result.ok and not run.agent.edit_canvases:
            run.known.changed(str(call.arguments["path"]))


async def note_tests(run: Run, result: ToolResult) -> None:
    """Keep a complete test result; a repository without tests, or whose first run finds no command, is bad use."""
    if result.data.get("status") == "no_tests":
        raise UsageError("no tests were found in the repository: name the test command with --test")
    if run.known.tests is None and result.data.get("exit_code") == NOT_FOUND:
        why = str(result.data.get("output", "")).strip().rpartition("\n")[2]
        raise UsageError(f"the test command is not in the sandbox ({why}): correct --test, or name an --image with it")
    run.known.tests = dict(result.data)
    run.known.tests_current = True
    took = sum(phase.end_ns - phase.start_ns for phase in result.phases) / 1e9
    hung = result.timed_out or bool(result.data.get("running"))
    run.known.test_seconds = None if hung else took
    run.known.suspects = await suspects(result.data, run.known.files, run.sandbox.read)


def ending(run: Run, call: ToolCall) -> Ending:
    """What `finish` amounts to: solved only when the tests say so."""
    if run.known.tests_pass:
        return Ending("solved", "the tests pass")
    if call.arguments.get("status") == "solved":
        return Ending("unsolved", "the model called the task solved, but the tests do not pass")
    return Ending("unsolved", str(call.arguments.get("summary") or "nothing is left to try"))


def _chat_attributes(run: Run, decoded: Decoded, new: int) -> dict[str, Any]:
    return {
        **conventions.usage(
            input_tokens=run.decoder.position,
            cached_tokens=run.decoder.position - new,
            output_tokens=len(decoded.tokens),
            finish_reason="tool_call",
        ),
        conventions.FORWARD_PASSES: decoded.forward_passes,
        conventions.CANVAS_LENGTH: decoded.canvas_length,
        conventions.ENTROPY: decoded.entropy,
        conventions.FORCED_SHARE: decoded.forced_share,
        conventions.MODE: "diffusion",
    }
