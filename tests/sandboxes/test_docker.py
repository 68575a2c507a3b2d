"""A container: what it may not do, how it ends, and that nothing of it is left."""

from __future__ import annotations

import io
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import anyio
import pytest

from agent_runtime.errors import ImageMissing, RepositoryError, SandboxLost, SandboxUnavailable
from agent_runtime.sandboxes import daemon, open_sandbox
from agent_runtime.sandboxes.contract import SandboxLimits
from agent_runtime.sandboxes.docker import DockerSandbox

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024
ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_id():
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
async def sandbox(run_id, anyio_backend):
    limits = SandboxLimits(memory_bytes=256 * MIB, pids=64, workspace_bytes=32 * MIB, tmp_bytes=32 * MIB)
    async with open_sandbox("docker", run_id=run_id, limits=limits) as opened:
        yield opened


async def shell(sandbox, command, timeout=20.0):
    return await sandbox.call("shell", {"command": command}, timeout)


# What it may not do


async def test_the_workload_has_no_rights_to_speak_of(sandbox):
    status = await shell(sandbox, "grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status; id -u; id -g")
    assert status.text.splitlines() == [
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "1000",
        "1000",
    ]


async def test_there_is_no_network_but_the_loopback(sandbox):
    assert (await shell(sandbox, "ls /sys/class/net")).text == "lo\n"


async def test_only_the_workspace_and_tmp_can_be_written(sandbox):
    places = "/ /usr /etc /var /root /home /dev /sys /proc /tmp /workspace"
    result = await shell(sandbox, f"for d in {places}; do (: > $d/x) 2>/dev/null && echo $d; done; true")
    assert result.text == "/tmp\n/workspace\n"


async def test_a_program_in_the_workspace_can_be_run(sandbox):
    assert (await shell(sandbox, "printf '#!/bin/sh\\necho ran\\n' > a; chmod 755 a; ./a")).text == "ran\n"


async def test_the_workload_cannot_write_on_the_stream_of_the_tool_server(sandbox):
    reads = "ls /proc/$pid/fd; head -c 1 /proc/$pid/mem"
    writes = "for fd in 0 1 3 4 5 6 7 8; do echo forged > /proc/$pid/fd/$fd; done"
    forge = f"server=$(cut -d' ' -f4 /proc/$PPID/stat); for pid in $server $PPID; do {reads}; {writes}; done"
    result = await shell(sandbox, f"({forge}) 2>&1 | grep -vi denied | grep -v '^$'")
    assert result.text in ("", "[exit code 1]\n")
    assert (await sandbox.call("noop", {}, 5)).ok


async def test_memory_is_limited_and_the_sandbox_lives_on(sandbox):
    result = await shell(sandbox, "python3 -c 'x = bytearray(1 << 30); print(len(x))'")
    assert "1073741824" not in result.text
    assert (await sandbox.call("noop", {}, 5)).ok


async def test_the_workspace_is_limited_and_says_so(sandbox):
    result = await shell(sandbox, "head -c 100000000 /dev/zero > big")
    assert "No space left" in result.text


async def test_a_repository_that_does_not_fit_is_refused_and_the_sandbox_lives_on(run_id, tmp_path, anyio_backend):
    for number in range(600):
        (tmp_path / f"{number}.txt").write_text("x")
    async with open_sandbox("docker", run_id=run_id, limits=SandboxLimits(workspace_bytes=MIB)) as sandbox:
        with pytest.raises(RepositoryError, match="does not fit"):
            await sandbox.put(tmp_path)
        for number in range(550):
            (tmp_path / f"{number}.txt").unlink()
        assert (await sandbox.put(tmp_path)).files == 50


async def test_a_fork_bomb_ends_at_its_deadline_and_the_server_lives_on(sandbox):
    program = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    started = time.monotonic()
    await shell(sandbox, f"python3 -c '{program}'", timeout=1)
    assert time.monotonic() - started < 15
    assert (await shell(sandbox, "echo alive")).text == "alive\n"
    assert int((await shell(sandbox, "ls -d /proc/[0-9]* | wc -l")).text) < 12


async def test_the_process_limit_is_a_clear_error(sandbox):
    async with anyio.create_task_group() as group:
        program = "import os,time\ntry:\n    while True: os.fork() or time.sleep(60)\nexcept OSError: time.sleep(60)"
        group.start_soon(shell, sandbox, f"python3 -c '{program}'", 30)
        await anyio.sleep(1.5)
        results = [await shell(sandbox, "true") for _ in range(2)]
        group.cancel_scope.cancel()
    assert "no_processes" in [result.error.kind for result in results if result.error] or any(
        "fork" in result.text.lower() for result in results
    )
    assert (await shell(sandbox, "echo alive")).text == "alive\n"


