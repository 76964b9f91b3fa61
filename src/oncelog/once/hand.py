"""What a runner has in hand: records that were read and are not dealt with, and how far each partition is. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from oncelog.client.uncommitted import Uncommitted
from oncelog.once.strategy import Record
from oncelog.types import TopicPartition


class Unreadable(NamedTuple):
    """Stands for a record whose key or value the consumer could not deserialize: all that is known is its place."""

    topic: str
    partition: int
    offset: int
    error: Exception
    timestamp_ms: int = -1
    key: None = None
    value: None = None
    headers: tuple[()] = ()


def partition_of(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


class Hand:
    def __init__(self) -> None:
        self.records: list[Any] = []
        self.spare: list[Any] = []
        """Arrived while others were still in hand; their turn is next."""
        self._reached: dict[TopicPartition, int] = {}
        self.uncommitted: Uncommitted[int] = Uncommitted()
        """What the database knows, and the broker is not known to."""
        self._void: set[TopicPartition] = set()

    def take(self, records: list[Any]) -> None:
        self.records = records
        self._reached.clear()
        self._void.clear()

    def valid(self, records: Sequence[Any]) -> list[Any]:
        """Those whose partitions are still ours."""
        if not self._void:
            return list(records)
        return [record for record in records if partition_of(record) not in self._void]

    def settle(self, records: Iterable[Record]) -> None:
        """They are dealt with, and the database knows."""
        reached = {(record.topic, record.partition): record.offset + 1 for record in records}
        for (topic, partition), offset in reached.items():
            self._reached[TopicPartition(topic, partition)] = offset
            self.uncommitted.reached(TopicPartition(topic, partition), offset)

    def is_settled(self, record: Record) -> bool:
        return record.offset < self._reached.get(partition_of(record), 0)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """They are not ours any more: neither what is in hand of them, nor what was reached.

        Only of these: one that was dropped before may be ours again, and what is spare of it was read since.
        """
        self._void.update(partitions)
        self.spare = [record for record in self.spare if partition_of(record) not in partitions]
        self.uncommitted.forget(partitions)
        for partition in partitions:
            self._reached.pop(partition, None)

    def unsettled(self) -> dict[TopicPartition, int]:
        """Where reading has to go on so that nothing in hand is passed over."""
        first: dict[TopicPartition, int] = {}
        for record in [*self.valid(self.records), *self.spare]:
            partition = partition_of(record)
            if record.offset >= self._reached.get(partition, 0):
                first.setdefault(partition, record.offset)
        return first
