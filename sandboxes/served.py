"""A sandbox over a channel: everything but how the tool server comes to life and how it is taken down."""

from __future__ import annotations

import abc
import logging
import secrets
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from agent_runtime.errors import RepositoryError, SandboxLost, SandboxUnavailable
from agent_runtime.sandboxes import patches
from agent_runtime.sandboxes.channel import Channel, DockerStream, PlainStream
from agent_runtime.sandboxes.contract import PutReport, SandboxInfo, SandboxLimits, ToolResult
from agent_runtime.sandboxes.tree import Tree, read_tree

GREETING_LIMIT = 30.0  # seconds from the start of the main process to its greeting; 0.2 is usual
FILES_LIMIT = 120.0  # seconds for one transfer of files
NEW_LIMIT = 64 * 1024**2  # bytes of new files in a patch; what tests write in a loop takes git a minute

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Changes:
    """How the workspace differs from the baseline."""

    tree: Tree
    """New and changed files."""

    deleted: tuple[str, ...]

    def only(self, paths: Collection[str]) -> Changes:
        """Those of `paths`."""
        entries = {path: entry for path, entry in self.tree.entries.items() if path in paths}
        kept = Tree(self.tree.content, entries, self.tree.size)
        return Changes(kept, tuple(path for path in self.deleted if path in paths))


