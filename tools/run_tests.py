"""`run_tests`: pytest with a structured result, or any other command with the telling end of its output."""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH110, PTH118
from __future__ import annotations

import os
import re
import shlex
import time
import zlib
from dataclasses import replace
from typing import Any

from agent_runtime.tools.command import CommandResult, run_command
from agent_runtime.tools.pytest_client import Limits, Run, WarmServer, run_cold
from agent_runtime.tools.verdict import ERROR, FAILED, TIMED_OUT, cut, render, seconds
from agent_runtime.tools.workspace import Outcome, Workspace, failure

MARGIN = 0.3
"""Seconds kept before the call's deadline: for killing what runs and telling what was seen."""

TAIL_LINES = 40
"""Lines of a command's output that are told: a failing suite's summary stands at its end."""

ERROR_LINES = 10
ERROR_LOOK = re.compile(r"\b(error|fail(ed|ure|ures)?|exception|panic|assert\w*|traceback|undefined|not found)\b", re.I)

PRELOADED = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "py")
"""What pytest imports besides the standard library: a repository that holds one of them is never run warm."""

PYTHON_OPTIONS = re.compile(r"^PYTHON[A-Z]+$")

warm_server: WarmServer | None = None
"""Set by `start_warm_server` in the tool server's own process, and inherited by the calls that it forks."""


def start_warm_server(workspace: Workspace) -> None:
    """Start the process that has pytest ready; it needs about 0.3 s, and nothing waits for it.

    Where it cannot load pytest it ends, and every run is a cold one.
    """
    global warm_server
    try:
        warm_server = WarmServer(workspace.python, workspace.package, workspace.tmp, environment())
    except OSError:
        warm_server = None  # no process can be started here, or no such interpreter: runs will tell


def warm_server_pids() -> set[int]:
    """The process that outlives calls, if it was started."""
    return {warm_server.process.pid} if warm_server is not None else set()


def run_tests(
    workspace: Workspace,
    command: str | None = None,
    select: list[str] | None = None,
    stop_at_first: bool = False,
    timeout: float | None = None,
    *,
    first: list[str] | None = None,
    test_timeout: float | None = None,
    warm: bool = True,
) -> Outcome:
    """Run the tests: pytest, or the command given.

    Args:
        command: Shell command that runs the tests, such as `npm test`; pytest when left out.
        select: Only these test ids or paths.
        stop_at_first: End at the first failure.
        timeout: Seconds for the whole run.
        first: Test ids to run before the others.
        test_timeout: Seconds of processor time for one test, and for collecting all; the run ends where one takes
            more, or four times as long on the clock.
        warm: Use the process that has pytest loaded, where the repository allows it.
    """
    limit = max(0.05, workspace.remaining() - MARGIN)
    run_s = min(limit, timeout) if timeout is not None else limit
    limits = Limits(time.monotonic() + run_s, told(run_s, workspace, timeout), test_timeout)
    arguments = pytest_arguments(command)
    if arguments is None:
        assert command is not None
        return run_other(workspace, command, limits)
    shadowed = holds_preloaded(workspace.root)
    request = {
        "root": workspace.root,
        "arguments": ["-p", "no:cacheprovider", f"--rootdir={workspace.root}", *arguments, *(select or [])],
        "scratch": os.path.join(workspace.tmp, f"pytest-{zlib.crc32(workspace.root.encode()):08x}"),
        "first": first or [],
        "stop_at_first": stop_at_first,
        "shadowed": shadowed,
    }
    began = time.monotonic()
    run: Run | None = None
    if warm and not shadowed and warm_server is not None and warm_server.python == workspace.python:
        run = warm_server.run(workspace, request, limits)
    was_warm = run is not None
    if run is None:
        try:
            run = run_cold(workspace, request, limits, environment())
        except OSError as error:
            return failure("no_python", f"{workspace.python} cannot be started: {error.strerror}")
    data = run.verdict.data(run.timed_out_after, run.killed_test)
    data.update(
        stopped_early=stop_at_first and data["status"] == FAILED and len(run.verdict.outcomes) < data["total"],
        warm=was_warm,
        duration_s=round(time.monotonic() - began, 4),
        collect_s=run.collect_s and round(run.collect_s, 4),
    )
    printed = run.output.text()[-4_000:]
    if data["status"] in (ERROR, TIMED_OUT):
        data["output"] = printed
    return Outcome(
        ok=True,
        text=render(data) + unexplained(data, printed, workspace),
        data=data,
        timed_out=run.timed_out_after is not None,
        truncated=run.output.truncated,
        total_bytes=run.output.total,
    )


