"""What a client may send in one partition of a Produce request: the rules, in Kafka's order, with Kafka's codes.

Owns the judgement of a single batch by its own bytes. Whether its sequence fits the log is the producer state's to
say. Changes nothing: the log stamps offsets and timestamps once a batch is accepted.

    1. exactly one batch, of format 2, base offset 0             INVALID_RECORD (87)
    2. not larger than `max.message.bytes`                       MESSAGE_TOO_LARGE (10)
    3. CRC32C                                                    CORRUPT_MESSAGE (2)
    4. a known codec                                             UNSUPPORTED_COMPRESSION_TYPE (76)
    5. offset range and count agree, not a control batch, a
       sequence where there is a producer id                     INVALID_RECORD (87)
    6. compressed as every reader of Kafka's can read it
       (`frames`), bounded when decompressed                     87, or 2 for what is broken
    7. the records: whole, counted right, offsets in order       87
    8. each record: a key where the topic is compacted; a
       timestamp in range. The error names the records           87, INVALID_TIMESTAMP (32) if one is out of range

Stricter than Kafka where Kafka would mend silently: bytes after the batch (Kafka drops them), and LOG_APPEND_TIME
set by a client (Kafka takes it for CREATE_TIME in most cases) are refused; and where it stores what only Java reads.
"""

from __future__ import annotations

from oncelog.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from oncelog.named_tuple import NamedTuple
from oncelog.records import compression, kernel
from oncelog.records.model import (
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Buffer,
    CheckedRecords,
)
from oncelog.types import NO_TIMESTAMP, TimestampType, TopicPartition

UNBOUNDED_MS = 2**63 - 1  # Kafka's default of `message.timestamp.before.max.ms`
DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000  # and of `message.timestamp.after.max.ms`
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

MAX_RECORD_ERRORS = 2_000
"""Of one batch: as many as a producer's batch of 16 KiB, the default, can hold. Kafka names all, however many a few
compressed bytes stand for."""
MAX_ERRORS_IN_MESSAGE = 3  # as Kafka


class BatchRules(NamedTuple):
    """What a topic demands of a batch at the moment `now_ms`."""

    max_message_bytes: int
    max_decompressed_bytes: int
    now_ms: int
    require_keys: bool = False  # the topic is compacted
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = UNBOUNDED_MS
    timestamp_after_max_ms: int = DEFAULT_TIMESTAMP_AFTER_MAX_MS

    @property
    def timestamp_range(self) -> tuple[int, int]:
        """The earliest and the latest that a record may have."""
        if self.timestamp_type is _LOG_APPEND_TIME:
            return INT64_MIN, INT64_MAX
        return (
            max(self.now_ms - self.timestamp_before_max_ms, INT64_MIN),
            min(self.now_ms + self.timestamp_after_max_ms, INT64_MAX),
        )


class ValidatedBatch(NamedTuple):
    """A batch that may be appended, and what its records, rather than its header, say of their timestamps."""

    header: BatchHeader
    max_timestamp: int
    offset_of_max_timestamp_delta: int
    unfolded_bytes: int = 0
    """Of its records when they are decompressed."""


