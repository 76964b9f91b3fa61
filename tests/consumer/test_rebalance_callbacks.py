"""What a member is told of its partitions, in which order, and what it may do about it."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.consumer.consumer import Consumer
from oncelog.types import TopicPartition
from tests.consumer.scene import (
    KINDS,
    PROTOCOLS,
    Journal,
    Make,
    Topics,
    create,
    join,
    numbered,
    poll_until,
    read,
    shares,
    values_of,
    write,
)
from tests.support.patience import PATIENCE_S
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers
PARTITIONS = 4


@pytest.mark.parametrize("kind", ["range", "cooperative-sticky", "consumer"])
def test_callbacks_in_order(broker: BrokerProcess, new_topic: Topics, member: Make, kind: str) -> None:
    """Partitions come before they go; each is told when it does; an eager member gives up all of them."""
    partitions = create(broker, topic := new_topic(), PARTITIONS)
    first, second = member(topic, **KINDS[kind]), member(topic, **KINDS[kind])
    journal, other = Journal(), Journal()
    first.subscribe(topic, **journal.callbacks())
    join(first, PARTITIONS)
    assert journal.of("assigned") == [partitions]
    second.subscribe(topic, **other.callbacks())
    poll_until([first, second], lambda: shares(first, second) == [2, 2], "shared")
    second.close()
    assert len([one for each in other.of("revoked") for one in each]) == 2, "close() gives up what is owned"
    join(first, PARTITIONS)
    owned: set[TopicPartition] = set()
    for what, told in journal.told:
        assert told == sorted(told)
        if what == "assigned":
            assert not owned & set(told)
            owned |= set(told)
        else:
            assert what == "revoked"
            assert owned >= set(told)
            owned -= set(told)
    assert owned == set(partitions)
    moved = journal.of("revoked")
    assert [len(each) for each in moved] == ([4, 2] if kind == "range" else [2])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_seeking_in_on_assigned(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str) -> None:
    create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 10))
    consumer = member(topic, auto_offset_reset="none", **PROTOCOLS[protocol])
    consumer.subscribe(topic, on_assigned=lambda it, partitions: [it.seek(one, 7) for one in partitions])
    assert values_of(read(consumer, 3)) == [b"7", b"8", b"9"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_asking_in_callbacks(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str) -> None:
    """Positions, committed offsets and the ends of logs can be asked for in there; poll() and close() cannot."""
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 10))
    consumer = member(topic, **PROTOCOLS[protocol])
    told: list[Any] = []

    def on_assigned(it: Consumer, partitions: list[TopicPartition]) -> None:
        assert it is consumer
        told.append((it.position(partition), it.committed(partition)[partition], it.end_offsets(partition)[partition]))
        for forbidden in (it.poll, it.close, it.unsubscribe):
            with pytest.raises(RuntimeError, match="in a rebalance callback would wait for itself"):
                forbidden()

    consumer.subscribe(topic, on_assigned=on_assigned)
    assert len(read(consumer, 10)) == 10
    assert told == [(0, None, 10)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_callback_that_raises(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str) -> None:
    """poll() raises it; the group goes on."""
    create(broker, topic := new_topic())
    write(broker, topic, [b"1"])
    consumer = member(topic, **PROTOCOLS[protocol])

    def fail(it: Consumer, partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError(f"with {len(partitions)} partitions")

    consumer.subscribe(topic, on_assigned=fail, on_revoked=fail)
    with pytest.raises(ZeroDivisionError, match="with 1 partitions"):
        read(consumer, 1)
    assert values_of(read(consumer, 1)) == [b"1"]
    with pytest.raises(ZeroDivisionError):
        consumer.close()
    with member(topic, **PROTOCOLS[protocol]) as next_one:
        next_one.subscribe(topic)
        join(next_one, 1)  # at once: the other left properly
        assert next_one.committed((topic, 0))[TopicPartition(topic, 0)] is not None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_in_on_revoked_are_what_the_next_owner_begins_with(
    broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str
) -> None:
    create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 10))
    settings = {"enable_auto_commit": False, **PROTOCOLS[protocol]}
    first, second = member(topic, **settings), member(topic, **settings)
    first.subscribe(topic, on_revoked=lambda it, partitions: it.commit())
    assert len(first.poll(PATIENCE_S, max_records=6)) == 6
    first.close()
    second.subscribe(topic)
    assert values_of(read(second, 4)) == [b"6", b"7", b"8", b"9"]
