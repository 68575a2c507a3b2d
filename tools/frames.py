"""Messages on the one stream between the runtime and the tool server.

A frame is a 4-byte big-endian length, one byte that tells its kind, and that many bytes of body. The body of DATA is
the 4-byte call id and raw bytes; every other body is one JSON object. Both ends use this module.

    runtime → server   CALL    {"id", "tool", "arguments", "timeout"}     timeout in seconds
                       CANCEL  {"id"}
                       DATA    file contents of a "put", in the order of its entries
    server → runtime   HELLO   {"protocol", "python", "root"}             once, when ready
                       DATA    file contents of a "changes" reply, in the order of its entries
                       REPLY   {"id", "ok", "text", "data", "error", …}   once for every CALL
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

PROTOCOL = 1

CALL = b"C"
CANCEL = b"X"
DATA = b"D"
HELLO = b"H"
REPLY = b"R"
KINDS = frozenset([CALL, CANCEL, DATA, HELLO, REPLY])

MAX_FRAME = 64 * 1024 * 1024  # bytes of a body: the list of a repository of 300,000 files still fits
CHUNK = 256 * 1024  # bytes of one DATA frame: another call's frame waits for no more than this

_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: `json.dumps` makes one for each call
_HEADER = struct.Struct(">Ic")
_CALL_ID = struct.Struct(">I")


class BadFrame(Exception):
    """Bytes that are no frame: nothing after them can be trusted."""


def frame(kind: bytes, message: dict[str, Any]) -> bytes:
    """One frame with a JSON body. Raises `BadFrame` where the body is larger than `MAX_FRAME`."""
    body = _encode(message).encode()
    if len(body) > MAX_FRAME:
        raise BadFrame(f"a message of {len(body)} bytes is larger than a frame may be ({MAX_FRAME})")
    return _HEADER.pack(len(body), kind) + body


def data_frame(call_id: int, data: bytes) -> bytes:
    """One DATA frame; `data` is at most `CHUNK` bytes."""
    return _HEADER.pack(_CALL_ID.size + len(data), DATA) + _CALL_ID.pack(call_id) + data


def split_data(body: bytes) -> tuple[int, bytes]:
    """The call id and the bytes of a DATA body."""
    if len(body) < _CALL_ID.size:
        raise BadFrame("a data frame is shorter than its call id")
    return _CALL_ID.unpack_from(body)[0], body[_CALL_ID.size :]


def message(body: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a frame's body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadFrame("a frame's body is not a JSON object")
    return value


class FrameReader:
    """Cuts a stream of bytes, fed in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The (kind, body) of every frame that `data` completes.

        Raises `BadFrame` on an unknown kind or a length beyond `MAX_FRAME`, as soon as the header is there.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEADER.size:
                length, kind = _HEADER.unpack_from(buffer, start)
                if kind not in KINDS:
                    raise BadFrame(f"a frame of unknown kind {kind!r}")
                if length > MAX_FRAME:
                    raise BadFrame(f"a frame of {length} bytes is larger than a frame may be ({MAX_FRAME})")
                end = start + _HEADER.size + length
                if len(buffer) < end:
                    break
                body = bytes(memoryview(buffer)[start + _HEADER.size : end])
                start = end
                yield kind, body
        finally:
            if start:
                del buffer[:start]

    def __len__(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)
