"""What every sandbox does: `Sandbox`, its limits and its results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["docker", "local"]

MIB = 1024 * 1024


class SandboxLimits(BaseModel):
    """How much of the machine one sandbox may use."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    memory_bytes: int = Field(default=2048 * MIB, ge=64 * MIB)
    """Memory of all processes and of the files in the workspace and in /tmp together; there is no swap."""

    cpus: float = Field(default=2.0, gt=0)
    """Processors, as a share of time: 0.5 is half of one."""

    pids: int = Field(default=256, ge=16)
    """Processes and threads, the tool server's own two included."""

    workspace_bytes: int = Field(default=512 * MIB, ge=MIB)
    """Size of the workspace; a repository that is larger is refused."""

    tmp_bytes: int = Field(default=512 * MIB, ge=MIB)
    """Size of /tmp, where HOME and spilled output lie."""

    output_bytes: int = Field(default=64 * 1024, ge=1024)
    """Bytes kept of each output stream of a command, half from its begin and half from its end."""


@dataclass(frozen=True)
class SandboxInfo:
    """What a started sandbox is."""

    kind: Kind
    isolates: bool
    """Whether the code in it is kept from the rest of the machine."""

    name: str
    """The container's id, or the process id of the tool server."""

    image: str | None
    python: str
    """Version of the interpreter that the tool server runs on."""

    workspace: str
    """Absolute path of the repository's copy, as the code in the sandbox sees it."""


@dataclass(frozen=True)
class Phase:
    """A stretch of time on `time.time_ns`' clock."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolError:
    """Why a call could not be carried out."""

    kind: str
    message: str


@dataclass(frozen=True)
class ToolResult:
    """What one call came to."""

    ok: bool
    text: str
    """What the transcript gets; deterministic: no times, no addresses."""

    data: Mapping[str, Any]
    error: ToolError | None = None
    timed_out: bool = False
    truncated: bool = False
    total_bytes: int = 0
    """Bytes of output before the cap, where `truncated`."""

    phases: tuple[Phase, ...] = ()
    """Inside the sandbox: "queue" (until its process runs), "process" (the tool), "cleanup" (until all is dead)."""


@dataclass(frozen=True)
class PutReport:
    """What was put into the workspace."""

    files: int
    total_bytes: int
    paths: tuple[str, ...] = ()
    """The regular files, relative to the root, sorted: what the loop lets the model name."""

    skipped: tuple[str, ...] = ()
    """Paths left out because they are no files, directories or links, or cannot be read."""


class Sandbox(Protocol):
    """A place where tools run. Use it as `async with sandbox:`; it is started on entry and gone after exit.

    Every method raises `SandboxLost` once the sandbox has ended; calls may run side by side.
    """

    @property
    def info(self) -> SandboxInfo:
        """What it is; known once it is started."""
        ...

    async def __aenter__(self) -> Self:
        """Start it. Raises `SandboxUnavailable` or `ImageMissing`, and then leaves nothing behind."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Kill what runs and remove it; bounded in time, also under cancellation."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout: float) -> ToolResult:
        """Run one tool for at most `timeout` seconds.

        When it returns, or is cancelled, nothing that the call started is left alive.
        """
        ...

    async def put(self, root: Path) -> PutReport:
        """Replace the workspace by the files of `root`, and tell changes against them from now on.

        Of a git repository: what is tracked, and what is untracked but not ignored. Raises `RepositoryError` where
        `root` is no readable directory or larger than the workspace.
        """
        ...

    async def read(self, path: str) -> bytes:
        """The bytes of one file of the workspace as it is now. Raises `RepositoryError` where it cannot be read."""
        ...

    async def diff(self, paths: Collection[str] | None = None) -> bytes:
        """What changed since `put`, as a patch for `git apply`; empty where nothing did.

        With `paths` only of those files: tests leave files behind that are no part of a change.
        Of new files at most 64 MiB: the largest beyond that, say what a test wrote until the disk was full, are left
        out, and a warning names them.
        """
        ...

    async def snapshot(self) -> str:
        """Remember the files as they are, under the name returned; costs as much as what changed since `put`."""
        ...

    async def restore(self, name: str) -> None:
        """Make the files what they were at that snapshot. Raises `KeyError` where there is none of that name."""
        ...
