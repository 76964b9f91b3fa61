"""Offset commits of a living consumer: what they say, in which order, and what becomes of them at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.consumer.consumer import Consumer
from oncelog.consumer.interceptors import ConsumerInterceptor
from oncelog.errors import OffsetMetadataTooLarge
from oncelog.types import TopicPartition
from tests.consumer.scene import PROTOCOLS, Topics, create, numbered, poll_until, read, values_of, write
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers


def reader(broker: BrokerProcess, topic: str, **settings: Any) -> Consumer:
    fast = {"fetch_max_wait_ms": 100, "auto_offset_reset": "earliest"}
    return Consumer(broker.bootstrap, group_id=f"group-of-{topic}", **{**fast, **settings})


def committed(broker: BrokerProcess, partition: TopicPartition) -> int | None:
    with reader(broker, partition.topic) as consumer:
        found = consumer.committed(partition)[partition]
        return None if found is None else found.offset


def test_what_is_committed_is_there_again(broker: BrokerProcess, new_topic: Topics) -> None:
    first, second = create(broker, topic := new_topic(), 2)
    with reader(broker, topic, enable_auto_commit=False) as consumer:
        consumer.assign([first, second])
        assert consumer.committed() == {first: None, second: None}
        consumer.commit({first: 3, second: OffsetAndMetadata(5, "a note", 0)})
        found = consumer.committed(first, second)
        assert found == {first: OffsetAndMetadata(3, "", -1), second: OffsetAndMetadata(5, "a note", 0)}
        consumer.commit({second: 1})
        assert consumer.committed(second)[second] == OffsetAndMetadata(1)
        with pytest.raises(ValueError, match="an offset is 0 or more"):
            consumer.commit({first: -1})
        with pytest.raises(OffsetMetadataTooLarge):
            consumer.commit({first: OffsetAndMetadata(4, "x" * 10_000)})
    assert committed(broker, first) == 3


def test_positions_are_committed_by_default(broker: BrokerProcess, new_topic: Topics) -> None:
    """In a loop over records: up to and with the one in hand."""
    first, second = create(broker, topic := new_topic(), 2)
    write(broker, topic, numbered(0, 20))
    with reader(broker, topic, enable_auto_commit=False) as consumer:
        consumer.assign([first])
        for record in consumer:
            if record.offset == 4:
                consumer.commit()
                break
        assert consumer.committed(first)[first] == OffsetAndMetadata(5, "", 0)
        read(consumer, 15)
        consumer.commit()
        assert consumer.committed(first)[first] == OffsetAndMetadata(20, "", 0)
    assert committed(broker, second) is None


def test_asynchronous_commits_in_order(broker: BrokerProcess, new_topic: Topics) -> None:
    """Callbacks come in poll(), one for each, in the order of the commits; the last offset is what stays."""
    (partition,) = create(broker, topic := new_topic())
    told: list[tuple[Mapping[TopicPartition, OffsetAndMetadata], Exception | None]] = []
    with reader(broker, topic, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        for offset in range(1, 21):
            consumer.commit_async({partition: offset}, lambda *ended: told.append(ended))
        consumer.commit({partition: 21})
        assert told == [], "nowhere but in poll()"
        poll_until(consumer, lambda: len(told) == 20, "all callbacks")
        assert [offsets[partition].offset for offsets, _ in told] == list(range(1, 21))
        assert {error for _, error in told} == {None}
        assert consumer.committed(partition)[partition] == OffsetAndMetadata(21)


def test_asynchronous_commits_are_told_before_the_end(broker: BrokerProcess, new_topic: Topics) -> None:
    (partition,) = create(broker, topic := new_topic())
    told: list[Any] = []
    with reader(broker, topic, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        consumer.commit_async({partition: 4}, lambda offsets, error: told.append((offsets, error)))
    assert told == [({partition: OffsetAndMetadata(4)}, None)]
    assert committed(broker, partition) == 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_automatic_commits_cover_what_earlier_polls_returned(
    broker: BrokerProcess, new_topic: Topics, protocol: str
) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 30))
    with reader(broker, topic, auto_commit_interval_ms=0, **PROTOCOLS[protocol]) as consumer:
        consumer.subscribe(topic)
        assert len(consumer.poll(PATIENCE_S, max_records=10)) == 10
        assert consumer.committed(partition)[partition] is None, "the first ten are not done with"
        assert len(consumer.poll(PATIENCE_S, max_records=10)) == 10
        eventually(lambda: committed(broker, partition) == 10, "the first ten are committed")
    assert committed(broker, partition) == 20, "close() commits what was handed out"


@pytest.mark.parametrize("way", ["poll", "iterate", "table"])
def test_a_with_block_that_ends_by_an_exception(broker: BrokerProcess, new_topic: Topics, way: str) -> None:
    """The records in hand are not committed, for they were not processed."""
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 30))

    def work() -> None:
        with reader(broker, topic) as consumer:
            consumer.subscribe(topic)
            process(consumer)

    def process(consumer: Consumer) -> None:
        if way == "iterate":
            for record in consumer:
                if record.offset == 15:
                    raise ZeroDivisionError
        take = consumer.read_table if way == "table" else consumer.poll
        seen = 0
        while seen < 20:
            seen += len(take(PATIENCE_S, max_records=10))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert committed(broker, partition) == (15 if way == "iterate" else 10)


def test_an_iteration_commits_at_its_end_what_was_handed_out(broker: BrokerProcess, new_topic: Topics) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 30))
    with reader(broker, topic) as consumer:
        consumer.subscribe(topic)
        for record in consumer:
            if record.offset == 15:
                break
    assert committed(broker, partition) == 16


def test_a_seek_back_is_committed(broker: BrokerProcess, new_topic: Topics) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 30))
    with reader(broker, topic) as consumer:
        consumer.subscribe(topic)
        read(consumer, 30)
        consumer.poll(0)
        consumer.seek(partition, 7)
    assert committed(broker, partition) == 7


class Witness(ConsumerInterceptor):
    def __init__(self) -> None:
        self.committed: list[int] = []

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed += [each.offset for each in offsets.values()]


def test_interceptors_see_every_commit_that_went_well(broker: BrokerProcess, new_topic: Topics) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 30))
    witness = Witness()
    with reader(broker, topic, interceptors=[witness], auto_commit_interval_ms=0) as consumer:
        consumer.subscribe(topic)
        consumer.poll(PATIENCE_S, max_records=10)
        consumer.commit({partition: 2})
        assert witness.committed == [2]
        consumer.commit_async({partition: 3})
        poll_until(consumer, lambda: 3 in witness.committed, "the asynchronous one")
        poll_until(consumer, lambda: 30 in witness.committed, "an automatic one")
        with pytest.raises(OffsetMetadataTooLarge):
            consumer.commit({partition: OffsetAndMetadata(4, "x" * 10_000)})
        assert 4 not in witness.committed


def test_committed_offsets_are_where_the_next_one_begins(broker: BrokerProcess, new_topic: Topics) -> None:
    partitions = create(broker, topic := new_topic(), 2)
    for index in range(2):
        write(broker, topic, numbered(0, 10), index)
    with reader(broker, topic, enable_auto_commit=False) as consumer:
        consumer.assign(partitions)
        consumer.commit({partitions[0]: 4})
    with reader(broker, topic, auto_offset_reset="latest") as consumer:
        consumer.subscribe(topic)
        assert values_of(read(consumer, 6)) == numbered(4, 6), "the other one has no offset, and begins at its end"
        assert consumer.position(partitions[1]) == 10
