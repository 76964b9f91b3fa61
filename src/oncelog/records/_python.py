"""The kernel in plain Python: the twin of `_native.pyx`, function for function, tested by the same suite.

Serves installs without a C compiler, and is the readable statement of what the native kernel does. Bytes from
outside raise coded errors: `CorruptMessage` for a batch that cannot be framed, `InvalidRecord` for records that
break the format. Nothing is allocated on the word of a length field.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import TypedDict, Unpack

from oncelog.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from oncelog.records import compression
from oncelog.records._python_cursor import ConsumerRecord, RecordCursor
from oncelog.records._python_reading import (
    CRC,
    CRC_AT,
    HEADER,
    NULL,
    batch_crc,
    check_all_read,
    check_count,
    crc32c,
    crc_matches,
    parse_header,
    walk,
    walk_record,
    wrap_int64,
)
from oncelog.records.model import (
    CONTROL_MASK,
    CRC_START,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAX_BATCH_BYTES,
    NO_PARTITION,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    BytesBuffers,
    CheckedRecords,
    HeaderBuffers,
    HeadersInput,
    Record,
    RowBuffers,
    TimestampBuffers,
)
from oncelog.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, TimestampType

__all__ = [
    "BatchBuilder",
    "ConsumerRecord",
    "RecordCursor",
    "RowSource",
    "check_records",
    "crc32c",
    "crc_matches",
    "decode",
    "find_batch",
    "find_refused",
    "murmur2",
    "parse_header",
    "partition_of",
    "renumber",
    "scan",
    "stamp",
    "stamp_append_time",
    "stamp_create_time",
]

_LENGTH = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhi")
_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_LAST_OFFSET_DELTA_AT = 23
_MAX_TIMESTAMP_AT = 35
_PRODUCER_ID_AT = 43

_INT32_MAX = 2**31 - 1


# ---------------------------------------------------------------------------------------------------- batches


def scan(buffer: Buffer, start: int, end: int, verify_crc: bool) -> tuple[list[BatchHeader], int]:
    """Headers of the complete, good batches at the front of `buffer[start:end]`, and how many bytes they take."""
    end = min(end, len(buffer))
    position = start = max(0, start)
    headers: list[BatchHeader] = []
    while end - position >= HEADER_SIZE:
        size_bytes = _LENGTH.unpack_from(buffer, position + _LENGTH_AT)[0] + LOG_OVERHEAD
        if not HEADER_SIZE <= size_bytes <= end - position or buffer[position + _MAGIC_AT] != MAGIC:
            break
        if verify_crc and not crc_matches(buffer, position, size_bytes):
            break
        headers.append(parse_header(buffer, position))
        position += size_bytes
    return headers, position - start


def find_batch(buffer: Buffer, start: int, end: int, offset: int) -> int:
    """Position of the first batch whose last offset is at least `offset`, or -1.

    Only the header of that batch needs to lie inside `buffer[start:end]`; its records may be cut off.
    """
    end = min(end, len(buffer))
    position = max(0, start)
    while end - position >= HEADER_SIZE:
        base_offset, length = struct.unpack_from(">qi", buffer, position)
        (last_offset_delta,) = _LENGTH.unpack_from(buffer, position + _LAST_OFFSET_DELTA_AT)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            return -1
        if base_offset + last_offset_delta >= offset:
            return position
        position += length + LOG_OVERHEAD
    return -1


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch in place. Both lie outside the CRC."""
    _require_batch(buffer, position, HEADER_SIZE)
    struct.pack_into(">q", buffer, position, base_offset)
    struct.pack_into(">i", buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, position: int, size_bytes: int, now_ms: int) -> None:
    """Make the batch one of LOG_APPEND_TIME, taken at `now_ms`, and mend the CRC."""
    _stamp_time(buffer, position, size_bytes, TIMESTAMP_TYPE_MASK, now_ms)


def stamp_create_time(buffer: bytearray | memoryview, position: int, size_bytes: int, max_timestamp: int) -> None:
    """Make the batch one of CREATE_TIME with the greatest timestamp its records really have, and mend the CRC."""
    _stamp_time(buffer, position, size_bytes, 0, max_timestamp)


