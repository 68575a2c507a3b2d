"""`shell` runs a command; only agents that allow it get it."""

from __future__ import annotations

import time
from dataclasses import replace

from agent_runtime.tools.command import run_command
from agent_runtime.tools.workspace import Outcome, Workspace, failure


def shell(workspace: Workspace, command: str, timeout: float | None = None) -> Outcome:
    """Run a shell command in the repository, with empty input and no terminal.

    Args:
        command: What `sh -c` runs.
        timeout: Seconds after which it is killed.
    """
    if timeout is not None:
        workspace = replace(workspace, deadline=min(workspace.deadline, time.monotonic() + timeout))
    limit = workspace.remaining()
    try:
        result = run_command(workspace, ["sh", "-c", command], merge=True)
    except OSError as error:
        return failure("no_shell", f"sh cannot be started: {error.strerror}")
    output = result.stdout.text()
    if output and not output.endswith("\n"):
        output += "\n"
    if result.timed_out:
        output += f"[timed out after {limit:.0f} s]\n"
    elif result.exit_code:
        output += f"[exit code {result.exit_code}]\n"
    return Outcome(
        ok=True,
        text=output,
        data={
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "total_bytes": result.stdout.total,
            "spilled": result.stdout.spilled,
        },
        timed_out=result.timed_out,
        truncated=result.stdout.truncated,
        total_bytes=result.stdout.total,
    )