def validate_client_batch(buffer: Buffer, rules: BatchRules, partition: TopicPartition | None = None) -> ValidatedBatch:
    """Judge the bytes that a client sent for one partition. Raises the error that the client is to be answered; it may
    name the partition."""
    header = _only_batch(buffer)
    if header.base_offset != 0:
        raise InvalidRecord(f"the base offset of a batch from a client is 0, found {header.base_offset}")
    if header.size_bytes > rules.max_message_bytes:
        raise MessageTooLarge(
            f"the batch has {header.size_bytes} bytes, max.message.bytes of the topic is {rules.max_message_bytes}"
        )
    if not kernel.crc_matches(buffer, 0, header.size_bytes):
        raise CorruptMessage(f"the batch does not have the CRC32C that it states, {header.crc:#010x}")
    codec = header.attributes & CODEC_MASK
    if codec > compression.ZSTD:
        raise UnsupportedCompressionType(f"codec {codec} is unknown; known are 0 to {compression.ZSTD}")
    _check_header(header)
    if codec == compression.NONE:
        payload: Buffer = memoryview(buffer)[HEADER_SIZE:]
    else:
        payload = compression.decompress(
            codec, memoryview(buffer)[HEADER_SIZE:], max_bytes=rules.max_decompressed_bytes, for_all=True
        )
    checked = kernel.check_records(payload, header.record_count, header.base_timestamp)
    if header.attributes & TIMESTAMP_TYPE_MASK and not (rules.require_keys and checked.null_keys):
        raise InvalidTimestamp("the timestamp type of a batch from a client is CREATE_TIME, found LOG_APPEND_TIME")
    if (rules.require_keys and checked.null_keys) or not _are_in_range(checked, rules):
        raise _refusal(payload, header, rules, partition)
    return ValidatedBatch(header, checked.max_timestamp, checked.offset_delta_of_max, len(payload))


def _only_batch(buffer: Buffer) -> BatchHeader:
    if len(buffer) < HEADER_SIZE:
        raise InvalidRecord(f"exactly one record batch is expected for a partition, found {len(buffer)} bytes")
    header = kernel.parse_header(buffer)
    if header.magic != MAGIC:
        raise InvalidRecord(f"record batches must have format {MAGIC}, found {header.magic}")
    if header.size_bytes != len(buffer):
        raise InvalidRecord(
            f"exactly one record batch is expected for a partition; the first has {header.size_bytes} bytes"
            f" where {len(buffer)} were sent"
        )
    return header


def _check_header(header: BatchHeader) -> None:
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"a batch of {header.record_count} records has last offset delta {header.last_offset_delta}"
        )
    if header.attributes & CONTROL_MASK:
        raise InvalidRecord("clients may not write control records")
    if header.base_sequence < 0 and header.has_producer_id:
        raise InvalidRecord(f"producer id {header.producer_id} comes with the sequence number {header.base_sequence}")


def _are_in_range(checked: CheckedRecords, rules: BatchRules) -> bool:
    if checked.min_timestamp == NO_TIMESTAMP or rules.timestamp_type is _LOG_APPEND_TIME:
        return True
    now_ms = rules.now_ms
    return (
        now_ms - rules.timestamp_before_max_ms <= checked.min_timestamp
        and checked.max_timestamp <= now_ms + rules.timestamp_after_max_ms
    )


def _refusal(payload: Buffer, header: BatchHeader, rules: BatchRules, partition: TopicPartition | None) -> KafkaError:
    """Names the records at fault, in Kafka's words. Kafka: LogValidator.processRecordErrors"""
    earliest, latest = rules.timestamp_range
    found, total, out_of_range = kernel.find_refused(
        payload, header.record_count, header.base_timestamp, rules.require_keys, earliest, latest, MAX_RECORD_ERRORS
    )
    errors = [(index, _fault(index, timestamp, earliest, latest, partition)) for index, timestamp in found]
    error: KafkaError
    if out_of_range:
        error = InvalidTimestamp("One or more records have been rejected due to invalid timestamp")
    else:
        shown = (
            f"RecordError(batchIndex={index}, message='{words}')" for index, words in errors[:MAX_ERRORS_IN_MESSAGE]
        )
        error = InvalidRecord(
            f"One or more records have been rejected due to {total} record errors in total, "
            f"and only showing the first three errors at most: [{', '.join(shown)}]"
        )
    error.record_errors = errors
    return error


def _fault(index: int, timestamp: int | None, earliest: int, latest: int, partition: TopicPartition | None) -> str:
    if timestamp is None:
        return f"Compacted topic cannot accept message without key in topic partition {partition}"
    return (
        f"Timestamp {timestamp} of message with offset {index} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )
