"""Which partition a record goes to.

A key belongs to the partition that the Java client and librdkafka's `murmur2_random` choose for it, or with one of
`KEY_HASHES` to the one that librdkafka chooses under that name. Records without a key are spread by a chooser that the
accumulator asks for the `next` partition: `StickyPartitioner` after each full batch (KIP-794), `RoundRobinPartitioner`
before each record. Choosers hold no clock and no source of chance of their own, and they never see a record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from zlib import crc32

from oncelog.errors import OncelogError
from oncelog.records.kernel import partition_of

NO_PARTITION = -1

partition_for_key = partition_of
"""(key, number of partitions) -> partition: murmur2, without its sign, modulo the number."""


KeyHash = Callable[["bytes | None", int], int]
"""(key, number of partitions) -> partition, or `NO_PARTITION` for a record that any partition may take."""


def _fnv1a(key: bytes) -> int:
    """As librdkafka and Sarama: 32 bits, taken as a signed number without its sign."""
    found = 0x811C9DC5
    for byte in key:
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found if found < 0x80000000 else 0x100000000 - found


def _consistent(key: bytes | None, partition_count: int) -> int:
    return crc32(key or b"") % partition_count


def _consistent_random(key: bytes | None, partition_count: int) -> int:
    return crc32(key) % partition_count if key else NO_PARTITION  # an empty key counts as none


def _fnv1a_of(key: bytes | None, partition_count: int) -> int:
    return _fnv1a(key or b"") % partition_count


def _fnv1a_random(key: bytes | None, partition_count: int) -> int:
    return NO_PARTITION if key is None else _fnv1a(key) % partition_count


KEY_HASHES: dict[str, KeyHash] = {
    "consistent": _consistent,
    "consistent_random": _consistent_random,
    "fnv1a": _fnv1a_of,
    "fnv1a_random": _fnv1a_random,
}
"""librdkafka's partitioners, by its names: a key goes where confluent-kafka sends it."""


class PartitionerError(OncelogError):
    """A partition that does not exist was chosen, by a user's partitioner or by hand."""


def checked_partition(chosen: object, topic: str, partition_count: int) -> int:
    """`chosen` if it is a partition of the topic. Raises PartitionerError."""
    if type(chosen) is int and 0 <= chosen < partition_count:
        return chosen
    raise PartitionerError(
        f"{chosen!r} is not a partition of {topic}, which has {partition_count}: choose a number from 0 to"
        f" {partition_count - 1}"
    )


class StickyPartitioner:
    """Stays with one partition until a batch's worth of bytes went there, so that batches fill.

    `chance(n)` returns a number from 0 to n - 1, each as likely."""

    __slots__ = ("_adaptive", "_batch_bytes", "_chance", "partition")

    def __init__(self, chance: Callable[[int], int], batch_bytes: int, adaptive: bool) -> None:
        self._chance = chance
        self._batch_bytes = max(1, batch_bytes)
        self._adaptive = adaptive
        self.partition = NO_PARTITION
        """The current one. Whoever appends moves on by `next` after a full batch, or if the partition is gone."""

    def next(
        self, partition_count: int, queue_bytes: Sequence[int] | None = None, available: Sequence[int] | None = None
    ) -> int:
        """Moves to another partition, or by chance to the same.

        `available` are the partitions that have a leader (None or empty: all are taken as good); `queue_bytes` is
        what waits in each partition, by its number. Where a slow broker lets queues grow, a partition becomes as
        much likelier as its queue is shorter, counted in batches."""
        candidates = available or range(partition_count)
        index = None
        if self._adaptive and queue_bytes is not None:
            index = self._weighted([-(-queue_bytes[each] // self._batch_bytes) for each in candidates])
        self.partition = candidates[self._chance(len(candidates)) if index is None else index]
        return self.partition

    def _weighted(self, queued_batches: list[int]) -> int | None:
        longest = max(queued_batches)
        if longest == min(queued_batches):
            return None  # all equal: as likely as each other
        bounds = list(accumulate(longest + 1 - each for each in queued_batches))
        return bisect_right(bounds, self._chance(bounds[-1]))


class RoundRobinPartitioner:
    """One partition after the other; those without a leader are passed over while others have one."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def next(
        self, partition_count: int, queue_bytes: Sequence[int] | None = None, available: Sequence[int] | None = None
    ) -> int:
        candidates = available or range(partition_count)
        partition = candidates[self._count % len(candidates)]
        self._count += 1
        return partition
