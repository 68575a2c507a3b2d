"""What a run needs of this machine: each need checked for real, with the remedy beside it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from agent_runtime.errors import AgentRuntimeError

NEEDED_DISK_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Check:
    """One need."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    required: bool = True


def examine() -> list[Check]:
    """All checks, in the order in which a user would mend them; takes about two seconds (it loads the model)."""
    return [_guarded(name, check) for name, check in _CHECKS.items()]


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except AgentRuntimeError as error:
        return Check(name, ok=False, found=str(error))


def _python() -> Check:
    fine = sys.version_info >= (3, 11)
    return Check("python", fine, f"{platform.python_version()} at {sys.executable}", "install Python 3.11 or newer")


def _git() -> Check:
    if shutil.which("git") is None:
        return Check("git", ok=False, found="not on PATH", remedy="apt install git")
    done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False)
    return Check("git", done.returncode == 0, done.stdout.strip() or done.stderr.strip())


def _packages() -> Check:
    names = ("torch", "anyio", "docker", "pydantic", "opentelemetry-sdk")
    try:
        found = ", ".join(f"{name} {version(name)}" for name in names)
    except PackageNotFoundError as error:
        return Check("packages", ok=False, found=f"{error.name} is missing", remedy="run 'make setup'")
    return Check("packages", ok=True, found=found)


def _model() -> Check:
    from agent_runtime.decoding.checkpoint import load_checkpoint

    checkpoint = load_checkpoint("small")
    millions = checkpoint.parameters / 1e6
    dtype = str(checkpoint.dtype).removeprefix("torch.")
    return Check("model", ok=True, found=f"small: {millions:.1f} M parameters, {dtype} on {checkpoint.device}")


def _engine() -> Check:
    from agent_runtime.sandboxes.engine import docker_status

    status = docker_status()
    return Check("docker", status.answers, f"engine {status.version}" if status.answers else str(status.problem))


def _image() -> Check:
    from agent_runtime.sandboxes import daemon
    from agent_runtime.sandboxes.image import image_tag, is_present

    client = daemon.connect()
    try:
        with daemon.daemon_errors():
            present = is_present(client, image_tag())
    finally:
        client.close()
    remedy = "it is built on the first run, or now with 'make image'"
    return Check("image", present, image_tag() if present else "not built yet", remedy, required=False)


def _disk() -> Check:
    from agent_runtime.run_folder import state_folder

    place = state_folder()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    writable = os.access(place, os.W_OK)
    found = f"{free / 1024**3:.1f} GiB free at {place}" + ("" if writable else ", not writable")
    remedy = "free some space or set XDG_STATE_HOME to a folder on a larger disk"
    return Check("disk", writable and free >= NEEDED_DISK_BYTES, found, remedy)


def _traces() -> Check:
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    remedy = "traces go to the run's folder; set OTEL_EXPORTER_OTLP_ENDPOINT to send them to Jaeger too"
    return Check("collector", endpoint is not None, endpoint or "none configured", remedy, required=False)


def _memory() -> Check:
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return Check("memory", ok=True, found="unknown on this system", required=False)
    kibibytes = int(
        next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable")).split()[1]
    )
    return Check("memory", kibibytes > 1.5 * 1024**2, f"{kibibytes / 1024**2:.1f} GiB available", "close something")


_CHECKS: dict[str, Callable[[], Check]] = {
    "python": _python,
    "git": _git,
    "packages": _packages,
    "model": _model,
    "docker": _engine,
    "image": _image,
    "disk": _disk,
    "memory": _memory,
    "collector": _traces,
}
