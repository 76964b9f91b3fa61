"""Offsets that open transactions have committed: not true yet, and perhaps never.

Owns them by the producers whose transactions they belong to, and which partitions of a group they make unstable. Never
knows how a transaction ends, nor what is true at present.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from oncelog.coordinator.committed_offset import CommittedOffset


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


_Partition = tuple[str, int]


class PendingOffsets:
    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, CommittedOffset]] = {}
        self._producers: dict[str, dict[_Partition, set[int]]] = {}
        """Of each group and partition: whose transactions are about to change it."""

    def add(self, producer_id: int, key: OffsetKey, offset: CommittedOffset) -> None:
        self._by_producer.setdefault(producer_id, {})[key] = offset
        self._producers.setdefault(key.group_id, {}).setdefault(key[1:], set()).add(producer_id)

    def take(self, producer_id: int) -> dict[OffsetKey, CommittedOffset]:
        """What the producer's transaction has committed; with its end nothing of it is pending any more."""
        offsets = self._by_producer.pop(producer_id, {})
        for key in offsets:
            partitions = self._producers[key.group_id]
            producers = partitions[key[1:]]
            producers.discard(producer_id)
            if not producers:
                self._settle(key, partitions)
        return offsets

    def forget(self, key: OffsetKey) -> None:
        """Whatever transactions have committed there is void, however they end."""
        partitions = self._producers.get(key.group_id)
        if partitions is None or key[1:] not in partitions:
            return
        for producer_id in partitions[key[1:]]:
            offsets = self._by_producer[producer_id]
            del offsets[key]
            if not offsets:
                del self._by_producer[producer_id]
        self._settle(key, partitions)

    def _settle(self, key: OffsetKey, partitions: dict[_Partition, set[int]]) -> None:
        del partitions[key[1:]]
        if not partitions:
            del self._producers[key.group_id]

    def of_group(self, group_id: str) -> Collection[_Partition]:
        """The partitions whose offsets are not stable."""
        return self._producers.get(group_id, {}).keys()

    def __iter__(self) -> Iterator[OffsetKey]:
        for group_id, partitions in self._producers.items():
            for topic, partition in partitions:
                yield OffsetKey(group_id, topic, partition)

    def hard_state(self) -> dict[int, dict[OffsetKey, CommittedOffset]]:
        return {producer_id: dict(offsets) for producer_id, offsets in self._by_producer.items()}
