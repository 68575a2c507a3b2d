"""A tool call over the channel against `docker exec` of the same command in the same container.

Measures: `noop`, the call that does nothing against `docker exec … true`; `shell_true`, `true` in a shell on both
sides. Alternatives: the docker package and, where it is installed, the command line.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from agent_runtime.bench.rows import Report, row
from agent_runtime.errors import SandboxUnavailable

OURS_PER_ROUND = 20  # calls of ours beside one of each alternative: 0.2 ms against 100 ms, and p99 wants hundreds
WARM_UP = 3  # rounds that are not counted
COMMANDS = {"noop": ["true"], "shell_true": ["sh", "-c", "true"]}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {"noop": ("noop", {}), "shell_true": ("shell", {"command": "true"})}
TIMEOUT = 30.0


def bench_tools(n: int = 50) -> Report:
    """Measure `n` rounds, in each of which every side takes its turn.

    Raises `SandboxUnavailable` or `ImageMissing` where no container can be started.
    """
    return anyio.run(measure, n)


async def measure(n: int) -> Report:
    """See `bench_tools`."""
    from agent_runtime.sandboxes import daemon, open_sandbox

    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    async with open_sandbox("docker", run_id="bench-tools") as sandbox:
        client = daemon.connect()
        try:
            for number in range(n + WARM_UP):
                kept = seconds if number >= WARM_UP else defaultdict(list)
                for name, command in COMMANDS.items():
                    tool, arguments = CALLS[name]
                    for _ in range(OURS_PER_ROUND):
                        started = time.perf_counter()
                        result = await sandbox.call(tool, arguments, TIMEOUT)
                        kept[name, "ours"].append(time.perf_counter() - started)
                        check(name, result.ok)
                    for against, run in alternatives(client, sandbox.info.name, command).items():
                        kept[name, against].append(await anyio.to_thread.run_sync(timed, name, run))
        finally:
            client.close()
    rows = [
        row(name, against, seconds[name, "ours"], theirs)
        for (name, against), theirs in seconds.items()
        if against != "ours"
    ]
    return Report(bench="tools", rows=rows)


def alternatives(client: Any, container: str, command: list[str]) -> dict[str, Callable[[], bool]]:
    """What one would use instead, by name; each tells whether the command succeeded."""
    found: dict[str, Callable[[], bool]] = {"docker-exec-package": partial(exec_by_package, client, container, command)}
    if shutil.which("docker"):
        found["docker-exec-cli"] = partial(exec_by_cli, container, command)
    return found


def exec_by_package(client: Any, container: str, command: list[str]) -> bool:
    """`docker exec` through the docker package, as `Container.exec_run` does it."""
    created = client.api.exec_create(container, command)
    client.api.exec_start(created)
    return bool(client.api.exec_inspect(created)["ExitCode"] == 0)


def exec_by_cli(container: str, command: list[str]) -> bool:
    """`docker exec` through the command line."""
    done = subprocess.run(
        ["docker", "exec", container, *command], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode == 0


def timed(name: str, run: Callable[[], bool]) -> float:
    """Seconds that one run takes, without the hop to a worker thread."""
    started = time.perf_counter()
    succeeded = run()
    taken = time.perf_counter() - started
    check(name, succeeded)
    return taken


def check(name: str, succeeded: bool) -> None:
    """A measure of something that failed is none."""
    if not succeeded:
        raise SandboxUnavailable(f"the bench's {name} call failed in the sandbox")