class ServedSandbox(abc.ABC):
    """The `Sandbox` contract, over the stream that `_launch` opens."""

    def __init__(self, limits: SandboxLimits) -> None:
        self._limits = limits
        self._channel: Channel | None = None
        self._info: SandboxInfo | None = None
        self._baseline = Tree()
        self._exclude = b""
        self._snapshots: dict[str, Changes] = {}

    @abc.abstractmethod
    async def _launch(self) -> tuple[socket.socket, PlainStream | DockerStream, bytes]:
        """Start the main process: its stream, how to read it, and the first bytes to send on it."""

    @abc.abstractmethod
    async def _remove(self) -> None:
        """Take everything down that `_launch` made, or began to make; bounded in time."""

    @abc.abstractmethod
    async def _describe(self, hello: Mapping[str, Any]) -> SandboxInfo:
        """What was started."""

    @abc.abstractmethod
    async def _explain(self) -> str:
        """Why the main process ended, in half a sentence; empty where nobody knows."""

    @property
    def info(self) -> SandboxInfo:
        """What it is; known once it is started."""
        if self._info is None:
            raise SandboxUnavailable("the sandbox is not started; use it as `async with sandbox:`")
        return self._info

    async def __aenter__(self) -> Self:
        """Start it."""
        try:
            stream, form, first = await self._launch()
            self._channel = Channel(stream, form)
            try:
                with anyio.fail_after(GREETING_LIMIT):
                    hello = await self._channel.greet(first)
            except TimeoutError:
                raise SandboxUnavailable(f"the tool server did not answer within {GREETING_LIMIT:g} s") from None
            except SandboxLost as error:
                raise SandboxUnavailable(f"the tool server did not start: {await self._why() or error}") from None
            self._info = await self._describe(hello)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what runs and remove it."""
        await self._end()

    async def _end(self) -> None:
        if self._channel is not None:
            self._channel.close("the sandbox was closed")
        with anyio.CancelScope(shield=True):
            await self._remove()

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout: float) -> ToolResult:
        """Run one tool."""
        result, _ = await self._call(tool, arguments, timeout)
        return result

    async def put(self, root: Path) -> PutReport:
        """Replace the workspace by the files of `root`."""
        read = await anyio.to_thread.run_sync(read_tree, root, self._limits.workspace_bytes)
        tree, skipped = read
        exclude = await anyio.to_thread.run_sync(read_exclude, root)
        await self._write(tree, (), baseline=True)
        self._baseline, self._exclude = tree, exclude
        self._snapshots.clear()
        paths = tuple(sorted(path for path, entry in tree.entries.items() if entry.kind == "file"))
        return PutReport(len(tree.entries), tree.size, paths, skipped)

    async def diff(self, paths: Collection[str] | None = None) -> bytes:
        """What changed since `put`, as a patch."""
        changes = await self._changes(NEW_LIMIT)
        if paths is not None:
            changes = changes.only(paths)
        return await anyio.to_thread.run_sync(patches.make_patch, self._baseline, changes.tree, changes.deleted)

    async def read(self, path: str) -> bytes:
        """The bytes of one file of the workspace as it is now."""
        _, content = await self._files_call("read", {"paths": [path], "follow": True})
        return content

    async def snapshot(self) -> str:
        """Remember the files as they are."""
        changes = await self._changes()
        name = secrets.token_hex(4)
        self._snapshots[name] = changes
        return name

    async def restore(self, name: str) -> None:
        """Make the files what they were at that snapshot."""
        wanted, now = self._snapshots[name], await self._changes()
        tree = Tree()
        gone = [path for path in now.tree.entries if path not in self._baseline.entries]
        for path in {**now.tree.entries, **dict.fromkeys(now.deleted), **wanted.tree.entries}:
            source = wanted.tree if path in wanted.tree.entries else self._baseline
            if path in source.entries and path not in wanted.deleted:
                entry = source.entries[path]
                tree.add(path, entry.kind, entry.mode, source.read(path))
        delete = [path for path in [*gone, *wanted.deleted] if path not in tree.entries]
        await self._write(tree, tuple(delete), baseline=False)

    async def _call(
        self, tool: str, arguments: Mapping[str, Any], timeout: float, tree: Tree | None = None
    ) -> tuple[ToolResult, list[bytes]]:
        if self._channel is None:
            raise SandboxUnavailable("the sandbox is not started; use it as `async with sandbox:`")
        try:
            return await self._channel.call(tool, arguments, timeout, tree.pieces() if tree is not None else ())
        except SandboxLost as error:
            why = await self._why()
            raise SandboxLost(f"{error} ({why})" if why else str(error)) from None

    async def _why(self) -> str:
        """How the main process ended, and the last line that it wrote to stderr."""
        errors = self._channel.errors if self._channel is not None else ""
        return ": ".join(part for part in (await self._explain(), errors.rpartition("\n")[2]) if part)

    async def _files_call(
        self, tool: str, arguments: Mapping[str, Any], tree: Tree | None = None
    ) -> tuple[Mapping[str, Any], bytes]:
        result, data = await self._call(tool, arguments, FILES_LIMIT, tree)
        if result.error is not None:
            raise RepositoryError(f"files could not be moved to or from the sandbox: {result.error.message}")
        return result.data, b"".join(data)

    async def _write(self, tree: Tree, delete: tuple[str, ...], *, baseline: bool) -> None:
        entries = [[entry.path, entry.kind, entry.mode, entry.size] for entry in tree.entries.values()]
        await self._files_call("put", {"entries": entries, "delete": delete, "baseline": baseline}, tree)

    async def _changes(self, new_limit: int | None = None) -> Changes:
        listed, _ = await self._files_call("changes", {})
        # No patch may write into a repository's own folder: git refuses it, and rightly.
        entries: list[list[Any]] = [entry for entry in listed["entries"] if ".git" not in entry[0].lower().split("/")]
        new = [entry[0] for entry in entries if entry[0] not in self._baseline.entries]
        if new:
            ignore = self._ignore_files()
            ignored = await anyio.to_thread.run_sync(patches.ignored, new, ignore, self._exclude)
            entries = [entry for entry in entries if entry[0] not in ignored]
        if new_limit is not None:
            entries = self._without_the_largest(entries, new_limit)
        tree = Tree()
        if entries:
            paths = [entry[0] for entry in entries]
            read, content = await self._files_call("read", {"paths": paths, "follow": False})
            start = 0
            for (path, kind, mode, _), size in zip(entries, read["sizes"], strict=True):
                tree.add(path, kind, mode, content[start : start + size])
                start += size
        return Changes(tree, tuple(listed["deleted"]))

    def _without_the_largest(self, entries: list[list[Any]], limit: int) -> list[list[Any]]:
        """`entries` without the largest new files, where all new files together hold more than `limit` bytes."""
        new = [entry for entry in entries if entry[0] not in self._baseline.entries]
        total, dropped = sum(entry[3] for entry in new), set()
        for path, _, _, size in sorted(new, key=lambda entry: -int(entry[3])):
            if total <= limit:
                break
            total -= size
            dropped.add(path)
        if dropped:
            log.warning("too large for a patch and left out of it: %s", ", ".join(sorted(dropped)))
        return [entry for entry in entries if entry[0] not in dropped]

    def _ignore_files(self) -> dict[str, bytes]:
        tree = self._baseline
        paths = [path for path in tree.entries if path.rpartition("/")[2] == ".gitignore"]
        return {path: tree.read(path) for path in paths if tree.entries[path].kind == "file"}


def read_exclude(root: Path) -> bytes:
    """The repository's own ignore list that is no part of its files; empty where there is none."""
    try:
        return (root / ".git" / "info" / "exclude").read_bytes()
    except OSError:
        return b""
