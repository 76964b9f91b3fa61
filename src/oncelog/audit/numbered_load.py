"""A load of numbered records, sent with a `Producer`, and a ledger of what the brokers confirmed.

One stream for each partition, numbered from 0. The producer is the caller's: with its settings, behind whatever stands
between it and the brokers. What it confirms is written down in its own thread; nothing here waits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from oncelog.audit.account import Ledger, LedgerStream
from oncelog.audit.ids import RecordId
from oncelog.types import NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from oncelog.client.records import RecordMetadata
    from oncelog.client.table_result import TableMetadata
    from oncelog.producer.producer import Producer


class _Rows(NamedTuple):
    """A table's part of one stream."""

    stream: LedgerStream
    first_number: int


class NumberedLoad:
    """Sends records to the partitions of a topic in turn, from one thread."""

    def __init__(self, producer: Producer, topic: str, *, name: str = "load", record_bytes: int = 0) -> None:
        self._producer = producer
        self._topic = topic
        self._record_bytes = record_bytes
        partitions = [TopicPartition(topic, index) for index in range(producer.partitions_for(topic))]
        self._names = [f"{name}/{partition}" for partition in partitions]
        self._streams = [LedgerStream(partition) for partition in partitions]
        self.ledger = Ledger()
        self.ledger.streams.update(zip(self._names, self._streams, strict=True))
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[str] = []

    def send(self, count: int) -> None:
        """The next `count` records, one by one."""
        for _ in range(count):
            index = self.sent % len(self._streams)
            stream = self._streams[index]
            value = self._value(index, stream.sent)
            on_delivery = partial(self._settled, stream, stream.sent)
            stream.sent += 1
            self.sent += 1
            self._producer.send(self._topic, value, partition=index, on_delivery=on_delivery)

    def send_table(self, count: int) -> None:
        """The next `count` records as the rows of one table."""
        import pyarrow as pa  # type: ignore[import-untyped]

        before = [_Rows(stream, stream.sent) for stream in self._streams]
        values, partitions = [], []
        for _ in range(count):
            index = self.sent % len(self._streams)
            values.append(self._value(index, self._streams[index].sent))
            partitions.append(index)
            self._streams[index].sent += 1
            self.sent += 1
        table = pa.table({"value": pa.array(values, pa.binary()), "partition": pa.array(partitions, pa.int32())})
        self._producer.send_table(self._topic, table, on_delivery=partial(self._table_settled, before))

    def _value(self, index: int, number: int) -> bytes:
        return (RecordId(self._names[index], number).to_bytes() + b" ").ljust(self._record_bytes, b".")

    def _settled(
        self, stream: LedgerStream, number: int, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        if metadata is None:
            self.failures.append(f"{stream.partition} number {number}: {error}")
            return
        self._confirm(stream, number, metadata.offset)

    def _table_settled(self, before: list[_Rows], metadata: TableMetadata | None, error: Exception | None) -> None:
        if metadata is None:
            self.failures.append(f"a table: {error}")
            return
        for part in metadata.partitions:
            stream, first_number = before[part.partition]
            offsets = [offset for first, last in part.ranges for offset in range(first, last + 1)]
            for row in range(part.row_count):
                self._confirm(stream, first_number + row, offsets[row] if offsets else NO_OFFSET)

    def _confirm(self, stream: LedgerStream, number: int, offset: int) -> None:
        self.acknowledged += 1
        stream.acknowledged.add(number)
        if offset != NO_OFFSET:
            stream.offsets[number] = offset