def _stamp_time(buffer: bytearray | memoryview, position: int, size_bytes: int, type_bit: int, timestamp: int) -> None:
    _require_batch(buffer, position, size_bytes)
    low_attributes = position + CRC_START + 1
    buffer[low_attributes] = buffer[low_attributes] & ~TIMESTAMP_TYPE_MASK | type_bit
    struct.pack_into(">q", buffer, position + _MAX_TIMESTAMP_AT, timestamp)
    CRC.pack_into(buffer, position + CRC_AT, batch_crc(buffer, position, size_bytes))


def renumber(
    buffer: bytearray | memoryview, position: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Give the batch at `position` another producer id, epoch and sequence in place, and mend the CRC."""
    _require_batch(buffer, position, HEADER_SIZE)
    size_bytes = _LENGTH.unpack_from(buffer, position + _LENGTH_AT)[0] + LOG_OVERHEAD
    _require_batch(buffer, position, size_bytes)
    _PRODUCER.pack_into(buffer, position + _PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
    CRC.pack_into(buffer, position + CRC_AT, batch_crc(buffer, position, size_bytes))


def _require_batch(buffer: Buffer, position: int, size_bytes: int) -> None:
    if position < 0 or size_bytes < HEADER_SIZE or size_bytes > len(buffer) - position:
        raise CorruptMessage(f"no batch of {size_bytes} bytes at {position} in a buffer of {len(buffer)} bytes")


# ---------------------------------------------------------------------------------------------------- partitions

_MURMUR2_SEED = 0x9747B28C
_MURMUR2_FACTOR = 0x5BD1E995
_UINT32 = 0xFFFFFFFF


def murmur2(data: Buffer) -> int:
    """The hash by which Kafka's producers place keys, without sign."""
    raw = bytes(data)
    whole = len(raw) // 4 * 4
    mixed = _MURMUR2_SEED ^ len(raw)
    for (word,) in struct.iter_unpack("<I", raw[:whole]):
        word = word * _MURMUR2_FACTOR & _UINT32
        word = (word ^ word >> 24) * _MURMUR2_FACTOR & _UINT32
        mixed = mixed * _MURMUR2_FACTOR & _UINT32 ^ word
    if whole < len(raw):
        mixed = (mixed ^ int.from_bytes(raw[whole:], "little")) * _MURMUR2_FACTOR & _UINT32
    mixed = (mixed ^ mixed >> 13) * _MURMUR2_FACTOR & _UINT32
    return mixed ^ mixed >> 15


def partition_of(key: Buffer, partition_count: int) -> int:
    """The partition that Kafka's Java client gives `key`."""
    if partition_count < 1:
        raise ValueError(f"a key has no partition among {partition_count}")
    return (murmur2(key) & _INT32_MAX) % partition_count


# ---------------------------------------------------------------------------------------------------- records


def check_records(payload: Buffer, record_count: int, base_timestamp: int) -> CheckedRecords:
    """Walk decompressed records as a client sent them: whole, well formed, offset deltas exactly 0 to count - 1."""
    max_timestamp = min_timestamp = NO_TIMESTAMP
    offset_delta_of_max = -1
    null_keys = 0
    for index, record in enumerate(walk(memoryview(payload), record_count)):
        if record.offset_delta != index:
            raise InvalidRecord(f"record {index} has offset delta {record.offset_delta}, expected {index}")
        null_keys += record.key is NULL
        timestamp = wrap_int64(base_timestamp + record.timestamp_delta)
        if timestamp == NO_TIMESTAMP:
            continue
        if timestamp > max_timestamp:
            max_timestamp, offset_delta_of_max = timestamp, index
        if min_timestamp == NO_TIMESTAMP or timestamp < min_timestamp:
            min_timestamp = timestamp
    return CheckedRecords(max_timestamp, offset_delta_of_max, null_keys, min_timestamp)


def find_refused(
    payload: Buffer,
    record_count: int,
    base_timestamp: int,
    require_keys: bool,
    earliest: int,
    latest: int,
    limit: int,
) -> tuple[list[tuple[int, int | None]], int, int]:
    """Records, which were checked, that lack a required key, or whose timestamp is out of range: the first `limit` of
    them (index, and the timestamp if that is the reason), how many there are, and how many of them by timestamp."""
    found: list[tuple[int, int | None]] = []
    total = out_of_range = 0
    for index, record in enumerate(walk(memoryview(payload), record_count)):
        timestamp = wrap_int64(base_timestamp + record.timestamp_delta)
        lacks_key = require_keys and record.key is NULL
        if not lacks_key:
            if timestamp == NO_TIMESTAMP or earliest <= timestamp <= latest:
                continue
            out_of_range += 1
        total += 1
        if len(found) < limit:
            found.append((index, None if lacks_key else timestamp))
    return found, total, out_of_range


def find_timestamp(payload: Buffer, header: BatchHeader, timestamp: int, start_offset: int) -> tuple[int, int] | None:
    """Timestamp and offset of the first record at or after `start_offset` that is not older than `timestamp`."""
    for found, offset in _walk_times(payload, header):
        if found >= timestamp and offset >= start_offset:
            return found, offset
    return None


def find_newest(payload: Buffer, header: BatchHeader) -> tuple[int, int] | None:
    """Timestamp and offset of the first record that is as new as any."""
    return max(_walk_times(payload, header), key=lambda time: time[0], default=None)


def _walk_times(payload: Buffer, header: BatchHeader) -> Iterator[tuple[int, int]]:
    is_append_time = header.attributes & TIMESTAMP_TYPE_MASK
    for record in walk(memoryview(payload), header.record_count):
        timestamp = (
            header.max_timestamp if is_append_time else wrap_int64(header.base_timestamp + record.timestamp_delta)
        )
        yield timestamp, wrap_int64(header.base_offset + record.offset_delta)


def decode(payload: Buffer, header: BatchHeader) -> list[Record]:
    """The records of a batch whose decompressed records section is `payload`."""
    return decode_part(payload, header, 0, 0, header.record_count)[0]


def decode_part(
    payload: Buffer, header: BatchHeader, position: int, first: int, count: int
) -> tuple[list[Record], int]:
    """At most `count` records from number `first` on, which begins at `position`, and where the next one begins."""
    view = memoryview(payload)
    is_append_time = header.attributes & TIMESTAMP_TYPE_MASK
    check_count(view, header.record_count)
    if not (0 <= position <= len(view) and 0 <= first <= header.record_count and count >= 0):
        raise ValueError("a part lies within its batch")
    stop = first + min(count, header.record_count - first)
    records = []
    for _ in range(first, stop):
        record = walk_record(view, position)
        records.append(
            Record(
                wrap_int64(header.base_offset + record.offset_delta),
                header.max_timestamp if is_append_time else wrap_int64(header.base_timestamp + record.timestamp_delta),
                record.key.of(view),
                record.value.of(view),
                record.headers_of(view),
            )
        )
        position = record.end
    if stop == header.record_count:
        check_all_read(view, position)
    return records, position


# ---------------------------------------------------------------------------------------------------- rows


class RowSource:
    """The rows of a table's columns, for `BatchBuilder.append_columns`. What points outside the buffers is refused."""

    def __init__(self, buffers: RowBuffers) -> None:
        if not 0 <= buffers.row_count <= _INT32_MAX:
            raise ValueError(f"{buffers.row_count} rows: there may be up to {_INT32_MAX}")
        self.row_count = buffers.row_count
        self._now_ms = buffers.now_ms
        self._keys = _BytesReader.of(buffers.keys, self.row_count)
        self._values = _BytesReader.of(buffers.values, self.row_count)
        self._headers = _HeadersReader(buffers.headers, self.row_count) if buffers.headers else None
        self._timestamps = _TimestampReader(buffers.timestamps, self.row_count) if buffers.timestamps else None

    def find_larger(self, limit_bytes: int) -> int:
        """The first row that would make a batch larger than `limit_bytes` even if alone in it, or -1."""
        for index in range(self.row_count):
            _, key, value, headers = self.row(index)
            if HEADER_SIZE + len(_encoded(0, 0, key, value, headers)) > limit_bytes:
                return index
        return -1

    def by_partition(
        self,
        partition_count: int,
        partitions: Buffer | None = None,
        use_keys: bool = True,
        anywhere: int = NO_PARTITION,
    ) -> list[tuple[int, Buffer | None]]:
        """The rows of each partition in order, as int32 indices, or None for all rows.

        A row goes where `partitions` (int32) says. Where that is -1 or not given, its key decides, if keys are to be
        used; all others go to the partition `anywhere`, or come under -1, for the caller to place.
        """
        if partition_count < 1:
            raise ValueError(f"rows have no place among {partition_count} partitions")
        if not NO_PARTITION <= anywhere < partition_count:
            raise ValueError(f"rows are to go to partition {anywhere}; there are 0 to {partition_count - 1}")
        wanted = array("i", [NO_PARTITION]) * self.row_count
        if partitions is not None:
            wanted = array("i", memoryview(partitions).cast("B").tobytes())
            if len(wanted) < self.row_count:
                raise ValueError(f"{self.row_count} rows need as many partitions, not {len(wanted)}")
        groups: dict[int, array[int]] = {}
        for index in range(self.row_count):
            partition = wanted[index]
            if not NO_PARTITION <= partition < partition_count:
                raise ValueError(f"row {index} asks for partition {partition}; there are 0 to {partition_count - 1}")
            if partition == NO_PARTITION and use_keys and (key := self._item(self._keys, index, index)) is not None:
                partition = partition_of(key, partition_count)
            if partition == NO_PARTITION:
                partition = anywhere
            groups.setdefault(partition, array("i")).append(index)
        return [
            (partition, None if len(rows) == self.row_count else rows.tobytes())
            for partition, rows in sorted(groups.items())
        ]

    def row(self, index: int) -> tuple[int, Buffer | None, Buffer | None, list[tuple[Buffer, Buffer | None]]]:
        """Timestamp, key, value and headers."""
        timestamp = self._timestamps.timestamp(index) if self._timestamps else None
        return (
            self._now_ms if timestamp is None else timestamp,
            self._item(self._keys, index, index),
            self._item(self._values, index, index),
            list(self._headers_of(index)),
        )

    def _headers_of(self, index: int) -> Iterator[tuple[Buffer, Buffer | None]]:
        if self._headers is None or _is_null(self._headers.validity, self._headers.first + index):
            return
        start, end = self._headers.offsets[self._headers.first + index :][:2]
        if not 0 <= start <= end <= self._headers.keys.count:
            raise _bad_row(index)
        for number in range(start, end):
            key = self._item(self._headers.keys, number, index)
            if key is None:
                raise _bad_row(index)
            yield key, self._item(self._headers.values, number, index)

    @staticmethod
    def _item(reader: _BytesReader | None, item: int, row: int) -> Buffer | None:
        if reader is None or _is_null(reader.validity, reader.first + item):
            return None
        start, end = reader.span(reader.first + item)
        if not 0 <= start <= end <= len(reader.data):
            raise _bad_row(row)
        return reader.data[start:end]


class _BytesReader:
    def __init__(self, column: BytesBuffers, row_count: int) -> None:
        _check_column(column.first, column.length, row_count)
        end = column.first + column.length
        self.first = column.first
        self.count = column.length
        self.validity = _validity(column.validity, end)
        self.item_bytes = column.item_bytes
        self.offsets = None
        if column.offsets is None:
            if column.item_bytes < 0:
                raise ValueError(f"{end} items of {column.item_bytes} bytes")
            self.data = _buffer(column.data, end * column.item_bytes)
        else:
            self.offsets = _offsets(column.offsets, column.offset_bytes, end + 1)
            self.data = _buffer(column.data, 0)

    @classmethod
    def of(cls, column: BytesBuffers | None, row_count: int) -> _BytesReader | None:
        return None if column is None else cls(column, row_count)

    def span(self, item: int) -> tuple[int, int]:
        if self.offsets is None:
            return item * self.item_bytes, (item + 1) * self.item_bytes
        return self.offsets[item], self.offsets[item + 1]


class _HeadersReader:
    def __init__(self, column: HeaderBuffers, row_count: int) -> None:
        _check_column(column.first, row_count, row_count)
        end = column.first + row_count
        self.first = column.first
        self.validity = _validity(column.validity, end)
        self.offsets = _offsets(column.offsets, column.offset_bytes, end + 1)
        self.keys = _BytesReader(column.keys, 0)
        self.values = _BytesReader(column.values, self.keys.count)


class _TimestampReader:
    def __init__(self, column: TimestampBuffers, row_count: int) -> None:
        _check_column(column.first, row_count, row_count)
        self.first = column.first
        self.validity = _validity(column.validity, column.first + row_count)
        self.data = _offsets(column.data, 8, column.first + row_count)

    def timestamp(self, index: int) -> int | None:
        return None if _is_null(self.validity, self.first + index) else self.data[self.first + index]


def _check_column(first: int, count: int, row_count: int) -> None:
    if first < 0 or count < row_count:
        raise ValueError(f"a column of {count} items from item {first} on does not serve {row_count} rows")


def _buffer(buffer: Buffer, size_bytes: int) -> memoryview:
    view = memoryview(buffer).cast("B")
    if len(view) < size_bytes:
        raise ValueError(f"a column's buffer has {len(view)} bytes, its rows need {size_bytes}")
    return view


def _validity(buffer: Buffer | None, item_count: int) -> memoryview | None:
    return None if buffer is None else _buffer(buffer, (item_count + 7) // 8)


def _offsets(buffer: Buffer, offset_bytes: int, count: int) -> memoryview:
    if offset_bytes not in (4, 8):
        raise ValueError(f"offsets of {offset_bytes} bytes; Arrow has 4 and 8")
    return _buffer(buffer, count * offset_bytes)[: count * offset_bytes].cast("i" if offset_bytes == 4 else "q")


def _is_null(validity: memoryview | None, index: int) -> bool:
    return validity is not None and not validity[index >> 3] >> (index & 7) & 1


def _bad_row(index: int) -> InvalidRecord:
    return InvalidRecord(f"row {index} points outside its columns, has a header without a key, or 2 GiB in a field")


# ---------------------------------------------------------------------------------------------------- building


class HeaderFields(TypedDict, total=False):
    """What a header says that the records do not. `last_offset_delta` and `delete_horizon` are for the cleaner, whose
    batches may even be empty."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    timestamp_type: int
    max_timestamp: int | None
    last_offset_delta: int | None
    delete_horizon: bool


class BatchBuilder:
    """Encodes records one by one; `build` and `seal` put the header before them. A builder may be built from more than
    once, but it is spent once its batch is sealed.

    Timestamps are stored relative to the first record's, or to `base_timestamp` if given (the cleaner keeps its
    delete horizon there). A batch that stays below `size_hint` bytes takes hardly more memory than that, however it
    grows: here by itself, in the native kernel because doubling stops there.
    """

    def __init__(self, base_timestamp: int | None = None, size_hint: int = 0, expected: int = 0) -> None:
        self._batch = bytearray(HEADER_SIZE)  # room for the header, so that the batch can be sealed where it is
        self._sealed_size = 0  # until then
        self._count = 0
        self._base_timestamp = base_timestamp
        self._max_timestamp = NO_TIMESTAMP
        self._next_offset_delta = 0

    @property
    def record_count(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, uncompressed."""
        return self._sealed_size or len(self._batch)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._batch.__sizeof__()

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput = (),
        offset_delta: int | None = None,
    ) -> int:
        """Add a record and return the new `size_bytes`. Offset deltas are 0, 1, 2... except in compacted batches."""
        self._require_open()
        delta = self._next_offset_delta if offset_delta is None else offset_delta
        if not self._next_offset_delta <= delta <= _INT32_MAX:
            raise ValueError(f"offset delta {delta} is not above the last one")
        encoded_headers = [(name.encode("utf-8", "surrogateescape"), data) for name, data in headers]
        record = _encoded(self._timestamp_delta(timestamp_ms), delta, key, value, encoded_headers)
        if len(self._batch) + len(record) > MAX_BATCH_BYTES:
            raise MessageTooLarge(f"a batch holds at most {MAX_BATCH_BYTES} bytes")
        self._add(timestamp_ms, delta, record)
        return len(self._batch)

    def append_columns(
        self, source: RowSource, start: int, stop: int, limit_bytes: int, rows: Buffer | None = None
    ) -> int:
        """Add rows `start` up to `stop`, or those that `rows` (int32) names at these places, and return where it ended:
        before a row that would take the batch past `limit_bytes`, unless it were the only one.
        """
        self._require_open()
        order = None if rows is None else memoryview(rows).cast("B").cast("i")
        row_count = source.row_count if order is None else len(order)
        if not 0 <= start <= stop <= row_count:
            raise ValueError(f"rows {start} to {stop} of {row_count}")
        if stop - start > _INT32_MAX - self._next_offset_delta:
            raise ValueError(f"a batch takes no {stop - start} rows after offset delta {self._next_offset_delta - 1}")
        for at in range(start, stop):
            index = at if order is None else order[at]
            if not 0 <= index < source.row_count:
                raise ValueError(f"the order of rows names at {at} one that is not there")
            timestamp_ms, key, value, headers = source.row(index)
            delta = self._next_offset_delta
            record = _encoded(self._timestamp_delta(timestamp_ms), delta, key, value, headers)
            if self._count and len(self._batch) + len(record) > min(limit_bytes, MAX_BATCH_BYTES):
                return at
            if len(self._batch) + len(record) > MAX_BATCH_BYTES:
                raise MessageTooLarge(f"a batch holds at most {MAX_BATCH_BYTES} bytes, row {index} alone needs more")
            self._add(timestamp_ms, delta, record)
        return stop

    def _timestamp_delta(self, timestamp_ms: int) -> int:
        return 0 if self._base_timestamp is None else wrap_int64(timestamp_ms - self._base_timestamp)

    def _add(self, timestamp_ms: int, delta: int, record: bytes) -> None:
        self._batch += record
        self._count += 1
        if self._base_timestamp is None:
            self._base_timestamp = timestamp_ms
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._next_offset_delta = delta + 1

    def build(
        self, *, codec: int = compression.NONE, compression_level: int | None = None, **fields: Unpack[HeaderFields]
    ) -> bytearray:
        """The batch as it is now."""
        self._put_header(codec, **fields)
        return _finished(self._batch[:], codec, compression_level)

    def seal(
        self, *, codec: int = compression.NONE, compression_level: int | None = None, **fields: Unpack[HeaderFields]
    ) -> memoryview:
        """The batch, writable: the builder's own memory, unless it is compressed. The builder is spent."""
        self._put_header(codec, **fields)
        self._sealed_size = len(self._batch)
        batch, self._batch = self._batch, bytearray()
        return memoryview(_finished(batch, codec, compression_level))

    def _require_open(self) -> None:
        if self._sealed_size:
            raise ValueError("this batch is sealed: its builder is spent")

    def _put_header(
        self,
        codec: int,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        timestamp_type: int = TimestampType.CREATE_TIME,
        max_timestamp: int | None = None,
        last_offset_delta: int | None = None,
        delete_horizon: bool = False,
    ) -> None:
        """Fill the room before the records with all but the length and the CRC."""
        self._require_open()
        if last_offset_delta is None:
            last_offset_delta = self._next_offset_delta - 1
        if last_offset_delta < max(0, self._next_offset_delta - 1):
            raise ValueError("a batch needs a record, or the offset range of the records that were in it")
        HEADER.pack_into(
            self._batch,
            0,
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            codec
            | TIMESTAMP_TYPE_MASK * timestamp_type
            | TRANSACTIONAL_MASK * transactional
            | CONTROL_MASK * control
            | DELETE_HORIZON_MASK * delete_horizon,
            last_offset_delta,
            NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            self._max_timestamp if max_timestamp is None else max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self._count,
        )


def _finished(batch: bytearray, codec: int, compression_level: int | None) -> bytearray:
    """The batch with its records compressed, its length and its CRC."""
    if codec:
        with memoryview(batch) as view, view[HEADER_SIZE:] as records:
            batch = batch[:HEADER_SIZE] + compression.compress(codec, records, compression_level)
    _LENGTH.pack_into(batch, _LENGTH_AT, len(batch) - LOG_OVERHEAD)
    CRC.pack_into(batch, CRC_AT, batch_crc(batch, 0, len(batch)))
    return batch


def _encoded(
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[Buffer, Buffer | None]],
) -> bytes:
    body = bytearray(1)
    body += _varint(timestamp_delta)
    body += _varint(offset_delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    body += _varint(len(headers))
    for header_key, header_value in headers:
        _write_bytes(body, header_key)
        _write_bytes(body, header_value)
    return _varint(len(body)) + body


def _write_bytes(target: bytearray, data: Buffer | None) -> None:
    if data is None:
        target.append(1)  # -1, the length of null, in zigzag
        return
    target += _varint(memoryview(data).nbytes)
    target += data


def _varint(value: int) -> bytes:
    """Zigzag, then seven bits a byte, lowest first."""
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
