"""Files that come in: a list, then their contents, written as they arrive; see `PutInProgress`."""

# Plain strings: a `Path` costs microseconds, and paths here may be no UTF-8.
# ruff: noqa: PTH211
from __future__ import annotations

import errno
import hashlib
import os
import time
from typing import Any

from agent_runtime.tools.files import Files, Seen, digest_of, key_of
from agent_runtime.tools.workspace import Outcome, failure

# A file may change again within one tick of the file system's clock (4 to 10 ms) and show the same change time:
# within this many nanoseconds of its writing, only the content tells.
CLOCK_TICK = 20_000_000


class PutInProgress:
    """Files that come in: the list at once, then the contents one after the other.

    Arguments of the call: `entries` of [path, "file" | "link", mode, size]; `delete`, paths; `baseline`, whether this
    becomes what changes are told against (the workspace is then emptied first).
    """

    def __init__(self, files: Files, arguments: dict[str, Any]) -> None:
        self.files = files
        self.entries = arguments["entries"]
        self.baseline = arguments["baseline"]
        self.delete = arguments["delete"]
        self.next = 0
        self.left = sum(entry[3] for entry in self.entries)
        self.missing = 0  # bytes of the open file still to come
        self.fd = -1
        self.content: Any = None
        self.target = b""
        self.failed: Outcome | None = None
        self.attempt(self.begin)

    def attempt(self, step: Any, *arguments: Any) -> None:
        """Run a step; after one that failed, the rest of the bytes are dropped."""
        if self.failed is not None:
            return
        try:
            step(*arguments)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self.failed = failure("no_space", "the repository does not fit into the sandbox's workspace")
            else:
                self.failed = failure("os_error", f"{error.strerror}: {error.filename}")
        except ValueError as error:
            self.failed = failure("invalid_arguments", str(error))

    def begin(self) -> None:
        """Make room; open the first file."""
        if self.baseline:
            self.files.clear()
        for path in self.delete:
            self.files.remove(self.files.inside(path))
        self.open_next()

    def open_next(self) -> None:
        """Open the next file that has content; write those that have none."""
        while self.next < len(self.entries):
            path, kind, _mode, size = self.entries[self.next]
            absolute = self.files.inside(path)
            self.files.make_parents(absolute)
            self.files.remove(absolute)
            self.content = hashlib.blake2b(digest_size=16)
            self.target = b""
            self.missing = size
            if kind == "file":
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                self.fd = os.open(absolute, flags, 0o600)
            if size:
                return
            self.close_file()

    def close_file(self) -> None:
        """The open file is whole."""
        path, kind, mode, _ = self.entries[self.next]
        absolute = self.files.inside(path)
        if kind == "file":
            os.fchmod(self.fd, mode)
            status = os.fstat(self.fd)
            os.close(self.fd)
            self.fd = -1
        else:
            os.symlink(self.target, os.fsencode(absolute))
            status = os.lstat(absolute)
        if self.baseline:
            self.files.baseline[path] = Seen(key_of(status), digest_of(status.st_mode, self.content), True)
        self.next += 1

    def write(self, data: bytes) -> None:
        """Spread `data` over the files it belongs to."""
        view = memoryview(data)
        while view:
            piece = view[: self.missing]
            view = view[self.missing :]
            self.content.update(piece)
            self.missing -= len(piece)
            if self.fd < 0:
                self.target += piece
            else:
                while piece:
                    piece = piece[os.write(self.fd, piece) :]
            if self.missing == 0:
                self.close_file()
                self.open_next()

    def feed(self, data: bytes) -> Outcome | None:
        """Take the next bytes; the outcome once all have come."""
        self.left -= len(data)
        self.attempt(self.write, data)
        if self.left > 0:
            return None
        self.abandon()
        if self.failed is not None:
            return self.failed
        if self.baseline:
            self.settle()
        return Outcome(ok=True, text="")

    def abandon(self) -> None:
        """Take no more bytes."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def settle(self) -> None:
        """Tell the files that were written just now from those whose status alone will tell a change."""
        recent = time.time_ns() - CLOCK_TICK
        for path, seen in self.files.baseline.items():
            if seen.status[1] < recent:
                self.files.baseline[path] = seen._replace(recent=False)
