"""Every error that `agent_runtime` raises on purpose: flat classes, one sentence each.

`retryable` says whether the same call may succeed when it is simply made again.
`exit_code` is what the command line ends with when the error reaches it:
2 for bad use or configuration, 3 for a sandbox or engine that failed.
"""

from typing import ClassVar


class AgentRuntimeError(Exception):
    """An error whose message says, in one sentence, what is wrong and what to do."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 3


class UsageError(AgentRuntimeError):
    """A command, option or argument that cannot be carried out as given."""

    exit_code = 2


class RepositoryError(AgentRuntimeError):
    """The repository to work on is missing, is not a directory, or cannot be read."""

    exit_code = 2


class CheckpointError(AgentRuntimeError):
    """A checkpoint folder is missing, incomplete or corrupt."""

    exit_code = 2


class UnsupportedSchema(AgentRuntimeError):
    """A JSON Schema keyword that no grammar expresses exactly; never weakened silently."""

    exit_code = 2

    def __init__(self, pointer: str, keyword: str, reason: str) -> None:
        """`pointer` is the JSON pointer of the subschema that holds `keyword`."""
        super().__init__(f"schema keyword {keyword!r} at {pointer or '/'} is not supported: {reason}")
        self.pointer = pointer
        self.keyword = keyword
        self.reason = reason


class CanvasTooSmall(AgentRuntimeError):
    """The shortest valid call is longer than the largest canvas."""

    exit_code = 2


class DecodingError(AgentRuntimeError):
    """The model could not produce a call, for example because its logits are not finite."""


class SandboxUnavailable(AgentRuntimeError):
    """No sandbox can be started: the Docker daemon is down, refused, or out of space."""


class ImageMissing(AgentRuntimeError):
    """The sandbox image is not there and could not be built or pulled."""


class SandboxLost(AgentRuntimeError):
    """The sandbox ended while it was in use; a new one may be started."""

    retryable = True


class ProtocolError(AgentRuntimeError):
    """A frame on the tool channel is malformed."""


class PatchConflict(AgentRuntimeError):
    """A patch does not apply to the repository as it is now."""

    exit_code = 2


class TraceError(AgentRuntimeError):
    """A recorded trace is missing or unreadable."""

    exit_code = 2
