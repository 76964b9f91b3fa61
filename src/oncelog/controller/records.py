"""Kafka's metadata records: which there are, and how KRaft frames them in the value of a log record.

A frame is `frame version, record type, record version` as unsigned varints, then the record by its definition. Owns the
frame and the versions that are written; never knows what a record means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final
from uuid import UUID

from oncelog.errors import OncelogError, UnsupportedVersion
from oncelog.named_tuple import NamedTuple
from oncelog.wire.codec import MalformedMessage, Message, decode_exactly, encode
from oncelog.wire.primitives import GARBLED, in_words, read_uvarint, uvarint

FRAME_VERSION = 1

MAX_NEWER_FRAME_VERSION = 7
MAX_NEWER_TYPE = 127
MAX_NEWER_VERSION = 31
"""What a newer version may have written; what lies beyond is text, or something else that is no metadata."""


class UnreadableMetadata(OncelogError):
    """The metadata log holds what this version of oncelog cannot understand; it is left as it is."""


class DamagedMetadata(UnreadableMetadata):
    """A part of the metadata that was in force is damaged or missing; the folder is left as it is."""


class NewerMetadata(UnreadableMetadata):
    """Well-formed, and of a version that is not known here."""


class RecordType(IntEnum):
    """Every type of Kafka 4.3. One that is not here is newer, and refused: what it changes cannot be guessed."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    DELEGATION_TOKEN = 10
    USER_SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    CLIENT_QUOTA = 14
    PRODUCER_IDS = 15
    BROKER_REGISTRATION_CHANGE = 17
    ACCESS_CONTROL_ENTRY = 18
    REMOVE_ACCESS_CONTROL_ENTRY = 19
    NO_OP = 20
    ZK_MIGRATION_STATE = 21
    REMOVE_USER_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REMOVE_DELEGATION_TOKEN = 26
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28

    @property
    def schema(self) -> str:
        """`RemoveTopicRecord` for REMOVE_TOPIC."""
        return "".join(word.capitalize() for word in self.name.split("_")) + "Record"


IGNORED = frozenset(
    {
        # Who is in the cluster, and whether it is well: one node is its whole cluster, and it runs.
        RecordType.REGISTER_BROKER,
        RecordType.UNREGISTER_BROKER,
        RecordType.FENCE_BROKER,
        RecordType.UNFENCE_BROKER,
        RecordType.BROKER_REGISTRATION_CHANGE,
        RecordType.REGISTER_CONTROLLER,
        # Which replicas outside the ISR may lead: there are no other replicas.
        RecordType.CLEAR_ELR,
        # A sign of life, and the end of a migration that Kafka 4 requires to be over.
        RecordType.NO_OP,
        RecordType.ZK_MIGRATION_STATE,
        # Having had a token is what counts (see `takeover`).
        RecordType.REMOVE_DELEGATION_TOKEN,
    }
)
"""Records that change nothing for a single node. Their bodies are not read, whatever their version."""

_BODY_UNREAD = IGNORED | {RecordType.DELEGATION_TOKEN}

WRITTEN_VERSIONS = {RecordType.PARTITION: 2, RecordType.PARTITION_CHANGE: 2}
"""The versions that Kafka writes at our metadata.version, where they are not 0."""


_KNOWN_TYPES = frozenset(RecordType)


class MetadataRecord(NamedTuple):
    type: RecordType
    body: Message


class NewPartitions(NamedTuple):
    """The PARTITION records of one topic that differ in nothing but their index. Planned, written and replayed as one:
    there may be thousands."""

    topic_id: UUID
    indexes: range
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    directories: tuple[UUID, ...]

    @property
    def type(self) -> RecordType:
        return RecordType.PARTITION

    def record(self, index: int) -> MetadataRecord:
        return MetadataRecord(
            RecordType.PARTITION,
            {
                "partition_id": index,
                "topic_id": self.topic_id,
                "replicas": list(self.replicas),
                "isr": list(self.isr),
                "leader": self.leader,
                "leader_epoch": self.leader_epoch,
                "partition_epoch": self.partition_epoch,
                "directories": list(self.directories),
            },
        )


AnyRecord = MetadataRecord | NewPartitions
"""What a plan is made of."""

_INDEX_AT: Final = 3
"""Where a PARTITION record's index is: right after the frame's three varints, of one byte each."""
_INDEX_BYTES: Final = 4


def encode_all(records: Iterable[AnyRecord]) -> Iterator[bytes]:
    """The bytes of `encode_record`, for every record."""
    for record in records:
        if isinstance(record, NewPartitions):
            yield from _encode_partitions(record)
        else:
            yield encode_record(record)


def _encode_partitions(new: NewPartitions) -> Iterator[bytes]:
    """By a template: the codec would spend most of a second on 10,000 of them."""
    template = encode_record(new.record(0))
    head, tail = template[:_INDEX_AT], template[_INDEX_AT + _INDEX_BYTES :]
    for index in new.indexes:
        yield head + index.to_bytes(_INDEX_BYTES, "big") + tail


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
            raise _unknown(frame_version, type_code, version)
        record_type = RecordType(type_code)
        if record_type in _BODY_UNREAD:
            return MetadataRecord(record_type, {})
        return MetadataRecord(record_type, decode_exactly(record_type.schema, version, view, position))
    except UnsupportedVersion as error:
        what = f"a metadata record cannot be decoded: {error}"
        raise _newer(what) if version <= MAX_NEWER_VERSION else DamagedMetadata(what) from error
    except (*GARBLED, MalformedMessage) as error:
        raise DamagedMetadata(f"a metadata record cannot be decoded: {in_words(error)}") from error


def _unknown(frame_version: int, type_code: int, version: int) -> UnreadableMetadata:
    what = f"a metadata record of type {type_code} in frame version {frame_version} is unknown"
    is_frame = FRAME_VERSION <= frame_version <= MAX_NEWER_FRAME_VERSION and version <= MAX_NEWER_VERSION
    is_above = frame_version > FRAME_VERSION or type_code > max(RecordType)
    if is_frame and is_above and type_code <= MAX_NEWER_TYPE:
        return _newer(what)
    return DamagedMetadata(f"{what}: this is no metadata, but perhaps the log of another partition")


def _newer(what: str) -> NewerMetadata:
    return NewerMetadata(
        f"{what}; the folder was written by a newer version than this one understands. Nothing was changed; start it "
        "with a version as new as the one that wrote it"
    )
