"""Repair as infilling: the decoder ranks small edits, the tests decide.

A patch step tries up to `agent.candidates` ranked edits: patch, run the tests, undo. The step's call is the
best of them, which is in the transcript before any test has run; the answer to it names the edit whose tests
passed and which stays. What failed is never tried again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from agent_runtime import events
from agent_runtime.context import Proposal, Run
from agent_runtime.decoding.edits import enumerate_edits
from agent_runtime.errors import SandboxLost
from agent_runtime.sandboxes.contract import ToolResult
from agent_runtime.traces import conventions

MAX_EDITS = 20_000
"""Edits of one file that are ranked; 3,000 cost 1.2 s, and no run tries more than a few thousand."""


async def propose(run: Run) -> None:
    """Rank the edits of the files that were inspected, once tests have failed and no untried proposal is left."""
    failing = run.known.tests_current and not run.known.tests_pass
    if run.proposals or not failing or "patch" not in run.tools:
        return
    for path in run.known.editable():
        with run.trace.span(conventions.DENOISE, {"agent_runtime.edit_canvases.path": path}) as span:
            ranked = await run.in_decoder(_rank, run, path, await run.sandbox.read(path))
            span.set_attributes({"agent_runtime.edit_canvases.proposals": len(ranked)})
        if not ranked:
            run.known.exhausted.add(path)
        run.proposals += ranked
    run.proposals.sort(key=lambda proposal: -proposal.score)


def _rank(run: Run, path: str, content: bytes) -> list[Proposal]:
    """Untried edits of one file, best first; none for a file that is not valid Python in UTF-8."""
    # Imported here: it imports torch (1.8 s), which is to happen while the sandbox starts.
    from agent_runtime.decoding.ranking import rank_edits

    try:
        source = content.decode("utf-8")
        edits = enumerate_edits(source, exclude=run.known.tried.get(path, set()), limit=MAX_EDITS)
    except (UnicodeDecodeError, SyntaxError):
        return []
    ranked = rank_edits(run.decoder, source, edits)
    return [Proposal(path, item.edit.patch_arguments(path), item.edit.apply(source), item.score) for item in ranked]


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
        undone = await run.call_tool("undo", {"undo": patched.data["undo"]}, quiet=True)
        if not undone.ok:
            raise SandboxLost(f"an edit could not be taken back, the workspace is unknown: {undone.text.strip()}")
        run.known.tried.setdefault(proposal.path, set()).add(proposal.edited)
    text = f"none of {len(batch)} edits passes the tests; the files are unchanged\n"
    return ToolResult(ok=False, text=text, data={})


@dataclass(frozen=True)
class _Limits:
    """Seconds that tests may take while edits are tried; an edit often makes a loop endless."""

    one_test: float
    all_tests: float


def _test_limits(run: Run) -> _Limits:
    """Generous multiples of what the tests took before; processor seconds, so a busy machine changes nothing."""
    before = run.known.test_seconds
    if before is None:  # they hung: at most this long per test to find that out again
        return _Limits(one_test=0.7, all_tests=run.agent.tool_timeout)
    return _Limits(one_test=max(0.3, 3 * before), all_tests=max(5.0, 5 * before))
