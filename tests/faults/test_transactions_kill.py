"""Consume, transform and produce in transactions, while processors, readers and the broker are killed (SIGKILL).

Exactly once, as a reader of committed records sees it; in order; nothing that was aborted; nothing left open; the
group's offsets at the end of the input. Beside that, all clients keep histories, and the checker must find nothing in
them. `make faults` runs it at full size: 200 kills over 500,000 records.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import oncelog
from oncelog.audit.account import Audit
from oncelog.audit.history.checker import Checker
from oncelog.audit.history.codec import decode_history
from oncelog.audit.history.model import Operation, Outcome, Records
from oncelog.audit.history.report import Report
from oncelog.audit.ids import parse_id
from oncelog.client.records import RecordMetadata
from oncelog.types import NO_OFFSET, TopicPartition
from tests.faults.cell import PATIENT
from tests.faults.transaction_clients import CLIENTS, ConfluentConsumer
from tests.faults.transaction_lives import GROUP, INPUT, OUTPUT, OUTPUTS, PARTITIONS, Lives, by_partition
from tests.support import requests
from tests.support.broker import OncelogBroker
from tests.support.confluent import create_topic
from tests.support.kafka import KafkaBroker
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.sizes import IS_SOAK

KILLS, RECORDS = (200, 500_000) if IS_SOAK else (5, 10_000)
"""For each client."""
WAIT_S = 180.0
MAX_LIFE_S = 0.3
"""After the first transaction that was committed since the last kill."""
HASTE = 0.25
"""How often the next kill does not even wait for that."""
VICTIMS = ["broker"] * 4 + ["processor"] * 5 + ["reader"]
"""Of ten kills, in some order."""

INPUTS = [TopicPartition(INPUT, index) for index in range(PARTITIONS)]
CONFIG = {
    "log.retention.ms": "-1",
    "log.segment.bytes": "1048576",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
BROKERS: dict[str, type[OncelogBroker] | type[KafkaBroker]] = {"oncelog": OncelogBroker, "kafka": KafkaBroker}
ENDED = {"Empty", "CompleteCommit", "CompleteAbort", "Dead"}


@pytest.fixture
def victim(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    kind = (request.config.getoption("--brokers") or "oncelog").split(",")[0]
    with BROKERS[kind](tmp_path / "broker", CONFIG) as broker:
        create_topic(broker, INPUT, partitions=PARTITIONS)
        create_topic(broker, OUTPUT, partitions=PARTITIONS)
        yield broker
        print(broker.log[-4_000:])  # captured, and shown with a failure


class Feeder:
    """Inputs, each partition numbered from 0, sent by an idempotent producer; and its history."""

    def __init__(self, servers: str) -> None:
        self._producer = oncelog.Producer(servers, **PATIENT)
        self._sent = [0] * PARTITIONS
        self._moments: list[tuple[int, list[Records]]] = []

    def send(self, records: int) -> None:
        sends: list[Records] = []
        self._moments.append((time.monotonic_ns(), sends))
        for index, partition in enumerate(INPUTS):
            first, self._sent[index] = self._sent[index], self._sent[index] + records // PARTITIONS
            values = [f"{index}/{number}" for number in range(first, self._sent[index])]
            offsets: list[int] = []
            sends.append(Records(partition, values, offsets))
            on_delivery = partial(_delivered, offsets)
            for value in values:
                self._producer.send(INPUT, value, partition=index, on_delivery=on_delivery)

    def close(self) -> list[Operation]:
        """When all is stored."""
        self._producer.close()
        assert all(NO_OFFSET not in records.offsets for _, sends in self._moments for records in sends)
        now = time.monotonic_ns()
        return [
            Operation("feeder", number, began, now, Outcome.OK, sends=sends)
            for number, (began, sends) in enumerate(self._moments, 1)
        ]


def _delivered(offsets: list[int], metadata: RecordMetadata | None, _: Exception | None) -> None:
    offsets.append(NO_OFFSET if metadata is None else metadata.offset)


class Scene:
    """Two processors, one of them a static member of the group, and a reader, each replaced when it was killed."""

    def __init__(self, broker: BrokerProcess, lives: Lives, chance: random.Random) -> None:
        self.broker = broker
        self.lives = lives
        self.chance = chance
        self.kills: Counter[str] = Counter()
        self._next_victims: list[str] = []
        self.names = {slot: self._replace(slot) for slot in range(3)}

    def _replace(self, slot: int) -> str:
        seed = self.chance.getrandbits(32)
        if slot == 2:
            isolation = self.chance.choice(["read_committed", "read_committed", "read_uncommitted"])
            settings = {"isolation_level": isolation}
            return self.lives.start("reader", seed, settings=settings, from_start=self.chance.random() < 0.25)
        settings = {"group_id": GROUP, "isolation_level": "read_committed"}
        if slot == 0:
            settings["group_instance_id"] = "first"
        return self.lives.start("processor", seed, settings=settings, transactional_id=f"processor-{slot}")

    def kill(self) -> None:
        if not self._next_victims:
            self._next_victims = self.chance.sample(VICTIMS, len(VICTIMS))
        victim = self._next_victims.pop()
        match victim:
            case "broker":
                self.broker.kill()
                self.broker.start()
            case "processor":
                self._kill_life(self.chance.randrange(2))
            case _:
                self._kill_life(2)
        self.kills[victim] += 1
        self._replace_those_that_gave_up()

    def _kill_life(self, slot: int) -> None:
        self.lives.signal(self.names[slot], signal.SIGKILL)
        self.names[slot] = self._replace(slot)

    def _replace_those_that_gave_up(self) -> None:
        assert not self.lives.broken, self.lives.broken
        for slot, name in self.names.items():
            if not self.lives.is_running(name):
                self.names[slot] = self._replace(slot)

    def await_progress(self, before: int) -> None:
        """A transaction more than so many."""

        def is_there() -> bool:
            self._replace_those_that_gave_up()
            return self.lives.commits > before

        eventually(is_there, "a transaction is committed", WAIT_S)

    def await_offsets(self, goals: dict[TopicPartition, int]) -> None:
        """Of the group."""
        witness = ConfluentConsumer(self.broker.bootstrap, group_id=GROUP)

        def is_there() -> bool:
            self._replace_those_that_gave_up()
            return witness.committed(INPUTS) == goals

        try:
            eventually(is_there, f"the group is at {goals}", WAIT_S)
        finally:
            witness.close()

    def leave(self) -> None:
        for name in self.names.values():
            self.lives.signal(name, signal.SIGTERM)
        eventually(lambda: not any(map(self.lives.is_running, self.names.values())), "all have left", WAIT_S)


def ends(broker: BrokerProcess, partitions: list[TopicPartition], isolation_level: int) -> dict[TopicPartition, int]:
    with RawClient(broker.address) as client:
        return {
            one: requests.list_offset(
                client, one.topic, requests.LATEST, partition=one.partition, isolation_level=isolation_level
            )["offset"]
            for one in partitions
        }


def open_transactions(broker: BrokerProcess) -> list[str]:
    with RawClient(broker.address) as client:
        answer = client.request("list_transactions", 0, {"state_filters": [], "producer_id_filters": []})
    assert answer["error_code"] == 0, answer
    return [
        f"{one['transactional_id']}: {one['transaction_state']}"
        for one in answer["transaction_states"]
        if one["transaction_state"] not in ENDED
    ]


def nothing_is_left_open(broker: BrokerProcess) -> None:
    offsets_topic = [
        TopicPartition("__consumer_offsets", index) for index in range(int(CONFIG["offsets.topic.num.partitions"]))
    ]
    everywhere = [*INPUTS, *OUTPUTS, *offsets_topic]
    eventually(lambda: not open_transactions(broker), "no transaction is open", WAIT_S)
    eventually(
        lambda: ends(broker, everywhere, 1) == ends(broker, everywhere, 0), "all that is stored is stable", WAIT_S
    )


def read_all(broker: BrokerProcess) -> Operation:
    """All outputs from the first to the last, by a reader of committed records that shares no code with the broker."""
    goals = ends(broker, OUTPUTS, 1)
    witness = ConfluentConsumer(broker.bootstrap, isolation_level="read_committed", enable_partition_eof=True)
    witness.assign(OUTPUTS, from_start=True)
    began, polled, deadline = time.monotonic_ns(), [], time.monotonic() + WAIT_S

    def is_at_end() -> bool:
        positions = witness.client.position(witness.client.assignment())
        return all(one.offset == goals[TopicPartition(one.topic, one.partition)] for one in positions)

    while not is_at_end():
        assert time.monotonic() < deadline, "the outputs cannot be read to the end"
        polled += witness.poll(10_000, 0.2)
    witness.close()
    return Operation(
        "witness", 1, began, time.monotonic_ns(), Outcome.OK, polls=by_partition(polled), drained=[*INPUTS, *OUTPUTS]
    )


def each_record_is_there_once_and_in_order(seen: Operation, records: int) -> None:
    audit = Audit()
    for run in seen.polls:
        for value, offset in zip(run.values, run.offsets, strict=True):
            audit.observe(run.partition, offset, parse_id(str(value).encode()))
    report = audit.report()
    assert report.clean, [entry for entry in report.partitions if entry.examples]
    assert report.total.stored == records


def checked(lives: Lives, *operations: Operation) -> Report:
    checker = Checker()
    for path in lives.histories():
        with open(path, "rb") as lines:
            for operation in decode_history(lines):
                checker.observe(operation)
    for operation in operations:
        checker.observe(operation)
    return checker.report()


@pytest.mark.timeout(1_200 if IS_SOAK else 600)
@pytest.mark.parametrize("client", CLIENTS)
def test_exactly_once_whatever_is_killed(
    victim: BrokerProcess, tmp_path: Path, rng: random.Random, client: str
) -> None:
    with Lives(tmp_path / "lives", victim.bootstrap, client) as lives:
        scene, feeder = Scene(victim, lives, rng), Feeder(victim.bootstrap)
        for _ in range(KILLS):
            commits = lives.commits
            feeder.send(RECORDS // KILLS)
            if rng.random() > HASTE:
                scene.await_progress(commits)
                time.sleep(rng.uniform(0, MAX_LIFE_S))
            scene.kill()
        fed = feeder.close()
        scene.await_offsets(ends(victim, INPUTS, 0))
        scene.leave()
        assert not lives.broken, lives.broken
        nothing_is_left_open(victim)
        seen = read_all(victim)
        report = checked(lives, *fed, seen)
        print(dict(scene.kills), report.explain())
        each_record_is_there_once_and_in_order(seen, RECORDS)
        assert report.is_clean, report.explain()
