"""The Docker engine of this machine: whether one answers, and starting one where root may.

python -m agent_runtime.sandboxes.engine      exit 0 when an engine answers afterwards, else 3
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.errors import SandboxUnavailable
from agent_runtime.sandboxes import daemon

LOG = Path("/var/log/agent-runtime-dockerd.log")
START_LIMIT = 60.0  # seconds for a daemon to answer; 1 to 3 are usual
INSTALL_LIMIT = 600.0  # seconds for apt-get


@dataclass(frozen=True)
class EngineStatus:
    """What `agent-runtime doctor` tells about Docker."""

    answers: bool
    version: str | None
    problem: str | None
    """One sentence that says what to do, where it does not answer."""


def docker_status() -> EngineStatus:
    """Whether a daemon answers here."""
    try:
        client = daemon.connect()
    except SandboxUnavailable as error:
        return EngineStatus(False, None, str(error))
    try:
        with daemon.daemon_errors():
            return EngineStatus(True, client.version()["Version"], None)
    except SandboxUnavailable as error:
        return EngineStatus(False, None, str(error))
    finally:
        client.close()


def start_engine(progress: Callable[[str], None]) -> None:
    """Make a daemon answer: nothing to do where one does; else, as root, install `docker.io` and start `dockerd`.

    Raises `SandboxUnavailable` where that is not possible or it does not answer in time.
    """
    status = docker_status()
    if status.answers:
        return
    if os.geteuid() != 0 or os.environ.get("DOCKER_HOST"):
        raise SandboxUnavailable(status.problem or "no Docker daemon answers")
    if not shutil.which("dockerd"):
        if not shutil.which("apt-get"):
            raise SandboxUnavailable("Docker is not installed; install it: https://docs.docker.com/engine/install")
        progress("install docker.io")
        install()
    # Sandboxes have no network, so the daemon may do without bridge and iptables where the kernel lacks them.
    for options in ([], ["--iptables=false"], ["--iptables=false", "--bridge=none"]):
        progress(" ".join(["start dockerd", *options]))
        if start_daemon(options):
            return
    raise SandboxUnavailable(f"dockerd does not start: {last_line(LOG)} (see {LOG})")


def install() -> None:
    """Debian's Docker engine. Raises `SandboxUnavailable`."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", "docker.io"],
    ):
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                env=environment,
                timeout=INSTALL_LIMIT,
            )
        except subprocess.TimeoutExpired:
            raise SandboxUnavailable(f"{' '.join(command)} did not end within {INSTALL_LIMIT:g} s") from None
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).decode("utf-8", "replace").strip().splitlines() or ["no output"]
            raise SandboxUnavailable(f"Docker cannot be installed: {' '.join(command)}: {lines[-1]}")


def start_daemon(options: list[str]) -> bool:
    """Start `dockerd` so that it outlives this process; whether it answers, told as soon as it ends or does."""
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            ["dockerd", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    limit = time.monotonic() + START_LIMIT
    while time.monotonic() < limit and process.poll() is None:
        if docker_status().answers:
            return True
        time.sleep(0.2)  # a daemon takes 1 to 3 s, and tells nobody when it is ready
    if process.poll() is None:
        process.terminate()
        process.wait()
    # Another process may have started one in the meantime: then ours ended because of that.
    return docker_status().answers


def last_line(path: Path) -> str:
    """The last line of a log."""
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"


def say(line: str) -> None:
    """Tell the terminal."""
    sys.stderr.write(f"{line}\n")


def main() -> int:
    """See the module's docstring."""
    try:
        start_engine(say)
    except SandboxUnavailable as error:
        say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