def pytest_arguments(command: str | None) -> list[str] | None:
    """The arguments of a plain pytest command; None for any other command."""
    if command is None or not command.strip():
        return []
    if re.search(r"[|&;<>()$`\\\n*?\[#~=%]", command.replace("::", "")):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if words[:1] in (["pytest"], ["py.test"]):
        return words[1:]
    if words[1:3] == ["-m", "pytest"] and re.fullmatch(r"python[\d.]*", words[0]):
        return words[3:]
    return None


def environment() -> dict[str, str]:
    """The environment of the tests: set hashing fixed, so that the same code gives the same result."""
    return {"PYTHONHASHSEED": "0", **os.environ}


def holds_preloaded(root: str) -> bool:
    """Whether the repository has a module of its own that pytest's machinery would hide when it is preloaded."""
    for folder in (root, os.path.join(root, "src")):
        for name in PRELOADED:
            if os.path.exists(os.path.join(folder, name)) or os.path.exists(os.path.join(folder, f"{name}.py")):
                return True
    return False


def told(run_s: float, workspace: Workspace, timeout: float | None) -> float:
    """The limit as the text tells it: the one asked for, or the call's own in whole seconds."""
    if timeout is not None and run_s == timeout:
        return timeout
    remaining = workspace.remaining()
    return float(round(remaining)) if remaining >= 1 else round(remaining, 1)


def unexplained(data: dict[str, Any], printed: str, workspace: Workspace) -> str:
    """What pytest printed where it failed without an event that says why: a usage error, most of the time."""
    explained = data["collection_errors"] or data["first_failure"] or data["message"] or data["running"]
    if data["status"] != ERROR or explained:
        return ""
    lines = [line for line in printed.replace(workspace.root + "/", "").splitlines() if line.strip()]
    telling = [line for line in lines if "rror: " in line or line.startswith("ERROR: ")]
    telling = [line for line in telling if "usage: " not in line] or lines
    return "".join(cut("E   " + re.sub(r"^(ERROR: |.*?\berror: )", "", line)) + "\n" for line in telling[-3:])


def run_other(workspace: Workspace, command: str, limits: Limits) -> Outcome:
    """Run a command that is not pytest: how it ended, lines that look like errors, and the end of its output."""
    within = replace(workspace, deadline=limits.deadline)
    try:
        result = run_command(within, ["sh", "-c", command], env={"PYTHONDONTWRITEBYTECODE": "1"}, merge=True)
    except OSError as error:
        return failure("no_shell", f"sh cannot be started: {error.strerror}")
    status = "timed_out" if result.timed_out else "passed" if result.exit_code == 0 else "failed"
    lines = result.stdout.text().replace(workspace.root + "/", "").splitlines()
    tail = lines[-TAIL_LINES:]
    errors = [line for line in lines[:-TAIL_LINES] if ERROR_LOOK.search(line)][:ERROR_LINES]
    shown = [*errors, f"[… {len(lines) - len(tail)} lines before]", *tail] if len(lines) > len(tail) else tail
    return Outcome(
        ok=True,
        text="".join(cut(line) + "\n" for line in [command_headline(result, limits), *shown]),
        data={
            "runner": "command",
            "command": command,
            "status": status,
            "exit_code": result.exit_code,
            "timed_out": result.timed_out,
            "output": result.stdout.text()[-4_000:],
            "error_lines": errors,
        },
        timed_out=result.timed_out,
        truncated=result.stdout.truncated,
        total_bytes=result.stdout.total,
    )


def command_headline(result: CommandResult, limits: Limits) -> str:
    """The first line for a command."""
    if result.timed_out:
        return f"TIMED OUT after {seconds(limits.run_s)} s"
    return "PASSED exit code 0" if result.exit_code == 0 else f"FAILED exit code {result.exit_code}"
