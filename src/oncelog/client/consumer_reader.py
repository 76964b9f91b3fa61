"""From fetched data to records: the user's side of the inbox.

Owns which data is being read and moves each partition's `position` as records are handed out. Data that was fetched
for a position that is no longer wanted (a seek, a reset, a revoked partition) is thrown away, also half read. Used by
one thread, the user's; knows no clock and no network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.fetch.inbox import FetchedData, Inbox
from oncelog.client.fetch.partitions import PartitionState
from oncelog.records.arrow import TakenColumns
from oncelog.records.kernel import ConsumerRecord, RecordCursor
from oncelog.types import NO_LEADER_EPOCH

MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024
"""What one fetched batch may grow to: more is taken for an attack."""

DeserializeFor = Callable[[str], "Callable[[bytes], Any] | None"]
"""The deserializer of a topic; None leaves bytes as they are."""


class _Open(NamedTuple):
    data: FetchedData
    cursor: RecordCursor


class Reader:
    def __init__(
        self,
        inbox: Inbox,
        config: ConsumerConfig,
        key_deserializer: DeserializeFor,
        value_deserializer: DeserializeFor,
        counters: ConsumerCounters,
    ) -> None:
        self.touched: set[PartitionState] = set()
        """Whose position moved since this was last emptied."""
        self._inbox = inbox
        self._committed_only = config.reads_committed
        self._check_crcs = config.check_crcs
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._counters = counters
        self._open: _Open | None = None
        self._chunk: FetchedData | None = None
        """What the last chunk was taken from."""

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Up to so many records, as far as they were fetched. Raises RecordDeserializationError and CorruptMessage; the
        position then is that of the bad record, and records before it were handed out first."""
        records = self.take_chunk(max_records)
        while records and len(records) < max_records:
            try:
                more = self.take_chunk(max_records - len(records))
            except Exception:  # it comes again, with the next call
                break
            if not more:
                break
            records += more
        return records

    def take_chunk(self, max_records: int) -> list[ConsumerRecord]:
        """Up to so many records of one partition; none if nothing was fetched."""
        while (reading := self._current()) is not None:
            taken_bytes = reading.cursor.bytes_taken
            try:
                records = reading.cursor.take(max_records)
            finally:
                self._moved(reading)
            if records:
                self._counters.took(len(records), reading.cursor.bytes_taken - taken_bytes)
                self._chunk = reading.data
                return records
            self._open = None
        return []

    def take_columns(self, max_records: int | None) -> list[TakenColumns]:
        """The same as columns, one or more for each fetched partition: all that waits, or so many records."""
        taken: list[TakenColumns] = []
        left = max_records
        while left != 0 and (reading := self._current()) is not None:
            taken_bytes = reading.cursor.bytes_taken
            try:
                columns = reading.cursor.take_table(left)
            except Exception:  # it comes again, with the next call
                if not taken:
                    raise
                break
            finally:
                self._moved(reading)
            if columns.record_count:
                self._counters.took(columns.record_count, reading.cursor.bytes_taken - taken_bytes)
                taken.append(TakenColumns(*reading.data.state.partition, columns))
                left = None if left is None else left - columns.record_count
            else:
                self._open = None
        return taken

    def _current(self) -> _Open | None:
        """What to read from, if anything is here that is still wanted."""
        reading = self._open
        if reading is not None:
            if reading.data.is_current and not reading.data.state.is_paused:
                return reading
            self.close()
        data = self._inbox.take()
        if data is None:
            return None
        self._open = _Open(data, self._cursor(data))
        return self._open

    def _cursor(self, data: FetchedData) -> RecordCursor:
        topic, partition = data.state.partition
        position = data.state.position
        return RecordCursor(
            data.data,
            topic,
            partition,
            data.fetch_offset if position is None else position,
            self._committed_only,
            data.aborted,
            self._check_crcs,
            MAX_DECOMPRESSED_BYTES,
            self._key_deserializer(topic),
            self._value_deserializer(topic),
        )

    def _moved(self, reading: _Open) -> None:
        data, cursor = reading
        if data.is_current:
            data.state.position = cursor.next_offset
            if cursor.leader_epoch != NO_LEADER_EPOCH:  # otherwise nothing was read yet
                data.state.position_epoch = cursor.leader_epoch
            self.touched.add(data.state)

    def close(self) -> None:
        """Half read data goes back: it comes again, from its partition's position on."""
        if self._open is not None:
            data, self._open = self._open.data, None
            if data.is_current:
                self._inbox.put_back_front(data)

    @property
    def open_data(self) -> FetchedData | None:
        """What is half read; after an error, where it came from."""
        return None if self._open is None else self._open.data

    def give_back(self, offset: int) -> None:
        """Records of the last chunk from this offset on were not used: they come again. If the position has changed
        meanwhile, they are not wanted any more."""
        data = self._chunk
        if data is None or not data.is_current:
            return
        data.state.position = offset
        if self._open is not None and self._open.data is data:
            self.close()
