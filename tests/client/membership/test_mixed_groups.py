"""Groups of our members and librdkafka's on real brokers: all agree on who reads what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.client.membership.real_member import RealMember
from tests.support.confluent import create_topic, make_consumer
from tests.support.patience import eventually
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers

PARTITIONS = 6


class Librdkafka:
    """A consumer of confluent-kafka that polls in a thread of its own."""

    def __init__(self, broker: BrokerProcess, group_id: str, topic: str, **config: Any) -> None:
        self._consumer = make_consumer(broker, group_id=group_id, **config)
        self._consumer.subscribe([topic])
        self._is_over = threading.Event()
        self.owned: set[int] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Librdkafka:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._consumer.poll(0.05)
            self.owned = {one.partition for one in self._consumer.assignment()}
        self._consumer.close()


@contextmanager
def group(broker: BrokerProcess, topic: str) -> Iterator[ExitStack]:
    create_topic(broker, topic, partitions=PARTITIONS)
    with ExitStack() as stack:
        yield stack


def agree(*shares: Callable[[], set[int]], within_s: float = 60.0) -> None:
    """Each has its share, and together they have every partition once."""

    def is_agreed() -> bool:
        owned = [share() for share in shares]
        sizes = [len(one) for one in owned]
        return sorted(n for one in owned for n in one) == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1

    eventually(is_agreed, f"an even split, not {[share() for share in shares]}", within_s)


def numbers(member: RealMember) -> Callable[[], set[int]]:
    return lambda: {one.partition for one in member.owned}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("first", ["ours", "librdkafka"])
def test_with_librdkafka_in_a_classic_group(
    broker: BrokerProcess, new_topic: Callable[[], str], strategy: str, first: str
) -> None:
    """Whoever comes first leads."""
    topic = new_topic()
    with group(broker, topic) as stack:

        def ours() -> RealMember:
            return stack.enter_context(RealMember(broker.address, topic, [topic], strategy=[strategy]))

        def theirs() -> Librdkafka:
            return stack.enter_context(
                Librdkafka(broker, topic, topic, partition_assignment_strategy=strategy, heartbeat_interval_ms=200)
            )

        if first == "ours":
            us = ours()
            us.until_it_owns(PARTITIONS)
            them = theirs()
        else:
            them = theirs()
            eventually(lambda: len(them.owned) == PARTITIONS, "librdkafka alone")
            us = ours()
        agree(numbers(us), lambda: them.owned)
        third = ours()
        agree(numbers(us), numbers(third), lambda: them.owned)


def test_with_librdkafka_in_a_kip848_group(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    with group(broker, topic) as stack:
        us = stack.enter_context(RealMember(broker.address, topic, [topic], protocol="consumer"))
        us.until_it_owns(PARTITIONS)
        them = stack.enter_context(Librdkafka(broker, topic, topic, group_protocol="consumer"))
        agree(numbers(us), lambda: them.owned)
        third = stack.enter_context(RealMember(broker.address, topic, [topic], protocol="consumer"))
        agree(numbers(us), numbers(third), lambda: them.owned)
