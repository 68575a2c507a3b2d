"""The files of a repository on the host: which ones belong to it, and their contents in one stream."""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH114, PTH118
from __future__ import annotations

import io
import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from agent_runtime.errors import RepositoryError

LEFT_OUT = frozenset([".git", ".venv", "__pycache__", "node_modules"])
PIECE = 256 * 1024  # bytes read at once
# Only lists of files are asked for. A file-system monitor is a program that the repository's settings name; and that
# the folder is somebody else's (git's "dubious ownership") would make us read it as if it were no repository at all.
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "safe.directory=*")


@dataclass(frozen=True)
class Entry:
    """One file or symbolic link."""

    path: str
    """Relative to the root, with forward slashes; bytes that are no UTF-8 as surrogates."""

    kind: Literal["file", "link"]
    mode: int
    """Permission bits."""

    size: int
    offset: int
    """Where its content begins in the tree's stream."""

    @property
    def git_mode(self) -> str:
        """The mode as git writes it."""
        if self.kind == "link":
            return "120000"
        return "100755" if self.mode & 0o100 else "100644"


@dataclass
class Tree:
    """Files as they were when they were read, whatever becomes of them later; in memory."""

    content: io.BytesIO = field(default_factory=io.BytesIO)
    entries: dict[str, Entry] = field(default_factory=dict)
    size: int = 0

    def add(self, path: str, kind: Literal["file", "link"], mode: int, content: bytes) -> None:
        """Append one file."""
        self.content.seek(self.size)
        self.content.write(content)
        self.entries[path] = Entry(path, kind, mode, len(content), self.size)
        self.size += len(content)

    def read(self, path: str) -> bytes:
        """The content of one file, or the target of a link."""
        entry = self.entries[path]
        self.content.seek(entry.offset)
        return self.content.read(entry.size)

    def pieces(self) -> Iterator[bytes]:
        """All contents, in the order of the entries."""
        self.content.seek(0)
        while piece := self.content.read(PIECE):
            yield piece


def read_tree(root: Path, limit: int) -> tuple[Tree, tuple[str, ...]]:
    """The repository's files, and the paths that were skipped.

    Raises `RepositoryError` where `root` is no readable directory or its files are larger than `limit` bytes.
    """
    if not root.is_dir():
        reason = "is not a directory" if root.exists() else "does not exist"
        raise RepositoryError(f"{root} {reason}; name the folder of a repository")
    tree, skipped = Tree(), []
    for path in list_files(root):
        absolute = root / path
        try:
            status = absolute.lstat()
            if stat.S_ISLNK(status.st_mode):
                tree.add(path, "link", 0o777, os.fsencode(absolute.readlink()))
            elif stat.S_ISREG(status.st_mode):
                if tree.size + status.st_size > limit:
                    raise RepositoryError(
                        f"{root} holds more than {limit / 1024**2:.0f} MiB (at {path}): "
                        "make it a git repository that ignores what the tests do not need"
                    )
                tree.add(path, "file", stat.S_IMODE(status.st_mode), absolute.read_bytes())
            elif not stat.S_ISDIR(status.st_mode):
                skipped.append(path)
        except FileNotFoundError:
            continue  # tracked, but deleted in the work tree
        except OSError:
            skipped.append(path)
    return tree, tuple(skipped)


def list_files(root: Path) -> list[str]:
    """What git tracks plus what it neither tracks nor ignores; everything but `LEFT_OUT` where that is nothing."""
    if is_git_repository(root):
        command = [*GIT, "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode != 0:
            raise RepositoryError(f"git cannot list {root}: {done.stderr.decode('utf-8', 'replace').strip()}")
        # A path ends in a slash where it is a repository of its own: nothing of that is sent.
        paths = {os.fsdecode(path) for path in done.stdout.split(b"\0") if path and not path.endswith(b"/")}
        if paths:
            return sorted(paths)
        # A folder that an enclosing repository ignores, say a home directory under git.
    found = []
    for directory, names, files in os.walk(root, onerror=unreadable):
        names[:] = [name for name in names if name not in LEFT_OUT]
        links = [name for name in names if os.path.islink(os.path.join(directory, name))]
        found += [os.path.relpath(os.path.join(directory, name), root) for name in files + links]
    return sorted(found)


def unreadable(error: OSError) -> None:
    """What `os.walk` does with a directory that it cannot read."""
    raise RepositoryError(f"{error.filename} cannot be read: {error.strerror}")


def is_git_repository(root: Path) -> bool:
    """Whether `root` lies in a git work tree and git is installed."""
    try:
        command = [*GIT, "-C", str(root), "rev-parse", "--is-inside-work-tree"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0 and done.stdout.strip() == b"true"
