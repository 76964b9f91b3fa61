"""What the tests of the consumer share: records written by hand, and readers that wait as long as it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oncelog.consumer.consumer import Consumer
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition
from tests.support import requests
from tests.support.batches import Record, make_batch
from tests.support.patience import PATIENCE_S
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

Topics = Callable[[], str]
Make = Callable[..., Consumer]

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"group_protocol": "classic", "heartbeat_interval_ms": 300},
    "consumer": {"group_protocol": "consumer"},
}
STRATEGIES: dict[str, dict[str, Any]] = {
    name: {"partition_assignment_strategy": name, "heartbeat_interval_ms": 300}
    for name in ("range", "roundrobin", "sticky", "cooperative-sticky")
}
KINDS = {**STRATEGIES, "consumer": PROTOCOLS["consumer"]}


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **configs: str) -> list[TopicPartition]:
    """The topic's partitions, which serve when this returns."""
    with RawClient(broker.address) as client:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        requests.create_topic(client, topic, partitions=partitions, configs=dotted)
    return [TopicPartition(topic, index) for index in range(partitions)]


def write(
    broker: BrokerProcess, topic: str, values: Iterable[Record | bytes], partition: int = 0, **batch: Any
) -> list[bytes]:
    """As one batch, made by hand. Returns the values."""
    records = list(values)
    with RawClient(broker.address) as client:
        answer = requests.produce(client, topic, make_batch(records, **batch), partition=partition, version=11)
    assert answer["error_code"] == 0, answer
    return [each if isinstance(each, bytes) else each.value or b"" for each in records]


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def read(consumer: Consumer, count: int, **poll: Any) -> list[ConsumerRecord]:
    """So many records, by as many polls as it takes. More is an error."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        records += consumer.poll(0.1, **poll)
    assert len(records) == count, f"more than {count} records"
    return records


def values_of(records: Iterable[ConsumerRecord]) -> list[Any]:
    return [record.value for record in records]


def offsets_of(records: Iterable[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def poll_until(consumers: Consumer | Sequence[Consumer], condition: Callable[[], bool], what: str) -> list[Any]:
    """Polls in turn, as applications would; what came meanwhile."""
    turn = [consumers] if isinstance(consumers, Consumer) else consumers
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        for consumer in turn:
            records += consumer.poll(0.02)
    return records


def join(consumer: Consumer, partitions: int) -> list[Any]:
    return poll_until(consumer, lambda: len(consumer.assignment()) == partitions, f"{partitions} partitions assigned")


def shares(*consumers: Consumer) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


class Journal:
    """What the callbacks were told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[TopicPartition]]] = []

    def callbacks(self) -> dict[str, Any]:
        def note(what: str) -> Callable[[Consumer, list[TopicPartition]], None]:
            return lambda consumer, partitions: self.told.append((what, partitions))

        return {f"on_{what}": note(what) for what in ("assigned", "revoked", "lost")}

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What is to be believed after all that."""
        owned: set[TopicPartition] = set()
        for what, partitions in self.told:
            owned = owned | set(partitions) if what == "assigned" else owned - set(partitions)
        return frozenset(owned)

    def of(self, what: str) -> list[list[TopicPartition]]:
        return [partitions for told, partitions in self.told if told == what and partitions]
