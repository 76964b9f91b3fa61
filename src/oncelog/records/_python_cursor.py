"""What a consumer reads a fetched partition with, in plain Python: the twin of `_cursor.pxi`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from oncelog.errors import CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from oncelog.records import compression
from oncelog.records._python_reading import (
    Span,
    Walked,
    check_all_read,
    check_count,
    crc_matches,
    parse_header,
    walk_record,
    wrap_int64,
)
from oncelog.records.model import (
    ABORT_MARKER,
    CHUNK_BYTES,
    HEADER_SIZE,
    MAGIC,
    MAX_BATCH_BYTES,
    MAX_OFFSET,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    BinaryColumn,
    Buffer,
    ColumnBuffers,
    Header,
    RecordDeserializationError,
)
from oncelog.types import NO_LEADER_EPOCH, TimestampType, TopicPartition

_MALFORMED = (InvalidRecord, CorruptMessage, UnsupportedCompressionType)


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record as a consumer hands it over."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[Header, ...] = ()
    leader_epoch: int = NO_LEADER_EPOCH

    def replace(self, **changes: Any) -> ConsumerRecord:
        """The same record with other fields, for interceptors."""
        return replace(self, **changes)


class RecordCursor:
    """The records of one fetched partition that a reader may see: no control records, none before `fetch_offset`, and
    if `committed_only` none of the transactions that `aborted` names as (producer id, first offset).

    Fetched data begins with the batch that *contains* the wanted offset, and may end in the middle of a batch, which is
    left for the next fetch. Batches are checked and decompressed one at a time, when they are reached.

    Bytes that make no sense raise CorruptMessage, a `read_key` or `read_value` that raises RecordDeserializationError.
    Either way the records before are handed over first, `next_offset` stays where the trouble is, and so does the
    cursor: to take again is to try again.
    """

    def __init__(
        self,
        data: Buffer,
        topic: str,
        partition: int,
        fetch_offset: int,
        committed_only: bool,
        aborted: Sequence[tuple[int, int]] | None,
        check_crcs: bool,
        max_decompressed_bytes: int,
        read_key: Callable[[bytes], Any] | None = None,
        read_value: Callable[[bytes], Any] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = fetch_offset
        """After what was taken, and after batches that show nothing."""
        self.leader_epoch = NO_LEADER_EPOCH
        """Of the batch before `next_offset`; -1 as long as none was passed."""
        self.bytes_taken = 0
        """Size of the records that were taken, uncompressed."""
        self._data = memoryview(data)
        self._committed_only = committed_only
        self._aborted = aborted or ()
        self._check_crcs = check_crcs
        self._max_decompressed_bytes = max_decompressed_bytes
        self._read_key = read_key
        self._read_value = read_value
        self._is_busy = False
        self._payload = memoryview(b"")
        self._at = self._left = 0
        self._is_closed = True
        self._rewind((self.next_offset, self.leader_epoch, self.bytes_taken))
        self._look_ahead()

    @property
    def is_exhausted(self) -> bool:
        return self._is_at_end

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """The next records; an empty list only if there are none any more."""
        taken: list[ConsumerRecord] = []
        self._run(lambda: self._take(taken, max_records), lambda: bool(taken))
        return taken

    def take_table(self, max_records: int | None = None) -> ColumnBuffers:
        """The next records as columns; without any only if there are none any more. They end, if not by `max_records`,
        with the record that takes them past CHUNK_BYTES. Keys and values stay bytes."""
        columns = _Columns()
        self._run(lambda: self._take_columns(columns, max_records), lambda: bool(columns.offsets))
        return columns.finish()

    def _run(self, take: Callable[[], None], has_any: Callable[[], bool]) -> None:
        """If taking fails, what was taken so far comes first. If it is interrupted, it has not happened."""
        if self._is_busy:
            raise ValueError("this cursor is being read already: by another thread, or by its own deserializer")
        self._is_busy = True
        start = (self.next_offset, self.leader_epoch, self.bytes_taken)
        try:
            take()
            self._look_ahead()
        except _MALFORMED as error:
            if not has_any():
                raise self._corrupt(error) from error
        except RecordDeserializationError:
            if not has_any():
                raise
        except BaseException:
            self._rewind(start)
            raise
        finally:
            self._is_busy = False

    def _rewind(self, start: tuple[int, int, int]) -> None:
        """Before the first batch; what lies before the next offset is passed over on the way back."""
        self.next_offset, self.leader_epoch, self.bytes_taken = start
        self._position = 0
        self._upcoming = sorted(self._aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()
        self._header: BatchHeader | None = None
        self._is_at_end = False
        self._close()

    # --- records ------------------------------------------------------------------------------------------------------

    def _take(self, taken: list[ConsumerRecord], max_records: int) -> None:
        while len(taken) < max_records and (header := self._open()) is not None:
            while self._left and len(taken) < max_records:
                record, offset = self._next(header)
                if offset >= self.next_offset:
                    taken.append(self._made(record, offset, header))
                    self.bytes_taken += record.end - self._at
                self._passed(record, offset, header)
            self._leave(header)

    def _take_columns(self, columns: _Columns, max_records: int | None) -> None:
        while columns.has_room(max_records) and (header := self._open()) is not None:
            while self._left and columns.has_room(max_records):
                record, offset = self._next(header)
                if offset >= self.next_offset:
                    if record.end - self._at > MAX_BATCH_BYTES - CHUNK_BYTES:
                        raise MessageTooLarge(f"the record at offset {offset} is too large for a table")
                    columns.append(self._payload, record, offset, _timestamp(header, record), record.end - self._at)
                    self.bytes_taken += record.end - self._at
                self._passed(record, offset, header)
            self._leave(header)

    def _next(self, header: BatchHeader) -> tuple[Walked, int]:
        record = walk_record(self._payload, self._at)
        if not 0 <= record.offset_delta <= header.last_offset_delta:
            raise InvalidRecord(f"a record has offset delta {record.offset_delta}, outside its batch")
        return record, header.base_offset + record.offset_delta

    def _made(self, record: Walked, offset: int, header: BatchHeader) -> ConsumerRecord:
        return ConsumerRecord(
            self.topic,
            self.partition,
            offset,
            _timestamp(header, record),
            header.timestamp_type,
            self._read("key", self._read_key, record.key, offset),
            self._read("value", self._read_value, record.value, offset),
            record.headers_of(self._payload),
            header.leader_epoch,
        )

    def _read(self, field: str, read: Callable[[bytes], Any] | None, span: Span, offset: int) -> Any:
        data = span.of(self._payload)
        if data is None or read is None:
            return data
        try:
            return read(data)
        except Exception as error:
            raise RecordDeserializationError(
                TopicPartition(self.topic, self.partition), offset, field, error
            ) from error

    def _passed(self, record: Walked, offset: int, header: BatchHeader) -> None:
        self._at = record.end
        self._left -= 1
        if offset >= self.next_offset:
            self.next_offset = offset + 1
            self.leader_epoch = header.leader_epoch

    # --- batches ------------------------------------------------------------------------------------------------------

    def _look_ahead(self) -> None:
        """Pass over what shows nothing, so that `next_offset` and `is_exhausted` count it as read. Whatever is wrong
        there is for the next who takes."""
        with suppress(*_MALFORMED):
            self._enter()

    def _enter(self) -> BatchHeader | None:
        """The header of the next batch with something to show, checked; None at the end."""
        while self._header is None and not self._is_at_end:
            header = self._sound_header()
            if header is None:
                self._is_at_end = True
            elif self._shows(header):
                self._header = header
            else:
                self._skip(header)
        return self._header

    def _sound_header(self) -> BatchHeader | None:
        """Of the batch at the position; None if that is where the data ends, or is cut off."""
        rest = len(self._data) - self._position
        header = parse_header(self._data, self._position) if rest >= HEADER_SIZE else None
        if header is None or header.size_bytes > rest:
            if rest and not self._position:
                raise CorruptMessage(f"{rest} bytes without one whole batch")
            return None
        if header.magic != MAGIC:
            raise CorruptMessage(f"it has format {header.magic}; format 2 is read, which Kafka writes since 0.11")
        if self._check_crcs and not crc_matches(self._data, self._position, header.size_bytes):
            raise CorruptMessage("its CRC32C is wrong")
        if not 0 <= header.base_offset <= MAX_OFFSET - header.last_offset_delta or header.last_offset_delta < 0:
            raise CorruptMessage(f"offset {header.base_offset} and {header.last_offset_delta} more")
        return header

    def _shows(self, header: BatchHeader) -> bool:
        if self._committed_only and self._is_aborted(header):
            return False
        return not header.is_control and header.last_offset >= self.next_offset and header.record_count != 0

    def _is_aborted(self, header: BatchHeader) -> bool:
        """Knows, batch by batch, which producers' transactions at that point will turn out aborted."""
        while self._upcoming and self._upcoming[-1][1] <= header.last_offset:
            self._aborting.add(self._upcoming.pop()[0])
        if header.producer_id not in self._aborting:
            return False
        if header.is_control and self._is_abort_marker(header):
            self._aborting.discard(header.producer_id)
        return header.is_transactional

    def _is_abort_marker(self, header: BatchHeader) -> bool:
        payload = self._payload_of(header)
        check_count(payload, header.record_count)
        key = walk_record(payload, 0).key.of(payload) if header.record_count else None
        return key is not None and key[2:4] == ABORT_MARKER

    def _skip(self, header: BatchHeader) -> None:
        """The batch is done with."""
        self._position += header.size_bytes
        if header.last_offset >= self.next_offset:
            self.next_offset = header.last_offset + 1
            self.leader_epoch = header.leader_epoch

    def _open(self) -> BatchHeader | None:
        """The batch that is being read, opened; None at the end."""
        header = self._enter()
        if header is not None and self._is_closed:
            self._payload = self._payload_of(header)
            check_count(self._payload, header.record_count)
            self._left = header.record_count
            self._is_closed = False
        return header

    def _payload_of(self, header: BatchHeader) -> memoryview:
        section = self._data[self._position + HEADER_SIZE : self._position + header.size_bytes]
        if header.codec == compression.NONE:
            return section
        return memoryview(compression.decompress(header.codec, section, max_bytes=self._max_decompressed_bytes))

    def _leave(self, header: BatchHeader) -> None:
        """If all its records were read."""
        if not self._left:
            check_all_read(self._payload, self._at)
            self._header = None
            self._close()
            self._skip(header)

    def _close(self) -> None:
        self._payload = memoryview(b"")
        self._at = self._left = 0
        self._is_closed = True

    def _corrupt(self, error: Exception) -> CorruptMessage:
        return CorruptMessage(
            f"the batch of {self.topic}-{self.partition} at offset {self.next_offset} is damaged: {error}; seek() past"
            " it to go on without it"
        )


