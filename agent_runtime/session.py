"""One run from beginning to end: make what it needs, loop, and leave a complete folder whatever happens."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread

from agent_runtime import events
from agent_runtime.agent import Agent, RunResult, Status
from agent_runtime.budget import Budget
from agent_runtime.context import Run
from agent_runtime.decoding import load_decoder
from agent_runtime.decoding.decoder import Decoder
from agent_runtime.errors import AgentRuntimeError, RepositoryError, UsageError
from agent_runtime.knowledge import Knowledge, listing
from agent_runtime.loop import Ending, loop
from agent_runtime.run_folder import RunFolder, new_run_id, state_folder
from agent_runtime.sandboxes import open_sandbox
from agent_runtime.sandboxes.contract import Sandbox
from agent_runtime.traces import RunTrace, conventions, latency_summary
from agent_runtime.transcript import Transcript

OnEvent = Callable[[events.Event], None]


async def run(
    agent: Agent,
    repo: str | Path,
    task: str,
    *,
    test: str | None = None,
    out: Path | None = None,
    decoder: Decoder | None = None,
    on_event: OnEvent | None = None,
) -> RunResult:
    """Work on a copy of `repo` until its tests pass or the budget is gone; `repo` itself is never written to.

    `test` is the test command (pytest is found without one), `out` the run's folder (a new one in the state
    folder by default), `decoder` one that is already loaded. `on_event` is called with each event as it
    happens and must not block. Raises `AgentRuntimeError` for bad use and for failures of the sandbox or the
    engine; the run's folder is complete in each case, also when the run is cancelled.
    """
    repository = _checked(Path(repo))
    if test is not None and not test.strip():
        raise UsageError("the test command is empty: name one, or leave it out and pytest is used")
    if decoder is not None and decoder.position:
        raise UsageError("the decoder holds another run's tokens: restore the snapshot that was made of it before")
    run_id = new_run_id()
    folder = RunFolder(out if out is not None else state_folder() / "runs" / run_id)
    session = _Session(agent, repository, task, test, folder, run_id, on_event)
    try:
        return await session.run(decoder)
    finally:
        folder.close()


@asynccontextmanager
async def stream(
    agent: Agent, repo: str | Path, task: str, **options: Any
) -> AsyncIterator[AsyncIterator[events.Event]]:
    """The events of a run as they happen; leaving the block early cancels the run and cleans up.

        async with stream(agent, repo, task) as happenings:
            async for event in happenings: ...

    A context manager, because an async generator that is dropped half-way would leave its sandbox behind.
    """
    send, receive = anyio.create_memory_object_stream[events.Event](float("inf"))

    async def work() -> None:
        with send:
            await run(agent, repo, task, on_event=send.send_nowait, **options)

    with receive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            yield receive
            tasks.cancel_scope.cancel()


def _checked(repo: Path) -> Path:
    try:
        there = repo.exists()
    except OSError as error:
        raise RepositoryError(f"{repo} cannot be read: {error.strerror}") from error
    if not there:
        raise RepositoryError(f"there is no repository at {repo}: give the path of an existing folder")
    if not repo.is_dir():
        raise RepositoryError(f"{repo} is not a folder: give the repository's folder")
    return repo.resolve()


class _Session:
    """What `run` needs from the first event to the last."""

    def __init__(
        self,
        agent: Agent,
        repo: Path,
        task: str,
        test: str | None,
        folder: RunFolder,
        run_id: str,
        on_event: OnEvent | None,
    ) -> None:
        self._agent = agent
        self._repo = repo
        self._task = task
        self._test = test
        self._folder = folder
        self._run_id = run_id
        self._on_event = on_event
        self._started = time.perf_counter()
        self._run: Run | None = None
        self._patch = b""

    def _emit(self, event: events.Event) -> None:
        self._folder.append(event)
        if self._on_event is not None:
            self._on_event(event)

    async def run(self, decoder: Decoder | None) -> RunResult:
        self._emit(
            events.RunStarted(
                run_id=self._run_id,
                agent=self._agent.name,
                model=self._agent.model,
                repo=str(self._repo),
                task=self._task,
                sandbox=self._agent.sandbox,
                run_dir=str(self._folder.path),
            )
        )
        status: Status = "failed"
        reason = "the run was interrupted"
        trace = RunTrace.start(
            self._folder.path, run_id=self._run_id, agent_name=self._agent.name, model=self._agent.model
        )
        try:
            with trace:
                try:
                    ending = await self._work(trace, decoder)
                    status, reason = ending.status, ending.reason
                except anyio.get_cancelled_exc_class():
                    status, reason = "cancelled", "the run was cancelled"
                    raise
                finally:
                    trace.root.set_attribute(conventions.RUN_STATUS, status)
        except BaseExceptionGroup as group:
            error = _first_error(group)
            status, reason = "failed", str(error)
            raise error from error.__cause__
        except AgentRuntimeError as error:
            status, reason = "failed", str(error)
            raise
        finally:
            # A collector that did not take the spans is told here: only now is it known.
            try:
                for sentence in trace.warnings:
                    self._emit(events.Progress(message=sentence))
            finally:
                result = self._finish(status, reason)
        return result

    async def _work(self, trace: RunTrace, decoder: Decoder | None) -> Ending:
        """Load the decoder while the sandbox starts, then loop; the patch is taken out however the loop ends."""
        loaded: list[Decoder] = [] if decoder is None else [decoder]
        ready = anyio.Event()

        async def load() -> None:
            if not loaded:
                self._emit(events.Progress(message=f"loading the model {self._agent.model!r}"))
                with trace.span(conventions.SETUP, {"agent_runtime.setup": "decoder"}):
                    loaded.append(await anyio.to_thread.run_sync(load_decoder, self._agent.model))
            ready.set()

        async with anyio.create_task_group() as background:
            background.start_soon(load)
            async with self._sandbox(trace) as (sandbox, files):
                await ready.wait()
                run = self._run = Run(
                    agent=self._agent,
                    task=self._task,
                    test=self._test,
                    decoder=loaded[0],
                    sandbox=sandbox,
                    transcript=Transcript(loaded[0].tokenizer),
                    known=Knowledge(files=listing(files)),
                    budget=Budget(self._agent.max_steps, self._agent.max_tokens, self._agent.timeout),
                    trace=trace,
                    emit=self._emit,
                    background=background,
                )
                try:
                    ending = await loop(run)
                finally:
                    # Bounded and shielded: an interrupted run keeps what it has found, but never hangs for it.
                    with anyio.move_on_after(10, shield=True), trace.span(conventions.TRANSPORT):
                        # A guided agent changes files by `patch` alone; what else is new, its tests left behind.
                        paths = run.known.patched if self._agent.edit_canvases else None
                        self._patch = await sandbox.diff(paths)
        return ending

    @asynccontextmanager
    async def _sandbox(self, trace: RunTrace) -> AsyncIterator[tuple[Sandbox, Sequence[str]]]:
        started = time.perf_counter()
        async with AsyncExitStack() as stack:
            with trace.span(conventions.SANDBOX_START):
                sandbox = await stack.enter_async_context(
                    open_sandbox(
                        self._agent.sandbox,
                        run_id=self._run_id,
                        image=self._agent.image,
                        progress=lambda message: self._emit(events.Progress(message=message)),
                    )
                )
                put = await sandbox.put(self._repo)
            self._emit(
                events.SandboxReady(
                    image=sandbox.info.image or sandbox.info.workspace,
                    isolates=sandbox.info.isolates,
                    files=put.files,
                    ready_ms=(time.perf_counter() - started) * 1e3,
                )
            )
            yield sandbox, put.paths

    def _finish(self, status: Status, reason: str) -> RunResult:
        """Write what the run leaves behind and tell that it is over."""
        run = self._run
        seconds = time.perf_counter() - self._started
        steps, tried = (run.budget.steps, run.patches_tried) if run else (0, 0)
        self._folder.write_patch(self._patch)
        result = RunResult(
            status=status,
            reason=reason,
            steps=steps,
            patches_tried=tried,
            patch=self._patch.decode("utf-8", errors="replace"),
            run_dir=self._folder.path,
            trace=self._folder.path / "trace.jaeger.json",
            seconds=seconds,
            tests=run.known.tests if run else None,
            latency=latency_summary(self._folder.path),
        )
        self._folder.write_result(result.model_dump(mode="json"))
        self._emit(events.RunFinished(status=status, reason=reason, steps=steps, patches_tried=tried, seconds=seconds))
        return result


def _first_error(group: BaseExceptionGroup) -> BaseException:
    """The error that made a task group fail: one of ours if there is one, else the first."""
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += [_first_error(error)] if isinstance(error, BaseExceptionGroup) else [error]
    return next((error for error in leaves if isinstance(error, AgentRuntimeError)), leaves[0])
