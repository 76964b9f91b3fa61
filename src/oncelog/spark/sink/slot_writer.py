"""One attempt's transaction: from InitProducerId to the marker, left open for somebody else to end.

Owns the producer and the account of where its records lie. Whatever goes wrong, leaving the block without `prepare`
aborts the transaction; a process that dies leaves it open, and the next plan fences it.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any, Final, Self

from oncelog import clock
from oncelog.client.delivery import RecordFuture
from oncelog.client.table_result import TableFuture, TableMetadata
from oncelog.client.transaction.prepared import SharedTransaction
from oncelog.records.model import Record
from oncelog.spark.moments import Moment, reach
from oncelog.spark.sink.attempts import Place, Prepared, Range, decide_by_ms
from oncelog.spark.sink.brokers import Brokers
from oncelog.spark.sink.journal_topic import marker_partition
from oncelog.types import NO_OFFSET, TopicPartition

MAX_TABLES_IN_FLIGHT: Final = 32
CLOSE_S: Final = 10.0
MARKER: Final = b"{}"
"""Its place and its transaction are all that matters."""


class Tally:
    """First and last offset, and number of records, by partition."""

    def __init__(self) -> None:
        self._ranges: dict[TopicPartition, Range] = {}

    def add(self, partition: TopicPartition, first: int, last: int, count: int) -> None:
        had = self._ranges.get(partition)
        if had is not None:
            first, last, count = min(first, had.first_offset), max(last, had.last_offset), count + had.records
        self._ranges[partition] = Range(partition, first, last, count)

    def add_table(self, stored: TableMetadata) -> None:
        for one in stored.partitions:
            self.add(TopicPartition(stored.topic, one.partition), one.ranges[0][0], one.ranges[-1][1], one.row_count)

    def ranges(self) -> tuple[Range, ...]:
        return tuple(sorted(self._ranges.values()))


class SlotWriter:
    def __init__(
        self,
        brokers: Brokers,
        prefix: str,
        transactional_id: str,
        slot: int,
        timeout_ms: int,
        shared: SharedTransaction | None = None,
    ) -> None:
        """Into a transaction of its own, or into one that it has a share in."""
        self._slot = slot
        self._shared = shared
        self._transactional_id = transactional_id
        self._marker = marker_partition(prefix, slot)
        self._decide_by_ms = decide_by_ms(clock.wall_ms(), timeout_ms)
        self._tally = Tally()
        self._tables: deque[TableFuture] = deque()
        self._producer = brokers.producer(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def __enter__(self) -> Self:
        reach(Moment.ENTERING)
        try:
            if self._shared is not None:
                self._producer.join(self._shared)
            else:
                self._producer.init_transactions()
                self._producer.begin()
        except BaseException:
            self._producer.close(CLOSE_S)
            raise
        reach(Moment.FENCED_IN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._producer.close(CLOSE_S)

    def write(self, topic: str, table: Any) -> None:
        self._tables.append(self._producer.send_table(topic, table))
        while len(self._tables) > MAX_TABLES_IN_FLIGHT:
            self._tally.add_table(self._tables.popleft().result())
        reach(Moment.WRITING)

    def partitions_of(self, topic: str) -> int:
        return self._producer.partitions_for(topic)

    def copy(self, partition: TopicPartition, record: Record) -> None:
        def stored(metadata: Any, _error: Exception | None) -> None:
            if metadata is not None:  # else prepare() raises
                self._tally.add(partition, metadata.offset, metadata.offset, 1)

        self._producer.send(
            partition.topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=partition.partition,
            timestamp_ms=record.timestamp_ms,
            on_delivery=stored,
        )

    def prepare(self) -> Prepared:
        """Everything is stored when it returns, and a marker beside it: by it the fate of all can be told later. Of a
        share there is none, it is for the committer to add."""
        marker = None if self._shared is not None else self.mark()
        transaction = self._producer.prepare()
        assert transaction is not None, "something was sent"
        for table in self._tables:
            self._tally.add_table(table.result())
        place = Place(self._marker, NO_OFFSET if marker is None else marker.result().offset)
        return Prepared(self._slot, transaction, self._tally.ranges(), place, self._decide_by_ms)

    def mark(self) -> RecordFuture:
        return self._producer.send(
            self._marker.topic,
            MARKER,
            key=self._transactional_id.encode(),
            partition=self._marker.partition,
        )