def _timestamp(header: BatchHeader, record: Walked) -> int:
    if header.attributes & TIMESTAMP_TYPE_MASK:
        return header.max_timestamp
    return wrap_int64(header.base_timestamp + record.timestamp_delta)


# ---------------------------------------------------------------------------------------------------- columns


class _BinaryColumn:
    def __init__(self) -> None:
        self.null_count = 0
        self.validity = bytearray()
        self.offsets = array("i", [0])
        self.data = bytearray()

    def append(self, view: memoryview, span: Span) -> None:
        index = len(self.offsets) - 1
        if index % 8 == 0:
            self.validity.append(0)
        if span.start < 0:
            self.null_count += 1
        else:
            self.validity[-1] |= 1 << index % 8
            self.data += view[span.start : span.end]
        self.offsets.append(len(self.data))

    def finish(self) -> BinaryColumn:
        return BinaryColumn(
            len(self.offsets) - 1, self.null_count, bytes(self.validity), self.offsets.tobytes(), bytes(self.data)
        )


class _Columns:
    """Grows Arrow buffers record by record."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.timestamps = array("q")
        self.keys = _BinaryColumn()
        self.values = _BinaryColumn()
        self.header_offsets = array("i", [0])
        self.header_keys = _BinaryColumn()
        self.header_values = _BinaryColumn()
        self.size_bytes = 0

    def has_room(self, max_records: int | None) -> bool:
        return self.size_bytes < CHUNK_BYTES and (max_records is None or len(self.offsets) < max_records)

    def append(self, view: memoryview, record: Walked, offset: int, timestamp: int, size_bytes: int) -> None:
        self.offsets.append(offset)
        self.timestamps.append(timestamp)
        self.keys.append(view, record.key)
        self.values.append(view, record.value)
        for key, value in record.headers:
            self.header_keys.append(view, key)
            self.header_values.append(view, value)
        self.header_offsets.append(len(self.header_keys.offsets) - 1)
        self.size_bytes += size_bytes

    def finish(self) -> ColumnBuffers:
        return ColumnBuffers(
            len(self.offsets),
            self.offsets.tobytes(),
            self.timestamps.tobytes(),
            self.keys.finish(),
            self.values.finish(),
            self.header_offsets.tobytes(),
            self.header_keys.finish(),
            self.header_values.finish(),
        )
