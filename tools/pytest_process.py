"""The processes that run pytest, in the repository's interpreter: a single run, or a server that forks one per run.

    python -c BOOT PACKAGE cold EVENTS          one run; its request is the first line on the socket EVENTS
    python -c BOOT PACKAGE warm CONTROL         serves until the other end of the socket CONTROL is closed

`cold` and `warm` share `run`, so that their results are equal. Warm, three generations of processes work:
the *base* has imported pytest and nothing of any repository; per repository it forks a *keeper*, which takes one
request after the other; the keeper forks a *run* for each, kills what the run leaves behind, and tells its exit
status. Nothing of a repository is ever imported in base or keeper, so that every run sees fresh modules.
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent_runtime.tools.processes import PR_SET_CHILD_SUBREAPER, kill_descendants, prctl

BOOT = (
    "import sys; sys.path[0] = sys.argv[1]; from agent_runtime.tools import pytest_process as p; "
    "p.main(sys.argv[1], sys.argv[2], int(sys.argv[3]))"
)
MAX_REQUEST = 96 * 1024
"""Bytes of a request on the control socket: half of Linux's default limit for one message."""

if TYPE_CHECKING:
    Request = dict[str, Any]
    Send = Callable[[Request], None]


def main(package: str, mode: str, descriptor: int) -> None:
    """What `BOOT` calls."""
    sys.path.remove(package)
    sys.dont_write_bytecode = True  # leaves no files, and a .pyc is trusted for edits in the same second
    if mode == "cold":
        events = socket.socket(fileno=descriptor)
        request = json.loads(read_line(events))
        if request["shadowed"]:
            sys.path.insert(0, request["root"])
        preload(package)
        run(request, sender(events))
    else:
        preload(package)
        serve_base(socket.socket(fileno=descriptor))


def preload(package: str) -> None:
    """Import pytest and all its own plugins, as each run would, and the reporter."""
    sys.path.append(package)
    try:
        importlib.import_module("agent_runtime.tools.pytest_reporter")
    finally:
        sys.path.remove(package)
    config = importlib.import_module("_pytest.config")
    for name in config.default_plugins:
        importlib.import_module(f"_pytest.{name}")


def run(request: Request, send: Send) -> None:
    """Run pytest in this process, report, and end the process with pytest's exit code."""
    reporter_module = sys.modules["agent_runtime.tools.pytest_reporter"]
    for name in [name for name in sys.modules if name.split(".")[0] == "agent_runtime"]:
        del sys.modules[name]  # the repository may hold a package of that name
    root, arguments = request["root"], request["arguments"]
    os.chdir(root)
    if sys.path[:1] != [root]:
        sys.path.insert(0, root)
    sys.argv = ["pytest", *arguments]
    reporter = reporter_module.Reporter(send, root, request["first"])
    try:
        code = int(sys.modules["pytest"].main(arguments, plugins=[reporter]))
    except SystemExit as error:  # `sys.exit()` while a test module is imported
        code = error.code if isinstance(error.code, int) else 1
        send({"event": "internal", "message": f"SystemExit: {error.code} while collecting"})
    except KeyboardInterrupt:
        code = 2
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    send({"event": "end", "exit": code})
    os._exit(code)  # threads that tests left running would hold up a normal exit


def sender(events: socket.socket) -> Send:
    """What sends an event; whole lines, so that a run that dies leaves at most its last one torn."""

    def send(event: dict[str, Any]) -> None:
        events.sendall(json.dumps(event).encode() + b"\n")

    return send


def read_line(events: socket.socket) -> bytes:
    """The first line on a socket."""
    data = b""
    while not data.endswith(b"\n"):
        chunk = events.recv(64 * 1024)
        if not chunk:
            raise EOFError("the request is incomplete")
        data += chunk
    return data


def serve_base(control: socket.socket) -> None:
    """Pass each request to the keeper of its repository; ends when the tool server does."""
    gc.collect()
    gc.freeze()  # a collection in a run then leaves pytest's own 60,000 objects alone
    keepers: dict[str, socket.socket] = {}
    while True:
        request, descriptors = receive(control)
        if request is None:
            return
        root = json.loads(request)["root"]
        for _ in range(2):
            keeper = keepers.get(root) or start_keeper(keepers, root, [control.fileno(), *descriptors])
            try:
                transmit(keeper, request, descriptors)
                break
            except OSError:  # that keeper is gone: another takes its place
                keepers.pop(root).close()
        for descriptor in descriptors:
            os.close(descriptor)


def start_keeper(keepers: dict[str, socket.socket], root: str, not_its: list[int]) -> socket.socket:
    """Fork the keeper of a repository; `not_its` are open files that it must not hold."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        for descriptor in [ours.fileno(), *not_its, *(other.fileno() for other in keepers.values())]:
            os.close(descriptor)
        try:
            keep(theirs)
        finally:
            os._exit(0)
    theirs.close()
    keepers[root] = ours
    return ours


def keep(control: socket.socket) -> None:
    """Fork a run for each request; one after the other, so that whatever a run left behind is known as its own."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    while True:
        request, descriptors = receive(control)
        if request is None:
            return
        events, output = socket.socket(fileno=descriptors[0]), descriptors[1]
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            begin_run(json.loads(request), events, output)
        os.close(output)
        status = watch(child, events, wake_read, control)
        kill_descendants(os.getpid())
        try:
            events.sendall(b"\n" + json.dumps({"event": "exit", "status": status}).encode() + b"\n")
        except OSError:
            status = None  # who asked has gone
        events.close()


def begin_run(request: Request, events: socket.socket, output: int) -> None:
    """In the forked process: its own session, no input, output to whoever asked; then `run`."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(null)
        os.close(output)
        random.seed()
        run(request, sender(events))
    finally:
        os._exit(70)  # what escapes from `run` is a fault of ours, told by the exit code (EX_SOFTWARE)


def watch(child: int, events: socket.socket, wake: int, control: socket.socket) -> int | None:
    """Wait until the run ends, and return its status as `subprocess` tells it; kill it when who asked is gone."""
    poll = select.poll()
    poll.register(events, select.POLLRDHUP)
    poll.register(wake, select.POLLIN)
    poll.register(control, select.POLLRDHUP)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        for descriptor, _ in poll.poll():
            if descriptor == wake:
                os.read(wake, 512)
            else:
                kill_descendants(os.getpid())
                return None


def transmit(channel: socket.socket, request: bytes, descriptors: list[int]) -> None:
    """Send one request with open files."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    channel.sendmsg([request], [rights])


def receive(channel: socket.socket) -> tuple[bytes | None, list[int]]:
    """The next request with its open files; None where the other end is closed."""
    descriptors = array.array("i")
    request, ancillary, _, _ = channel.recvmsg(MAX_REQUEST, socket.CMSG_SPACE(2 * descriptors.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return request or None, list(descriptors)
