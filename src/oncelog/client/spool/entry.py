"""One record in the spool: the body of a frame in a `.records` file. Complete in itself, whatever happens around it.

int64 entry number    counts the records of one partition, from 0, in the order of `send()`
int64 timestamp       int32 partition
int32 key length, int32 value length (-1: none), uint32 header count, uint16 topic length
topic, key, value, then per header: uint32 name length, int32 value length (-1: none), name, value

Between them are notes, which begin with -1 in the place of the entry number:

int64 -1, uint64 number of the journal, uint64 up to where it was written by then
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from oncelog.records.model import Buffer, Header, HeadersInput
from oncelog.types import TopicPartition

_FIXED = struct.Struct(">qqiiiIH")
_HEADER = struct.Struct(">Ii")
_NOTE = struct.Struct(">qQQ")
_NO_ENTRY = -1
_NONE = -1


class SpooledRecord(NamedTuple):
    topic: str
    partition: int
    entry: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class JournalNote(NamedTuple):
    """How far the journal was by then."""

    journal: int
    end: int


def encode_note(note: JournalNote) -> bytes:
    return _NOTE.pack(_NO_ENTRY, *note)


def decode_note(body: memoryview) -> JournalNote | None:
    """None if it is an entry."""
    if len(body) != _NOTE.size:
        return None
    kind, journal, end = _NOTE.unpack(body)
    return JournalNote(journal, end) if kind == _NO_ENTRY else None


def encode_entry(
    topic: bytes,
    partition: int,
    entry: int,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: HeadersInput,
) -> bytes:
    """Raises TypeError for a key, value or header that is not bytes-like, ValueError for a timestamp out of range."""
    if key is not None and key.__class__ is not bytes:
        key = _bytes_of(key)
    if value is not None and value.__class__ is not bytes:
        value = _bytes_of(value)
    key_length = _NONE if key is None else len(key)
    value_length = _NONE if value is None else len(value)
    try:
        fixed = _FIXED.pack(entry, timestamp_ms, partition, key_length, value_length, len(headers), len(topic))
    except struct.error as error:
        raise ValueError(f"the timestamp {timestamp_ms!r} is not a number of 64 bits: {error}") from None
    body = b"".join((fixed, topic, key or b"", value or b""))
    return body + _encode_headers(headers) if headers else body


def _encode_headers(headers: HeadersInput) -> bytes:
    parts = []
    for name, content in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        data = b"" if content is None else _bytes_of(content)
        parts += [_HEADER.pack(len(encoded), _NONE if content is None else len(data)), encoded, data]
    return b"".join(parts)


def _bytes_of(data: Buffer) -> bytes:
    """Refuses what is not bytes-like, of which `bytes` alone might make something: of a number, zeros."""
    return bytes(memoryview(data))


def decode_place(body: memoryview) -> tuple[bytes, int, int]:
    """Topic, partition and number of an entry, without its contents."""
    entry, _, partition, _, _, _, topic_length = _FIXED.unpack_from(body)
    return bytes(body[_FIXED.size : _FIXED.size + topic_length]), partition, entry


def decode_entry(body: memoryview) -> SpooledRecord:
    """The record in a body whose CRC was right, so that only our own bug could make this fail."""
    entry, timestamp_ms, partition, key_length, value_length, header_count, topic_length = _FIXED.unpack_from(body)
    position = _FIXED.size

    def take(length: int) -> bytes | None:
        nonlocal position
        if length == _NONE:
            return None
        start, position = position, position + length
        return bytes(body[start:position])

    topic = (take(topic_length) or b"").decode()
    key, value = take(key_length), take(value_length)
    headers = []
    for _ in range(header_count):
        name_length, content_length = _HEADER.unpack_from(body, position)
        position += _HEADER.size
        name = (take(name_length) or b"").decode("utf-8", "surrogateescape")
        headers.append((name, take(content_length)))
    return SpooledRecord(topic, partition, entry, timestamp_ms, key, value, tuple(headers))
