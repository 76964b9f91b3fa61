"""A process that reads, "processes" (prints) and commits in one of the usual ways, until it is stuck and killed.

    python -m tests.consumer.worker BOOTSTRAP TOPIC GROUP WAY RECORDS

It gets stuck once it has processed so many records: in the middle of a batch, or before it commits one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count

from oncelog.consumer.consumer import Consumer
from oncelog.types import TopicPartition

BATCH = 10
INSTANCE = "worker"
"""A static member: whoever comes after it need not wait until the group misses it."""


def process(offset: int, numbers: Iterator[int], last: int) -> None:
    print("processed", offset, flush=True)
    if next(numbers) == last:
        get_stuck()


def get_stuck() -> None:
    print("stuck", flush=True)
    threading.Event().wait()


def automatic(consumer: Consumer, partition: TopicPartition, done: Callable[[int], None]) -> None:
    while True:
        for record in consumer.poll(1, max_records=BATCH):
            done(record.offset)


def automatic_iteration(consumer: Consumer, partition: TopicPartition, done: Callable[[int], None]) -> None:
    for record in consumer:
        done(record.offset)


def commit_first(consumer: Consumer, partition: TopicPartition, done: Callable[[int], None]) -> None:
    while True:
        records = consumer.poll(1, max_records=BATCH)
        consumer.commit()
        for record in records:
            done(record.offset)


def commit_last(consumer: Consumer, partition: TopicPartition, done: Callable[[int], None]) -> None:
    while True:
        for record in consumer.poll(1, max_records=BATCH):
            done(record.offset)
        consumer.commit()


def commit_last_async(consumer: Consumer, partition: TopicPartition, done: Callable[[int], None]) -> None:
    while True:
        for record in consumer.poll(1, max_records=BATCH):
            done(record.offset)
        consumer.commit_async()


def commit_each(consumer: Consumer, partition: TopicPartition, done: Callable[[int], None]) -> None:
    for record in consumer:
        done(record.offset)
        consumer.commit({partition: record.offset + 1})


WAYS = {
    way.__name__: way
    for way in (automatic, automatic_iteration, commit_first, commit_last, commit_last_async, commit_each)
}


def main(bootstrap: str, topic: str, group: str, way: str, last: str) -> None:
    settings = {"auto_offset_reset": "earliest", "max_poll_records": BATCH, "group_instance_id": INSTANCE}
    if way.startswith("automatic"):
        settings["auto_commit_interval_ms"] = 0
    else:
        settings["enable_auto_commit"] = False
    numbers = count(1)
    with Consumer(bootstrap, group_id=group, **settings) as consumer:
        consumer.subscribe(topic)
        WAYS[way](consumer, TopicPartition(topic, 0), lambda offset: process(offset, numbers, int(last)))


if __name__ == "__main__":
    main(*sys.argv[1:])
