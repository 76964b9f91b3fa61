"""Frames: the size prefix, the headers of requests and responses, and cutting a byte stream into frames.

Sans-IO: the shell asks for a buffer, reads into it, says how much arrived and gets the complete frames. Never looks
into a message beyond its header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap
from typing import Final

from oncelog.named_tuple import NamedTuple
from oncelog.wire.api import ApiKey, flexible
from oncelog.wire.buffer_shelf import BUFFER_BYTES, BufferShelf
from oncelog.wire.primitives import GARBLED, MalformedMessage, in_words, read_string, skip_tagged_fields, string

SIZE_BYTES = 4

MIN_BUFFER_BYTES = 4 * 1024
"""A connection's first buffer: what an idle connection keeps."""
IDLE_BUFFER_BYTES = 64 * 1024
"""The largest buffer that is kept while nothing is pending in it."""
MAX_EARNED_BYTES = BUFFER_BYTES
"""How much is allocated at most on the strength of a size prefix, and only to a connection that sent as much before."""

_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhi")
_SIZE_AND_REQUEST_HEADER = struct.Struct(">ihhi")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_CORRELATION_AND_NO_TAGGED_FIELDS = struct.Struct(">iix")
_NO_TAGGED_FIELDS = b"\x00"
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class MalformedFrame(MalformedMessage):
    """The size prefix is negative."""


class FrameTooLarge(MalformedFrame):
    """The size prefix is above the limit."""


_HTTP: Final = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"HTTP"))
"""How requests and answers of HTTP begin."""


def frame_in_words(size: int) -> str:
    """Of a frame that is too large: who speaks another protocol has its first letters taken for a size."""
    if size.to_bytes(4, "big", signed=True) in _HTTP:
        return f"a frame of {size} bytes: this looks like HTTP; metrics are served on metrics.port"
    return f"a frame of {size} bytes"


class UnknownApi(MalformedMessage):
    """The request's API key is none that we know, so that not even its header can be read to the end."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a request (without its size prefix), and the position of the body."""
    try:
        api_key, version, correlation_id = _REQUEST_HEADER.unpack_from(frame, 0)
        client_id, position = read_string(frame, 8)
        if flexible(api_key, version):
            position = skip_tagged_fields(frame, position)
    except KeyError:
        raise UnknownApi(f"API key {api_key} is unknown") from None
    except GARBLED as error:
        raise MalformedMessage(f"request header: {in_words(error)}") from None
    return RequestHeader(api_key, version, correlation_id, client_id), position


def request_signature(api_key: int, version: int, client_id: str | None) -> bytes:
    """The end of a request's header: the same for all requests of one client in one version of an API."""
    return string(client_id) + _NO_TAGGED_FIELDS if flexible(api_key, version) else string(client_id)


def encode_request_head(api_key: int, version: int, correlation_id: int, signature: bytes, body_bytes: int) -> bytes:
    """Size prefix and request header, to be followed by a body of `body_bytes`."""
    size = _REQUEST_HEADER.size + len(signature) + body_bytes
    return _SIZE_AND_REQUEST_HEADER.pack(size, api_key, version, correlation_id) + signature


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """A whole request: size prefix, header, body."""
    signature = request_signature(api_key, version, client_id)
    return encode_request_head(api_key, version, correlation_id, signature, len(body)) + body


def encode_response_head(header: RequestHeader, body_bytes: int) -> bytes:
    """Size prefix and response header, to be followed by a body of `body_bytes`."""
    api_key, version, correlation_id, _ = header
    if api_key != _API_VERSIONS and flexible(api_key, version):
        return _SIZE_CORRELATION_AND_NO_TAGGED_FIELDS.pack(body_bytes + 5, correlation_id)
    return _SIZE_AND_CORRELATION.pack(body_bytes + 4, correlation_id)


def encode_response(header: RequestHeader, body: bytes) -> bytes:
    return encode_response_head(header, len(body)) + body


