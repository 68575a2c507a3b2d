"""Calls and files over the one stream to a tool server; the frames are those of `agent_runtime.tools.frames`.

One task reads the stream; whoever posts a frame sends it at once when the socket takes it, without a hop to another
task or thread: that is most of the difference between 0.2 ms and 1 ms a call.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskStatus

from agent_runtime.errors import ProtocolError, SandboxLost
from agent_runtime.sandboxes.contract import Phase, ToolError, ToolResult
from agent_runtime.tools import frames

READ = 256 * 1024  # bytes asked of the socket at once
HIGH_WATER = 1024 * 1024  # bytes waiting to be sent above which `put` waits
CANCEL_LIMIT = 5.0  # seconds that a cancelled call waits for its processes to be dead
ANSWER_LIMIT = 15.0  # seconds after a call's deadline without an answer: the server itself is stuck


class PlainStream:
    """Bytes as they come: a socket to a local tool server."""

    def output(self, data: bytes) -> bytes:
        """The tool server's output in what was received."""
        return data


class DockerStream:
    """Docker's attach stream without a terminal: stdout and stderr in pieces with an 8-byte header each."""

    HEADER = 8
    STDOUT = 1
    KEPT = 8192  # bytes of stderr kept to explain a loss

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.errors = bytearray()

    def output(self, data: bytes) -> bytes:
        """The tool server's stdout in what was received; its stderr is kept in `errors`."""
        self.buffer += data
        found: list[bytes] = []
        start = 0
        while len(self.buffer) - start >= self.HEADER:
            size = int.from_bytes(self.buffer[start + 4 : start + 8], "big")
            end = start + self.HEADER + size
            if len(self.buffer) < end:
                break
            piece = bytes(self.buffer[start + self.HEADER : end])
            if self.buffer[start] == self.STDOUT:
                found.append(piece)
            else:
                self.errors += piece
                del self.errors[: -self.KEPT]
            start = end
        del self.buffer[:start]
        return b"".join(found)


@dataclass
class Pending:
    """A call without its reply yet."""

    done: anyio.Event = field(default_factory=anyio.Event)
    reply: dict[str, Any] | None = None
    data: list[bytes] = field(default_factory=list)


