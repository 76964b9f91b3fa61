"""What the proxy must know of a frame: whose API it is, which request an answer belongs to, whether there will be one.

Pure. Reads the fixed beginning of every request, so that APIs which this library does not know pass as well; looks
further only into Produce, whose `acks=0` is the one request that has no answer.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from oncelog.wire.api import ApiKey, flexible
from oncelog.wire.frame import decode_request_header
from oncelog.wire.primitives import GARBLED, MalformedMessage, in_words, read_compact_string, read_string

MAX_FRAME_BYTES = 100 * 1024 * 1024
"""As Kafka's `socket.request.max.bytes`, and twice the `fetch.max.bytes` of its consumers."""

FIRST_PRODUCE_WITH_TRANSACTIONS = 3
NO_ACKS = 0

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_ACKS = struct.Struct(">h")
_CORRELATION = struct.Struct(">i")


class RequestHead(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    is_answered: bool


def read_request_head(frame: memoryview) -> RequestHead:
    """The head of a request, given without its size prefix. Raises MalformedMessage."""
    if len(frame) < _HEAD.size:
        raise MalformedMessage(f"a request of {len(frame)} bytes has no header")
    api_key, version, correlation_id = _HEAD.unpack_from(frame, 0)
    if api_key == ApiKey.SASL_HANDSHAKE and version == 0:
        raise MalformedMessage(
            "SaslHandshake v0 is followed by bytes without a header, which the proxy cannot tell apart; "
            "configure the client for SaslHandshake v1"
        )
    return RequestHead(api_key, version, correlation_id, api_key != ApiKey.PRODUCE or _acks(frame, version) != NO_ACKS)


def read_correlation_id(frame: memoryview) -> int:
    """Which request a response answers. Raises MalformedMessage."""
    if len(frame) < _CORRELATION.size:
        raise MalformedMessage(f"a response of {len(frame)} bytes has no header")
    correlation_id: int = _CORRELATION.unpack_from(frame, 0)[0]
    return correlation_id


def with_size(*parts: bytes | memoryview) -> bytes:
    """A frame as it travels: its size, then its bytes."""
    return b"".join((_SIZE.pack(sum(map(len, parts))), *parts))


def without_size(data: bytes) -> memoryview:
    return memoryview(data)[_SIZE.size :]


def api_name(api_key: int) -> str:
    """Kafka's name, or the bare number of an API that this library does not know."""
    try:
        return ApiKey(api_key).schema_prefix
    except ValueError:
        return f"Api{api_key}"


def _acks(frame: memoryview, version: int) -> int:
    _, position = decode_request_header(frame)
    try:
        if version >= FIRST_PRODUCE_WITH_TRANSACTIONS:
            read = read_compact_string if flexible(ApiKey.PRODUCE, version) else read_string
            _, position = read(frame, position)
        acks: int = _ACKS.unpack_from(frame, position)[0]
    except GARBLED as error:
        raise MalformedMessage(f"Produce v{version}: {in_words(error)}") from None
    return acks
