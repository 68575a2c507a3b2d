"""The tool server as a process of this machine: for code that is trusted, where Docker is not wanted.

It does not isolate: the code runs as the user, with the network and every file that the user has.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from agent_runtime.errors import SandboxUnavailable
from agent_runtime.sandboxes import bootstrap, owner
from agent_runtime.sandboxes.channel import PlainStream
from agent_runtime.sandboxes.contract import SandboxInfo, SandboxLimits
from agent_runtime.sandboxes.environment import ENVIRONMENT
from agent_runtime.sandboxes.served import ServedSandbox

END_LIMIT = 8.0  # seconds from the end of the stream until the server is killed: it kills its own children first
EXPLAIN_LIMIT = 0.5  # seconds that a lost server has to end, so that its exit code can be told
PREFIX = "agent-runtime-local-"  # then the owner's process id and start time
POLL = 0.005  # seconds between looks at whether it has ended


class LocalSandbox(ServedSandbox):
    """A temporary directory and a tool server that dies with this process."""

    def __init__(self, *, limits: SandboxLimits | None = None, python: str = sys.executable) -> None:
        """`python` is the interpreter that runs the repository's code. Of the limits, output and size are kept."""
        super().__init__(limits or SandboxLimits())
        self._python = python
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def _launch(self) -> tuple[socket.socket, PlainStream, bytes]:
        await anyio.to_thread.run_sync(reap)
        self._folder = folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-{owner.start_time(os.getpid())}-"))
        for name in ("workspace", "tmp"):
            (folder / name).mkdir()
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **ENVIRONMENT}
        command = bootstrap.command(
            self._python, str(folder / "workspace"), str(folder / "tmp"), self._limits.output_bytes, os.getpid()
        )
        try:
            # Not from a worker thread: the server asks the kernel for a signal at the death of the thread that
            # started it.
            with theirs, (folder / "stderr").open("wb") as errors:
                self._process = subprocess.Popen(  # noqa: ASYNC220
                    command,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=errors,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise SandboxUnavailable(f"{self._python} cannot be started: {error.strerror}") from None
        return ours, PlainStream(), bootstrap.package()

    async def _remove(self) -> None:
        if self._process is not None and not await has_ended(self._process, END_LIMIT):
            self._process.kill()
            self._process.wait()
        if self._folder is not None:
            await anyio.to_thread.run_sync(remove_folder, self._folder)
            self._folder = None

    async def _describe(self, hello: Mapping[str, Any]) -> SandboxInfo:
        name = str(self._process.pid) if self._process is not None else ""
        return SandboxInfo("local", False, name, None, hello["python"], hello["root"])

    async def _explain(self) -> str:
        if self._process is None or self._folder is None:
            return ""
        await has_ended(self._process, EXPLAIN_LIMIT)
        code = self._process.returncode
        ending = "" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
        errors = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()
        return f"{ending}: {errors[-1]}" if errors else ending


async def has_ended(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Whether a process ends within `limit` seconds."""
    for _ in range(int(limit / POLL)):
        if process.poll() is not None:
            return True
        await anyio.sleep(POLL)
    return process.poll() is not None


def remove_folder(folder: Path) -> None:
    """Remove a directory, whatever modes the code in it set."""
    for directory, _, _ in os.walk(folder):
        os.chmod(directory, 0o700)  # noqa: PTH101
    shutil.rmtree(folder)


def reap() -> None:
    """Remove the folders that dead owners left; their servers died with them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*-*"):
        pid, start, _ = folder.name.removeprefix(PREFIX).split("-", 2)
        if pid.isdigit() and owner.start_time(int(pid)) != start:
            with suppress(OSError):  # another user's, or another process is at it
                remove_folder(folder)
