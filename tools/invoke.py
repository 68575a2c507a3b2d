"""Calling a tool's function, and writing down what came of it as a REPLY frame."""

from __future__ import annotations

import errno
import inspect
from collections.abc import Callable
from typing import Any

from agent_runtime.tools.frames import MAX_FRAME, REPLY, BadFrame, frame
from agent_runtime.tools.workspace import Outcome, OutsideWorkspace, Workspace, failure


def invoke(function: Callable[..., Outcome], workspace: Workspace, arguments: dict[str, Any]) -> Outcome:
    """The outcome of one call; what a tool raises becomes an outcome too."""
    try:
        return function(workspace, **arguments)
    except TypeError as error:
        try:
            inspect.signature(function).bind(workspace, **arguments)
        except TypeError as misfit:
            return failure("invalid_arguments", f"the arguments do not fit: {misfit}")
        return failure("internal", f"the tool failed: TypeError: {error}")
    except OutsideWorkspace as error:
        return failure("outside_workspace", str(error))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.ENOMEM):
            return failure("no_processes", "the sandbox's limit of processes or memory is reached")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return failure("no_space", "the sandbox's disk is full")
        return failure("os_error", f"{error.strerror}: {error.filename}" if error.filename else str(error))
    except MemoryError:
        return failure("no_memory", "the sandbox's memory limit is reached")
    except Exception as error:
        return failure("internal", f"the tool failed: {type(error).__name__}: {error}")


def reply_body(call_id: int, outcome: Outcome, phases: list[tuple[str, int, int]]) -> bytes:
    """The REPLY frame of a call."""
    reply = {
        "id": call_id,
        "ok": outcome.ok,
        "text": outcome.text,
        "data": outcome.data,
        "error": outcome.error,
        "timed_out": outcome.timed_out,
        "truncated": outcome.truncated,
        "total_bytes": outcome.total_bytes,
        "phases": phases,
    }
    try:
        return frame(REPLY, reply)
    except (BadFrame, TypeError, ValueError) as error:
        message = f"the result cannot be sent (at most {MAX_FRAME} bytes of JSON): {error}"
        return frame(
            REPLY,
            {**reply, "ok": False, "text": message, "data": {}, "error": {"kind": "internal", "message": message}},
        )
