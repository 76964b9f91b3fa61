"""`Consumer` as a member of a group: both protocols, every strategy; who comes, goes, is late or comes back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer  # type: ignore[import-untyped]
from kafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]

from oncelog.client.consumer_errors import CommitFailed, MaxPollExceeded, NotAssigned, SubscriptionConflict
from oncelog.consumer.consumer import Consumer
from oncelog.errors import FencedInstanceId
from oncelog.types import TopicPartition
from tests.consumer.scene import (
    KINDS,
    PROTOCOLS,
    STRATEGIES,
    Topics,
    create,
    join,
    numbered,
    poll_until,
    read,
    values_of,
    write,
)
from tests.support.confluent import make_consumer
from tests.support.groups import heartbeat_request
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

pytestmark = pytest.mark.on_both_brokers
PARTITIONS = 4

Make = Callable[..., Consumer]


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


@pytest.fixture
def member(broker: BrokerProcess) -> Iterator[Make]:
    """Members that are closed at the end, in the order in which they came."""
    made: list[Consumer] = []

    def make(topic: str, **settings: Any) -> Consumer:
        fast = {"fetch_max_wait_ms": 100, "metadata_max_age_ms": 500, "auto_offset_reset": "earliest"}
        made.append(Consumer(broker.bootstrap, group_id=f"group-of-{topic}", **{**fast, **settings}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def shares(*consumers: Consumer) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


# --- joining --------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("how", ["compiled", "text"])
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


# --- callbacks ------------------------------------------------------------------------------------------------------


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


# --- who is late, or comes back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_does_not_poll(broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str) -> None:
    """It leaves, others read on, its late commit fails; it hears what it lost, and joins again with the next poll."""
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 10))
    settings = {"enable_auto_commit": False, **PROTOCOLS[protocol]}
    late = member(topic, max_poll_interval_ms=1_000, **settings)
    other = member(topic, **settings)
    journal = Journal()
    late.subscribe(topic, **journal.callbacks())
    assert len(late.poll(PATIENCE_S)) == 10
    other.subscribe(topic)
    assert len(read(other, 10)) == 10
    with pytest.raises(CommitFailed, match=r"poll\(\)"):
        late.commit()
    with pytest.raises(MaxPollExceeded, match=r"max.poll.interval.ms \(1000\)"):
        late.commit({partition: 10})
    assert journal.told == [("assigned", [partition])], "callbacks run in poll() alone"
    other.commit({partition: 5})
    other.close()
    assert values_of(read(late, 5)) == numbered(5, 5)
    assert journal.told[1:] == [("lost", [partition]), ("assigned", [partition])]
    late.commit()
    assert late.committed(partition)[partition] == (10, "", 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whoever_waits_or_iterates_is_not_late(
    broker: BrokerProcess, new_topic: Topics, member: Make, protocol: str
) -> None:
    create(broker, topic := new_topic())
    consumer = member(topic, max_poll_interval_ms=500, fetch_max_wait_ms=5_000, **PROTOCOLS[protocol])
    journal = Journal()
    consumer.subscribe(topic, **journal.callbacks())
    join(consumer, 1)
    assert consumer.poll(2) == []
    write(broker, topic, numbered(0, 20))
    for record in consumer:
        time.sleep(0.1)  # all of them together take longer than max.poll.interval.ms
        if record.value == b"19":
            break
    assert journal.of("lost") == []


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


# --- together with other clients ------------------------------------------------------------------------------------


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
    foreign = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=f"group-of-{topic}",
        auto_offset_reset="earliest",
        partition_assignment_strategy=[RangePartitionAssignor],
        heartbeat_interval_ms=300,
    )
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
