"""Frames, and the channel against a server that is made of a few lines and may misbehave."""

from __future__ import annotations

import json
import socket

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.errors import ProtocolError, SandboxLost
from agent_runtime.sandboxes.channel import Channel, DockerStream, PlainStream, pieces
from agent_runtime.tools import frames

KINDS = sorted(frames.KINDS)
HELLO = frames.frame(frames.HELLO, {"protocol": frames.PROTOCOL, "python": "3", "root": "/"})
REPLY = {
    "ok": True, "text": "", "data": {}, "error": None, "timed_out": False, "truncated": False, "total_bytes": 0,
    "phases": [],
}  # fmt: skip


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` in pieces of the given sizes, the last one whatever is left."""
    found = []
    for size in sizes:
        found.append(data[:size])
        data = data[size:]
    return [*found, data]


# Frames


@given(
    bodies=st.lists(st.tuples(st.sampled_from(KINDS), st.binary(max_size=300)), max_size=12),
    sizes=st.lists(st.integers(0, 40), max_size=80),
)
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(bodies, sizes):
    stream = b"".join(len(body).to_bytes(4, "big") + kind + body for kind, body in bodies)
    reader = frames.FrameReader()
    found = [one for piece in cut(stream, sizes) for one in reader.feed(piece)]
    assert found == bodies
    assert len(reader) == 0


@given(
    value=st.dictionaries(
        st.text(max_size=5),
        st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)),
    )
)
def test_messages_come_out_as_they_went_in(value):
    ((kind, body),) = frames.FrameReader().feed(frames.frame(frames.CALL, value))
    assert kind == frames.CALL
    assert frames.message(body) == value


@given(data=st.binary(min_size=5, max_size=200))
def test_garbage_is_refused_or_waited_for_but_never_misread(data):
    reader = frames.FrameReader()
    try:
        for kind, body in reader.feed(data):
            assert kind in frames.KINDS
            assert kind + body in data
    except frames.BadFrame:
        return
    assert len(reader) < 5 or int.from_bytes(data[:4], "big") <= frames.MAX_FRAME


def test_a_length_beyond_the_limit_is_refused_before_the_body_comes():
    with pytest.raises(frames.BadFrame, match="larger"):
        list(frames.FrameReader().feed((frames.MAX_FRAME + 1).to_bytes(4, "big") + frames.CALL))


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(body):
    with pytest.raises(frames.BadFrame):
        frames.message(body)


@given(parts=st.lists(st.binary(max_size=100), max_size=20))
def test_pieces_hold_the_same_bytes(parts):
    assert b"".join(pieces(parts)) == b"".join(parts)


@given(
    parts=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=10),
    sizes=st.lists(st.integers(0, 30), max_size=40),
)
def test_dockers_stream_is_taken_apart(parts, sizes):
    stream = b"".join(bytes([number, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for number, data in parts)
    form = DockerStream()
    assert b"".join(form.output(piece) for piece in cut(stream, sizes)) == b"".join(d for n, d in parts if n == 1)
    assert bytes(form.errors) == b"".join(data for number, data in parts if number == 2)


# The channel


class Server:
    """The other end: what it reads, and what it is told to answer."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.reader = frames.FrameReader()
        self.waiting = []

    async def send(self, data: bytes) -> None:
        while data:
            await anyio.wait_writable(self.stream)
            data = data[self.stream.send(data) :]

    async def next(self):
        """The next (kind, body); (None, b"") at the end of the stream."""
        while not self.waiting:
            await anyio.wait_readable(self.stream)
            data = self.stream.recv(1 << 16)
            if not data:
                return None, b""
            self.waiting += self.reader.feed(data)
        return self.waiting.pop(0)

    async def answer(self, call_id: int, **fields) -> None:
        await self.send(frames.frame(frames.REPLY, {**REPLY, "id": call_id, **fields}))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
async def ends(anyio_backend):
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with theirs:
        server = Server(theirs)
        channel = Channel(ours, PlainStream())
        await server.send(HELLO)
        await channel.greet(b"")
        yield channel, server
        channel.close("the test is over")


@pytest.mark.anyio
async def test_answers_find_their_calls_in_any_order(ends):
    channel, server = ends
    texts = {}

    async def ask(number):
        result, _ = await channel.call("echo", {"number": number}, 5)
        texts[number] = result.text

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(ask, number)
        asked = [json.loads((await server.next())[1]) for _ in range(10)]
        for request in reversed(asked):
            await server.answer(request["id"], text=str(request["arguments"]["number"]))
    assert texts == {number: str(number) for number in range(10)}


@pytest.mark.anyio
async def test_more_data_than_the_socket_takes_arrives_whole_while_other_calls_pass(ends):
    channel, server = ends
    sent = bytes(range(256)) * 20_000
    received = bytearray()
    put_id = 0
    done = anyio.Event()

    async def serve():
        nonlocal put_id
        while True:
            kind, body = await server.next()
            if kind == frames.DATA:
                received.extend(frames.split_data(body)[1])
                if len(received) == len(sent):
                    await server.answer(put_id)
                    done.set()
            else:
                request = json.loads(body)
                if request["tool"] == "put":
                    put_id = request["id"]
                else:
                    await server.answer(request["id"])

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        group.start_soon(channel.call, "put", {}, 5, [sent])
        await channel.call("noop", {}, 5)
        with anyio.fail_after(5):
            await done.wait()
        group.cancel_scope.cancel()
    assert bytes(received) == sent


@pytest.mark.anyio
async def test_a_cancelled_call_tells_the_server_and_waits_for_its_word(ends):
    channel, server = ends
    seen = []

    async def serve():
        while True:
            kind, body = await server.next()
            seen.append(kind)
            if kind == frames.CANCEL:
                await anyio.sleep(0.1)
                seen.append("dead")
                await server.answer(json.loads(body)["id"], ok=False)

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        with anyio.move_on_after(0.05):
            await channel.call("sleep", {}, 60)
        assert seen == [frames.CALL, frames.CANCEL, "dead"]
        group.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("last", [b"", b"\x00\x00\x00\x02Z{}", frames.frame(frames.CALL, {}), b"\x00\x00\x00\x01R["])
async def test_a_stream_that_ends_or_breaks_loses_every_call(ends, last):
    channel, server = ends

    async def ask():
        with pytest.raises(SandboxLost):
            await channel.call("noop", {}, 5)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
        await server.next()
        await server.send(last)
        if not last:
            server.stream.shutdown(socket.SHUT_RDWR)
    with pytest.raises(SandboxLost):
        await channel.call("noop", {}, 5)


@pytest.mark.anyio
async def test_when_the_call_that_reads_is_cancelled_another_one_reads_on(ends):
    channel, server = ends
    texts = []

    async def ask():
        texts.append((await channel.call("noop", {}, 5))[0].text)

    async def serve(reader):
        asked = [json.loads((await server.next())[1])["id"] for _ in range(3)]
        reader.cancel()
        kind, body = await server.next()
        assert (kind, json.loads(body)["id"]) == (frames.CANCEL, asked[0])
        for call_id in asked[1:]:
            await server.answer(call_id, text=str(call_id))
        await server.answer(asked[0])

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group, anyio.create_task_group() as reading:
            reading.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(ask)
            group.start_soon(ask)
            group.start_soon(serve, reading.cancel_scope)
    assert sorted(texts) == ["2", "3"]


@pytest.mark.anyio
async def test_a_reply_without_its_fields_is_a_protocol_error(ends):
    channel, server = ends

    async def serve():
        while True:
            _, body = await server.next()
            await server.send(frames.frame(frames.REPLY, {"id": json.loads(body)["id"]}))

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        with pytest.raises(ProtocolError):
            await channel.call("noop", {}, 5)
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_server_that_never_answers_is_given_up(ends, monkeypatch):
    channel, _ = ends
    monkeypatch.setattr("agent_runtime.sandboxes.channel.ANSWER_LIMIT", 0.1)
    with anyio.fail_after(3), pytest.raises(SandboxLost, match="no answer"):
        await channel.call("noop", {}, 0.1)


@pytest.mark.anyio
async def test_a_greeting_of_another_protocol_is_refused(anyio_backend):
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.send(frames.frame(frames.HELLO, {"protocol": 99}))
        channel = Channel(ours, PlainStream())
        with pytest.raises(SandboxLost, match="protocol 99"):
            await channel.greet(b"")
        channel.close("the test is over")
