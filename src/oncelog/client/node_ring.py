"""The queues that one broker leads, and which of their batches go into its next request.

Owns fairness: the cursor moves on with every request, so that no partition starves. Whether a batch may be sent at all
(its number, its transaction) is for others to say.

Runs as Python or compiled: with a thousand partitions it looks at a thousand batches for every request.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.client.accumulator import PartitionQueue
from oncelog.client.batch import ProducerBatch

Drained = list[tuple[PartitionQueue, ProducerBatch]]

MAX_RIPENING_MS = 200
"""A partition with few records does not wait for ever because others have many."""


class NodeRing:
    __slots__ = ("cursor", "queues")

    def __init__(self) -> None:
        self.queues: list[PartitionQueue] = []
        self.cursor = 0

    def has_batches(self) -> bool:
        return any(queue.head is not None for queue in self.queues)

    def drain(
        self,
        now_ms: int,
        idle_ms: int,
        linger_ms: int,
        max_bytes: int,
        is_urgent: bool,
        ripe_bytes: int,
        may_send: Callable[[PartitionQueue, ProducerBatch, int], bool],
        take: Callable[[PartitionQueue], ProducerBatch],
    ) -> tuple[Drained, int]:
        """At most one batch of each partition, beginning behind the one that was served last, as many as a request
        holds; and when the next one is ready, at the latest `idle_ms`. Those that can still grow are left to it while
        they linger, and then for up to `MAX_RIPENING_MS` until they are ripe; what is urgent is not."""
        drained: Drained = []
        size_bytes = 0
        ripening_ms = linger_ms + MAX_RIPENING_MS
        wake_ms = idle_ms
        count = len(self.queues)
        for step in range(count):
            at = self.cursor + step
            if at >= count:
                at -= count
            queue = self.queues[at]
            head = queue.head
            if head is None:
                continue
            ready_ms = 0
            if head.attempts:
                ready_ms = head.retry_at_ms
            elif head.is_open and not is_urgent:
                ready_ms = head.created_ms + (linger_ms if head.size_bytes >= ripe_bytes else ripening_ms)
            if ready_ms > now_ms:
                wake_ms = min(wake_ms, ready_ms)
                continue
            if not may_send(queue, head, now_ms):
                continue
            if drained and size_bytes + head.size_bytes > max_bytes:
                self.cursor = at
                return drained, wake_ms
            drained.append((queue, take(queue)))
            size_bytes += head.size_bytes
        if drained:
            self.cursor = (self.cursor + 1) % count
        return drained, wake_ms
