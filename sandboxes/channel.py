"""Calls and files over the one stream to a tool server; the frames are those of `agent_runtime.tools.frames`.

There is no task of its own that reads: of the calls that wait for a reply, one reads for all and hands that on when
it has its own. So a lone call costs no hop to another task or thread, which is a third of its time.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from agent_runtime.errors import ProtocolError, SandboxLost
from agent_runtime.sandboxes.contract import Phase, ToolError, ToolResult
from agent_runtime.tools import frames

READ = 256 * 1024  # bytes asked of the socket at once
HIGH_WATER = 1024 * 1024  # bytes waiting to be sent above which `put` waits
LONE_WAIT = 1  # ms that a lone call waits in the kernel before it lets the event loop run: saves 0.1 of 0.3 ms
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

    reply: dict[str, Any] | None = None
    data: list[bytes] = field(default_factory=list)
    wake: anyio.Event | None = None
    """Set when there is a reply, the stream is lost, or it is this call's turn to read; None while it reads."""


class Channel:
    """The calls of one sandbox, multiplexed by id."""

    def __init__(self, stream: socket.socket, form: PlainStream | DockerStream) -> None:
        """`stream` is connected to the tool server and owned by the channel from now on."""
        stream.setblocking(False)
        self._socket = stream
        self._form = form
        self._reader = frames.FrameReader()
        self._hello: dict[str, Any] | None = None
        self._pending: dict[int, Pending] = {}
        self._reading = False
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)
        self._last_id = 0
        self._unsent = bytearray()
        self._sending = anyio.Lock()
        self._lost: str | None = None
        self._closed = False

    @property
    def errors(self) -> str:
        """The end of what the tool server wrote to stderr, where the stream carries it."""
        kept = self._form.errors if isinstance(self._form, DockerStream) else b""
        return bytes(kept).decode("utf-8", "replace").strip()

    async def greet(self, first: bytes) -> dict[str, Any]:
        """Send the first bytes and wait for the server's HELLO. Raises `SandboxLost`."""
        self.post(first)
        await self._flush()
        while self._hello is None and self._lost is None:
            await anyio.wait_readable(self._socket)
            self._read()
        if self._hello is None:
            raise SandboxLost(self._lost or "the sandbox ended")
        return self._hello

    def post(self, data: bytes) -> None:
        """Send what the socket takes of `data` now; `_flush` sends the rest, in order. Raises `SandboxLost`."""
        if self._lost is not None:
            raise SandboxLost(self._lost)
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.lose(f"the sandbox ended: {error.strerror}")
            raise SandboxLost(f"the sandbox ended: {error.strerror}") from None
        if sent < len(data):
            self._unsent += data[sent:]

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
        await anyio.lowlevel.checkpoint()
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
                    await self._flush()
            if self._unsent:
                await self._flush()
            if len(self._pending) == 1 and self._poll.poll(LONE_WAIT):
                self._read()
            if not self._settled(pending):
                with anyio.move_on_after(timeout + ANSWER_LIMIT):
                    await self._reply_to(pending)
            if pending.reply is None:
                if self._lost is None:
                    self.lose(f"the sandbox gave no answer within {ANSWER_LIMIT:g} s after the deadline")
                raise SandboxLost(self._lost or "the sandbox ended")
            return result_of(pending.reply), pending.data
        except anyio.get_cancelled_exc_class():
            if self._lost is None and pending.reply is None:
                with anyio.move_on_after(CANCEL_LIMIT, shield=True):
                    self.post(frames.frame(frames.CANCEL, {"id": call_id}))
                    await self._flush()
                    await self._reply_to(pending)
            raise
        finally:
            del self._pending[call_id]

    def lose(self, reason: str) -> None:
        """Fail every pending call, and every later one, with `SandboxLost(reason)`."""
        if self._lost is None:
            self._lost = reason
        for pending in self._pending.values():
            if pending.wake is not None:
                pending.wake.set()

    def close(self, reason: str) -> None:
        """Close the stream; every call that waits fails, and the tool server kills everything and ends."""
        self.lose(reason)
        self._closed = True
        if not self._reading:
            self._socket.close()
        else:
            # The call that reads wakes up from this; it closes the socket, which may not go while it is waited on.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _settled(self, pending: Pending) -> bool:
        return pending.reply is not None or self._lost is not None

    async def _reply_to(self, pending: Pending) -> None:
        """Wait until `pending` has its reply or the stream is lost; read for all where nobody else does."""
        while self._reading and not self._settled(pending):
            pending.wake = anyio.Event()
            try:
                await pending.wake.wait()
            finally:
                # Woken to read, but cancelled at the same moment: then the turn goes on to another.
                if not self._settled(pending):
                    self._hand_on(pending)
                pending.wake = None
        if self._settled(pending):
            return
        self._reading = True
        try:
            while not self._settled(pending):
                await anyio.wait_readable(self._socket)
                self._read()
        finally:
            self._reading = False
            self._hand_on(pending)
            if self._closed:
                self._socket.close()

    def _hand_on(self, pending: Pending) -> None:
        """Wake one of the other calls that wait, to read; nothing to do where somebody reads."""
        if self._reading:
            return
        for other in self._pending.values():
            if other is not pending and other.reply is None and other.wake is not None:
                other.wake.set()
                return

    async def _flush(self) -> None:
        """Wait until everything that was posted is sent. Raises `SandboxLost`."""
        async with self._sending:
            while self._unsent and self._lost is None:
                await anyio.wait_writable(self._socket)
                try:
                    sent = self._socket.send(memoryview(self._unsent)[:READ])
                except BlockingIOError:
                    continue
                except OSError as error:
                    self.lose(f"the sandbox ended: {error.strerror}")
                    break
                del self._unsent[:sent]
        if self._lost is not None:
            raise SandboxLost(self._lost)

    def _read(self) -> None:
        """Take what has come, without waiting."""
        try:
            data = self._socket.recv(READ)
        except BlockingIOError:
            return
        except OSError as error:
            self.lose(f"the sandbox ended: {error.strerror}")
            return
        if not data:
            self.lose("the sandbox ended: its main process is gone")
            return
        try:
            for kind, body in self._reader.feed(self._form.output(data)):
                if self._hello is not None:
                    self._receive(kind, body)
                elif kind != frames.HELLO:
                    raise frames.BadFrame("the first frame is no greeting")
                else:
                    hello = frames.message(body)
                    if hello.get("protocol") != frames.PROTOCOL:
                        raise frames.BadFrame(f"the tool server speaks protocol {hello.get('protocol')}")
                    self._hello = hello
        except frames.BadFrame as error:
            self.lose(f"the sandbox's stream is malformed: {error}")

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
                if pending.wake is not None:
                    pending.wake.set()
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
