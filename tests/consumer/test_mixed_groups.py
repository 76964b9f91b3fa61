"""Groups that are shared with the members of other clients."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]

from tests.consumer.scene import (
    KINDS,
    STRATEGIES,
    Make,
    Topics,
    create,
    join,
    numbered,
    poll_until,
    values_of,
    write,
)
from tests.support.confluent import make_consumer
from tests.support.kafka_python import group_member
from tests.support.patience import eventually
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers
PARTITIONS = 4


@pytest.mark.parametrize("kind", ["range", "roundrobin", "cooperative-sticky", "consumer"])
def test_together_with_librdkafka(broker: BrokerProcess, new_topic: Topics, member: Make, kind: str) -> None:
    """Members of both clients in one group: partitions are shared, and each record is read once."""
    create(broker, topic := new_topic(), PARTITIONS)
    ours = member(topic, **KINDS[kind])
    ours.subscribe(topic)
    join(ours, PARTITIONS)
    foreign = make_consumer(
        broker, group_id=f"group-of-{topic}", auto_offset_reset="earliest", enable_auto_commit=True, **KINDS[kind]
    )
    foreign.subscribe([topic])
    seen: list[Any] = []

    def step() -> None:
        seen.extend(values_of(ours.poll(0.02)))
        message = foreign.poll(0.02)
        if message is not None:
            assert message.error() is None
            seen.append(message.value())

    def are_shared() -> bool:
        step()
        return len(ours.assignment()) == len(foreign.assignment()) == 2

    def are_read() -> bool:
        step()
        return len(seen) >= 40

    try:
        eventually(are_shared, "shared")
        for index in range(PARTITIONS):
            write(broker, topic, numbered(10 * index, 10), index)
        eventually(are_read, "everything is read")
    finally:
        foreign.close()
    join(ours, PARTITIONS)
    assert sorted(map(int, seen)) == list(range(40)), "each record once"


def test_together_with_kafka_python(broker: BrokerProcess, new_topic: Topics, member: Make) -> None:
    create(broker, topic := new_topic(), PARTITIONS)
    ours = member(topic, **KINDS["range"])
    ours.subscribe(topic)
    join(ours, PARTITIONS)
    strategy = [RangePartitionAssignor]
    foreign = group_member(broker.bootstrap, topic, f"group-of-{topic}", partition_assignment_strategy=strategy)
    seen: list[Any] = []

    def step() -> None:
        seen.extend(values_of(ours.poll(0.02)))
        for messages in foreign.poll(timeout_ms=20).values():
            seen.extend(message.value for message in messages)

    def are_shared() -> bool:
        step()
        return len(ours.assignment()) == len(foreign.assignment()) == 2

    def are_read() -> bool:
        step()
        return len(seen) >= 40

    try:
        eventually(are_shared, "shared")
        for index in range(PARTITIONS):
            write(broker, topic, numbered(10 * index, 10), index)
        eventually(are_read, "everything is read")
    finally:
        foreign.close()
    join(ours, PARTITIONS)
    assert sorted(map(int, seen)) == list(range(40)), "each record once"


def test_strategies_that_do_not_fit(broker: BrokerProcess, new_topic: Topics, member: Make) -> None:
    create(broker, topic := new_topic())
    first = member(topic, **STRATEGIES["range"])
    first.subscribe(topic)
    join(first, 1)
    second = member(topic, **STRATEGIES["roundrobin"])
    second.subscribe(topic)
    with pytest.raises(Exception, match=r"(?i)inconsistent|protocol"):
        poll_until([first, second], lambda: False, "an error")
