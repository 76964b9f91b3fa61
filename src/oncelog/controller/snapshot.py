"""The state as one file, in the format of KRaft's `.checkpoint` files: what a metadata log may be replaced with.

A snapshot is a sequence of record batches: a control batch with a SnapshotHeader, the records that recreate the state,
a control batch with a SnapshotFooter. Without its footer it is torn and not trusted. Kafka's own may have more control
records, about its quorum, and `bootstrap.checkpoint` is one as well: what a newly formatted folder begins with.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from enum import IntEnum
from itertools import groupby
from typing import Any

from oncelog.controller.producer_ids import NO_BROKER, NO_BROKER_EPOCH
from oncelog.controller.records import (
    AnyRecord,
    DamagedMetadata,
    MetadataRecord,
    NewPartitions,
    RecordType,
    UnreadableMetadata,
    decode_record,
    encode_all,
)
from oncelog.controller.state import ControllerState, Partition, Topic
from oncelog.errors import KafkaError
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.records.batch import build_batch, decode_records
from oncelog.wire.codec import encode

RECORDS_PER_BATCH = 1000
BOOTSTRAP_FILE = "bootstrap.checkpoint"
FILE_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_TYPE = slice(2, 4)
_CONTROL_KEY_VERSION = 0


class DamagedSnapshot(UnreadableMetadata):
    """The file is not what was written."""


class ControlType(IntEnum):
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4


class SnapshotId(NamedTuple):
    """The part of the log that a snapshot stands for: up to its end offset, exclusive, and the epoch there."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"

    @classmethod
    def of_file(cls, name: str) -> SnapshotId | None:
        match = FILE_NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2])) if match else None


def encode_snapshot(state: ControllerState, last_timestamp_ms: int, epoch: int) -> bytes:
    header = encode("SnapshotHeaderRecord", 0, {"last_contained_log_timestamp": last_timestamp_ms})
    footer = encode("SnapshotFooterRecord", 0, {})
    out = bytearray()
    offset = 0

    def add(records: list[tuple[bytes | None, bytes]], control: bool) -> None:
        nonlocal offset
        rows = [(last_timestamp_ms, key, value, ()) for key, value in records]
        out.extend(build_batch(rows, base_offset=offset, leader_epoch=epoch, control=control))
        offset += len(rows)

    add([(_control_key(ControlType.SNAPSHOT_HEADER), header)], control=True)
    frames = list(encode_all(state_records(state)))
    for start in range(0, len(frames), RECORDS_PER_BATCH):
        add([(None, frame) for frame in frames[start : start + RECORDS_PER_BATCH]], control=False)
    add([(_control_key(ControlType.SNAPSHOT_FOOTER), footer)], control=True)
    return bytes(out)


def decode_snapshot(data: bytes) -> list[MetadataRecord]:
    """Raises DamagedSnapshot, and NewerMetadata if it is whole and has a record of a newer version."""
    try:
        return [decode_record(frame) for frame in _frames(data)]
    except (DamagedMetadata, KafkaError) as error:
        raise DamagedSnapshot(f"the snapshot has right checksums and wrong contents: {error}") from error


def _frames(data: bytes) -> list[bytes]:
    headers, good_bytes = kernel.scan(data, 0, len(data), True)
    if good_bytes != len(data):
        raise DamagedSnapshot(f"the snapshot is damaged after {good_bytes} of {len(data)} bytes")
    frames: list[bytes] = []
    controls: list[int] = []
    position = 0
    for header in headers:
        batch = memoryview(data)[position : position + header.size_bytes]
        position += header.size_bytes
        for record in decode_records(batch):
            if header.is_control:
                controls.append(int.from_bytes((record.key or b"")[_CONTROL_TYPE], "big"))
            else:
                frames.append(record.value or b"")
    if controls[:1] != [ControlType.SNAPSHOT_HEADER] or controls[-1:] != [ControlType.SNAPSHOT_FOOTER]:
        raise DamagedSnapshot("the snapshot lacks its header or its footer")
    return frames


def state_records(state: ControllerState) -> Iterator[AnyRecord]:
    """The records whose replay makes this state from nothing."""
    for name, level in state.features.items():
        yield MetadataRecord(RecordType.FEATURE_LEVEL, {"name": name, "feature_level": level})
    if state.next_producer_id:
        yield MetadataRecord(
            RecordType.PRODUCER_IDS,
            {"broker_id": NO_BROKER, "broker_epoch": NO_BROKER_EPOCH, "next_producer_id": state.next_producer_id},
        )
    for quota, limit in state.client_quotas.items():
        entity = [{"entity_type": kind, "entity_name": name} for kind, name in quota.entity]
        yield MetadataRecord(RecordType.CLIENT_QUOTA, {"entity": entity, "key": quota.key, "value": limit})
    for topic in state.topics.values():
        yield from _topic_records(topic)
    for resource, configs in state.configured_resources():
        for name, value in configs.items():
            body = {"resource_type": resource.type, "resource_name": resource.name, "name": name, "value": value}
            yield MetadataRecord(RecordType.CONFIG, body)


def _topic_records(topic: Topic) -> Iterator[AnyRecord]:
    yield MetadataRecord(RecordType.TOPIC, {"name": topic.name, "topic_id": topic.id})
    for (_, *common), run in groupby(enumerate(topic.partitions.values()), key=_alike):
        indexes = [partition.index for _, partition in run]
        yield NewPartitions(topic.id, range(indexes[0], indexes[-1] + 1), *common)


def _alike(numbered: tuple[int, Partition]) -> tuple[Any, ...]:
    """The same for partitions that follow one another and differ in their index alone."""
    position, (index, *common) = numbered
    return (index - position, *common)


def _control_key(control_type: ControlType) -> bytes:
    return _CONTROL_KEY.pack(_CONTROL_KEY_VERSION, control_type)
