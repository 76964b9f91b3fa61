"""A raw-socket client for tests: requests and answers as plain dicts, and every byte under the test's control.

The messages are encoded and decoded by kio, which is generated from Kafka's own definitions and shares no code with
oncelog: an answer that kio reads as Kafka's is Kafka's. Field names are kio's (snake case, without `_ms`); durations
and points in time are plain milliseconds, errors plain codes, absent fields take the schema's default, and a field
that the chosen version lacks is left out.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import select
import socket
import struct
import types
import typing
import uuid
from functools import cache
from typing import Any

from kio.index import load_entity_schema, load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

API_KEYS = {name: key for key, name in api_key_map.items()}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
TIMEOUT_S = 60.0
NULL_UUID = uuid.UUID(int=0)
ZEROES = {
    bool: False,
    int: 0,
    float: 0.0,
    str: "",
    bytes: b"",
    uuid.UUID: NULL_UUID,
    datetime.timedelta: datetime.timedelta(0),
    datetime.datetime: EPOCH,
}

Message = dict[str, Any]


class ConnectionClosedError(Exception):
    """The broker closed the connection where an answer was expected."""


# -- plain values <-> kio's entities ----------------------------------------------------------------------------


@cache
def _field_types(entity: type) -> dict[str, Any]:
    return typing.get_type_hints(entity)


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(each for each in typing.get_args(hint) if each is not type(None))
    return hint


def _to_kio(hint: Any, value: Any) -> Any:
    hint = _without_none(hint)
    if value is None:
        return None
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_to_kio(inner, each) for each in value)
    if dataclasses.is_dataclass(hint):
        return build_entity(hint, value)
    if hint is ErrorCode:
        return ErrorCode(value)
    return _to_kio_time(hint, value)


def _to_kio_time(hint: type, value: Any) -> Any:
    if issubclass(hint, datetime.timedelta):
        return datetime.timedelta(milliseconds=value)
    if issubclass(hint, datetime.datetime):
        return EPOCH + datetime.timedelta(milliseconds=value)
    return value


def build_entity(entity: type, message: Message) -> Any:
    hints = _field_types(entity)
    arguments = {}
    for field in dataclasses.fields(entity):
        if field.name in message:
            arguments[field.name] = _to_kio(hints[field.name], message[field.name])
        elif field.default is dataclasses.MISSING:
            arguments[field.name] = _default(entity, field)
    return entity(**arguments)


def _default(entity: type, field: dataclasses.Field[Any]) -> Any:
    hint = _field_types(entity)[field.name]
    if hint is not _without_none(hint):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if hint is ErrorCode:
        return ErrorCode.none
    return next(zero for kind, zero in ZEROES.items() if issubclass(hint, kind))


def to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [to_plain(each) for each in value]
    if isinstance(value, ErrorCode):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    return value


# -- frames -----------------------------------------------------------------------------------------------------


def encode_body(api: str, version: int, message: Message) -> bytes:
    schema = load_request_schema(API_KEYS[api], version)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, build_entity(schema, message))
    return buffer.getvalue()


def encode_header(api_key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool) -> bytes:
    head = struct.pack(">hhi", api_key, version, correlation_id)
    if client_id is None:
        head += struct.pack(">h", -1)
    else:
        head += struct.pack(">h", len(client_id.encode())) + client_id.encode()
    return head + b"\x00" if flexible else head


def encode_request(
    api: str, version: int, message: Message, correlation_id: int = 1, client_id: str | None = "raw"
) -> bytes:
    """A whole frame: size, header, body."""
    schema = load_request_schema(API_KEYS[api], version)
    flexible = schema.__header_schema__.__version__ >= 2
    payload = encode_header(API_KEYS[api], version, correlation_id, client_id, flexible=flexible)
    payload += encode_body(api, version, message)
    return struct.pack(">i", len(payload)) + payload


def decode_response(api: str, version: int, frame: bytes) -> tuple[int, Message]:
    """The correlation id and the answer; bytes left over are an error."""
    schema = load_entity_schema(api, version, EntityType.response)
    header, position = entity_reader(schema.__header_schema__)(frame, 0)
    body, size = entity_reader(schema)(frame, position)
    assert position + size == len(frame), f"{len(frame) - position - size} bytes left over after {api} v{version}"
    return header.correlation_id, to_plain(body)


class RawClient:
    """One connection. `request` is a round trip; `send`/`receive` allow many in flight."""

    def __init__(self, address: tuple[str, int], timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def request(self, api: str, version: int, message: Message | None = None) -> Message:
        return self.receive(api, version, self.send(api, version, message))

    def send(self, api: str, version: int, message: Message | None = None) -> int:
        self._correlation_id += 1
        self.send_bytes(encode_request(api, version, message or {}, self._correlation_id))
        return self._correlation_id

    def receive(self, api: str, version: int, correlation_id: int) -> Message:
        answered, message = decode_response(api, version, self.receive_frame())
        assert answered == correlation_id
        return message

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def is_readable(self, within_s: float) -> bool:
        """True if an answer, or the end of the connection, comes within that time."""
        return bool(select.select([self.socket], [], [], within_s)[0])

    def is_closed_by_peer(self, within_s: float = TIMEOUT_S) -> bool:
        """True if the broker closes the connection, False if it answers or stays silent for that long."""
        self.socket.settimeout(within_s)
        try:
            return self.socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def _receive_exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                chunk = self.socket.recv(min(size - len(received), 1 << 20))
            except ConnectionError as error:
                raise ConnectionClosedError(str(error)) from error
            if not chunk:
                raise ConnectionClosedError(f"closed after {len(received)} of {size} bytes")
            received += chunk
        return bytes(received)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
