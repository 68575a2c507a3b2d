"""Reading and replacing one text file of the workspace, safe against symlinks that lead out of it.

A path is resolved first, then opened with `O_NOFOLLOW`: a link that is put in its place in between is refused.
"""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH105, PTH108, PTH116, PTH118, PTH123
from __future__ import annotations

import os
import stat

from agent_runtime.tools.workspace import Outcome, OutsideWorkspace, Workspace, failure

MAX_FILE = 16 * 1024 * 1024
"""Bytes; what is larger is generated or data, and neither shown line by line nor patched."""


def locate(workspace: Workspace, path: str) -> str:
    """The real path of `path`. Raises `OutsideWorkspace`, also for what lies in `.git`."""
    if "\0" in path:
        raise OutsideWorkspace("a path cannot hold a NUL character")
    resolved = workspace.resolve(path)
    if workspace.relative(resolved).split("/")[0] == ".git":
        raise OutsideWorkspace(f"{path} is git's own; name a file of the work tree")
    return resolved


def load(real_path: str) -> tuple[bytes, int]:
    """The bytes and the permission bits of a regular file. Raises `OSError`."""
    descriptor = os.open(real_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        return file.read(MAX_FILE + 1), stat.S_IMODE(os.fstat(descriptor).st_mode)


def replace(real_path: str, data: bytes, mode: int) -> None:
    """Put `data` in place of the file at once, its permission bits kept: a reader sees the old or the new file."""
    folder, name = os.path.split(real_path)
    temporary = os.path.join(folder, f".{name[:200]}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
        os.replace(temporary, real_path)
    except BaseException:
        os.unlink(temporary)
        raise


def unreadable(real_path: str, path: str) -> Outcome | None:
    """Why `real_path` cannot be read as a text file; None where it is a regular file of acceptable size."""
    try:
        found = os.stat(real_path)
    except (FileNotFoundError, NotADirectoryError):
        return failure("not_found", f"{path} does not exist; search or inspect the directory first")
    if stat.S_ISDIR(found.st_mode):
        return failure("is_directory", f"{path} is a directory; name a file in it")
    if not stat.S_ISREG(found.st_mode):
        return failure("not_a_file", f"{path} is not a regular file")
    if found.st_size > MAX_FILE:
        return failure("too_large", f"{path} is {found.st_size} bytes, more than the {MAX_FILE} that are handled")
    return None
