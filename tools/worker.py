"""A worker: a process that runs calls, one after the other, in a session of its own.

It kills what a call left before it tells the outcome, so it can take the next one. The server kills it, with all that
it started, when its call passes the deadline or is cancelled.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

from agent_runtime.tools import processes
from agent_runtime.tools.files import FILE_CALLS, Files
from agent_runtime.tools.frames import CALL, FrameReader, frame, message
from agent_runtime.tools.invoke import invoke, reply_body
from agent_runtime.tools.registry import TOOLS
from agent_runtime.tools.workspace import Workspace

READ = 256 * 1024  # bytes asked of a stream at once


@dataclass(frozen=True)
class Order:
    """A call, as the server hands it on."""

    call_id: int
    tool: str
    arguments: dict[str, Any]

    deadline: float
    """On `time.monotonic()`'s clock."""

    received: int
    """When the server got it, on `time.time_ns()`'s clock."""


class Worker:
    """The server's end of one."""

    def __init__(self, pid: int, stream: socket.socket) -> None:
        self.pid = pid
        self.stream = stream
        self.reader = FrameReader()
        self.call_id = 0
        """The call that it runs; 0 where it is idle."""
        self.kill_at = 0.0
        self.killed_for: str | None = None
        self.keep = True
        """Whether it may take another call after this one."""

    def take(self, order: Order) -> None:
        """Hand a call to it. Raises `OSError` where it is dead."""
        self.stream.sendall(frame(CALL, asdict(order)))
        self.call_id = order.call_id


def start_worker(files: Files, workspace: Workspace, foreign: list[int]) -> Worker:
    """Fork one; it closes `foreign`, the file descriptors of the server. Raises `OSError` where it cannot be forked."""
    ours, theirs = socket.socketpair()
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        for fd in (ours.fileno(), *foreign):
            os.close(fd)
        work(files, workspace, theirs)
    theirs.close()
    return Worker(pid, ours)


def work(files: Files, workspace: Workspace, stream: socket.socket) -> NoReturn:
    """The whole life of a worker."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, die_with_descendants)
        os.setsid()
        processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
        processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGTERM)
        reader = FrameReader()
        while True:
            data = stream.recv(READ)
            if not data:
                break
            for _, body in reader.feed(data):
                run(Order(**message(body)), files, workspace, stream)
        code = 0
    finally:
        os._exit(code)


def run(order: Order, files: Files, workspace: Workspace, stream: socket.socket) -> None:
    """Run one call, kill what it left, tell the outcome."""
    started = time.time_ns()
    if order.tool in FILE_CALLS:
        outcome = files.read_call(order.tool, order.arguments, order.call_id, stream.fileno())
    else:
        entry = TOOLS[order.tool]
        outcome = invoke(entry.function, replace(workspace, deadline=order.deadline), order.arguments)
    ended = time.time_ns()
    if not processes.kill_descendants(os.getpid()):
        outcome.data["left_alive"] = len(processes.children(os.getpid()))
    phases = [("queue", order.received, started), ("process", started, ended), ("cleanup", ended, time.time_ns())]
    stream.sendall(reply_body(order.call_id, outcome, phases))


def die_with_descendants(number: int, stack: Any) -> NoReturn:
    """Signal handler of a worker: the server is gone."""
    processes.kill_descendants(os.getpid())
    os._exit(128 + number)


def describe(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        hint = ", perhaps because the sandbox was out of memory" if number == signal.SIGKILL else ""
        return f"signal {number}{hint}"
    return f"exit code {os.WEXITSTATUS(status)}"
