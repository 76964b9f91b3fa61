"""What each way of committing offsets may lose or repeat, shown by a process that is killed at the worst time.

A worker reads 60 records in batches of 10 and gets stuck after so many; it is killed, and another one takes over.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import pytest

from oncelog.consumer.consumer import Consumer
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition
from tests.consumer.scene import Topics, create, numbered, offsets_of, write
from tests.consumer.worker import BATCH, INSTANCE
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers
COUNT = 60


class Outcome(NamedTuple):
    processed: list[int]
    """By the one that was killed."""
    taken_over: list[int]
    """Processed by the next."""

    @property
    def lost(self) -> list[int]:
        return sorted({*range(COUNT)} - {*self.processed} - {*self.taken_over})

    @property
    def repeated(self) -> list[int]:
        return sorted({*self.processed} & {*self.taken_over})


def killed_after(broker: BrokerProcess, topic: str, way: str, last: int, committed: int | None = None) -> Outcome:
    """`committed`: what the group has at least before the kill, if the worker does not wait for it itself."""
    (partition,) = create(broker, topic)
    write(broker, topic, numbered(0, COUNT))
    group = f"group-of-{topic}"
    command = [sys.executable, "-m", "tests.consumer.worker", broker.bootstrap, topic, group, way, str(last)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "stuck\n")
        processed = [int(line.split()[1]) for line in lines]
        with Consumer(broker.bootstrap, group_id=group, enable_auto_commit=False) as looking:
            if committed is not None:
                eventually(lambda: _committed(looking, partition) >= committed, f"{committed} committed")
        process.kill()
        process.wait()
        settings = {"group_instance_id": INSTANCE, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
        with Consumer(broker.bootstrap, group_id=group, **settings) as heir:
            heir.subscribe(topic)
            records: list[ConsumerRecord] = []
            eventually(lambda: has_read_all(heir, records), "the rest")
            return Outcome(processed, offsets_of(records))
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def has_read_all(consumer: Consumer, records: list[ConsumerRecord]) -> bool:
    records += consumer.poll(0.1)
    return bool(records) and records[-1].offset == COUNT - 1


def _committed(consumer: Consumer, partition: TopicPartition) -> int:
    found = consumer.committed(partition, timeout=PATIENCE_S)[partition]
    return 0 if found is None else found.offset


def test_automatic_commits_lose_nothing(broker: BrokerProcess, new_topic: Topics) -> None:
    """Stuck in the middle of the third batch: the first two are committed, the third is not, for nobody asked for more
    than it. What was processed of it is repeated."""
    outcome = killed_after(broker, new_topic(), "automatic", 25, committed=2 * BATCH)
    assert outcome.processed == list(range(25))
    assert outcome.lost == []
    assert outcome.repeated == list(range(20, 25))


def test_automatic_commits_of_an_iteration_lose_nothing(broker: BrokerProcess, new_topic: Topics) -> None:
    """At most `max.poll.records` come again; never is one missed. Where exactly the last commit is depends on when the
    one before was answered: that ends the batch in hand, and the next begins there."""
    outcome = killed_after(broker, new_topic(), "automatic_iteration", 25, committed=25 - BATCH)
    assert outcome.processed == list(range(25))
    assert outcome.lost == []
    assert 25 - BATCH <= outcome.taken_over[0] < 25
    assert outcome.repeated == list(range(outcome.taken_over[0], 25))


def test_committing_before_processing_loses_the_batch_in_hand(broker: BrokerProcess, new_topic: Topics) -> None:
    outcome = killed_after(broker, new_topic(), "commit_first", 15)
    assert outcome.lost == list(range(15, 20)), "the rest of the batch"
    assert outcome.repeated == []


def test_committing_after_processing_repeats_the_batch_in_hand(broker: BrokerProcess, new_topic: Topics) -> None:
    outcome = killed_after(broker, new_topic(), "commit_last", 20)
    assert outcome.lost == []
    assert outcome.repeated == list(range(10, 20)), "processed, and not committed"


def test_asynchronous_commits_repeat_what_was_not_confirmed(broker: BrokerProcess, new_topic: Topics) -> None:
    outcome = killed_after(broker, new_topic(), "commit_last_async", 35)
    assert outcome.lost == []
    assert outcome.repeated == list(range(outcome.taken_over[0], 35))
    assert outcome.taken_over[0] % BATCH == 0, "whole batches were committed"
    assert outcome.taken_over[0] <= 30


def test_committing_each_record_repeats_one(broker: BrokerProcess, new_topic: Topics) -> None:
    outcome = killed_after(broker, new_topic(), "commit_each", 7)
    assert outcome.lost == []
    assert outcome.repeated == [6], "processed, and not committed"