class Channel:
    """The calls of one sandbox, multiplexed by id."""

    def __init__(self, stream: socket.socket, form: PlainStream | DockerStream) -> None:
        """`stream` is connected to the tool server and owned by the channel from now on."""
        stream.setblocking(False)
        self._socket = stream
        self._form = form
        self._reader = frames.FrameReader()
        self._pending: dict[int, Pending] = {}
        self._last_id = 0
        self._unsent = bytearray()
        self._unsent_event = anyio.Event()
        self._room_event = anyio.Event()
        self._lost: str | None = None
        self._closed = False

    @property
    def errors(self) -> str:
        """The end of what the tool server wrote to stderr, where the stream carries it."""
        kept = self._form.errors if isinstance(self._form, DockerStream) else b""
        return bytes(kept).decode("utf-8", "replace").strip()

    async def run(self, *, task_status: TaskStatus[dict[str, Any]]) -> None:
        """Move bytes until the stream ends; started by a task group, it reports the server's HELLO.

        Raises `SandboxLost` where the stream ends before that.
        """
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write)
                greeted = await self._read(task_status)
                group.cancel_scope.cancel()
        finally:
            self.close("the sandbox's stream was closed")
        if not greeted:
            raise SandboxLost(self._lost or "the sandbox ended")

    def post(self, data: bytes) -> None:
        """Send `data` now, or as soon as the socket takes it; frames keep their order."""
        if self._lost is not None:
            raise SandboxLost(self._lost)
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.lose(f"the sandbox ended: {error.strerror}")
                raise SandboxLost(f"the sandbox ended: {error.strerror}") from None
            if sent == len(data):
                return
            data = data[sent:]
        self._unsent += data
        self._unsent_event.set()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        timeout: float,
        data: Iterable[bytes] = (),
    ) -> tuple[ToolResult, list[bytes]]:
        """Make one call; `data` follows it, and what the server sends before its reply comes back with the result.

        Raises `SandboxLost`. When cancelled, tells the server and waits until the call's processes are dead.
        """
        self._last_id = call_id = self._last_id % 0xFFFFFFFF + 1
        request = {"id": call_id, "tool": tool, "arguments": dict(arguments), "timeout": timeout}
        try:
            head = frames.frame(frames.CALL, request)
        except frames.BadFrame as error:
            raise ProtocolError(str(error)) from None
        pending = self._pending[call_id] = Pending()
        try:
            self.post(head)
            for piece in pieces(data):
                self.post(frames.data_frame(call_id, piece))
                if len(self._unsent) > HIGH_WATER:
                    await self._room()
            with anyio.move_on_after(timeout + ANSWER_LIMIT):
                await pending.done.wait()
            if pending.reply is None:
                if self._lost is None:
                    self.lose(f"the sandbox gave no answer within {ANSWER_LIMIT:g} s after the deadline")
                raise SandboxLost(self._lost or "the sandbox ended")
            return result_of(pending.reply), pending.data
        except anyio.get_cancelled_exc_class():
            if self._lost is None and pending.reply is None:
                with anyio.move_on_after(CANCEL_LIMIT, shield=True):
                    self.post(frames.frame(frames.CANCEL, {"id": call_id}))
                    await pending.done.wait()
            raise
        finally:
            del self._pending[call_id]

    def lose(self, reason: str) -> None:
        """Fail every pending call, and every later one, with `SandboxLost(reason)`."""
        if self._lost is None:
            self._lost = reason
        for pending in self._pending.values():
            pending.done.set()
        self._room_event.set()
        self._unsent_event.set()

    def close(self, reason: str) -> None:
        """Close the stream; the tool server then kills everything and ends."""
        if not self._closed:
            self._closed = True
            self.lose(reason)
            self._socket.close()

    async def _room(self) -> None:
        while len(self._unsent) > HIGH_WATER and self._lost is None:
            self._room_event = anyio.Event()
            await self._room_event.wait()
        if self._lost is not None:
            raise SandboxLost(self._lost)

    async def _write(self) -> None:
        while self._lost is None:
            if not self._unsent:
                self._unsent_event = anyio.Event()
                await self._unsent_event.wait()
                continue
            await anyio.wait_writable(self._socket)
            try:
                sent = self._socket.send(memoryview(self._unsent)[:READ])
            except BlockingIOError:
                continue
            except OSError as error:
                self.lose(f"the sandbox ended: {error.strerror}")
                return
            del self._unsent[:sent]
            if len(self._unsent) <= HIGH_WATER:
                self._room_event.set()

    async def _read(self, task_status: TaskStatus[dict[str, Any]]) -> bool:
        greeted = False
        while self._lost is None:
            try:
                data = self._socket.recv(READ)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except OSError as error:
                self.lose(f"the sandbox ended: {error.strerror}")
                break
            if not data:
                self.lose("the sandbox ended: its main process is gone")
                break
            try:
                for kind, body in self._reader.feed(self._form.output(data)):
                    if not greeted:
                        if kind != frames.HELLO:
                            raise frames.BadFrame("the first frame is no greeting")
                        hello = frames.message(body)
                        if hello.get("protocol") != frames.PROTOCOL:
                            raise frames.BadFrame(f"the tool server speaks protocol {hello.get('protocol')}")
                        greeted = True
                        task_status.started(hello)
                    else:
                        self._receive(kind, body)
            except frames.BadFrame as error:
                self.lose(f"the sandbox's stream is malformed: {error}")
                break
        return greeted

    def _receive(self, kind: bytes, body: bytes) -> None:
        if kind == frames.DATA:
            call_id, piece = frames.split_data(body)
            if call_id in self._pending:
                self._pending[call_id].data.append(piece)
        elif kind == frames.REPLY:
            reply = frames.message(body)
            pending = self._pending.get(reply["id"])
            if pending is not None:
                pending.reply = reply
                pending.done.set()
        else:
            raise frames.BadFrame(f"a frame of kind {kind!r} goes the other way")


def pieces(data: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that fill a DATA frame: many small files share one."""
    buffer = bytearray()
    for part in data:
        buffer += part
        while len(buffer) >= frames.CHUNK:
            yield bytes(buffer[: frames.CHUNK])
            del buffer[: frames.CHUNK]
    if buffer:
        yield bytes(buffer)


def result_of(reply: Mapping[str, Any]) -> ToolResult:
    """A REPLY as the contract has it. Raises `ProtocolError` where a field is missing."""
    try:
        error = reply["error"]
        return ToolResult(
            ok=reply["ok"],
            text=reply["text"],
            data=reply["data"],
            error=None if error is None else ToolError(error["kind"], error["message"]),
            timed_out=reply["timed_out"],
            truncated=reply["truncated"],
            total_bytes=reply["total_bytes"],
            phases=tuple(Phase(name, start, end) for name, start, end in reply["phases"]),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise ProtocolError(f"a reply of the tool server is malformed: {problem!r}") from None