async def test_zombies_do_not_pile_up(sandbox):
    for _ in range(10):
        await shell(sandbox, "for i in 1 2 3 4 5; do (sh -c 'exit 0' &); setsid true & done")
    states = await shell(sandbox, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '")
    assert states.text.startswith("0\n")


# How it ends


async def test_a_main_process_that_ends_early_is_a_lost_sandbox_that_says_why(sandbox, client):
    client.api.kill(sandbox.info.name)
    with anyio.fail_after(10), pytest.raises(SandboxLost, match="exit code 137"):
        await shell(sandbox, "sleep 5")
    assert SandboxLost.retryable


async def test_a_workload_that_kills_everything_loses_the_sandbox_and_no_more(sandbox):
    with anyio.fail_after(10), pytest.raises(SandboxLost):
        await shell(sandbox, "kill -9 -1; sleep 5")


async def test_a_silent_command_outlives_every_time_out_but_its_own(run_id, monkeypatch, anyio_backend):
    monkeypatch.setattr(daemon, "REQUEST_LIMIT", 2)
    async with open_sandbox("docker", run_id=run_id) as sandbox:
        assert (await shell(sandbox, "sleep 4; echo awake")).text == "awake\n"


async def test_nothing_printed_is_nothing_a_thousand_times_in_a_row(sandbox):
    for number in range(1000):
        wanted = "" if number % 2 else f"{number}\n"
        assert (await shell(sandbox, "true" if number % 2 else f"echo {number}")).text == wanted


async def test_leaving_removes_the_container(run_id, containers_of, anyio_backend):
    async with open_sandbox("docker", run_id=run_id):
        assert len(containers_of(run_id)) == 1
    assert containers_of(run_id) == []


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5])
async def test_a_cancellation_during_the_start_leaves_nothing(run_id, containers_of, delay, anyio_backend):
    with anyio.move_on_after(delay):
        async with open_sandbox("docker", run_id=run_id):
            await anyio.sleep_forever()
    assert containers_of(run_id) == []


async def test_a_removal_that_hangs_is_bounded_and_reported(run_id, client, monkeypatch, caplog, anyio_backend):
    monkeypatch.setattr("agent_runtime.sandboxes.docker.REMOVE_LIMIT", 0.5)
    monkeypatch.setattr(DockerSandbox, "_take_down", lambda self, client: time.sleep(2) or True)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING), anyio.move_on_after(3):
        async with open_sandbox("docker", run_id=run_id) as sandbox:
            name = sandbox.info.name
            started = time.monotonic()
    assert time.monotonic() - started < 1.5
    assert f"{name} could not be removed" in caplog.text
    daemon.remove(client, name)
    await anyio.sleep(1.6)  # until the thread that hangs is done


OWNER = """
import sys, anyio
from agent_runtime.sandboxes import open_sandbox

async def hold(run_id, ready):
    async with open_sandbox("docker", run_id=run_id) as sandbox:
        ready.append(1)
        if len(ready) == int(sys.argv[2]):
            sys.stdout.write("ready\\n")
            sys.stdout.flush()
        await sandbox.call("shell", {"command": "sleep 300"}, 300)

async def main():
    ready = []
    async with anyio.create_task_group() as group:
        for _ in range(int(sys.argv[2])):
            group.start_soon(hold, sys.argv[1], ready)

anyio.run(main)
"""


def start_owner(run_id, count):
    """A process of its own that holds `count` sandboxes."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, run_id, str(count)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_killed_owner_left_is_gone_after_the_next_start(number, run_id, client, containers_of):
    living = start_owner(f"{run_id}-living", 1)
    dead = start_owner(run_id, 10)
    assert len(containers_of(run_id)) == 10
    dead.send_signal(number)
    dead.wait()
    dead.stdout.close()

    async def start_another():
        async with open_sandbox("docker", run_id=f"{run_id}-next"):
            pass

    anyio.run(start_another)
    assert containers_of(run_id) == []
    assert len(containers_of(f"{run_id}-living")) == 1
    living.kill()
    living.wait()
    living.stdout.close()
    daemon.reap(client)
    assert containers_of(f"{run_id}-living") == []


# What is missing


async def test_without_a_socket_the_error_says_how_to_start_docker(run_id, monkeypatch, tmp_path, anyio_backend):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/missing.sock")
    with pytest.raises(SandboxUnavailable, match="start Docker"):
        async with open_sandbox("docker", run_id=run_id):
            pass


async def test_without_a_daemon_behind_the_socket_the_error_says_how_to_start_docker(
    run_id, monkeypatch, tmp_path, anyio_backend
):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{tmp_path}/dead.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/dead.sock")
    with pytest.raises(SandboxUnavailable, match="start Docker"):
        async with open_sandbox("docker", run_id=run_id):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_without_permission_the_error_says_which_group(tmp_path):
    program = (
        "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "from agent_runtime.sandboxes import daemon\n"
        "from agent_runtime.errors import SandboxUnavailable\n"
        "try:\n    daemon.connect()\nexcept SandboxUnavailable as error:\n    print(error)\n"
    )
    # The modules are imported before the change of user: another user may not be able to read them.
    program = "import agent_runtime.sandboxes.daemon\n" + program
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
    )
    assert "usermod -aG docker" in done.stdout, done.stderr


async def test_an_image_that_is_not_there_is_its_own_error(run_id, containers_of, anyio_backend):
    with pytest.raises(ImageMissing, match=r"agent-runtime-test\.invalid"):
        async with open_sandbox("docker", run_id=run_id, image="agent-runtime-test.invalid/none:1"):
            pass
    assert containers_of(run_id) == []


async def test_an_image_without_python_says_so(run_id, client, containers_of, anyio_backend):
    tag = f"agent-runtime-test-empty:{run_id}"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    client.api.import_image_from_data(archive.getvalue(), repository="agent-runtime-test-empty", tag=run_id)
    try:
        with pytest.raises(SandboxUnavailable, match="python3"):
            async with open_sandbox("docker", run_id=run_id, image=tag):
                pass
    finally:
        client.api.remove_image(tag)
    assert containers_of(run_id) == []
