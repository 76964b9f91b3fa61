"""Record batches of format v2: build, read and rebuild them. Byte for byte what Kafka writes.

Owns the meaning of a batch; the kernel owns its bytes, `compression` its codecs. Judging what a client may send is
`validation`'s. Nothing here checks a CRC: who reads from a disk or a socket does that, with `kernel.crc_matches`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from oncelog.errors import CorruptMessage, InvalidRecord
from oncelog.records import compression, kernel
from oncelog.records.model import (
    CODEC_MASK,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
    ControlMarker,
    HeadersInput,
    Record,
)
from oncelog.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TimestampType

DEFAULT_MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024  # the most a reader lets the records of one batch grow to

RECORDS_AT_ONCE = 1_000
"""Of a batch that is walked. As an object a tiny record takes forty times its bytes, and a batch may hold millions."""

_LENGTH_AT = 8
_CRC_AT = 17

_ABORT = 0
_COMMIT = 1
_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_MARKER_VERSION = 0


def build_batch(
    records: Iterable[tuple[int, Buffer | None, Buffer | None, HeadersInput]],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: int = compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = TimestampType.CREATE_TIME,
    max_timestamp: int | None = None,
) -> bytearray:
    """A batch of `(timestamp_ms, key, value, headers)` in consecutive offsets."""
    builder = kernel.BatchBuilder()
    for timestamp_ms, key, value, headers in records:
        builder.append(timestamp_ms, key, value, headers)
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        timestamp_type=timestamp_type,
        max_timestamp=max_timestamp,
    )


def rebuild_batch(
    header: BatchHeader,
    records: Iterable[Record],
    *,
    codec: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """The batch of `header` with only `records` left in it, as the cleaner keeps it: every record at its own offset,
    the offset range, producer and sequence of the batch as they were, so that a follower and a producer's state see
    no difference. An empty batch is legal. `delete_horizon_ms` says when its tombstones or marker may go.
    """
    horizon = delete_horizon_ms
    if horizon is None and header.is_delete_horizon_set:
        horizon = header.base_timestamp
    builder = kernel.BatchBuilder(horizon)
    for record in records:
        offset_delta = record.offset - header.base_offset
        builder.append(record.timestamp_ms, record.key, record.value, record.headers, offset_delta)
    is_append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
    return builder.build(
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        codec=header.codec if codec is None else codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        timestamp_type=header.timestamp_type,
        max_timestamp=header.max_timestamp if is_append_time or not builder.record_count else None,
        last_offset_delta=header.last_offset_delta,
        delete_horizon=horizon is not None,
    )


def recompress(
    batch: Buffer,
    header: BatchHeader,
    codec: int,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    level: int | None = None,
) -> bytearray:
    """The same batch in another codec, as a topic's `compression.type` may demand."""
    payload = records_payload(batch, header, max_decompressed_bytes=max_decompressed_bytes)
    records = compression.compress(codec, payload, level)
    rebuilt = bytearray(memoryview(batch)[:HEADER_SIZE])
    rebuilt += records
    struct.pack_into(">i", rebuilt, _LENGTH_AT, len(rebuilt) - LOG_OVERHEAD)
    struct.pack_into(">h", rebuilt, CRC_START, header.attributes & ~CODEC_MASK | codec)
    with memoryview(rebuilt) as view, view[CRC_START:] as covered:
        struct.pack_into(">I", rebuilt, _CRC_AT, kernel.crc32c(covered))
    return rebuilt


def build_control_batch(
    marker: ControlMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The batch of one control record that ends a producer's transaction in a partition."""
    key = _MARKER_KEY.pack(_MARKER_VERSION, _COMMIT if marker.commit else _ABORT)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, marker.coordinator_epoch)
    return build_batch(
        [(timestamp_ms, key, value, ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_control_marker(batch: Buffer) -> ControlMarker:
    """How the transaction ended that this control batch closes. Raises for other control records, such as KRaft's."""
    records = decode_records(batch)
    if not records or not kernel.parse_header(batch).is_control:
        raise InvalidRecord("not a control batch with a marker in it")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _MARKER_KEY.size or value is None or len(value) < _MARKER_VALUE.size:
        raise InvalidRecord("a control record is too short for a transaction marker")
    version, marker_type = _MARKER_KEY.unpack_from(key)
    if version < 0 or marker_type not in (_ABORT, _COMMIT):
        raise InvalidRecord(f"control record type {marker_type} (version {version}) is not a transaction marker")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    return ControlMarker(marker_type == _COMMIT, coordinator_epoch)


def iter_records(batch: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of the batch at the start of `batch`, one by one: beside its bytes few of them are in memory."""
    header = kernel.parse_header(batch)
    return walk_payload(records_payload(batch, header, max_decompressed_bytes=max_decompressed_bytes), header)


def walk_payload(payload: Buffer, header: BatchHeader) -> Iterator[Record]:
    """The records that lie in `payload`, as `records_payload` gave it."""
    position = first = 0
    while True:
        records, position = kernel.decode_part(payload, header, position, first, RECORDS_AT_ONCE)
        yield from records
        first += len(records)
        if first >= header.record_count:
            return


def decode_records(batch: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of the batch at the start of `batch`, control records among them."""
    header = kernel.parse_header(batch)
    return kernel.decode(records_payload(batch, header, max_decompressed_bytes=max_decompressed_bytes), header)


def records_payload(
    batch: Buffer,
    header: BatchHeader,
    position: int = 0,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Buffer:
    """The records section of the batch at `position`, decompressed: what the kernel decodes."""
    if header.magic != MAGIC:
        raise InvalidRecord(f"record batch format {header.magic} is not served; format 2 is, since Kafka 0.11")
    if len(batch) - position < header.size_bytes:
        raise CorruptMessage(f"a batch of {header.size_bytes} bytes is cut off after {len(batch) - position}")
    section = memoryview(batch)[position + HEADER_SIZE : position + header.size_bytes]
    if header.codec == compression.NONE:
        return section
    return compression.decompress(header.codec, section, max_bytes=max_decompressed_bytes)


__all__ = [
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "RECORDS_AT_ONCE",
    "BatchHeader",
    "Buffer",
    "ControlMarker",
    "Record",
    "build_batch",
    "build_control_batch",
    "decode_records",
    "iter_records",
    "read_control_marker",
    "rebuild_batch",
    "recompress",
    "records_payload",
    "walk_payload",
]
