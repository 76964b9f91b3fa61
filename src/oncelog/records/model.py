"""The values of the record room: batch header, record, control marker, and where the fields of a header lie.

Both kernels build these values, so this module imports neither kernel. It knows the layout of format v2 and nothing
of bytes beyond it; `batch` re-exports everything that other rooms need.

    0 base offset       21 attributes          43 producer id
    8 length            23 last offset delta   51 producer epoch
   12 leader epoch      27 base timestamp      53 base sequence
   16 magic             35 max timestamp       57 record count
   17 CRC32C of [21:]                          61 records
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from oncelog.errors import OncelogError
from oncelog.named_tuple import NamedTuple
from oncelog.types import NO_PRODUCER_ID, NO_SEQUENCE, TimestampType, TopicPartition, advance_sequence

MAGIC = 2
LOG_OVERHEAD = 12  # base offset and length, which the length field does not count
HEADER_SIZE = 61  # bytes before the first record
CRC_START = 21  # the CRC covers everything from the attributes on
MAX_BATCH_BYTES = 2**31 - 1  # our bound: a position inside a batch always fits an int32
MAX_OFFSET = 2**63 - 2  # so that the offset after it is one too
MAX_BASE_OFFSET = MAX_OFFSET - (2**31 - 1)  # so that every record of the batch has an offset
CHUNK_BYTES = 16 * 1024 * 1024
"""Columns of records end with the record that takes them past this many bytes: far from the 2 GiB that Arrow's 32-bit
offsets allow, and small enough for their memory to be used again."""
ABORT_MARKER = b"\x00\x00"  # the type in a control record's key, behind the version
NO_PARTITION = -1  # of a row that any partition may take
MIN_RECORD_SIZE = 7  # length, attributes, two deltas, two lengths, header count: one byte each

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

Buffer = bytes | bytearray | memoryview
Header = tuple[str, bytes | None]
HeadersInput = Sequence[Header]


class ArrowStream(Protocol):
    """A table of another library, as Arrow's PyCapsule interface exports it."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class BatchHeader(NamedTuple):
    """The fixed part of a batch. `size_bytes` counts the whole batch, the first 12 bytes included."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return advance_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def is_delete_horizon_set(self) -> bool:
        """Whether the cleaner has stored in `base_timestamp` when tombstones and markers of this batch may go."""
        return self.attributes & DELETE_HORIZON_MASK != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


class Record(NamedTuple):
    """One record as a reader sees it. A header key that is not UTF-8 keeps its bytes as surrogate escapes."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class ControlMarker(NamedTuple):
    """How a transaction ended, as its coordinator wrote it into the log."""

    commit: bool
    coordinator_epoch: int


class BinaryColumn(NamedTuple):
    """An Arrow binary array as plain buffers: int32 offsets (length + 1), the bytes, and a validity bitmap."""

    length: int
    null_count: int
    validity: Buffer
    offsets: Buffer
    data: Buffer


class ColumnBuffers(NamedTuple):
    """Many records as Arrow buffers. Record `i` owns the headers `header_offsets[i]` up to `header_offsets[i + 1]`."""

    record_count: int
    offsets: Buffer
    timestamps: Buffer
    keys: BinaryColumn
    values: BinaryColumn
    header_offsets: Buffer
    header_keys: BinaryColumn
    header_values: BinaryColumn


class BytesBuffers(NamedTuple):
    """An Arrow array of nullable bytes as it lies in memory: `length` items from item `first` of the buffers on.

    `offsets` are int32 or int64 (`offset_bytes` 4 or 8); without them, every item has `item_bytes`.
    """

    first: int
    length: int
    validity: Buffer | None
    data: Buffer
    offsets: Buffer | None
    offset_bytes: int = 4
    item_bytes: int = 0


class TimestampBuffers(NamedTuple):
    """An Arrow array of nullable int64: milliseconds since 1970."""

    first: int
    validity: Buffer | None
    data: Buffer


class HeaderBuffers(NamedTuple):
    """An Arrow array of nullable lists: row `i` owns the headers from its offset up to the next one."""

    first: int
    validity: Buffer | None
    offsets: Buffer
    offset_bytes: int
    keys: BytesBuffers
    values: BytesBuffers


class RowBuffers(NamedTuple):
    """Rows to be sent as records: what a table's columns are to the kernel. Rows without a timestamp get `now_ms`."""

    row_count: int
    now_ms: int
    keys: BytesBuffers | None
    values: BytesBuffers | None
    headers: HeaderBuffers | None = None
    timestamps: TimestampBuffers | None = None


class TableError(OncelogError, ValueError):
    """A table cannot be sent as it is. Nothing of it was sent."""


class RecordDeserializationError(OncelogError, ValueError):
    """A deserializer raised. The position stays at the record: `seek()` past it, or change the deserializer."""

    def __init__(self, partition: TopicPartition, offset: int, field: str, cause: BaseException) -> None:
        """`field` is "key" or "value"."""
        super().__init__(
            f"the {field} of {partition} at offset {offset} cannot be deserialized: {cause!r}; seek() to offset"
            f" {offset + 1} to pass over the record, or read it with another {field}_deserializer"
        )
        self.partition = partition
        self.offset = offset
        self.field = field
        self.cause = cause


class CheckedRecords(NamedTuple):
    """What a structural walk over the records of a batch found.

    Timestamps of -1 (none given) count for neither bound; with no other, `offset_delta_of_max` is -1.
    """

    max_timestamp: int
    offset_delta_of_max: int
    null_keys: int
    min_timestamp: int
