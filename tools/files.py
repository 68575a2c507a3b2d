"""Files in and out of the workspace, and what changed since they came in.

The server remembers, in memory that the workload cannot reach, how each file of the baseline looked when it was
written. A file counts as changed when its status (inode, change time, size, mode) differs and its content does too.
The change time cannot be set by a program, so nothing that a workload does to a file goes unseen.
"""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH115, PTH118, PTH208
from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from agent_runtime.tools.frames import CHUNK, data_frame
from agent_runtime.tools.workspace import Outcome, OutsideWorkspace, failure, resolve

FILE_CALLS = frozenset(["changes", "read"])

# Left out of the changes unless the baseline has files in them: what tools write, not people.
RUBBISH = frozenset(
    [
        ".git",
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".hypothesis",
        ".tox",
        ".venv",
        "node_modules",
    ]
)
RUBBISH_SUFFIXES = (".pyc", ".pyo")


class Seen(NamedTuple):
    """How a file of the baseline looked when it was written."""

    status: tuple[int, ...]
    digest: bytes
    recent: bool
    """Written so shortly before the put ended that its status alone proves nothing."""


def status_of(path: str) -> os.stat_result | None:
    """`lstat`, or None where there is no such file."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def key_of(status: os.stat_result) -> tuple[int, ...]:
    """The parts of a status that change whenever the file does."""
    return (status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_mode)


def kind_of(status: os.stat_result) -> str | None:
    """The kind "file" or "link", or None for what no patch can hold."""
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISLNK(status.st_mode):
        return "link"
    return None


def digest_of(mode: int, data: hashlib.blake2b) -> bytes:
    """Content and executable bit in one value."""
    data.update(b"x" if mode & 0o100 else b"-")
    return data.digest()


class Files:
    """The workspace's files."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.baseline: dict[str, Seen] = {}

    def inside(self, path: str) -> str:
        """The absolute path of a path that came over the channel. Raises `ValueError` where it leads elsewhere."""
        parts = path.split("/")
        if not path or any(part in ("", ".", "..") for part in parts) or "\0" in path:
            raise ValueError(f"not a path inside the workspace: {path!r}")
        return os.path.join(self.root, path)

    def make_parents(self, path: str) -> None:
        """Make the directories above `path`, in place of whatever else stands there."""
        above = self.root
        for part in os.path.relpath(path, self.root).split("/")[:-1]:
            above = os.path.join(above, part)
            status = status_of(above)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                os.unlink(above)
                status = None
            if status is None:
                os.mkdir(above, 0o755)

    def remove(self, path: str) -> None:
        """Remove a file, link or directory, if it is there."""
        status = status_of(path)
        if status is None:
            return
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(path)
            return
        os.chmod(path, 0o700)
        for name in os.listdir(path):
            self.remove(os.path.join(path, name))
        os.rmdir(path)

    def clear(self) -> None:
        """Empty the workspace."""
        for name in os.listdir(self.root):
            self.remove(os.path.join(self.root, name))
        self.baseline.clear()

    # Out

    def changes(self) -> Outcome:
        """What is new, changed and gone, without the contents."""
        kept_dirs: set[str] = set()
        for path in self.baseline:
            while "/" in path:
                path = path.rpartition("/")[0]
                if path in kept_dirs:
                    break
                kept_dirs.add(path)
        entries: list[list[Any]] = []
        found: set[str] = set()
        for path, status in self.walk("", kept_dirs):
            kind = kind_of(status)
            if kind is None:
                continue
            seen = self.baseline.get(path)
            if seen is not None:
                found.add(path)
                if seen.status == key_of(status) and not seen.recent:
                    continue
                if self.digest(path, status) == seen.digest:
                    continue
            elif path.endswith(RUBBISH_SUFFIXES):
                continue
            entries.append([path, kind, stat.S_IMODE(status.st_mode), status.st_size])
        deleted = sorted(path for path in self.baseline if path not in found)
        return Outcome(ok=True, text="", data={"entries": sorted(entries), "deleted": deleted})

    def walk(self, directory: str, kept_dirs: set[str]) -> Iterator[Any]:
        """(path, status) of everything below `directory` that is not a directory or rubbish."""
        absolute = os.path.join(self.root, directory) if directory else self.root
        below: list[str] = []
        try:
            listing = os.scandir(absolute)
        except PermissionError:
            os.chmod(absolute, 0o700)
            listing = os.scandir(absolute)
        with listing:
            for entry in listing:
                path = f"{directory}/{entry.name}" if directory else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in RUBBISH or path in kept_dirs:
                        below.append(path)
                else:
                    yield path, entry.stat(follow_symlinks=False)
        for path in below:
            yield from self.walk(path, kept_dirs)

    def pieces(self, path: str, status: os.stat_result) -> Iterator[bytes]:
        """The content of a file, or the target of a link."""
        absolute = os.path.join(self.root, path)
        if stat.S_ISLNK(status.st_mode):
            yield os.fsencode(os.readlink(absolute))
            return
        try:
            fd = os.open(absolute, os.O_RDONLY | os.O_NOFOLLOW)
        except PermissionError:
            os.chmod(absolute, stat.S_IMODE(status.st_mode) | 0o400)
            fd = os.open(absolute, os.O_RDONLY | os.O_NOFOLLOW)
            os.chmod(absolute, stat.S_IMODE(status.st_mode))
        try:
            while True:
                data = os.read(fd, CHUNK)
                if not data:
                    return
                yield data
        finally:
            os.close(fd)

    def digest(self, path: str, status: os.stat_result) -> bytes:
        """See `digest_of`."""
        content = hashlib.blake2b(digest_size=16)
        for piece in self.pieces(path, status):
            content.update(piece)
        return digest_of(status.st_mode, content)

    def read_call(self, name: str, arguments: dict[str, Any], call_id: int, sending: int) -> Outcome:
        """A "changes" or "read" call, in a process of its own; contents go to `sending` as DATA frames.

        "read" takes `paths`, and `follow`: whether a link is read as what it leads to instead of as a link.
        """
        try:
            if name == "changes":
                return self.changes()
            sizes = [self.send(path, arguments["follow"], call_id, sending) for path in arguments["paths"]]
            return Outcome(ok=True, text="", data={"sizes": sizes})
        except (OutsideWorkspace, ValueError) as error:
            return failure("outside_workspace", str(error))
        except OSError as error:
            return failure("os_error", f"{error.strerror}: {error.filename}")

    def send(self, path: str, follow: bool, call_id: int, sending: int) -> int:
        """Send one content; its size in bytes."""
        absolute = self.inside(path)
        if follow:
            absolute = resolve(self.root, path)
        size = 0
        for piece in self.pieces(os.path.relpath(absolute, self.root), os.lstat(absolute)):
            size += len(piece)
            view = memoryview(data_frame(call_id, piece))
            while view:
                view = view[os.write(sending, view) :]
        return size