def decode_response_header(api_key: int, version: int, frame: memoryview) -> tuple[int, int]:
    """The correlation id of a response (without its size prefix), and the position of the body."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame, 0)
        if api_key != ApiKey.API_VERSIONS and flexible(api_key, version):
            return correlation_id, skip_tagged_fields(frame, 4)
    except GARBLED as error:
        raise MalformedMessage(f"response header: {in_words(error)}") from None
    return correlation_id, 4


class FrameAssembler:
    """Cuts a byte stream into frames.

    A frame is a writable view of the buffer it was received into, which is never written to again: frames stay valid
    for as long as they are referenced. A size prefix is no reason to allocate: a buffer grows, by doubling, only as
    bytes arrive. A connection that has delivered large frames gets buffers of that size from the start (bounded),
    so that a steady stream of large requests is received without copying. If there is a shelf, such buffers come from
    it, and go back to it when nothing is pending.
    """

    __slots__ = ("_earned", "_filled", "_max_frame_bytes", "_shelf", "_start", "_view")

    def __init__(self, max_frame_bytes: int, shelf: BufferShelf | None = None) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._shelf = shelf
        self._earned = MIN_BUFFER_BYTES
        self._view = memoryview(b"")
        self._start = 0  # of the frame that is not complete yet
        self._filled = 0

    def pending_bytes(self) -> int:
        """Bytes of the frame that is not complete yet."""
        return self._filled - self._start

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. `size_hint` is accepted for asyncio's sake and ignored."""
        left = len(self._view) - self._filled
        if left == 0 or (self._start == self._filled and left < self._earned // 4):
            self._replace_buffer()
        return self._view[self._filled :]

    def received(self, count: int) -> Iterator[memoryview]:
        """The frames that `count` more bytes complete. Must be exhausted before the next `get_buffer`.

        Raises MalformedFrame or FrameTooLarge where the stream goes wrong, after the good frames before it.
        """
        self._filled += count
        view = self._view
        if self._filled == len(view) and 2 * count >= len(view):
            self._earn(min(2 * len(view), IDLE_BUFFER_BYTES))  # more is probably waiting
        while self._filled - self._start >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(view, self._start)
            if not 0 <= size <= self._max_frame_bytes:
                raise self._refusal(size)
            begin = self._start + SIZE_BYTES
            end = begin + size
            if end > self._filled:
                if end > len(view):
                    self._replace_buffer()
                return
            self._start = end
            if size >= self._earned:
                self._earn(min(size + SIZE_BYTES, MAX_EARNED_BYTES))
            yield view[begin:end]
        if self._start == self._filled and len(view) > IDLE_BUFFER_BYTES:
            self._let_go()
            self._view = memoryview(b"")
            self._start = self._filled = 0

    def _earn(self, size_bytes: int) -> None:
        self._earned = max(self._earned, size_bytes)

    def _refusal(self, size: int) -> MalformedFrame:
        if size < 0:
            return MalformedFrame(f"a frame of {size} bytes")
        return FrameTooLarge(f"{frame_in_words(size)}; the limit is {self._max_frame_bytes}")

    def _replace_buffer(self) -> None:
        """A new buffer that begins with the incomplete frame."""
        pending = self._view[self._start : self._filled]
        wanted = MIN_BUFFER_BYTES
        if len(pending) >= SIZE_BYTES:
            wanted = max(wanted, SIZE_BYTES + _SIZE.unpack_from(pending, 0)[0])
        affordable = max(self._earned, 2 * len(pending))
        size = min(max(wanted, self._earned), affordable)
        buffer = self._allocate(size)
        buffer[: len(pending)] = pending
        self._earned = max(self._earned // 2, MIN_BUFFER_BYTES)
        self._let_go()
        self._view = memoryview(buffer)
        self._start, self._filled = 0, len(pending)

    def _allocate(self, size_bytes: int) -> bytearray | mmap:
        if self._shelf is not None and size_bytes > IDLE_BUFFER_BYTES:
            return self._shelf.take(size_bytes)
        return bytearray(size_bytes)

    def _let_go(self) -> None:
        if self._shelf is not None and isinstance(self._view.obj, mmap):
            self._shelf.leave(self._view.obj)
