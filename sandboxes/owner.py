"""Who owns what is left on a machine, and whether that process still lives."""

from __future__ import annotations

import os
from pathlib import Path


def identity() -> dict[str, str]:
    """What tells this process from every other one that ever ran: the labels of what it owns."""
    pid = os.getpid()
    return {
        "agent-runtime.owner-pid": str(pid),
        "agent-runtime.owner-start": start_time(pid) or "",
        "agent-runtime.owner-boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "agent-runtime.owner-pid-namespace": os.readlink("/proc/self/ns/pid"),  # noqa: PTH115
    }


def start_time(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def is_dead(labels: dict[str, str]) -> bool:
    """Whether the process that `identity` described is gone for certain.

    Never for one of another boot, machine or process namespace: from here nobody can tell.
    """
    here = identity()
    for name in ("agent-runtime.owner-boot", "agent-runtime.owner-pid-namespace"):
        if labels.get(name) != here[name]:
            return False
    pid = labels.get("agent-runtime.owner-pid", "")
    return pid.isdigit() and start_time(int(pid)) != labels.get("agent-runtime.owner-start")
