"""Where tools run: the Sandbox contract, Docker containers, local processes, the channel, the image, the engine.

May import `errors` and `tools`. Knows nothing of agents, decoders or traces. Importing it imports no docker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agent_runtime.errors import UsageError

if TYPE_CHECKING:
    from agent_runtime.sandboxes.contract import Kind, Sandbox, SandboxLimits

__all__ = ["open_sandbox"]


def open_sandbox(
    kind: Kind,
    *,
    run_id: str,
    image: str | None = None,
    limits: SandboxLimits | None = None,
    progress: Callable[[str], None] | None = None,
) -> Sandbox:
    """A sandbox that `async with` starts.

    `image` is for Docker: any image with `python3` (3.8 or newer); None takes the project's own, which is built
    the first time. `progress` hears, in words, what takes long. Raises `UsageError` for another `kind`.
    """
    # Imported here: `agent-runtime --help` must not pay for docker (0.2 s).
    if kind == "docker":
        from agent_runtime.sandboxes.docker import DockerSandbox

        return DockerSandbox(run_id=run_id, image=image, limits=limits, progress=progress)
    if kind == "local":
        from agent_runtime.sandboxes.local import LocalSandbox

        return LocalSandbox(limits=limits)
    raise UsageError(f"there is no sandbox {kind!r}; there are docker and local")
