"""Which queue a record joins: the partition it names, that of its key, or one that the partitioner chooses."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.client.accumulator import RECORD_OVERHEAD_BYTES, PartitionQueue, TopicQueues
from oncelog.client.metadata import NO_LEADER
from oncelog.client.partitioner import (
    KEY_HASHES,
    NO_PARTITION,
    KeyHash,
    RoundRobinPartitioner,
    StickyPartitioner,
    checked_partition,
)
from oncelog.client.producer_config import ProducerConfig, UserPartitioner
from oncelog.records.kernel import partition_of
from oncelog.records.model import Buffer


class Placement:
    __slots__ = (
        "_batch_bytes", "_chance", "_hash", "_is_adaptive", "_is_round_robin", "_overhead", "_user", "_uses_keys",
    )  # fmt: skip

    def __init__(self, config: ProducerConfig, chance: Callable[[int], int]) -> None:
        """`chance(n)` is a number below n, each as likely."""
        chosen = config.partitioner
        self._user: UserPartitioner | None = None if isinstance(chosen, str) else chosen
        self._hash: KeyHash | None = KEY_HASHES.get(chosen) if isinstance(chosen, str) else None
        self._is_round_robin = chosen == "round_robin"
        self._uses_keys = not config.partitioner_ignore_keys
        self._is_adaptive = config.partitioner_adaptive_partitioning_enable
        self._batch_bytes = config.batch_size
        self._chance = chance
        self._overhead = RECORD_OVERHEAD_BYTES

    def queue_for(
        self, topic: TopicQueues, partition: int | None, key: Buffer | None, value: Buffer | None
    ) -> PartitionQueue:
        """Raises PartitionerError for a partition that the topic does not have."""
        queues = topic.queues
        if partition is not None:
            return queues[checked_partition(partition, topic.name, len(queues))]
        if self._user is not None:
            chosen = self._user(topic.name, _bytes(key), _bytes(value), len(queues))
            return queues[checked_partition(chosen, topic.name, len(queues))]
        if key is not None and self._uses_keys and self._hash is None:
            return queues[partition_of(key, len(queues))]
        if self._hash is not None:
            place = self._hash(_bytes(key), len(queues))
            if place != NO_PARTITION:
                return queues[place]
        sticky = topic.sticky
        if sticky == NO_PARTITION or topic.sticky_bytes >= self._batch_bytes or self._is_round_robin:
            sticky = self._move_on(topic)
        topic.sticky_bytes += self._overhead if value is None else self._overhead + len(value)
        return topic.queues[sticky]  # read again: the topic may just have grown

    @property
    def needs_keys(self) -> bool:
        """Whether a partition is chosen by looking at each key as a Python object: by a function of the user's, or a
        hash that the kernel does not know."""
        return self._user is not None or self._hash is not None

    def of_key(self, topic: TopicQueues, key: bytes | None, value: bytes | None) -> int:
        """Where `needs_keys`: the partition of a row, or `NO_PARTITION` if any may take it."""
        if self._hash is not None:
            return self._hash(key, len(topic.queues))
        return self.queue_for(topic, None, key, value).index

    def _move_on(self, topic: TopicQueues) -> int:
        chooser = topic.chooser
        if chooser is None:
            chooser = topic.chooser = self._new_chooser()
        queues = topic.queues
        led = [queue.index for queue in queues if queue.leader != NO_LEADER]
        waiting = [queue.queued_bytes for queue in queues] if self._is_adaptive and not self._is_round_robin else None
        topic.sticky = chooser.next(len(queues), waiting, led)
        topic.sticky_bytes = 0
        return topic.sticky

    def _new_chooser(self) -> StickyPartitioner | RoundRobinPartitioner:
        if self._is_round_robin:
            return RoundRobinPartitioner()
        return StickyPartitioner(self._chance, self._batch_bytes, self._is_adaptive)


def _bytes(field: Buffer | None) -> bytes | None:
    return None if field is None else bytes(field)
