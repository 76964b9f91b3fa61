"""How much of what is there one micro-batch takes.

Owns the shares of `maxOffsetsPerTrigger` and the patience of `minOffsetsPerTrigger`. Counts offsets, as Spark's
connector does: aborted records, markers and what compaction removed count, though nobody sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oncelog.spark.source.offsets import Offsets
from oncelog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Patience:
    """Wait until so many offsets are there, but not longer than so long."""

    min_offsets: int
    max_delay_ms: int

    def waits(self, available: int, last_batch_ms: int | None, now_ms: int) -> bool:
        """A query that has had no batch yet does not wait."""
        if last_batch_ms is None or now_ms - last_batch_ms >= self.max_delay_ms:
            return False
        return available < self.min_offsets


def available(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, offset - start[partition]) for partition, offset in end.items())


def limited(limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Offsets:
    """The end, brought back so that about `limit` offsets lie before it: each partition gets a share in proportion to
    what it has, and whoever has something gets at least one. `start` names every partition of `end`."""
    total = available(start, end)
    if total <= limit:
        return dict(end)
    return {partition: _share(limit, start[partition], offset, total) for partition, offset in end.items()}


def _share(limit: int, start: int, end: int, total: int) -> int:
    if end <= start:
        return end
    return min(end, start + max(1, limit * (end - start) // total))
