"""Running pytest from the tool's side: start or ask for a run, follow its events, end it at its limits."""

# ruff: noqa: PTH123
from __future__ import annotations

import json
import math
import os
import selectors
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_runtime.tools.command import Collector, Stream
from agent_runtime.tools.processes import kill_tree
from agent_runtime.tools.pytest_process import BOOT
from agent_runtime.tools.pytest_server import MAX_REQUEST, transmit
from agent_runtime.tools.verdict import Verdict
from agent_runtime.tools.workspace import Workspace

CHUNK = 64 * 1024
LOOK = 0.1  # seconds between looks at a silent process: a child of it may hold its socket open after its end
PATIENCE = 4
ENDING = 2.0  # seconds that a process may take to end after its last word
DRAIN = 5.0  # seconds within which a killed run must be gone


@dataclass(frozen=True)
class Limits:
    """When a run must have ended, and how long one test may take."""

    deadline: float
    """On `time.monotonic()`'s clock."""

    run_s: float
    """The same as seconds from the start: what the text tells."""

    test_s: float | None
    """Seconds of processor time for one test, and for the collection of all; of wall time `PATIENCE` times as many.

    An endless loop is found out after `test_s`, and a busy machine makes no test fail.
    """


@dataclass(frozen=True)
class Run:
    """A finished run."""

    verdict: Verdict
    output: Stream
    """What pytest and the tests printed past its capture."""

    timed_out_after: float | None
    killed_test: bool
    collect_s: float | None


class Follower:
    """Reads the events and the output of one run until it has ended or a limit has passed."""

    def __init__(self, events: socket.socket, output: int, limits: Limits, workspace: Workspace) -> None:
        self.events, self.output, self.limits = events, output, limits
        self.verdict = Verdict()
        self.collector = Collector(workspace.output_cap, workspace.tmp)
        self.partial = b""
        self.started = time.monotonic()
        self.pid = 0
        self.phase_began: float | None = None
        self.phase_cpu = 0.0
        self.extra = 0.0
        """Seconds that the phase gets beyond `test_s`, because its process had to wait for a processor."""
        self.collect_s: float | None = None
        self.gone = False
        self.status: int | None = None

    def follow(self, has_ended: Callable[[], bool], kill: Callable[[], None]) -> Run:
        """Follow to the end; `kill` at a limit."""
        timed_out_after, killed_test = None, False
        os.set_blocking(self.output, False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.events, selectors.EVENT_READ, self.read_events)
            selector.register(self.output, selectors.EVENT_READ, self.read_output)
            limit = self.next_limit()
            while not self.gone:
                ready = selector.select(max(0.0, min(LOOK, limit - time.monotonic())))
                for key, _ in ready:
                    if not key.data():
                        selector.unregister(key.fileobj)
                limit = self.next_limit()
                if not ready and has_ended():
                    break
                if time.monotonic() < limit or self.gone or self.starved(limit):
                    continue
                if timed_out_after is None:
                    killed_test = limit < self.limits.deadline
                    timed_out_after = self.limits.test_s if killed_test else self.limits.run_s
                    kill()
                    self.limits = Limits(time.monotonic() + DRAIN, 0, None)
                else:
                    break
        while self.read_output():
            pass
        return Run(self.verdict, self.collector.finish(), timed_out_after, killed_test, self.collect_s)

    def next_limit(self) -> float:
        """When the phase that runs now, or the whole run, must have ended."""
        if self.limits.test_s is None or self.phase_began is None:
            return self.limits.deadline
        return min(self.limits.deadline, self.phase_began + self.limits.test_s + self.extra)

    def starved(self, limit: float) -> bool:
        """At the limit of a phase: whether it has not had its processor time yet. Puts the limit off if so."""
        if limit >= self.limits.deadline or self.limits.test_s is None or self.phase_began is None:
            return False
        left = self.limits.test_s - (processor_seconds(self.pid) - self.phase_cpu)
        most = self.limits.test_s * PATIENCE - (time.monotonic() - self.phase_began)
        if min(left, most) <= 0:
            return False
        self.extra += max(0.01, min(left, most))
        return True

    def read_events(self) -> bool:
        """Take what has arrived; False at the end."""
        data = self.events.recv(CHUNK)
        *lines, self.partial = (self.partial + data).split(b"\n")
        for line in lines:
            event = parse(line)
            if event is not None:
                self.take(event)
        self.gone = self.gone or not data
        return bool(data)

    def take(self, event: dict[str, Any]) -> None:
        """One event."""
        kind, now = event["event"], time.monotonic()
        if kind == "exit":
            self.status, self.gone = event["status"], True
            return
        if kind in ("started", "begin"):
            self.pid = event.get("pid", self.pid)
            self.phase_began, self.phase_cpu, self.extra = now, event["cpu"], 0.0
        elif kind == "collected":
            self.collect_s, self.phase_began = now - self.started, None
        elif kind == "done":
            self.phase_began = None
        self.verdict.take(event)

    def read_output(self) -> bool:
        """Take what was printed; False where nothing more is there."""
        try:
            data = os.read(self.output, CHUNK)
        except BlockingIOError:
            return False
        self.collector.add(data)
        return bool(data)


def parse(line: bytes) -> dict[str, Any] | None:
    """An event; None for an empty line and for one that was torn when its process died."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used, in its own code and in the kernel; infinite where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return math.inf
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_cold(workspace: Workspace, request: dict[str, Any], limits: Limits, env: dict[str, str]) -> Run:
    """Run pytest in a new process. Raises `OSError` where the interpreter cannot be started."""
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    with ours, theirs:
        try:
            process = subprocess.Popen(
                [workspace.python, "-c", BOOT, workspace.package, "cold", str(theirs.fileno())],
                cwd=workspace.tmp,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        finally:
            os.close(write)
        try:
            theirs.close()
            ours.sendall(json.dumps(request).encode() + b"\n")
            follower = Follower(ours, read, limits, workspace)
            run = follower.follow(lambda: process.poll() is not None, lambda: kill_tree([process.pid]))
        finally:
            os.close(read)
            try:
                status = process.wait(ENDING)
            except subprocess.TimeoutExpired:  # something registered to run at its exit does not end
                kill_tree([process.pid])
                status = process.wait()
        if not run.verdict.ended and run.timed_out_after is None:
            run.verdict.exit_code = status
        return run


class WarmServer:
    """The base process that forks runs; started once, from the tool server's own process."""

    def __init__(self, python: str, package: str, tmp: str, env: dict[str, str]) -> None:
        self.python, self.env = python, env
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [python, "-c", BOOT, package, "warm", str(theirs.fileno())],
                cwd=tmp,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def run(self, workspace: Workspace, request: dict[str, Any], limits: Limits) -> Run | None:
        """Run pytest in a process forked from the base; None where that is not to be had."""
        message = json.dumps(request).encode()
        if len(message) > MAX_REQUEST:
            return None
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        with ours:
            try:
                with theirs:
                    transmit(self.control, message, [theirs.fileno(), write])
            except OSError:
                os.close(read)
                return None
            finally:
                os.close(write)
            follower = Follower(ours, read, limits, workspace)
            run = follower.follow(lambda: False, lambda: ours.shutdown(socket.SHUT_WR))
            os.close(read)
            if follower.status is None and not run.verdict.ended and run.timed_out_after is None:
                return None  # the base or its keeper died: a cold run tells what there is to tell
            if not run.verdict.ended and run.timed_out_after is None:
                run.verdict.exit_code = follower.status
            return run

    def close(self) -> None:
        """End the base, its keepers and their runs."""
        self.control.close()
        self.process.wait()
