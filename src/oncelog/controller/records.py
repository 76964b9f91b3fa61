"""Kafka's metadata records: which there are, and how KRaft frames them in the value of a log record.

A frame is `frame version, record type, record version` as unsigned varints, then the record by its definition. Owns the
frame and the versions that are written; never knows what a record means.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from oncelog.errors import OncelogError, UnsupportedVersion
from oncelog.wire.codec import MalformedMessage, Message, decode_exactly, encode
from oncelog.wire.primitives import GARBLED, read_uvarint, uvarint

FRAME_VERSION = 1


class UnreadableMetadata(OncelogError):  # noqa: N818 - it is what the operator is told, not a code
    """The metadata log holds what this version of oncelog cannot understand; it is left as it is."""


class RecordType(IntEnum):
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    REMOVE_TOPIC = 9
    FEATURE_LEVEL = 12
    PRODUCER_IDS = 15
    NO_OP = 20

    @property
    def schema(self) -> str:
        """`RemoveTopicRecord` for REMOVE_TOPIC."""
        return "".join(word.capitalize() for word in self.name.split("_")) + "Record"


WRITTEN_VERSIONS = {RecordType.PARTITION: 2}
"""The versions that Kafka writes at our metadata.version, where they are not 0."""


_KNOWN_TYPES = frozenset(RecordType)


class MetadataRecord(NamedTuple):
    type: RecordType
    body: Message


def encode_record(record: MetadataRecord) -> bytes:
    version = WRITTEN_VERSIONS.get(record.type, 0)
    frame = uvarint(FRAME_VERSION) + uvarint(record.type) + uvarint(version)
    return bytes(frame) + encode(record.type.schema, version, record.body)


def decode_record(value: bytes | memoryview) -> MetadataRecord:
    view = memoryview(value)
    try:
        frame_version, position = read_uvarint(view, 0)
        type_code, position = read_uvarint(view, position)
        version, position = read_uvarint(view, position)
        if frame_version != FRAME_VERSION or type_code not in _KNOWN_TYPES:
            raise UnreadableMetadata(f"metadata record of type {type_code} in frame version {frame_version} is unknown")
        record_type = RecordType(type_code)
        return MetadataRecord(record_type, decode_exactly(record_type.schema, version, view, position))
    except (*GARBLED, MalformedMessage, UnsupportedVersion) as error:
        raise UnreadableMetadata(f"metadata record cannot be decoded: {error}") from error
