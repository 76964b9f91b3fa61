"""Members that are late, come back, are expelled or fenced: each hears what it needs, and the group goes on."""

from __future__ import annotations

import pytest

from oncelog.client.consumer_errors import CommitFailed, MaxPollExceeded, NotAssigned
from oncelog.consumer.consumer import Consumer
from oncelog.errors import FencedInstanceId
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
from tests.support.groups import heartbeat_request
from tests.support.patience import PATIENCE_S
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

pytestmark = pytest.mark.on_both_brokers
PARTITIONS = 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_does_not_poll(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str) -> None:
    """It leaves, others read on, its late commit fails; it hears what it lost, and joins again with the next poll."""
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 10))
    settings = {"enable_auto_commit": False, **PROTOCOLS[protocol]}
    late = member(topic, max_poll_interval_ms=10_000, **settings)
    other = member(topic, **settings)
    journal = Journal()
    late.subscribe(topic, **journal.callbacks())
    assert len(late.poll(PATIENCE_S)) == 10
    other.subscribe(topic)
    assert len(read(other, 10)) == 10
    with pytest.raises(CommitFailed, match=r"poll\(\)"):
        late.commit()
    with pytest.raises(MaxPollExceeded, match=r"max.poll.interval.ms \(10000\)"):
        late.commit({partition: 10})
    assert journal.told == [("assigned", [partition])], "callbacks run in poll() alone"
    other.commit({partition: 5})
    other.close()
    assert values_of(read(late, 5)) == numbered(5, 5)
    assert journal.told[1:] == [("lost", [partition]), ("assigned", [partition])]
    late.commit()
    assert late.committed(partition)[partition] == (10, "", 0)


def test_each_record_of_an_iteration_shows_that_its_user_is_alive(
    broker: BrokerProcess, new_topic: Topics, member: Make
) -> None:
    """The core takes another record in hand for a sign of life, as tests/client/test_consumer_core.py shows."""
    create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 10))
    consumer = member(topic)
    consumer.subscribe(topic)
    signs = []
    for record in consumer:
        signs.append(consumer._core.in_hand)
        assert signs[-1] is record
        if record.value == b"9":
            break
    assert values_of(signs) == numbered(0, 10)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_static_members_keep_their_partitions(
    broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str
) -> None:
    create(broker, topic := new_topic(), PARTITIONS)
    staying = member(topic, group_instance_id="staying", **PROTOCOLS[protocol])
    leaving = member(topic, group_instance_id="leaving", **PROTOCOLS[protocol])
    journal = Journal()
    staying.subscribe(topic, **journal.callbacks())
    leaving.subscribe(topic)
    poll_until([staying, leaving], lambda: shares(staying, leaving) == [2, 2], "shared")
    poll_until([staying, leaving], lambda: journal.owned == staying.assignment(), "told")
    before, told = leaving.assignment(), list(journal.told)
    leaving.close()
    back = member(topic, group_instance_id="leaving", **PROTOCOLS[protocol])
    back.subscribe(topic)
    poll_until([staying, back], lambda: len(back.assignment()) == 2, "back")
    assert back.assignment() == before
    assert journal.told == told, "the others heard nothing of it"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_was_expelled(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str) -> None:
    """It hears what it lost, and is a new member soon; what it had read and not committed comes again."""
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 10))
    consumer = member(topic, enable_auto_commit=False, **PROTOCOLS[protocol])
    journal = Journal()
    consumer.subscribe(topic, **journal.callbacks())
    read(consumer, 10)
    expel(broker, consumer)
    assert values_of(read(consumer, 10)) == numbered(0, 10)
    assert journal.told == [("assigned", [partition]), ("lost", [partition]), ("assigned", [partition])]
    consumer.commit()


def expel(broker: BrokerProcess, consumer: Consumer) -> None:
    """Somebody leaves in its name."""
    group, _, member_id, _ = consumer.group_metadata()
    with RawClient(broker.address) as client:
        if consumer.config.uses_kip848:
            said = heartbeat_request(group, member_id, -1)
            answer = client.request("consumer_group_heartbeat", 1, said)
        else:
            answer = client.request("leave_group", 5, {"group_id": group, "members": [{"member_id": member_id}]})
    assert answer["error_code"] == 0, answer


def test_a_member_whose_instance_id_another_one_took(broker: BrokerProcess, new_topic: Topics, member: Make) -> None:
    """The older one hears it, and ends; the group goes on with the newer."""
    create(broker, topic := new_topic())
    older = member(topic, group_instance_id="the-one", **PROTOCOLS["classic"])
    older.subscribe(topic)
    join(older, 1)
    newer = member(topic, group_instance_id="the-one", **PROTOCOLS["classic"])
    newer.subscribe(topic)
    join(newer, 1)
    with pytest.raises(FencedInstanceId):
        poll_until(older, lambda: False, "an error")
    write(broker, topic, [b"1"])
    assert values_of(read(newer, 1)) == [b"1"]


@pytest.mark.parametrize("kind", ["range", "cooperative-sticky"])
def test_a_rebalance_that_is_asked_for(broker: BrokerProcess, new_topic: Topics, member: Make, kind: str) -> None:
    create(broker, topic := new_topic(), 2)
    consumer = member(topic, **KINDS[kind])
    consumer.subscribe(topic)
    join(consumer, 2)
    generation = consumer.group_metadata().generation_id
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: consumer.group_metadata().generation_id > generation, "a new generation")
    join(consumer, 2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_for_partitions_of_others(
    broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str
) -> None:
    first, second = create(broker, topic := new_topic(), 2)
    one, two = member(topic, **PROTOCOLS[protocol]), member(topic, **PROTOCOLS[protocol])
    for consumer in (one, two):
        consumer.subscribe(topic)
    poll_until([one, two], lambda: shares(one, two) == [1, 1], "shared")
    foreign = next(iter(two.assignment()))
    with pytest.raises(NotAssigned):
        one.seek(foreign, 0)
    outsider = member(topic, **PROTOCOLS[protocol])
    with pytest.raises(Exception, match=r"member|UNKNOWN_MEMBER_ID|too late"):
        outsider.commit({first: 1, second: 1})
