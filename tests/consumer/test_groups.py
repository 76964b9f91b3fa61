"""`Consumer` as a member of a group: what it subscribes to, and whom it shares with; both protocols, every strategy."""

from __future__ import annotations

import re

import pytest

from oncelog.client.consumer_errors import SubscriptionConflict
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
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import await_leaders

pytestmark = pytest.mark.on_both_brokers
PARTITIONS = 4


@pytest.mark.parametrize("kind", KINDS)
def test_members_share_come_and_go(broker: BrokerProcess, new_topic: Topics, member: Make, kind: str) -> None:
    """Each record is read once, by whoever owns its partition at the time."""
    create(broker, topic := new_topic(), PARTITIONS)
    seen: list[bytes] = []

    def settle(*expected: int, members: list[Consumer]) -> None:
        seen.extend(values_of(poll_until(members, lambda: shares(*members) == [*expected], f"shares {expected}")))

    def spread(first: int) -> list[bytes]:
        return [value for index in range(PARTITIONS) for value in write(broker, topic, numbered(first, 10), index)]

    def read_all(count: int, members: list[Consumer]) -> None:
        def are_read() -> bool:
            for consumer in members:
                seen.extend(values_of(consumer.poll(0.02)))
            return len(seen) >= count

        eventually(are_read, f"{count} records")

    first = member(topic, **KINDS[kind])
    first.subscribe(topic)
    settle(4, members=[first])
    written = spread(0)
    read_all(40, [first])
    second = member(topic, **KINDS[kind])
    second.subscribe([topic])
    settle(2, 2, members=[first, second])
    assert not first.assignment() & second.assignment()
    written += spread(100)
    read_all(80, [first, second])
    second.close()
    settle(4, members=[first])
    written += spread(200)
    read_all(120, [first])
    assert sorted(seen) == sorted(written), "every record once"
    assert first.group_metadata().group_id == f"group-of-{topic}"
    assert first.group_metadata().member_id


@pytest.mark.parametrize(("protocol", "how"), [("classic", "compiled"), ("classic", "text"), ("consumer", "text")])
def test_patterns(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str, how: str) -> None:
    """Topics that match, also those that are created later; others, and internal ones, are left alone."""
    create(broker, topic := new_topic(), 2)
    create(broker, f"other-{topic}")
    consumer = member(topic, **PROTOCOLS[protocol])
    pattern = f"^{re.escape(topic)}.*" if how == "text" else re.compile(f"{re.escape(topic)}.*")
    consumer.subscribe(pattern)
    assert consumer.subscription() == re.compile(pattern)
    join(consumer, 2)
    later = create(broker, f"{topic}-later", 3)
    join(consumer, 5)
    assert consumer.assignment() >= set(later)
    write(broker, f"{topic}-later", [b"there"], 1)
    assert values_of(read(consumer, 1)) == [b"there"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_subscription_changes(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str) -> None:
    first, second = new_topic(), new_topic()
    for topic in (first, second):
        create(broker, topic, 2)
    consumer = member(first, **PROTOCOLS[protocol])
    journal = Journal()
    consumer.subscribe([first], **journal.callbacks())
    join(consumer, 2)
    consumer.subscribe([first, second], **journal.callbacks())
    join(consumer, 4)
    consumer.subscribe([second], **journal.callbacks())
    poll_until(consumer, lambda: {one.topic for one in consumer.assignment()} == {second}, "only the second topic")
    assert consumer.subscription() == {second}
    consumer.unsubscribe()
    assert (consumer.assignment(), consumer.subscription()) == (frozenset(), frozenset())
    assert {one for partitions in journal.of("revoked") for one in partitions} == {
        TopicPartition(topic, index) for topic in (first, second) for index in range(2)
    }
    assert journal.of("lost") == []
    consumer.assign([(first, 0)])
    write(broker, first, [b"by hand"])
    assert values_of(read(consumer, 1)) == [b"by hand"]
    with pytest.raises(SubscriptionConflict, match="unsubscribe"):
        consumer.subscribe(first)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_created_later(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str) -> None:
    create(broker, topic := new_topic())
    missing = f"{topic}-missing"
    consumer = member(topic, allow_auto_create_topics=False, **PROTOCOLS[protocol])
    consumer.subscribe([topic, missing])
    join(consumer, 1)
    create(broker, missing, 2)
    join(consumer, 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_that_are_added(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str) -> None:
    create(broker, topic := new_topic())
    consumer = member(topic, **PROTOCOLS[protocol])
    consumer.subscribe(topic)
    join(consumer, 1)
    with RawClient(broker.address) as client:
        wanted = {"name": topic, "count": 3, "assignments": None}
        client.request("create_partitions", 3, {"topics": [wanted], "timeout": 60_000})
        await_leaders(client, topic, 3)
    seen = join(consumer, 3)
    write(broker, topic, [b"new"], 2)
    assert values_of(seen + read(consumer, 1)) == [b"new"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_deleted_under_its_reader(
    broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str
) -> None:
    """It is given up, and the group goes on with the others."""
    create(broker, topic := new_topic())
    create(broker, doomed := new_topic(), 2)
    settings = {"allow_auto_create_topics": False, **PROTOCOLS[protocol]}
    consumer = member(topic, **settings)
    consumer.subscribe([topic, doomed])
    join(consumer, 3)
    with RawClient(broker.address) as client:
        client.request("delete_topics", 6, {"topics": [{"name": doomed}], "timeout": 60_000})
    said: list[Exception] = []

    def is_given_up() -> bool:
        try:
            consumer.poll(0.05)
        except Exception as error:
            said.append(error)
        return len(consumer.assignment()) == 1

    eventually(is_given_up, "the deleted topic is given up")
    assert len(said) <= 1, "said at most once"
    write(broker, topic, [b"goes on"])
    assert values_of(read(consumer, 1)) == [b"goes on"]
