"""A local sandbox: its processes and its folder go with it, and with its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from agent_runtime.errors import SandboxUnavailable
from agent_runtime.sandboxes.local import LocalSandbox

ROOT = Path(__file__).parents[2]
OWNER = """
import sys, anyio
from agent_runtime.sandboxes import open_sandbox

async def main():
    async with open_sandbox("local", run_id="test") as sandbox:
        sys.stdout.write(f"{sandbox.info.name} {sandbox.info.workspace}\\n")
        sys.stdout.flush()
        await sandbox.call("shell", {"command": "setsid sleep 300 & sleep 300"}, 300)

anyio.run(main)
"""


def gone(pid: int) -> bool:
    """Whether a process is no more, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def below(pid: int) -> set[int]:
    """Everything that descends from a process."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found |= {int(stat.parent.name)} | below(int(stat.parent.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_everything_dies_with_the_owner_and_the_next_start_removes_its_folder(number):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    with owner:
        name, workspace = owner.stdout.readline().decode().split()
        limit = time.monotonic() + 10
        while sum(b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in below(int(name))) < 2:
            assert time.monotonic() < limit
            time.sleep(0.05)
        started = below(int(name)) | {int(name)}
        owner.send_signal(number)
    limit = time.monotonic() + 10
    while not all(gone(pid) for pid in started):
        assert time.monotonic() < limit
        time.sleep(0.05)

    async def start_another():
        async with LocalSandbox():
            pass

    anyio.run(start_another)
    assert not Path(workspace).exists()


@pytest.mark.anyio
async def test_leaving_kills_what_runs_and_removes_the_folder(anyio_backend):
    async with anyio.create_task_group() as group, LocalSandbox() as sandbox:
        group.start_soon(sandbox.call, "shell", {"command": "sleep 300"}, 300)
        await anyio.sleep(0.5)
        started = below(int(sandbox.info.name)) | {int(sandbox.info.name)}
        workspace = Path(sandbox.info.workspace)
        group.cancel_scope.cancel()
    assert all(gone(pid) for pid in started)
    assert not workspace.parent.exists()


@pytest.mark.anyio
async def test_an_interpreter_that_is_not_there_is_one_sentence(anyio_backend):
    with pytest.raises(SandboxUnavailable, match="cannot be started"):
        async with LocalSandbox(python="/nonexistent/python3"):
            pass


@pytest.mark.anyio
async def test_an_interpreter_that_fails_says_why(anyio_backend, tmp_path):
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\necho this is no python >&2\nexit 3\n")
    fake.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match="exit code 3: this is no python"):
        async with LocalSandbox(python=str(fake)):
            pass
