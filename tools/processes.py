"""Process trees on Linux: who descends from whom, and killing all of them.

A call's root process and the server are child subreapers (prctl(2)): whatever is orphaned below them, daemons that
changed session included, becomes their child instead of init's, so the tree stays complete while its root lives.
"""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH123, PTH208
from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

KILL_LIMIT = 5.0  # seconds after which a process that ignores SIGKILL (uninterruptible sleep) is given up

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set a process attribute. Raises `OSError` where the kernel refuses."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def children(pid: int) -> list[int]:
    """The living children of `pid`, zombies included; empty where `pid` is gone."""
    try:
        found: list[int] = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(child) for child in file.read().split()]
        return found
    except (FileNotFoundError, ProcessLookupError):
        # Either something is gone, or the kernel (gVisor's) has no such file.
        return [child for child in _all_processes() if _parent(child) == pid]


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return -1


def descendants(pid: int) -> set[int]:
    """Everything below `pid`."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children(waiting.pop()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each of `pids` that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def reap() -> list[int]:
    """Collect every child that has ended, without waiting."""
    ended: list[int] = []
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append(pid)


def kill_tree(pids: Iterable[int]) -> None:
    """Kill `pids` and everything below them; the dead are left for their parent to collect.

    Stops them first until no new one appears: a fork bomb would otherwise outrun the signals.
    """
    roots = set(pids)
    stopped: set[int] = set()
    while True:
        alive = set(roots)
        for pid in roots:
            alive |= descendants(pid)
        if alive <= stopped:
            break
        send(alive - stopped, signal.SIGSTOP)
        stopped |= alive
    send(stopped, signal.SIGKILL)


def kill_descendants(pid: int) -> bool:
    """Kill and collect everything below the calling process `pid`, a subreaper; False where something is left.

    For a process whose children are all to die: children of its own that it still waits for are collected too.
    """
    limit = time.monotonic() + KILL_LIMIT
    pause = 0.0002
    while True:
        left = children(pid)
        if not left:
            return True
        if time.monotonic() > limit:
            return False
        kill_tree(left)
        reap()
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
