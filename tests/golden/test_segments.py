"""Apache Kafka's own bytes: read as others read them, and written again byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from oncelog.records import batch, compression
from oncelog.records.arrow import TakenColumns, table_of
from oncelog.records.batch import BatchHeader
from oncelog.types import TimestampType
from tests import golden

pytestmark = pytest.mark.usefixtures("kernel")

every_topic = pytest.mark.parametrize("topic", golden.topics())


def batches(kernel: ModuleType, topic: str) -> Iterator[tuple[BatchHeader, bytes]]:
    segment = golden.segment(topic)
    headers, good_bytes = kernel.scan(segment, 0, len(segment), True)
    assert good_bytes == len(segment)
    position = 0
    for header in headers:
        yield header, segment[position : position + header.size_bytes]
        position += header.size_bytes


@every_topic
def test_headers_are_read_as_dump_log_segments_reads_them(kernel: ModuleType, topic: str) -> None:
    found = [
        {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.record_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.leader_epoch,
            "isTransactional": str(header.is_transactional).lower(),
            "isControl": str(header.is_control).lower(),
            "size": header.size_bytes,
            "magic": header.magic,
            "compresscodec": compression.NAMES[header.codec],
            "crc": header.crc,
            "deleteHorizonMs": f"OptionalLong[{header.base_timestamp}]"
            if header.is_delete_horizon_set
            else "OptionalLong.empty",
            ("CreateTime", "LogAppendTime")[header.timestamp_type]: header.max_timestamp,
        }
        for header, _ in batches(kernel, topic)
    ]
    expected = golden.expected_batches(topic)
    words = [{name: str(value) for name, value in fields.items()} for fields in found]
    positions_and_judgement = ("position", "isvalid")
    assert words == [{k: v for k, v in fields.items() if k not in positions_and_judgement} for fields in expected]


@every_topic
def test_records_are_read_as_librdkafka_reads_them(kernel: ModuleType, topic: str) -> None:
    decoded = [
        record
        for header, data in batches(kernel, topic)
        if not header.is_control
        for record in batch.iter_records(data)
    ]
    expected = golden.expected_records(topic)
    assert [record.offset for record in decoded] == [record["offset"] for record in expected]
    for record, wanted in zip(decoded, expected, strict=True):
        assert record.timestamp_ms == wanted["timestamp"]
        assert golden.same_bytes(record.key, wanted["key"])
        assert golden.same_bytes(record.value, wanted["value"])
        assert [key for key, _ in record.headers] == [key for key, _ in wanted["headers"]]
        for (_, value), (_, wanted_value) in zip(record.headers, wanted["headers"], strict=True):
            assert golden.same_bytes(value, wanted_value)


@every_topic
def test_arrow_agrees_with_the_decoded_records(kernel: ModuleType, topic: str) -> None:
    decoded = [
        record
        for header, data in batches(kernel, topic)
        if not header.is_control
        for record in batch.iter_records(data)
    ]
    cursor = kernel.RecordCursor(golden.segment(topic), topic, 0, 0, False, None, True, 1 << 20)
    table = table_of([TakenColumns(topic, 0, cursor.take_table())])
    table.validate(full=True)
    assert table.column("offset").to_pylist() == [record.offset for record in decoded]
    assert table.column("timestamp").cast("int64").to_pylist() == [record.timestamp_ms for record in decoded]
    assert table.column("key").to_pylist() == [record.key for record in decoded]
    assert table.column("value").to_pylist() == [record.value for record in decoded]
    headers = [[(h["key"], h["value"]) for h in row] for row in table.column("headers").to_pylist()]
    assert headers == [list(record.headers) for record in decoded]


@every_topic
def test_uncompressed_batches_are_written_again_byte_for_byte(kernel: ModuleType, topic: str) -> None:
    for header, data in batches(kernel, topic):
        if header.codec != compression.NONE or header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            continue
        assert batch.rebuild_batch(header, batch.iter_records(data)) == data
        if not header.is_delete_horizon_set and header.record_count == header.last_offset_delta + 1:
            assert built_like(header, data) == data


def built_like(header: BatchHeader, data: bytes) -> bytearray:
    return batch.build_batch(
        [record[1:] for record in batch.iter_records(data)],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
    )


def test_append_time_is_stamped_as_kafka_stamps_it(kernel: ModuleType) -> None:
    """The same rows went to both topics, the one under CREATE_TIME, the other under LOG_APPEND_TIME."""
    ((_, original),) = batches(kernel, "librdkafka-none")
    header, stored = next(batches(kernel, "append-time"))
    stamped = bytearray(original)
    kernel.stamp_append_time(stamped, 0, len(stamped), header.max_timestamp)
    assert stamped == stored


def test_markers_are_read_and_written_as_kafka_writes_them(kernel: ModuleType) -> None:
    outcomes = []
    for header, data in batches(kernel, "transactions"):
        if not header.is_control:
            continue
        marker = batch.read_control_marker(data)
        outcomes.append((header.producer_id, marker.commit))
        written = batch.build_control_batch(
            marker,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            timestamp_ms=header.max_timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )
        assert written == data
    first, second = (header.producer_id for header, _ in list(batches(kernel, "transactions"))[:2])
    assert sorted(outcomes) == sorted([(first, True), (first, False), (second, False)])


def test_a_cleaned_batch_keeps_its_range_and_its_delete_horizon(kernel: ModuleType) -> None:
    cleaned = [header for header, _ in batches(kernel, "compacted") if header.is_delete_horizon_set]
    assert cleaned, "the capture must hold a batch with a tombstone that the cleaner has passed"
    assert all(header.record_count <= header.last_offset_delta for header in cleaned)


def test_every_codec_is_among_the_captures(kernel: ModuleType) -> None:
    for writer in ("java", "librdkafka"):
        for codec, name in enumerate(compression.NAMES):
            assert [header.codec for header, _ in batches(kernel, f"{writer}-{name}")] == [codec]
