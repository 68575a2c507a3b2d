"""`agent-runtime run`: one task on one repository, with live progress or one JSON object."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agent_runtime.agent import Agent, RunResult
from agent_runtime.cli.interrupt import run_until_signal
from agent_runtime.cli.live import Live
from agent_runtime.patches import apply_patch
from agent_runtime.session import run

EXIT_CODES = {"solved": 0, "unsolved": 1, "failed": 3, "cancelled": 130}


def agent_of(options: argparse.Namespace) -> Agent:
    """The agent that the options common to `run` and `eval` describe."""
    return Agent(
        model=options.model,
        sandbox=options.sandbox,
        image=options.image,
        max_steps=options.max_steps,
        timeout=options.timeout,
        seed=options.seed,
    )


def main(options: argparse.Namespace) -> int:
    """Run the agent; exit 0 when solved, 1 when not."""
    agent = agent_of(options)
    live = None if options.json else Live(sys.stdout)

    async def work() -> RunResult:
        return await run(
            agent,
            options.repo,
            options.task,
            test=options.test,
            out=options.out,
            on_event=live.show if live else None,
        )

    result = run_until_signal(work)
    applied = options.apply and result.status == "solved" and bool(result.patch)
    if applied:
        apply_patch(Path(options.repo), (result.run_dir / "patch.diff").read_bytes())
    if live is None:
        sys.stdout.write(result.model_dump_json() + "\n")
    else:
        live.summary(result, applied=applied)
    return EXIT_CODES[result.status]
