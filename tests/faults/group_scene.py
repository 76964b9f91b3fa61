"""What tests with members in processes of their own share: a broker whose sessions end soon, orders, and patience."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import oncelog
from oncelog.broker.process import Broker
from oncelog.consumer.consumer import Consumer
from oncelog.types import TopicPartition
from tests.faults.cell import PATIENT
from tests.faults.group_books import Chronicle
from tests.faults.scene import create_topic
from tests.support.patience import eventually
from tests.support.ports import unused_port

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 4
PARTITION_NAMES = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
SESSION_MS = 3_000
WAIT_S = 120.0

# Sessions end soon, so that nobody waits long for those that were killed.
CONFIG = {
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "offsets.topic.num.partitions": 3,
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 200},
    "consumer": {"group_protocol": "consumer"},
}


@contextmanager
def short_sessions(directory: Path) -> Iterator[Broker]:
    """A broker that is there to be killed, with a topic for the orders."""
    broker = Broker(directory / "data", port=unused_port(), config=CONFIG)
    broker.start()
    try:
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        yield broker
    finally:
        print(broker.log_tail())  # captured, and shown with a failure
        broker.close()


class Load(threading.Thread):
    """Orders with numbers, sent by an idempotent producer until told to end; each partition counts from 0."""

    def __init__(self, servers: str, per_second: int = 400) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.failures: list[Exception] = []
        self._producer = oncelog.Producer(servers, **PATIENT)
        self._pause_s = PARTITIONS / per_second
        self._is_ending = threading.Event()

    def run(self) -> None:
        while not self._is_ending.wait(self._pause_s):
            self.send(1)

    def send(self, rounds: int) -> None:
        """One order for each partition, so many times."""
        for number in range(self.sent, self.sent + rounds):
            for index in range(PARTITIONS):
                self._producer.send(TOPIC, b"%d" % number, partition=index, on_delivery=self._settled)
        self.sent += rounds

    def _settled(self, metadata: object, error: Exception | None) -> None:
        if error is not None:
            self.failures.append(error)

    def end(self) -> int:
        """All is sent. How many orders each partition has."""
        self._is_ending.set()
        if self.is_alive():
            self.join()
        self._producer.close()
        assert not self.failures, self.failures[:3]
        return self.sent

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        if self.is_alive():
            self.join()
        self._producer.close(0)


def committed(servers: str) -> dict[TopicPartition, int]:
    with Consumer(servers, group_id=GROUP, enable_auto_commit=False) as witness:
        found = witness.committed(*PARTITION_NAMES)
    return {partition: 0 if one is None else one.offset for partition, one in found.items()}


def offsets_did_not_go_back(before: dict[TopicPartition, int], after: dict[TopicPartition, int]) -> None:
    assert all(after[one] >= before[one] for one in PARTITION_NAMES), f"{before}, then {after}"


def await_progress(chronicle: Chronicle, records: int = 50) -> None:
    """So many records of each partition that nobody was handed before."""
    chronicle.update()
    goals = {one: chronicle.books.handed_up_to[one] + records for one in PARTITION_NAMES}
    await_handed(chronicle, goals)


def await_handed(chronicle: Chronicle, goals: dict[TopicPartition, int]) -> None:
    def is_there() -> bool:
        broken = chronicle.said("broke")
        assert not broken, broken
        return all(chronicle.books.handed_up_to[one] >= goal for one, goal in goals.items())

    eventually(is_there, f"{goals}", WAIT_S)
