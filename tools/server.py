"""The tool server: the sandbox's main process, one thread, one stream.

Reads CALL frames, runs each call, writes one REPLY for each (see `frames`). Inline tools run here; every other call
is forked into a session of its own. Nothing that a call started is alive when its reply is sent, whether it ended,
passed its deadline or was cancelled. At the end of the stream everything is killed and the server ends.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import sys
import time
from typing import Any, NoReturn

from agent_runtime.tools import processes
from agent_runtime.tools.files import FILE_CALLS, Files, PutInProgress
from agent_runtime.tools.frames import (
    CALL,
    CANCEL,
    DATA,
    HELLO,
    PROTOCOL,
    REPLY,
    BadFrame,
    FrameReader,
    frame,
    message,
    split_data,
)
from agent_runtime.tools.invoke import invoke, reply_body
from agent_runtime.tools.registry import TOOLS
from agent_runtime.tools.run_tests import start_warm_server, warm_server_pids
from agent_runtime.tools.workspace import Outcome, Workspace, failure

GRACE = 0.5  # seconds after the deadline in which a tool may still tell what it has; then it is killed
READ = 256 * 1024  # bytes asked of the stream at once
HIGH_WATER = 4 * 1024 * 1024  # bytes waiting to be sent above which no call's output is read


class Call:
    """A call that runs in a process of its own."""

    def __init__(self, call_id: int, pid: int, pipe: int, kill_at: float) -> None:
        self.id = call_id
        self.pid = pid
        self.pipe = pipe
        self.kill_at = kill_at
        self.reader = FrameReader()
        self.reply: bytes | None = None
        self.killed_for: str | None = None
        self.status: int | None = None


class Server:
    """Serves one stream until it ends."""

    def __init__(self, incoming: int, outgoing: int, workspace: Workspace) -> None:
        """`incoming` and `outgoing` are file descriptors that no child inherits."""
        self.incoming = incoming
        self.outgoing = outgoing
        self.workspace = workspace
        self.files = Files(workspace.root)
        self.puts: dict[int, PutInProgress] = {}
        self.calls: dict[int, Call] = {}
        self.waiting = bytearray()
        self.writes_registered = False
        self.selector = selectors.DefaultSelector()

    # The loop

    def serve(self) -> None:
        """Answer calls until the other end closes the stream."""
        os.set_blocking(self.incoming, False)
        os.set_blocking(self.outgoing, False)
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, stack: None)
        signal.signal(signal.SIGTERM, lambda number, stack: sys.exit(0))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.selector.register(self.incoming, selectors.EVENT_READ, None)
        self.selector.register(woken, selectors.EVENT_READ, None)
        reader = FrameReader()
        self.send(frame(HELLO, {"protocol": PROTOCOL, "python": sys.version.split()[0], "root": self.workspace.root}))
        try:
            while True:
                for key, events in self.selector.select(self.until_next_kill()):
                    if key.fd == self.incoming:
                        data = os.read(self.incoming, READ)
                        if not data:
                            return
                        for kind, body in reader.feed(data):
                            self.receive(kind, body)
                    elif key.fd == woken:
                        os.read(woken, 4096)
                        self.collect()
                    elif key.fd == self.outgoing:
                        self.flush()
                    elif key.data is not None and events:
                        self.read_call(key.data)
                self.kill_overdue()
        finally:
            processes.kill_descendants(os.getpid())

    def receive(self, kind: bytes, body: bytes) -> None:
        """Act on one frame."""
        if kind == DATA:
            call_id, data = split_data(body)
            if call_id in self.puts:
                self.continue_put(call_id, data)
        elif kind == CALL:
            self.start(message(body))
        elif kind == CANCEL:
            call_id = message(body)["id"]
            if call_id in self.calls:
                self.kill(self.calls[call_id], "cancelled")
            elif call_id in self.puts:
                self.puts.pop(call_id).abandon()
                self.send_outcome(call_id, failure("cancelled", "the call was cancelled"))
        else:
            raise BadFrame(f"a frame of kind {kind!r} goes the other way")

    # Starting calls

    def start(self, request: dict[str, Any]) -> None:
        """Run a call now (inline tools, the begin of a put) or start its process."""
        received = time.time_ns()
        call_id, name, arguments = request["id"], request["tool"], request["arguments"]
        timeout = float(request["timeout"])
        deadline = time.monotonic() + timeout
        if name == "put":
            self.puts[call_id] = PutInProgress(self.files, arguments)
            self.continue_put(call_id, b"")
            return
        entry = TOOLS.get(name)
        if entry is None and name not in FILE_CALLS:
            known = ", ".join(sorted(TOOLS))
            self.send_outcome(call_id, failure("unknown_tool", f"there is no tool {name!r}; there are {known}"))
            return
        workspace = Workspace(
            root=self.workspace.root,
            tmp=self.workspace.tmp,
            python=self.workspace.python,
            package=self.workspace.package,
            deadline=deadline,
            output_cap=self.workspace.output_cap,
        )
        if entry is not None and entry.inline:
            started = time.time_ns()
            outcome = invoke(entry.function, workspace, arguments)
            self.send(
                reply_body(call_id, outcome, [("queue", received, started), ("process", started, time.time_ns())])
            )
            return
        receiving, sending = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(receiving)
            os.close(sending)
            self.send_outcome(call_id, failure("no_processes", f"no process can be started here: {error.strerror}"))
            return
        if pid == 0:
            os.close(receiving)
            self.run_in_child(call_id, name, workspace, arguments, sending, received)
        os.close(sending)
        os.set_blocking(receiving, False)
        call = Call(call_id, pid, receiving, deadline + GRACE)
        self.calls[call_id] = call
        self.selector.register(receiving, selectors.EVENT_READ, call)

    def run_in_child(
        self, call_id: int, name: str, workspace: Workspace, arguments: dict[str, Any], sending: int, received: int
    ) -> NoReturn:
        """The whole life of a call's process: run the tool, kill what it left, tell the outcome."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, die_with_descendants)
            os.close(self.incoming)
            os.close(self.outgoing)
            os.setsid()
            processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
            processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGTERM)
            started = time.time_ns()
            if name in FILE_CALLS:
                outcome = self.files.read_call(name, arguments, call_id, sending)
            else:
                outcome = invoke(TOOLS[name].function, workspace, arguments)
            ended = time.time_ns()
            all_dead = processes.kill_descendants(os.getpid())
            if not all_dead:
                outcome.data["left_alive"] = len(processes.children(os.getpid()))
            phases = [("queue", received, started), ("process", started, ended), ("cleanup", ended, time.time_ns())]
            write_all(sending, reply_body(call_id, outcome, phases))
            code = 0
        finally:
            os._exit(code)

    def continue_put(self, call_id: int, data: bytes) -> None:
        """Write the next bytes of a put; reply when its last file is whole."""
        put = self.puts[call_id]
        outcome = put.feed(data)
        if outcome is not None:
            del self.puts[call_id]
            self.send_outcome(call_id, outcome)
            # A repository has come in, its tests will be run: pytest loads in a process of its own meanwhile.
            start_warm_server(self.workspace)

    # Ending calls

    def read_call(self, call: Call) -> None:
        """Take what a call's process wrote; pass its data on, keep its reply until it is gone."""
        while True:
            try:
                data = os.read(call.pipe, READ)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close_pipe(call)
                return
            for kind, body in call.reader.feed(data):
                if kind == REPLY:
                    call.reply = body
                else:
                    self.send_raw(kind, body)
            if len(self.waiting) > HIGH_WATER:
                self.selector.unregister(call.pipe)
                return

    def close_pipe(self, call: Call) -> None:
        """The call's process has said everything."""
        if call.pipe >= 0:
            if call.pipe in self.selector.get_map():
                self.selector.unregister(call.pipe)
            os.close(call.pipe)
            call.pipe = -1
        self.finish_if_over(call)

    def collect(self) -> None:
        """Take note of every child that ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for call in list(self.calls.values()):
                if call.pid == pid:
                    call.status = status
                    self.finish_if_over(call)

    def finish_if_over(self, call: Call) -> None:
        """Reply once the process is gone and its pipe is empty."""
        if call.status is None or call.pipe >= 0:
            return
        del self.calls[call.id]
        if call.status != 0 or call.reply is None:
            # It died before it could kill what it had started; all of that is now this process's child.
            self.kill_strays()
        if call.killed_for == "cancelled":
            self.send_outcome(call.id, failure("cancelled", "the call was cancelled"))
        elif call.reply is not None:
            self.send_raw(REPLY, call.reply)
        elif call.killed_for == "deadline":
            outcome = failure("timed_out", "the call passed its deadline and was killed")
            outcome.timed_out = True
            self.send_outcome(call.id, outcome)
        else:
            self.send_outcome(call.id, failure("killed", f"the tool's process died: {describe(call.status)}"))

    def kill_strays(self) -> None:
        """Kill every child that is no call's process and not the one that has pytest loaded."""
        limit = time.monotonic() + processes.KILL_LIMIT
        while time.monotonic() < limit:
            roots = {call.pid for call in self.calls.values()} | warm_server_pids()
            strays = [pid for pid in processes.children(os.getpid()) if pid not in roots]
            if not strays:
                return
            processes.kill_tree(strays)
            self.collect()
            time.sleep(0.0005)

    def kill(self, call: Call, reason: str) -> None:
        """Kill a call's process and everything below it."""
        if call.killed_for is None and call.status is None:
            call.killed_for = reason
            processes.kill_tree([call.pid])

    def kill_overdue(self) -> None:
        """Kill the calls that did not end by their deadline."""
        if self.calls:
            now = time.monotonic()
            for call in list(self.calls.values()):
                if call.kill_at <= now:
                    self.kill(call, "deadline")

    def until_next_kill(self) -> float | None:
        """Seconds until a call is overdue; None where none runs."""
        due = [call.kill_at for call in self.calls.values() if call.killed_for is None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    # Sending

    def send_outcome(self, call_id: int, outcome: Outcome) -> None:
        """Reply to a call that had no process of its own."""
        self.send(reply_body(call_id, outcome, []))

    def send_raw(self, kind: bytes, body: bytes) -> None:
        """Pass a frame on as it is."""
        self.send(len(body).to_bytes(4, "big") + kind + body)

    def send(self, data: bytes) -> None:
        """Send now what the stream takes; the rest when it takes more."""
        if self.waiting:
            self.waiting += data
            return
        try:
            sent = os.write(self.outgoing, data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.waiting += data[sent:]
            self.selector.register(self.outgoing, selectors.EVENT_WRITE, None)

    def flush(self) -> None:
        """Send more of what waits."""
        try:
            sent = os.write(self.outgoing, memoryview(self.waiting)[: 1 << 20])
        except BlockingIOError:
            return
        del self.waiting[:sent]
        if not self.waiting:
            self.selector.unregister(self.outgoing)
        if len(self.waiting) <= HIGH_WATER // 2:
            for call in self.calls.values():
                if call.pipe >= 0 and call.pipe not in self.selector.get_map():
                    self.selector.register(call.pipe, selectors.EVENT_READ, call)


def die_with_descendants(number: int, stack: Any) -> NoReturn:
    """Signal handler of a call's process: the server is gone."""
    processes.kill_descendants(os.getpid())
    os._exit(128 + number)


def describe(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        hint = ", perhaps because the sandbox was out of memory" if number == signal.SIGKILL else ""
        return f"signal {number}{hint}"
    return f"exit code {os.WEXITSTATUS(status)}"


def write_all(fd: int, data: bytes) -> None:
    """Write to a blocking file descriptor until nothing is left."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def main(argv: list[str]) -> None:
    """Serve on stdin and stdout. `argv`: workspace, scratch directory, package path, output cap, owner's pid or 0."""
    root, tmp, package, output_cap, owner = argv
    # The stream moves away from 0 and 1, so that neither a stray print nor a child can reach it; and a process that
    # is not dumpable keeps the others of its uid out of /proc/PID/fd, /proc/PID/mem and ptrace.
    incoming, outgoing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    processes.prctl(processes.PR_SET_DUMPABLE, 0)
    processes.prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
    if int(owner):
        processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(owner):
            return
    root = os.path.realpath(root)
    os.chdir(root)
    gc.collect()
    gc.freeze()  # a child's collections then leave the parent's pages alone: fewer copied on write
    workspace = Workspace(
        root=root,
        tmp=os.path.realpath(tmp),
        python=sys.executable,
        package=package,
        deadline=0.0,
        output_cap=int(output_cap),
    )
    Server(incoming, outgoing, workspace).serve()
