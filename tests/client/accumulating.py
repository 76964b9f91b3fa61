"""Queues with batches for tests: a topic that is known, records that are in, and batches in every state."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

from oncelog.client.accumulator import Accumulator, PartitionQueue, TopicQueues
from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import RecordFuture

TOPIC = "orders"
TOPIC_ID = UUID(int=1)
LEADER, NO_LEADER = 1, -1
WALL_MS = 1_700_000_000_000
NOW_MS = 1_000


def accumulator(**settings: Any) -> Accumulator:
    given = {"batch_size": 1_000, "buffer_memory": 100_000, "max_request_size": 5_000, **settings}
    return Accumulator(**given, lock=threading.Lock(), new_waiter=threading.Event)


def learned(accumulator: Accumulator, partitions: int = 1, leaders: tuple[int, ...] = ()) -> TopicQueues:
    given = leaders or (LEADER,) * partitions
    return accumulator.learn_partitions(TOPIC, ((index, TOPIC_ID, leader, 0) for index, leader in enumerate(given)))


def record(value: bytes | None = b"v", key: bytes | None = None, headers: Any = (), on_delivery: Any = None) -> Any:
    return WALL_MS, key, value, headers, on_delivery


def put(accumulator: Accumulator, queue: PartitionQueue, value: bytes = b"v", **fields: Any) -> RecordFuture | None:
    """As a producer does."""
    one = record(value, **fields)
    return accumulator.append(queue, *one) or accumulator.append_anew(queue, *one, NOW_MS)


def batches(accumulator: Accumulator, queue: PartitionQueue, count: int) -> list[ProducerBatch]:
    """Closed batches of one record each, in the queue."""
    for number in range(count):
        assert accumulator.append_anew(queue, *record(b"%d" % number), NOW_MS) is not None
    return list(queue.batches)[-count:]
