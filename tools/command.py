"""Running one command: no terminal, empty stdin, bytes capped at the source, nothing left alive at the deadline."""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH108
from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from agent_runtime.tools.processes import kill_descendants
from agent_runtime.tools.workspace import Workspace

CHUNK = 64 * 1024  # bytes; a pipe's capacity on Linux: one read empties it
POLL = 0.1  # seconds between looks at a command that is silent: it may have ended and left its pipes open


@dataclass(frozen=True)
class Stream:
    """One output stream of a command."""

    head: bytes
    tail: bytes
    """Empty where the whole output fits into `head`."""

    total: int
    """Bytes that the command wrote."""

    spilled: str | None
    """File in `workspace.tmp` that holds what lies between; None where nothing was cut or no space was left."""

    @property
    def truncated(self) -> bool:
        """Whether bytes are missing between `head` and `tail`."""
        return self.total > len(self.head) + len(self.tail)

    def text(self) -> str:
        """The output with invalid UTF-8 replaced and, where bytes are missing, one line that says how many."""
        head = self.head.decode("utf-8", "replace")
        if not self.truncated:
            return head + self.tail.decode("utf-8", "replace")
        missing = self.total - len(self.head) - len(self.tail)
        return f"{head}\n[… {missing} of {self.total} bytes left out …]\n{self.tail.decode('utf-8', 'replace')}"


@dataclass(frozen=True)
class CommandResult:
    """How a command ended."""

    exit_code: int | None
    """As the shell tells it: 128 + n for signal n; None where it was killed at the deadline."""

    stdout: Stream
    stderr: Stream
    timed_out: bool


class Collector:
    """Keeps the first and the last half of `cap` bytes; writes everything to a file once the cap is passed."""

    def __init__(self, cap: int, tmp: str) -> None:
        self.half = max(1, cap // 2)
        self.tmp = tmp
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0
        self.spill: int | None = None
        self.path: str | None = None

    def add(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self.half - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if not data:
            return
        self.tail += data
        if len(self.tail) > self.half:
            cut = len(self.tail) - self.half
            self.spill_bytes(bytes(self.tail[:cut]))
            del self.tail[:cut]

    def spill_bytes(self, data: bytes) -> None:
        """Append to the spill file; stop spilling, without failing the command, when the disk is full."""
        try:
            if self.spill is None and self.path is None:
                self.spill, self.path = tempfile.mkstemp(prefix="output-", dir=self.tmp)
                os.write(self.spill, self.head)
            if self.spill is not None:
                os.write(self.spill, data)
        except OSError:
            self.stop_spilling()
            if self.path is not None:
                os.unlink(self.path)
            self.path = ""

    def stop_spilling(self) -> None:
        """Close the spill file."""
        if self.spill is not None:
            os.close(self.spill)
            self.spill = None

    def finish(self) -> Stream:
        """The stream as it was; the spill file then holds all of it."""
        if self.spill is not None:
            self.spill_bytes(bytes(self.tail))
            self.stop_spilling()
        return Stream(bytes(self.head), bytes(self.tail), self.total, self.path or None)


def run_command(
    workspace: Workspace,
    argv: Sequence[str],
    *,
    env: dict[str, str] | None = None,
    merge: bool = False,
    cwd: str | None = None,
) -> CommandResult:
    """Run `argv` in the workspace until it ends or `workspace.deadline` passes.

    `env` is added to the server's own environment. `merge` sends stderr into stdout, in the order written.
    Raises `FileNotFoundError` or `PermissionError` where the command cannot be started.
    """
    process = subprocess.Popen(
        list(argv),
        cwd=cwd or workspace.root,
        env={**os.environ, **env} if env else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merge else subprocess.PIPE,
        bufsize=0,
    )
    collectors: list[Collector] = []
    timed_out = False
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            collector = Collector(workspace.output_cap, workspace.tmp)
            collectors.append(collector)
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, collector)
        ended = False
        while selector.get_map():
            left = workspace.remaining()
            if left == 0 and not ended:
                timed_out = True
                break
            ready = selector.select(0 if ended else min(left, POLL))
            read_ready(selector, ready)
            # A background process may hold the pipes open after the command itself has ended: then what is
            # already in them is read, and no more waited for.
            if ended and not ready:
                break
            ended = ended or (not ready and process.poll() is not None)
        if not timed_out:
            try:
                process.wait(workspace.remaining())
            except subprocess.TimeoutExpired:
                timed_out = True
        if timed_out:
            kill_descendants(os.getpid())
            read_ready(selector, selector.select(0))
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    code = process.returncode
    exit_code = None if timed_out else (128 - code if code < 0 else code)
    return CommandResult(exit_code, collectors[0].finish(), collectors[1].finish(), timed_out)


def read_ready(selector: selectors.BaseSelector, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
    """Read once from every pipe that is ready; forget those at their end."""
    for key, _ in ready:
        data = os.read(key.fd, CHUNK)
        if data:
            key.data.add(data)
        else:
            selector.unregister(key.fileobj)
