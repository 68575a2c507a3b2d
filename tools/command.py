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
LAST_READS = 3  # of CHUNK bytes, once the command has ended
POLL = 0.002  # seconds between looks at a silent command where the kernel does not tell its end


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
        end = end_of(process)
        if end >= 0:
            selector.register(end, selectors.EVENT_READ, None)
        for pipe in (process.stdout, process.stderr):
            collector = Collector(workspace.output_cap, workspace.tmp)
            collectors.append(collector)
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, collector)
        while process.poll() is None:
            left = workspace.remaining()
            if left == 0:
                timed_out = True
                kill_descendants(os.getpid())
                break
            read_ready(selector, left if end >= 0 else min(left, POLL))
        # What the command wrote before it ended is in the pipes, at most their capacity. A background process may
        # hold them open and write for ever: that is nobody's output.
        for _ in range(LAST_READS):
            read_ready(selector, 0)
        if end >= 0:
            os.close(end)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    code = process.returncode
    exit_code = None if timed_out else (128 - code if code < 0 else code)
    return CommandResult(exit_code, collectors[0].finish(), collectors[1].finish(), timed_out)


def end_of(process: subprocess.Popen[bytes]) -> int:
    """A file descriptor that is readable once the process has ended; -1 where Python (3.8) or the kernel has none."""
    try:
        return os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return -1


def read_ready(selector: selectors.BaseSelector, wait: float) -> None:
    """Read once from every pipe that is ready within `wait` seconds."""
    for key, _ in selector.select(wait):
        if key.data is None:
            continue
        data = os.read(key.fd, CHUNK)
        if data:
            key.data.add(data)
        else:
            selector.unregister(key.fileobj)
