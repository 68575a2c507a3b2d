"""Run an agent on every repository in a folder: what it solves, after how many patches, in how many seconds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

from agent_runtime.agent import Agent
from agent_runtime.decoding import load_decoder
from agent_runtime.decoding.decoder import Decoder, Snapshot
from agent_runtime.errors import AgentRuntimeError, RepositoryError, SandboxLost, UsageError
from agent_runtime.run_folder import new_run_id, state_folder
from agent_runtime.session import run


async def evaluate(
    agent: Agent, folder: Path, task: str, *, out: Path | None = None, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Run `agent` on each sub-folder of `folder`, one after the other, with the model loaded once.

    Results are appended to `out/tasks.jsonl` as they come; a later call with the same `out` runs only what is
    missing. A task that fails (not merely stays unsolved) is recorded with its error. Raises `RepositoryError`
    for a folder without repositories and `UsageError` when `out` holds results of other settings.
    """
    repositories = _repositories(folder)
    out = out if out is not None else state_folder() / "evals" / new_run_id()
    out.mkdir(parents=True, exist_ok=True)
    done = _resume(out, agent, task)
    if done:
        tell(f"{len(done)} tasks are already in {out} and are not run again")
    decoder = await anyio.to_thread.run_sync(load_decoder, agent.model)
    empty = decoder.fork()
    results = out / "tasks.jsonl"
    for index, repo in enumerate(repositories, start=1):
        if repo.name in done:
            continue
        found = await _one(agent, repo, task, out / "runs" / f"{repo.name}-{new_run_id()}", decoder, empty)
        done[repo.name] = found
        with results.open("a") as lines:
            lines.write(json.dumps(found) + "\n")
        solved = sum(item["status"] == "solved" for item in done.values())
        tell(
            f"[{index}/{len(repositories)}] {repo.name}: {found['status']} after {found['patches_tried']} patches, "
            f"{found['seconds']:.1f} s ({found['reason']})  solved so far: {solved}"
        )
    tasks = [done[repo.name] for repo in repositories]
    solved = sum(item["status"] == "solved" for item in tasks)
    return {
        "model": agent.model,
        "timeout_s": agent.timeout,
        "solved": solved,
        "tasks": tasks,
        "out": str(out),
    }


async def _one(agent: Agent, repo: Path, task: str, run_dir: Path, decoder: Decoder, empty: Snapshot) -> dict[str, Any]:
    # A sandbox that was lost says nothing about the agent: such a task is run once more.
    attempts = AsyncRetrying(retry=retry_if_exception(_is_retryable), stop=stop_after_attempt(2), reraise=True)
    try:
        async for attempt in attempts:
            number = attempt.retry_state.attempt_number
            with attempt:
                decoder.restore(empty)
                result = await run(agent, repo, task, out=run_dir / f"attempt-{number}", decoder=decoder)
    except (RepositoryError, SandboxLost, UsageError) as error:
        blank = {"steps": 0, "patches_tried": 0, "seconds": 0.0, "latency": {}}
        return {"task": repo.name, "status": "failed", "reason": str(error), **blank, "run_dir": str(run_dir)}
    return {
        "task": repo.name,
        "status": result.status,
        "reason": result.reason,
        "steps": result.steps,
        "patches_tried": result.patches_tried,
        "seconds": round(result.seconds, 3),
        "latency": result.latency,
        "run_dir": str(result.run_dir),
    }


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, AgentRuntimeError) and error.retryable


def _repositories(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise RepositoryError(f"{folder} is not a folder: give a folder of repositories")
    found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not found:
        raise RepositoryError(f"{folder} holds no repositories: each sub-folder is taken as one")
    return found


def _resume(out: Path, agent: Agent, task: str) -> dict[str, dict[str, Any]]:
    """What `out` already holds, by task; its settings must be the same, since results are counted together."""
    settings = {**agent.model_dump(mode="json", exclude={"tools"}), "task": task}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    marker = out / "settings.json"
    if not marker.exists():
        marker.write_text(json.dumps({"digest": digest, **settings}, indent=2) + "\n")
        return {}
    if json.loads(marker.read_text())["digest"] != digest:
        raise UsageError(f"{out} holds results of other settings: give --out another folder")
    results = out / "tasks.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    return {found["task"]: found for found in map(json.loads, lines)}
