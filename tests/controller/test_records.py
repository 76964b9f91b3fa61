from __future__ import annotations

import json
from importlib import resources
from uuid import UUID

import pytest

from oncelog.controller.records import (
    IGNORED,
    DamagedMetadata,
    MetadataRecord,
    NewerMetadata,
    NewPartitions,
    RecordType,
    UnreadableMetadata,
    decode_record,
    encode_all,
    encode_record,
)

# As Kafka 4.3.1 wrote it into its own metadata log: frame 1, type 12, version 0.
KAFKA_FEATURE = bytes.fromhex("010c00116d657461646174612e76657273696f6e001e00")
KAFKA_CONFIG = bytes.fromhex("0104000401146d696e2e696e73796e632e7265706c69636173023100")

WITHOUT_SCHEMA = {
    RecordType.CLEAR_ELR,
    RecordType.DELEGATION_TOKEN,
    RecordType.REMOVE_DELEGATION_TOKEN,
    RecordType.ZK_MIGRATION_STATE,
}


def test_a_frame_is_kafkas() -> None:
    record = MetadataRecord(RecordType.FEATURE_LEVEL, {"name": "metadata.version", "feature_level": 30})
    assert encode_record(record) == KAFKA_FEATURE
    assert decode_record(KAFKA_FEATURE) == record


def test_a_record_that_kafka_wrote() -> None:
    record = decode_record(KAFKA_CONFIG)
    assert record.type is RecordType.CONFIG
    assert record.body == {"resource_type": 4, "resource_name": "", "name": "min.insync.replicas", "value": "1"}
    assert encode_record(record) == KAFKA_CONFIG


@pytest.mark.parametrize(
    ("record_type", "body"),
    [
        (RecordType.TOPIC, {"name": "orders", "topic_id": UUID(int=5)}),
        (RecordType.REMOVE_TOPIC, {"topic_id": UUID(int=5)}),
        (RecordType.PRODUCER_IDS, {"broker_id": 1, "broker_epoch": -1, "next_producer_id": 2000}),
        (RecordType.CONFIG, {"resource_type": 2, "resource_name": "orders", "name": "retention.ms", "value": None}),
        (RecordType.NO_OP, {}),
    ],
)
def test_there_and_back(record_type: RecordType, body: dict[str, object]) -> None:
    record = MetadataRecord(record_type, body)
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("record_type", [each for each in RecordType if each not in WITHOUT_SCHEMA])
def test_types_are_numbered_as_kafka_numbers_them(record_type: RecordType) -> None:
    definition = resources.files("oncelog.wire").joinpath("schemas", f"{record_type.schema}.json")
    assert json.loads(definition.read_text())["apiKey"] == record_type


@pytest.mark.parametrize("record_type", sorted(IGNORED))
def test_what_is_ignored_need_not_be_understood(record_type: RecordType) -> None:
    assert decode_record(bytes([1, record_type, 9]) + b"of a later version") == MetadataRecord(record_type, {})


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x01",
        b"\x02\x0c\x00",
        b"\x01\x7f\x00",
        b"\x01\x0c\x09",
        KAFKA_FEATURE[:-1],
        KAFKA_FEATURE + b"x",
        b"\x01\x0c\x00\xff\xff\xff\xff\x0f",
    ],
)
def test_what_cannot_be_understood_is_said_so(value: bytes) -> None:
    with pytest.raises(UnreadableMetadata):
        decode_record(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"\x02\x0c\x00", NewerMetadata),
        (b"\x01\x1d\x00", NewerMetadata),
        (b"\x01\x0c\x09", NewerMetadata),
        (b"\x01\x06\x00", DamagedMetadata),
        (b"\x00\x01\x00\x00", DamagedMetadata),
        (b"plain", DamagedMetadata),
        (b"\x01plain", DamagedMetadata),
        (b"", DamagedMetadata),
        (b"\xff" * 20, DamagedMetadata),
    ],
)
def test_only_what_may_be_of_a_newer_version_is_said_to_be(value: bytes, kind: type[UnreadableMetadata]) -> None:
    with pytest.raises(kind):
        decode_record(value)


@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3), ()])
@pytest.mark.parametrize("indexes", [range(3), range(5000), range(127, 130), range(2**31 - 2, 2**31 - 1), range(0)])
def test_partitions_of_one_topic_are_written_as_the_codec_writes_them_one_by_one(
    indexes: range, replicas: tuple[int, ...]
) -> None:
    directories = tuple(UUID(int=9 + replica) for replica in replicas)
    new = NewPartitions(UUID(int=5), indexes, 1, 300, 70_000, replicas, replicas[:1], directories)
    written = list(encode_all([new]))
    assert written == [encode_record(new.record(index)) for index in indexes]
    assert [decode_record(frame).body["partition_id"] for frame in written] == list(indexes)


def test_records_of_all_kinds_keep_their_order() -> None:
    topic = MetadataRecord(RecordType.TOPIC, {"name": "orders", "topic_id": UUID(int=5)})
    new = NewPartitions(UUID(int=5), range(2), 1, 0, 0, (1,), (1,), (UUID(int=9),))
    one_by_one = [topic, new.record(0), new.record(1), topic]
    assert list(encode_all([topic, new, topic])) == [encode_record(one) for one in one_by_one]
