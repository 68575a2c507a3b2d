"""The tool server: the sandbox's main process, one thread, one stream.

Reads CALL frames, runs each call, writes one REPLY for each (see `frames`). Inline tools run here; every other call
runs in a worker, a forked process in a session of its own. Nothing that a call started is alive when its reply is
sent, whether it ended, passed its deadline or was cancelled. At the end of the stream everything is killed and the
server ends.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import replace
from typing import Any

from agent_runtime.tools import processes
from agent_runtime.tools.files import FILE_CALLS, Files
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
from agent_runtime.tools.put import PutInProgress
from agent_runtime.tools.registry import TOOLS
from agent_runtime.tools.run_tests import start_warm_server, warm_server_pids
from agent_runtime.tools.worker import Order, Worker, describe, start_worker
from agent_runtime.tools.workspace import Outcome, Workspace, failure

GRACE = 0.5  # seconds after the deadline in which a tool may still tell what it has; then it is killed
READ = 256 * 1024  # bytes asked of the stream at once
IDLE_WORKERS = 2  # kept for the next calls: a fork costs 1 to 3 ms, waking one that waits 0.1 ms
HIGH_WATER = 4 * 1024 * 1024  # bytes waiting to be sent above which no call's output is read


class Server:
    """Serves one stream until it ends."""

    def __init__(self, incoming: int, outgoing: int, workspace: Workspace) -> None:
        """`incoming` and `outgoing` are file descriptors that no child inherits."""
        self.incoming = incoming
        self.outgoing = outgoing
        self.workspace = workspace
        self.files = Files(workspace.root)
        self.puts: dict[int, PutInProgress] = {}
        self.workers: dict[int, Worker] = {}
        """By process id."""
        self.ended: dict[int, int] = {}
        """Wait statuses of workers that died, until their stream is read to its end."""
        self.leaving: set[int] = set()
        """Process ids of workers that were told to end and have not been collected yet."""
        self.waiting = bytearray()
        self.ending = False
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
        signal.signal(signal.SIGTERM, self.end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.selector.register(self.incoming, selectors.EVENT_READ, None)
        self.selector.register(woken, selectors.EVENT_READ, None)
        reader = FrameReader()
        self.send(frame(HELLO, {"protocol": PROTOCOL, "python": sys.version.split()[0], "root": self.workspace.root}))
        start_warm_server(self.workspace)  # before the first worker, which inherits the way to it
        self.fork_worker()
        try:
            while not self.ending:
                for key, _ in self.selector.select(self.until_next_kill()):
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
                    elif key.data.pid in self.workers:
                        self.read_worker(key.data)
                self.kill_overdue()
        finally:
            processes.kill_descendants(os.getpid())

    def end(self, number: int, stack: Any) -> None:
        """Signal handler: end at the next turn of the loop, which the signal wakes.

        It raises nothing: at the death of the owner the signal and the end of the stream come together, and the
        killing that the one began must not be broken off by the other.
        """
        self.ending = True

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
            for worker in self.busy():
                if worker.call_id == call_id:
                    self.kill(worker, "cancelled")
            if call_id in self.puts:
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
        if entry is not None and entry.inline:
            started = time.time_ns()
            outcome = invoke(entry.function, replace(self.workspace, deadline=deadline), arguments)
            phases = [("queue", received, started), ("process", started, time.time_ns())]
            self.send(reply_body(call_id, outcome, phases))
            return
        # What files look like is known to a worker that was forked after the last put alone.
        idle = [] if name in FILE_CALLS else [worker for worker in self.workers.values() if not worker.call_id]
        order = Order(call_id, name, arguments, deadline, received)
        if any(self.hand_to(worker, order) for worker in idle):
            return
        try:
            self.hand_to(self.fork_worker(), order)
        except OSError as error:
            self.send_outcome(call_id, failure("no_processes", f"no process can be started here: {error.strerror}"))

    def hand_to(self, worker: Worker, order: Order) -> bool:
        """Let a worker run a call; False where it was killed while it was idle."""
        try:
            worker.take(order)
        except OSError:
            return False
        worker.kill_at = order.deadline + GRACE
        worker.keep = order.tool not in FILE_CALLS
        return True

    def fork_worker(self) -> Worker:
        """Start a process for calls. Raises `OSError` where the sandbox's limits forbid it."""
        others = [worker.stream.fileno() for worker in self.workers.values()]
        worker = start_worker(self.files, self.workspace, [self.incoming, self.outgoing, *others])
        self.workers[worker.pid] = worker
        self.selector.register(worker.stream, selectors.EVENT_READ, worker)
        return worker

    def continue_put(self, call_id: int, data: bytes) -> None:
        """Write the next bytes of a put; reply when its last file is whole."""
        put = self.puts[call_id]
        outcome = put.feed(data)
        if outcome is not None:
            del self.puts[call_id]
            self.send_outcome(call_id, outcome)

    # Ending calls

    def read_worker(self, worker: Worker) -> None:
        """Take what a worker says: pass data on, and the reply; a worker that says no more is gone."""
        try:
            data = worker.stream.recv(READ, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.bury(worker)
            return
        for kind, body in worker.reader.feed(data):
            self.send_raw(kind, body)
            if kind == REPLY:
                worker.call_id = 0
        if worker.call_id == 0 and not (worker.keep and self.idle() <= IDLE_WORKERS):
            self.dismiss(worker)
        elif len(self.waiting) > HIGH_WATER:
            self.selector.unregister(worker.stream)

    def idle(self) -> int:
        """How many workers have nothing to do."""
        return sum(1 for worker in self.workers.values() if not worker.call_id)

    def dismiss(self, worker: Worker) -> None:
        """Let a worker end; `collect` takes note of it."""
        del self.workers[worker.pid]
        if worker.stream in self.selector.get_map():
            self.selector.unregister(worker.stream)
        worker.stream.close()
        self.leaving.add(worker.pid)

    def bury(self, worker: Worker) -> None:
        """A worker died in the middle of a call: kill what it could not kill any more, and reply in its place."""
        call_id = worker.call_id
        self.dismiss(worker)
        status = self.ended.pop(worker.pid, None)
        if status is None:
            _, status = os.waitpid(worker.pid, 0)
        self.leaving.discard(worker.pid)
        self.kill_strays()
        if worker.killed_for == "cancelled":
            outcome = failure("cancelled", "the call was cancelled")
        elif worker.killed_for == "deadline":
            outcome = failure("timed_out", "the call passed its deadline and was killed")
            outcome.timed_out = True
        else:
            outcome = failure("killed", f"the tool's process died: {describe(status)}")
        if call_id:
            self.send_outcome(call_id, outcome)

    def collect(self) -> None:
        """Take note of every child that ended, without waiting."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.leaving.discard(pid)
            if pid in self.workers:
                self.ended[pid] = status

    def kill_strays(self) -> None:
        """Kill the children that are neither workers nor pytest's server: a worker that died had started them."""
        limit = time.monotonic() + processes.KILL_LIMIT
        while time.monotonic() < limit:
            ours = {*self.workers, *self.leaving, *warm_server_pids()}
            strays = [pid for pid in processes.children(os.getpid()) if pid not in ours]
            if not strays:
                return
            processes.kill_tree(strays)
            self.collect()
            time.sleep(0.0005)

    def kill(self, worker: Worker, reason: str) -> None:
        """Kill a worker and everything below it; `read_worker` then sees its stream end."""
        if worker.killed_for is None:
            worker.killed_for = reason
            processes.kill_tree([worker.pid])

    def busy(self) -> list[Worker]:
        """The workers whose call runs and is not being killed."""
        return [worker for worker in self.workers.values() if worker.call_id and worker.killed_for is None]

    def kill_overdue(self) -> None:
        """Kill the calls that did not end by their deadline."""
        for worker in self.busy():
            if worker.kill_at <= time.monotonic():
                self.kill(worker, "deadline")

    def until_next_kill(self) -> float | None:
        """Seconds until a call is overdue; None where none runs."""
        due = [worker.kill_at for worker in self.busy()]
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
            for worker in self.workers.values():
                if worker.stream not in self.selector.get_map():
                    self.selector.register(worker.stream, selectors.EVENT_READ, worker)


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
    root, tmp = os.path.realpath(root), os.path.realpath(tmp)
    os.chdir(root)
    os.environ["HOME"] = f"{tmp}/home"
    os.environ["TMPDIR"] = tmp
    os.makedirs(os.environ["HOME"], exist_ok=True)  # noqa: PTH103
    gc.collect()
    gc.freeze()  # a child's collections then leave the parent's pages alone: fewer copied on write
    workspace = Workspace(
        root=root,
        tmp=tmp,
        python=sys.executable,
        package=package,
        deadline=0.0,
        output_cap=int(output_cap),
    )
    Server(incoming, outgoing, workspace).serve()
