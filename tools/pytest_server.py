"""The server that forks a process for each run of pytest, so that no run pays for its start (0.3 s).

Four generations of processes:

    base       has imported pytest, and nothing of any repository
    keeper     one per repository: takes one request after the other, forks its run, kills what that leaves behind
    prepared   a keeper's child, one per set of arguments: stands where pytest has read its configuration and is
               about to collect; a run forked from it need not read it again. Only for repositories whose own code
               takes no part in that (no conftest.py, no plugin); it is made anew when a configuration file changes
    run        forked from prepared, or from the keeper, and gone after one run

No module of a repository is ever imported before the last of these, so that every run sees them fresh.
"""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH116, PTH118, PTH120, PTH208
from __future__ import annotations

import array
import atexit
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NoReturn

from agent_runtime.tools.processes import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, children, kill_tree, prctl
from agent_runtime.tools.pytest_memo import Memo, loaded_modules
from agent_runtime.tools.pytest_process import conduct, end, make_reporter, run_once, sender

if TYPE_CHECKING:
    from agent_runtime.tools.pytest_process import Request

MAX_REQUEST = 96 * 1024
"""Bytes of a request: half of Linux's default limit for one message."""

MAX_PREPARED = 3
"""Sets of arguments per repository that a prepared process is kept for: 3 MB each that it does not share."""

LESSON = 32 * 1024
"""Bytes of a lesson, which must fit into a pipe at once: about 500 modules."""

UNFIT = 77
"""Exit code of a process that cannot be prepared."""

FAULT = 70
"""Exit code of a run that failed by a fault of ours (EX_SOFTWARE)."""

CONFIGURATION = (
    *("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"),
    *("setup.py", "conftest.py"),
)
"""Files of a directory that decide how pytest starts."""


def serve(control: socket.socket) -> None:
    """Base: pass each request to the keeper of its repository; ends when the tool server does."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the end of `control` tells the same, but not to a stopped process
    gc.collect()
    gc.freeze()  # a collection in a run then leaves pytest's own 60,000 objects alone
    memo = Memo()
    memo.install()
    keepers: dict[str, socket.socket] = {}
    while True:
        request, files = receive(control)
        if request is None:
            return
        root = json.loads(request)["root"]
        for _ in range(2):
            if root not in keepers:
                keepers[root] = start(Keeper(memo).serve, [control, *keepers.values()], files)[1]
            try:
                transmit(keepers[root], request, files)
                break
            except OSError:  # that keeper is gone: another takes its place
                keepers.pop(root).close()
        close(files)


def start(serve: Any, not_its: list[socket.socket], files: list[int]) -> tuple[int, socket.socket]:
    """Fork a process that serves a channel, and return its process id and our end of the channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for channel in (ours, *not_its):
                channel.close()
            close(files)
            serve(theirs)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(FAULT)
    theirs.close()
    return pid, ours


class Attendant:
    """What a keeper and a prepared process have in common: they fork runs and watch over them, one at a time."""

    def __init__(self, memo: Memo) -> None:
        self.control: socket.socket
        self.spared: dict[int, Any] = {}
        """Children that are no runs, by process id."""
        self.memo = memo
        self.before: set[str] = set()

    def attend(self, control: socket.socket) -> None:
        """Prepare this process for watching over children."""
        self.control = control
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a run leaves behind becomes a child of this process
        self.wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, stack: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def fork_child(self) -> tuple[int, int]:
        """Fork a process for a run: its id and where it will tell what it has loaded; zeros in the forked process."""
        lessons, lesson = os.pipe()
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.control.close()
            os.setsid()
            random.seed()
            os.close(lessons)
            self.before = set(sys.modules)
            self.lesson = lesson
            return 0, 0
        os.close(lesson)
        return child, lessons

    def see_through(self, child: int, lessons: int, files: list[int]) -> None:
        """Watch over a run until it and all that it started are dead, tell its status, and learn from it."""
        events = socket.socket(fileno=files[0])
        os.close(files[1])
        status = self.watch(child, events)
        self.kill_runs()
        try:
            events.sendall(b"\n" + json.dumps({"event": "exit", "status": status}).encode() + b"\n")
        except OSError:
            status = None  # who asked has gone
        events.close()
        with open(lessons, "rb") as file:
            told = file.read()
        if told:
            self.memo.learn(json.loads(told))

    def teach(self, root: str) -> None:
        """At the end of a run: say what it has loaded, for those to come."""
        told = json.dumps(loaded_modules(root, self.before)).encode()
        if len(told) <= LESSON:
            os.write(self.lesson, told)

    def watch(self, child: int, events: socket.socket) -> int | None:
        """Wait until the run ends, and return its status as `subprocess` tells it; kill it when who asked is gone."""
        poll = select.poll()
        poll.register(events, select.POLLRDHUP)
        poll.register(self.wake, select.POLLIN)
        poll.register(self.control, select.POLLRDHUP)
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            for descriptor, _ in poll.poll():
                if descriptor == self.wake:
                    os.read(self.wake, 512)
                else:
                    kill_tree([child])
                    os.waitpid(child, 0)
                    return None

    def kill_runs(self) -> None:
        """Kill and collect all children that are not spared."""
        while True:
            left = [pid for pid in children(os.getpid()) if pid not in self.spared]
            if not left:
                return
            kill_tree(left)
            for pid in left:
                os.waitpid(pid, 0)


