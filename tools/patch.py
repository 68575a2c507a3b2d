"""`patch` replaces lines or one block of a file byte-exactly; `undo` takes a patch back."""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH103, PTH108, PTH120
from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from typing import Any

from agent_runtime.tools import textfile
from agent_runtime.tools.lines import EditRefused, Splice, is_binary, replace_block, replace_lines, split
from agent_runtime.tools.workspace import Outcome, OutsideWorkspace, Workspace, failure

NEW_FILE_MODE = 0o644


def patch(
    workspace: Workspace,
    path: str,
    text: str,
    start: int | None = None,
    end: int | None = None,
    old: str | None = None,
) -> Outcome:
    """Replace lines of a file, or one block of text that occurs exactly once.

    Lines `start` to `end` become `text`; empty text deletes them, `end` = `start` - 1 inserts before `start`.
    Everything outside the edit stays byte for byte, and new lines take the newline style of those around them.

    Args:
        path: File, relative to the repository; with start 1 and end 0 a file that does not exist is made.
        text: What stands there afterwards.
        start: First line to replace, counted from 1.
        end: Last line to replace; `start` when left out.
        old: Instead of lines: the exact text to replace.
    """
    if (start is None) == (old is None):
        return failure("usage", "name either start (and end) or old, the lines or the block to replace")
    try:
        real_path = textfile.locate(workspace, path)
        problem = textfile.unreadable(real_path, path)
        created = problem is not None and not os.path.lexists(real_path) and (start, end) == (1, 0)
        if problem is not None and not created:
            return problem
        data, mode = (b"", NEW_FILE_MODE) if created else textfile.load(real_path)
        if is_binary(data):
            return failure("binary", f"{path} is a binary file, which has no lines to replace")
        if old is not None:
            splice = replace_block(data, old, text)
            end = splice.line + max(1, len(split(splice.removed))) - 1
        elif start is not None:
            end = start if end is None else end
            splice = replace_lines(data, start, end, text)
        changed = splice.apply(data)
        if created:
            os.makedirs(os.path.dirname(real_path), exist_ok=True)
        if created or changed != data:
            textfile.replace(real_path, changed, mode)
    except OutsideWorkspace as error:
        return failure("outside_workspace", str(error))
    except EditRefused as error:
        return failure("refused", str(error))
    except OSError as error:
        return failure("io", f"{path} cannot be patched: {error.strerror}")
    name = workspace.relative(real_path)
    assert end is not None
    return Outcome(
        ok=True,
        text=f"created {name}\n" if created else describe(name, splice, end),
        data={
            "path": name,
            "start": splice.line,
            "end": end,
            "lines": len(split(changed)),
            "changed": changed != data,
            "undo": undo_token(name, splice, changed, created),
        },
    )


def undo(workspace: Workspace, undo: str) -> Outcome:
    """Take a patch back: the file is again what it was, byte for byte.

    Args:
        undo: What the patch returned under that name; the file must still be as that patch left it.
    """
    try:
        made = json.loads(base64.b64decode(undo))
        name, splice = made["path"], Splice(made["offset"], unpack(made["removed"]), unpack(made["inserted"]), 1)
        real_path = textfile.locate(workspace, name)
        data, mode = textfile.load(real_path)
        if digest(data) != made["digest"]:
            return failure("changed", f"{name} has changed since that patch, which can no longer be taken back")
        if made["created"]:
            os.unlink(real_path)
        else:
            inverse = Splice(splice.offset, splice.inserted, splice.removed, splice.line)
            textfile.replace(real_path, inverse.apply(data), mode)
    except (binascii.Error, ValueError, KeyError, TypeError):
        return failure("usage", "this is no token of a patch")
    except OutsideWorkspace as error:
        return failure("outside_workspace", str(error))
    except OSError as error:
        return failure("io", f"the patch cannot be taken back: {error.strerror}")
    return Outcome(ok=True, text=f"took the patch of {name} back\n", data={"path": name})


def describe(name: str, splice: Splice, end: int) -> str:
    """What was done, in one line."""
    start = splice.line
    if end < start:
        return f"inserted before line {start} of {name}\n"
    verb = "replaced" if splice.inserted else "deleted"
    return f"{verb} line {start} of {name}\n" if start == end else f"{verb} lines {start}-{end} of {name}\n"


def undo_token(name: str, splice: Splice, changed: bytes, created: bool) -> str:
    """All that `undo` needs, so that it depends on no process's memory."""
    made: dict[str, Any] = {
        "path": name,
        "offset": splice.offset,
        "removed": pack(splice.removed),
        "inserted": pack(splice.inserted),
        "digest": digest(changed),
        "created": created,
    }
    return base64.b64encode(json.dumps(made).encode()).decode()


def digest(data: bytes) -> str:
    """A fingerprint of a file: 1 ms for a megabyte."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def pack(data: bytes) -> str:
    """Bytes as JSON text."""
    return base64.b64encode(data).decode()


def unpack(text: str) -> bytes:
    """The inverse of `pack`. Raises `binascii.Error`."""
    return base64.b64decode(text, validate=True)
