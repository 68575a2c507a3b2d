"""Repair as infilling: the decoder ranks small edits, the tests decide.

A patch step tries up to `agent.candidates` ranked edits: patch, run the tests, undo. The first edit whose
tests pass stays, and its call is the one that enters the transcript. What failed is never tried again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from agent_runtime import events
from agent_runtime.context import Proposal, Run
from agent_runtime.decoding.edits import enumerate_edits
from agent_runtime.decoding.ranking import rank_edits
from agent_runtime.sandboxes.contract import ToolResult
from agent_runtime.traces import conventions


async def propose(run: Run) -> None:
    """Rank the edits of the files that were inspected, unless untried proposals are left or nothing is broken."""
    if run.proposals or run.known.tests is None or run.known.tests_pass or "patch" not in run.tools:
        return
    for path in run.known.editable():
        with run.trace.span(conventions.DENOISE, {"agent_runtime.edit_canvases.path": path}) as span:
            source = (await run.sandbox.read(path)).decode("utf-8", errors="surrogateescape")
            ranked = await run.in_decoder(_rank, run, path, source)
            span.set_attributes({"agent_runtime.edit_canvases.proposals": len(ranked)})
        if not ranked:
            run.known.exhausted.add(path)
        run.proposals += ranked
    run.proposals.sort(key=lambda proposal: -proposal.score)


def _rank(run: Run, path: str, source: str) -> list[Proposal]:
    tried = run.known.tried.get(path, set())
    edits = enumerate_edits(source)
    ranked = rank_edits(run.decoder, source, edits)
    proposals = [
        Proposal(path, item.edit.patch_arguments(path), item.edit.apply(source), item.score) for item in ranked
    ]
    return [proposal for proposal in proposals if proposal.edited not in tried]


async def try_patches(run: Run) -> ToolResult:
    """Patch, test, undo, best proposal first; the first edit whose tests pass stays in the workspace."""
    limits = _test_limits(run)
    batch = run.proposals[: run.agent.candidates]
    run.proposals = run.proposals[len(batch) :]
    for index, proposal in enumerate(batch, start=1):
        if run.budget.seconds_left() <= 0:
            break
        started = time.perf_counter()
        patched = await run.call_tool("patch", proposal.arguments, quiet=True)
        if not patched.ok:
            continue
        options = {"stop_at_first": True, "test_timeout": limits.one_test}
        tests = await run.call_tool("run_tests", options, limits.all_tests, quiet=True)
        passed = tests.data.get("status") == "passed"
        run.patches_tried += 1
        run.emit(
            events.PatchTried(
                step=run.budget.steps,
                candidate=index,
                path=proposal.path,
                line=int(proposal.arguments["start"]),
                text=str(proposal.arguments["text"]),
                passed=passed,
                outcome=tests.text.partition("\n")[0],
                tool_ms=(time.perf_counter() - started) * 1e3,
            )
        )
        if passed:
            run.known.changed(proposal.path)
            run.proposals.clear()
            kept = f"{patched.text.rstrip()} (edit {index} of {len(batch)}):\n{proposal.arguments['text']}"
            return replace(patched, text=kept)
        await run.call_tool("undo", {"undo": patched.data["undo"]}, quiet=True)
        run.known.tried.setdefault(proposal.path, set()).add(proposal.edited)
    text = f"none of {len(batch)} edits passes the tests; the files are unchanged\n"
    return ToolResult(ok=False, text=text, data={})


@dataclass(frozen=True)
class _Limits:
    """Seconds that tests may take while edits are tried; an edit often makes a loop endless."""

    one_test: float
    all_tests: float


def _test_limits(run: Run) -> _Limits:
    """Generous multiples of what the tests took before; a second at least, for start-up noise on a busy machine."""
    before = run.known.test_seconds
    if before is None:  # they hung: one second a test finds that out again at the least cost
        return _Limits(one_test=1.0, all_tests=run.agent.tool_timeout)
    one_test = max(1.0, 3 * before)
    return _Limits(one_test, all_tests=max(5.0, 5 * before))