class Keeper(Attendant):
    """Serves one repository."""

    def __init__(self, memo: Memo) -> None:
        super().__init__(memo)
        self.prepared: OrderedDict[str, tuple[int, socket.socket]] = OrderedDict()
        """Process id and channel by the key of what it is prepared for."""
        self.ready: set[str] = set()
        self.unfit: set[str] = set()

    def serve(self, control: socket.socket) -> None:
        """Forward each request to a process that is prepared for it, or fork its run here."""
        self.attend(control)
        while True:
            message, files = receive(control)
            if message is None:
                return
            request = json.loads(message)
            start_files = signature(request["root"], request["arguments"])
            key = json.dumps([request["arguments"], start_files])
            self.collect()
            if key in self.prepared and self.is_ready(key):
                try:
                    transmit(self.prepared[key][1], message, files)
                    self.prepared.move_to_end(key)
                    close(files)
                    continue
                except OSError:
                    self.forget(key)
            child, lessons = self.fork_child()
            if child == 0:
                begin(files, [1, 2])
                atexit.register(self.teach, request["root"])
                run_once(request, sender(socket.socket(fileno=files[0])))
            self.see_through(child, lessons, files)
            takes_part = any(name == "conftest.py" for _, name, *_ in start_files)
            if key not in self.unfit and key not in self.prepared and not takes_part:
                self.prepare(key, request)

    def prepare(self, key: str, request: Request) -> None:
        """Start a process for the next requests like this one; drop those for what has changed since."""
        arguments = json.loads(key)[0]
        for other in list(self.prepared):
            if json.loads(other)[0] == arguments:
                self.forget(other)
        while len(self.prepared) >= MAX_PREPARED:
            self.forget(next(iter(self.prepared)))
        others = [self.control, *(channel for _, channel in self.prepared.values())]
        pid, channel = start(lambda control: Prepared(request, self.memo).serve(control), others, [self.wake])
        self.prepared[key] = (pid, channel)
        self.spared[pid] = key

    def is_ready(self, key: str) -> bool:
        """Whether a prepared process stands; until then requests are served from here."""
        if key not in self.ready:
            try:
                if self.prepared[key][1].recv(16, socket.MSG_DONTWAIT):
                    self.ready.add(key)
            except BlockingIOError:
                return False
        return key in self.ready

    def forget(self, key: str) -> None:
        """Let a prepared process end."""
        self.prepared.pop(key)[1].close()
        self.ready.discard(key)

    def collect(self) -> None:
        """Take note of prepared processes that have ended, and of what cannot be prepared."""
        for pid, key in list(self.spared.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.spared[pid]
                if os.WIFEXITED(status) and os.WEXITSTATUS(status) == UNFIT:
                    self.unfit.add(key)
                if key in self.prepared and self.prepared[key][0] == pid:
                    self.forget(key)


class Prepared(Attendant):
    """A process in which pytest has started up to where it would collect."""

    def __init__(self, request: Request, memo: Memo) -> None:
        super().__init__(memo)
        self.request = request

    def serve(self, control: socket.socket) -> NoReturn:
        """Start pytest; it calls `stand` when its session begins. Only forked runs come back from there."""
        self.control = control
        self.sink = os.memfd_create("pytest-output")  # stands for the output of the runs to come
        os.dup2(self.sink, 1)
        os.dup2(self.sink, 2)
        self.reporter = make_reporter(self.request, lambda event: None)
        self.reporter.at_start = self.stand
        code = conduct(self.request, self.reporter)
        if self.reporter.at_start is not None:
            os._exit(UNFIT)  # pytest ended before its session began
        end(self.reporter.send, code)

    def stand(self, config: Any) -> None:
        """Fork runs, each of which returns from here and goes on with pytest's session."""
        if not fit(self.request["root"]):
            os._exit(UNFIT)
        self.attend(self.control)
        gc.collect()
        gc.freeze()
        self.control.sendall(b"ready")
        try:
            while True:
                # Forked before its request comes: a fork with what follows it costs 5 ms of each run's time.
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                child, lessons = self.fork_child()
                if child == 0:
                    ours.close()
                    break
                theirs.close()
                self.spared[child] = "waits"
                message, files = receive(self.control)
                if message is None:
                    os._exit(0)
                del self.spared[child]
                transmit(ours, message, files)
                ours.close()
                self.see_through(child, lessons, files)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(FAULT)  # pytest would take it for an error of its own
        self.wait_for_request(theirs, config)

    def wait_for_request(self, channel: socket.socket, config: Any) -> None:
        """In the forked process: bind pytest's capture anew, and take over the request when it comes."""
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None:  # its temporary files are shared with the prepared process until it starts again
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture()
        message, files = receive(channel)
        channel.close()
        if message is None:
            os._exit(0)
        request = json.loads(message)
        begin(files, same_file(self.sink))
        atexit.register(self.teach, request["root"])
        self.reporter.at_start = None
        self.reporter.send = sender(socket.socket(fileno=files[0]))
        self.reporter.take_over(request["first"], request["stop_at_first"], config)
        os.chdir(request["root"])
        importlib.invalidate_caches()


def begin(files: list[int], outputs: list[int]) -> None:
    """In a forked run: what it prints goes to whoever asked."""
    for descriptor in outputs:
        os.dup2(files[1], descriptor)
    os.close(files[1])


def same_file(descriptor: int) -> list[int]:
    """All descriptors of this process that are open on the same file: pytest keeps copies of its output."""
    wanted = os.fstat(descriptor)
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:
            continue  # the directory's own
        if (status.st_dev, status.st_ino) == (wanted.st_dev, wanted.st_ino) and int(name) != descriptor:
            found.append(int(name))
    return found


def fit(root: str) -> bool:
    """Whether this process can stand for any number of runs: no code of the repository, no thread, no child."""
    prefix = root.rstrip("/") + "/"
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    tracing = sys.gettrace() is not None or sys.getprofile() is not None
    alone = threading.active_count() == 1 and not children(os.getpid())
    return alone and not tracing and not any(os.path.realpath(file).startswith(prefix) for file in files if file)


def signature(root: str, arguments: list[str]) -> list[Any]:
    """What pytest's start depends on: the configuration files and conftests of the root and of what it is told to run.

    As long as it is the same, pytest starts in the same way.
    """
    folders = {root}
    try:
        folders.update(entry.path for entry in os.scandir(root) if entry.name.startswith("test") and entry.is_dir())
    except OSError:
        return [[root, "gone"]]
    for argument in arguments:
        folder = os.path.join(root, argument.split("::")[0])
        while folder.startswith(root) and folder not in folders:
            folders.add(folder)
            folder = os.path.dirname(folder)
    found: list[Any] = []
    for folder in sorted(folders):
        for name in CONFIGURATION if folder == root else ("conftest.py",):
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            found.append([folder, name, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size])
    return found


def transmit(channel: socket.socket, request: bytes, files: list[int]) -> None:
    """Send one request with open files."""
    channel.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])


def receive(channel: socket.socket) -> tuple[bytes | None, list[int]]:
    """The next request with its open files; None where the other end is closed."""
    files = array.array("i")
    request, ancillary, _, _ = channel.recvmsg(MAX_REQUEST, socket.CMSG_SPACE(2 * files.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return request or None, list(files)


def close(files: list[int]) -> None:
    """Close descriptors."""
    for descriptor in files:
        os.close(descriptor)
