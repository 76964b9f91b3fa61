"""The records of `__consumer_offsets`, as Kafka writes them.

A key is its type (int16) and the key's definition, a value is its version (int16) and the value's definition; a null
value takes back what earlier records of the key said. Owns the types and the versions that are written; never knows
what a record means.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from oncelog.errors import OncelogError, UnsupportedVersion
from oncelog.wire.codec import MalformedMessage, Message, decode_exactly, encode
from oncelog.wire.primitives import uvarint
from oncelog.wire.quick import offset_record
from oncelog.wire.schema import ZERO_UUID

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_OFFSET_AND_EPOCH = struct.Struct(">hqi")
_INT64 = struct.Struct(">q")

KEY_VERSION = 0
MAX_PLAUSIBLE_TYPE = 255
"""Above it a type is not a newer one: the key is text, or something else that no coordinator has written."""


class UnreadableCoordinatorRecord(OncelogError):
    """A record of `__consumer_offsets` cannot be decoded; what its group's state is cannot be known."""


class RecordType(IntEnum):
    """The types of Kafka 4.3 that this coordinator knows. Others (share and streams groups) are skipped."""

    LEGACY_OFFSET_COMMIT = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16

    @property
    def schema_prefix(self) -> str:
        """`GroupMetadata` of `GroupMetadataKey` and `GroupMetadataValue`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


WRITTEN_VALUE_VERSIONS = {RecordType.OFFSET_COMMIT: 4, RecordType.GROUP_METADATA: 3}
"""The versions that Kafka 4.3 writes, where they are not 0. An offset with an expiry of its own is version 1, the
only one that has the field."""

_EXPIRING_OFFSET_VERSION = 1
_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = b"\x01\x00\x10"
"""One tagged field, of tag 0 and 16 bytes."""
_TOPIC_ID_TAGS_BYTES = len(_TOPIC_ID_TAG) + 16
_MAX_PLAIN_METADATA = 0x7F
"""Bytes of metadata whose number takes one byte."""

_KNOWN_TYPES = {int(record_type): record_type for record_type in RecordType}
_SCHEMAS = {
    record_type: (f"{record_type.schema_prefix}Key", f"{record_type.schema_prefix}Value") for record_type in RecordType
}


class CoordinatorRecord(NamedTuple):
    type: RecordType
    key: Message
    value: Message | None
    """None is a tombstone."""


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    record_type, key, value = record
    if record_type is RecordType.OFFSET_COMMIT:
        if value is None:
            return _offset_key(key), None
        return offset_record(key, value) or (_offset_key(key), _offset_value(value))
    key_schema, value_schema = _SCHEMAS[record_type]
    key_bytes = _INT16.pack(record_type) + encode(key_schema, KEY_VERSION, key)
    if value is None:
        return key_bytes, None
    version = WRITTEN_VALUE_VERSIONS.get(record_type, 0)
    return key_bytes, _INT16.pack(version) + encode(value_schema, version, value)


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord | None:
    """None for a type that is not known, as a newer or a fuller broker may have written it."""
    if len(key) < _INT16.size:
        raise UnreadableCoordinatorRecord(f"a key of {len(key)} bytes has no type")
    (type_number,) = _INT16.unpack_from(key)
    record_type = _KNOWN_TYPES.get(type_number)
    if record_type is None:
        if not 0 <= type_number <= MAX_PLAUSIBLE_TYPE:
            raise UnreadableCoordinatorRecord("its key is none that a group coordinator writes")
        return None
    if record_type is RecordType.OFFSET_COMMIT and value is not None:
        record = _plain_offset(bytes(key), bytes(value))
        if record is not None:
            return record
    key_schema, value_schema = _SCHEMAS[record_type]
    try:
        key_message = decode_exactly(key_schema, KEY_VERSION, key, _INT16.size)
        if value is None:
            return CoordinatorRecord(record_type, key_message, None)
        if len(value) < _INT16.size:
            raise MalformedMessage(f"a value of {len(value)} bytes has no version")
        (version,) = _INT16.unpack_from(value)
        return CoordinatorRecord(record_type, key_message, decode_exactly(value_schema, version, value, _INT16.size))
    except (MalformedMessage, UnsupportedVersion) as error:
        raise UnreadableCoordinatorRecord(f"a {record_type.name} record cannot be decoded: {error}") from error


def _plain_offset(key: bytes, value: bytes) -> CoordinatorRecord | None:
    """An offset as it is mostly written, by hand: a log that is loaded has little else. None for any other, and for
    what is damaged: the schema tells."""
    try:
        (group_bytes,) = _INT16.unpack_from(key, 2)
        topic_at = 6 + group_bytes
        (topic_bytes,) = _INT16.unpack_from(key, topic_at - 2)
        partition_at = topic_at + topic_bytes
        version, offset, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(value)
        metadata_at = _OFFSET_AND_EPOCH.size + 1
        stamp_at = metadata_at + value[metadata_at - 1] - 1
        tags_at = stamp_at + _INT64.size
        tags = value[tags_at:]
        if (
            version != WRITTEN_VALUE_VERSIONS[RecordType.OFFSET_COMMIT]
            or min(group_bytes, topic_bytes) < 0
            or not metadata_at <= stamp_at < metadata_at + _MAX_PLAIN_METADATA
            or len(key) != partition_at + _INT32.size
            or (tags != _NO_TAGS and (len(tags) != _TOPIC_ID_TAGS_BYTES or not tags.startswith(_TOPIC_ID_TAG)))
        ):
            return None
        return CoordinatorRecord(
            RecordType.OFFSET_COMMIT,
            {
                "group": key[4 : topic_at - 2].decode(),
                "topic": key[topic_at:partition_at].decode(),
                "partition": _INT32.unpack_from(key, partition_at)[0],
            },
            {
                "offset": offset,
                "leader_epoch": leader_epoch,
                "metadata": value[metadata_at:stamp_at].decode(),
                "commit_timestamp": _INT64.unpack_from(value, stamp_at)[0],
                "expire_timestamp": -1,
                "topic_id": ZERO_UUID if tags == _NO_TAGS else UUID(bytes=tags[len(_TOPIC_ID_TAG) :]),
            },
        )
    except (struct.error, UnicodeDecodeError, IndexError):
        return None


def _offset_key(key: Message) -> bytes:
    """By hand, as is the value, and natively where it can be: committing offsets is a coordinator's busiest path."""
    group, topic = key["group"].encode(), key["topic"].encode()
    head = _INT16.pack(RecordType.OFFSET_COMMIT)
    return b"".join(
        (head, _INT16.pack(len(group)), group, _INT16.pack(len(topic)), topic, _INT32.pack(key["partition"]))
    )


