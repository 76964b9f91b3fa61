"""Addresses inside answers, exchanged for the proxy's own, so that clients stay behind it whatever node they turn to.

Pure: which address stands for which is asked of the caller. An answer that names no node passes untouched, byte for
byte. One whose version is newer than our definitions is refused: passed on unread, it would lead clients around the
proxy unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import decode_response_header


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Advertise = Callable[[Address], Address]
"""Where clients reach, through the proxy, the broker at an address."""

FIRST_WITH_ADDRESSES: dict[int, int] = {
    ApiKey.PRODUCE: 10,
    ApiKey.FETCH: 16,
    ApiKey.METADATA: 0,
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
}
"""The answers that name nodes, and since which version."""


def rewrite_response(api_key: int, version: int, frame: memoryview, advertise: Advertise) -> bytes | memoryview:
    """The response (without its size prefix) with every node's address replaced.

    Raises MalformedMessage, UnsupportedVersion, and whatever `advertise` raises.
    """
    first_version = FIRST_WITH_ADDRESSES.get(api_key)
    if first_version is None or version < first_version:
        return frame
    schema = f"{ApiKey(api_key).schema_prefix}Response"
    _, body_position = decode_response_header(api_key, version, frame)
    message = codec.decode_exactly(schema, version, frame, body_position)
    nodes = [node for node in _nodes(message) if node["host"] and node["port"] > 0]
    if not nodes:
        return frame
    for node in nodes:
        node["host"], node["port"] = advertise(Address(node["host"], node["port"]))
    return bytes(frame[:body_position]) + codec.encode(schema, version, message)


def _nodes(message: Message) -> Iterator[Message]:
    """Every part of an answer that has a host and a port; FindCoordinator's oldest answers are such a part."""
    if "host" in message:
        yield message
    for field in ("brokers", "coordinators", "node_endpoints"):
        yield from message.get(field, ())
