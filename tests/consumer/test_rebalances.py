"""Fifty rebalances under load: members come and go while records are written, and commit what they give up.

Nothing is lost, nothing is read twice, and no partition ever has two owners: the documented window of repetition is
empty. It is open for a member that leaves in the middle of a cooperative rebalance: the group may go on to a generation
that this member never saw, and then its last offset commit fails, and says so.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.consumer_errors import CommitFailed
from oncelog.consumer.consumer import Consumer
from oncelog.producer.producer import Producer
from oncelog.types import TopicPartition
from tests.consumer.scene import Topics, create
from tests.support.broker import OncelogBroker
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess
from tests.support.sizes import IS_SOAK

PARTITIONS = 12
MAX_MEMBERS = 4
COOPERATIVE = "cooperative-sticky"
REBALANCES = 50 if IS_SOAK else 25
ON_KAFKA = [("range", 50), (COOPERATIVE, 50), ("consumer", 10)] if IS_SOAK else [("consumer", 5)]
SEED = 7
# Members that are seldom heard would make a rebalance as long as the time between their heartbeats.
KINDS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 30},
    COOPERATIVE: {"partition_assignment_strategy": COOPERATIVE, "heartbeat_interval_ms": 30},
    "consumer": {"group_protocol": "consumer"},
}
SOON = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "30",
    "group.consumer.heartbeat.interval.ms": "30",
}


class Ledger:
    """Who owns what, and what was read, as the members' users see it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owners: dict[TopicPartition, str] = {}
        self.seen: Counter[tuple[int, int]] = Counter()
        self.complaints: list[str] = []
        self.excused: set[int] = set()
        """Partitions whose last owner heard that its offset commit failed."""

    def assigned(self, member: str, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                if partition in self.owners:
                    self.complaints.append(f"{partition} is {self.owners[partition]}'s and went to {member}")
                self.owners[partition] = member

    def given_up(self, member: str, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                if self.owners.get(partition) == member:
                    del self.owners[partition]
                else:
                    self.complaints.append(f"{member} gave up {partition}, which it did not own")

    def complain(self, what: str) -> None:
        with self._lock:
            self.complaints.append(what)

    def read(self, member: str, records: list[Any]) -> None:
        with self._lock:
            for record in records:
                self.seen[record.partition, record.offset] += 1
                if self.owners.get(TopicPartition(record.topic, record.partition)) != member:
                    self.complaints.append(f"{member} read {record.partition} at {record.offset}, which it did not own")


class Member(threading.Thread):
    def __init__(self, bootstrap: str, topic: str, name: str, ledger: Ledger, settings: dict[str, Any]) -> None:
        super().__init__(name=name, daemon=True)
        self._ledger = ledger
        self._topic = topic
        self._is_leaving = threading.Event()
        self.generation = 0
        fast = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, "enable_auto_commit": False}
        self._settings = {"bootstrap.servers": bootstrap, "group.id": f"group-of-{topic}", **fast, **settings}
        self.start()

    def leave(self) -> None:
        self._is_leaving.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"{self.name} does not end"

    def run(self) -> None:
        try:
            with Consumer(self._settings) as consumer:
                self._read(consumer)
        except Exception as error:
            self._ledger.complain(f"{self.name}: {error!r}")

    def _read(self, consumer: Consumer) -> None:
        consumer.subscribe(
            self._topic,
            on_assigned=lambda _, partitions: self._ledger.assigned(self.name, partitions),
            on_revoked=self._revoked,
            on_lost=lambda _, partitions: self._ledger.complain(f"{self.name} lost {partitions}"),
        )
        while not self._is_leaving.is_set():
            self._ledger.read(self.name, consumer.poll(0.02))
            self.generation = consumer.group_metadata().generation_id

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            consumer.commit()
        except CommitFailed:
            self._ledger.excused.update(each.partition for each in partitions)
        self._ledger.given_up(self.name, partitions)


class Load(threading.Thread):
    """Writes until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._servers = bootstrap
        self._topic = topic
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        with Producer(self._servers, linger_ms=2) as producer:
            while not self._is_over.wait(0.005):
                for _ in range(10):
                    producer.send(self._topic, value=b"%d" % self.sent, key=b"%d" % self.sent)
                    self.sent += 1

    def end(self) -> int:
        self._is_over.set()
        self.join(PATIENCE_S)
        return self.sent


def rebalance_often(
    bootstrap: str,
    topic: str,
    settings: dict[str, Any],
    rebalances: int,
    is_settled: Callable[[Ledger, list[Member]], bool],
) -> Ledger:
    """Waits with each until the last one is settled."""
    ledger, load, chance = Ledger(), Load(bootstrap, topic), random.Random(SEED)
    members: list[Member] = []
    for number in range(rebalances):
        if len(members) < 2 or (len(members) < MAX_MEMBERS and chance.random() < 0.5):
            members.append(Member(bootstrap, topic, f"member-{number}", ledger, settings))
        else:
            members.pop(chance.randrange(len(members))).leave()
        eventually(lambda: bool(ledger.complaints) or is_settled(ledger, members), f"settled after {number} rebalances")
        assert ledger.complaints == [], f"after {number} rebalances, seed {SEED}"
    sent = load.end()
    eventually(lambda: len(ledger.seen) == sent, f"{sent} records are read, not {len(ledger.seen)}")
    for member in members:
        member.leave()
    assert ledger.complaints == []
    repeated = {partition for (partition, _), times in ledger.seen.items() if times > 1}
    assert repeated <= ledger.excused, "read twice"
    return ledger


def is_shared(ledger: Ledger, members: list[Member]) -> bool:
    owners = dict(ledger.owners)
    return len(owners) == PARTITIONS and set(owners.values()) == {member.name for member in members}


def is_over(ledger: Ledger, members: list[Member]) -> bool:
    """All have the same number of partitions, in the same generation: as far as anybody can tell from outside."""
    counts = set(Counter(dict(ledger.owners).values()).values())
    return is_shared(ledger, members) and len(counts) == 1 and len({member.generation for member in members}) == 1


@pytest.fixture
def quick_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with OncelogBroker(tmp_path, SOON) as broker:
        yield broker


@pytest.mark.parametrize("kind", KINDS)
def test_many_rebalances(quick_broker: BrokerProcess, new_topic: Topics, kind: str) -> None:
    create(quick_broker, topic := new_topic(), PARTITIONS)
    ledger = rebalance_often(quick_broker.bootstrap, topic, KINDS[kind], REBALANCES, is_over)
    assert kind == COOPERATIVE or ledger.excused == set()


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_leave_while_the_group_rebalances(
    quick_broker: BrokerProcess, new_topic: Topics, kind: str
) -> None:
    create(quick_broker, topic := new_topic(), PARTITIONS)
    ledger = rebalance_often(quick_broker.bootstrap, topic, KINDS[kind], REBALANCES, is_shared)
    assert kind == COOPERATIVE or ledger.excused == set()


@pytest.mark.parametrize(("kind", "rebalances"), ON_KAFKA)
def test_rebalances_on_kafka(kafka_broker: BrokerProcess, new_topic: Topics, kind: str, rebalances: int) -> None:
    """Its members of KIP-848 groups are heard less often here, and each rebalance takes longer."""
    create(kafka_broker, topic := new_topic(), PARTITIONS)
    ledger = rebalance_often(kafka_broker.bootstrap, topic, KINDS[kind], rebalances, is_over)
    assert kind == COOPERATIVE or ledger.excused == set()