def _offset_value(value: Message) -> bytes:
    if value.get("expire_timestamp", -1) != -1:
        version = _EXPIRING_OFFSET_VERSION
        return _INT16.pack(version) + encode("OffsetCommitValue", version, value)
    metadata = value["metadata"].encode()
    head = _OFFSET_AND_EPOCH.pack(4, value["offset"], value["leader_epoch"])
    topic_id = value["topic_id"]
    tags = _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id.bytes
    return b"".join((head, uvarint(len(metadata) + 1), metadata, _INT64.pack(value["commit_timestamp"]), tags))


def offset_commit(
    group_id: str,
    topic: str,
    partition: int,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int = -1,
    topic_id: UUID = ZERO_UUID,
) -> CoordinatorRecord:
    return CoordinatorRecord(
        RecordType.OFFSET_COMMIT,
        {"group": group_id, "topic": topic, "partition": partition},
        {
            "offset": offset,
            "leader_epoch": leader_epoch,
            "metadata": metadata,
            "commit_timestamp": commit_timestamp_ms,
            "expire_timestamp": expire_timestamp_ms,
            "topic_id": topic_id,
        },
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        RecordType.OFFSET_COMMIT, {"group": group_id, "topic": topic, "partition": partition}, None
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(RecordType.GROUP_METADATA, {"group": group_id}, None)
