"""How much is left to read from given offsets on: records, not offsets, as a reader of an isolation level sees them.

Offsets count markers, aborted records and what compaction took; only reading tells them apart, and brokers send whole
batches to whoever reads. So the count is exact up to a number of bytes, and beyond it a bound: what was counted, and
every offset behind it. Decides nothing about what a record is (`records.remaining`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.client.blocking import BlockingClient
from oncelog.client.leaders import EARLIEST_OFFSET, LATEST_OFFSET, list_offsets
from oncelog.client.partition_fetch import batches_of, fetch_partition
from oncelog.errors import OffsetOutOfRange
from oncelog.records.remaining import remaining_records
from oncelog.types import IsolationLevel, TopicPartition

MAX_PARTITION_BYTES: Final = 16 * 1024 * 1024
"""Read of one partition to count what is left: a fraction of a second."""
MAX_BYTES: Final = 128 * 1024 * 1024
"""And of all partitions of one question: a few seconds. Who wants to know more asks for an exact count."""

OnRead = Callable[[TopicPartition, int, int], None]
"""Told of the partition, the offset that was reached, and its end, after every answer."""


@dataclass(frozen=True, slots=True)
class Lag:
    """What is left to read of a partition."""

    records: int
    end_offset: int
    """Where reading ends: for committed records at the first transaction that has not ended."""
    is_exact: bool = True
    """Else there may be fewer: `records` counts offsets from where reading was given up."""

    def __str__(self) -> str:
        return str(self.records) if self.is_exact else f"<= {self.records}"


class Budget:
    """How many bytes may still be read; None for any number."""

    def __init__(
        self, max_bytes: int | None = MAX_BYTES, max_partition_bytes: int | None = MAX_PARTITION_BYTES
    ) -> None:
        self._left = max_bytes
        self._max_partition_bytes = max_partition_bytes
        self._of_partition = 0

    def next_partition(self) -> None:
        self._of_partition = 0

    def spend(self, size_bytes: int) -> None:
        self._of_partition += size_bytes
        if self._left is not None:
            self._left -= size_bytes

    @property
    def is_spent(self) -> bool:
        if self._left is not None and self._left <= 0:
            return True
        return self._max_partition_bytes is not None and self._of_partition >= self._max_partition_bytes


def measure_lags(
    client: BlockingClient,
    offsets: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    budget: Budget,
    on_read: OnRead | None = None,
) -> dict[TopicPartition, Lag]:
    """Raises UnknownTopicOrPartition."""
    if not offsets:
        return {}
    ends = list_offsets(client, dict.fromkeys(offsets, LATEST_OFFSET), isolation)
    starts = list_offsets(client, dict.fromkeys(offsets, EARLIEST_OFFSET), isolation)
    lags = {}
    for partition, offset in offsets.items():
        budget.next_partition()
        start = max(offset, starts[partition].offset)
        lags[partition] = _count(client, partition, start, ends[partition].offset, isolation, budget, on_read)
    return lags


def _count(
    client: BlockingClient,
    partition: TopicPartition,
    start: int,
    end: int,
    isolation: IsolationLevel,
    budget: Budget,
    on_read: OnRead | None,
) -> Lag:
    count, position = 0, start
    while position < end:
        if budget.is_spent:
            return Lag(count + end - position, end, is_exact=False)
        try:
            fetched = fetch_partition(client, partition, position, isolation)
        except OffsetOutOfRange:
            # Retention was faster than we are; what it took is not left.
            position = max(position + 1, _start_of(client, partition, isolation))
            continue
        batches = list(batches_of(fetched))
        if not batches or batches[-1][0].next_offset <= position:
            # Nothing lies between here and the end, unless it is there and cannot be read.
            return Lag(count, end) if not fetched.records else Lag(count + end - position, end, is_exact=False)
        count += remaining_records(batches, fetched.aborted or (), position, end, isolation)
        position = batches[-1][0].next_offset
        budget.spend(sum(header.size_bytes for header, _ in batches))
        if on_read is not None:
            on_read(partition, min(position, end), end)
    return Lag(count, end)


def _start_of(client: BlockingClient, partition: TopicPartition, isolation: IsolationLevel) -> int:
    return list_offsets(client, {partition: EARLIEST_OFFSET}, isolation)[partition].offset
