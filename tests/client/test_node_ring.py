"""Which batches go into a broker's next request: those that are ready, each partition in its turn."""

from __future__ import annotations

import threading

from oncelog.client.accumulator import PartitionQueue
from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import Delivery
from oncelog.client.node_ring import MAX_RIPENING_MS, Drained, NodeRing

NOW_MS, IDLE_MS, LINGER_MS = 1_000, 2_000, 5
LINGERED_MS = NOW_MS - LINGER_MS
"""When a batch was begun that has lingered."""
ROOM = 1_000_000


def batch_for(
    queue: PartitionQueue, *, created_ms: int = NOW_MS, is_open: bool = False, size: int = 0
) -> ProducerBatch:
    delivery = Delivery(queue.topic, queue.index, threading.Event)
    batch = ProducerBatch(queue.topic, queue.index, created_ms, 100, delivery)
    batch.append(created_ms, None, b"v" * size, ())
    batch.is_open = is_open
    queue.join(batch)
    return batch


def ring_of(count: int) -> NodeRing:
    ring = NodeRing()
    ring.queues = [PartitionQueue("t", index) for index in range(count)]
    return ring


def drain(
    ring: NodeRing,
    *,
    is_urgent: bool = False,
    ripe_bytes: int = 0,
    max_bytes: int = ROOM,
    refused: tuple[int, ...] = (),
) -> tuple[list[int], int]:
    """The partitions that are served, and when to come back."""
    drained: Drained
    drained, wake_ms = ring.drain(
        NOW_MS,
        IDLE_MS,
        LINGER_MS,
        max_bytes,
        is_urgent,
        ripe_bytes,
        lambda queue, batch, now_ms: queue.index not in refused,
        PartitionQueue.leave,
    )
    return [queue.index for queue, _ in drained], wake_ms


def test_nothing_waits() -> None:
    assert drain(ring_of(3)) == ([], IDLE_MS)


def test_one_batch_of_each_partition() -> None:
    ring = ring_of(3)
    for queue in (ring.queues[0], ring.queues[0], ring.queues[2]):
        batch_for(queue)
    assert drain(ring)[0] == [0, 2]
    assert drain(ring)[0] == [0]


def test_an_open_batch_lingers_unless_it_is_urgent() -> None:
    ring = ring_of(2)
    batch_for(ring.queues[0], created_ms=NOW_MS - 2, is_open=True)
    batch_for(ring.queues[1], created_ms=NOW_MS - LINGER_MS, is_open=True)
    assert drain(ring) == ([1], NOW_MS + 3)
    assert drain(ring, is_urgent=True)[0] == [0]


def test_those_that_can_grow_are_left_to_it_until_they_are_ripe() -> None:
    ring = ring_of(3)
    batch_for(ring.queues[0], created_ms=LINGERED_MS, is_open=True)
    batch_for(ring.queues[1])
    batch_for(ring.queues[2], created_ms=LINGERED_MS, is_open=True).size_bytes += 1
    size_bytes = ring.queues[0].batches[0].size_bytes
    assert drain(ring, ripe_bytes=size_bytes + 1) == ([1, 2], NOW_MS + MAX_RIPENING_MS)
    assert drain(ring, ripe_bytes=size_bytes)[0] == [0]


def test_those_that_do_not_grow_do_not_wait_for_ever() -> None:
    ring = ring_of(2)
    batch_for(ring.queues[0], created_ms=LINGERED_MS - MAX_RIPENING_MS, is_open=True)
    batch_for(ring.queues[1], created_ms=LINGERED_MS - MAX_RIPENING_MS + 1, is_open=True)
    assert drain(ring, ripe_bytes=1_000) == ([0], NOW_MS + 1)


def test_what_is_urgent_goes_before_it_is_ripe() -> None:
    ring = ring_of(1)
    batch_for(ring.queues[0], created_ms=LINGERED_MS, is_open=True)
    assert drain(ring, ripe_bytes=1_000)[0] == []
    assert drain(ring, ripe_bytes=1_000, is_urgent=True)[0] == [0]


def test_what_is_sent_again_waits_for_its_time() -> None:
    ring = ring_of(1)
    batch = batch_for(ring.queues[0])
    batch.attempts, batch.retry_at_ms = 1, NOW_MS + 40
    assert drain(ring, is_urgent=True) == ([], NOW_MS + 40)
    batch.retry_at_ms = NOW_MS
    assert drain(ring)[0] == [0]


def test_others_may_say_no() -> None:
    ring = ring_of(2)
    for queue in ring.queues:
        batch_for(queue)
    assert drain(ring, refused=(0,))[0] == [1]
    assert len(ring.queues[0].batches) == 1


def test_a_full_request_begins_next_time_where_it_ended() -> None:
    ring = ring_of(4)
    for queue in ring.queues:
        for _ in range(2):
            batch_for(queue, size=400)
    served = [drain(ring, max_bytes=1_000)[0] for _ in range(4)]
    assert served == [[0, 1], [2, 3], [0, 1], [2, 3]]


def test_the_first_batch_goes_even_if_it_is_larger_than_a_request() -> None:
    ring = ring_of(1)
    batch_for(ring.queues[0], size=5_000)
    assert drain(ring, max_bytes=1_000)[0] == [0]
