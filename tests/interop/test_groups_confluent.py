"""Groups of confluent-kafka (librdkafka): both protocols, every assignor, static members; who dies, comes back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions

from tests.support.broker import OncelogBroker
from tests.support.confluent import TIMEOUT_S, create_topic, make_admin, make_consumer, make_producer, send
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess

Topics = Callable[[], str]

PARTITIONS = 4
COUNT = 40
KINDS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 300},
    "roundrobin": {"partition_assignment_strategy": "roundrobin", "heartbeat_interval_ms": 300},
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 300},
    "consumer": {"group_protocol": "consumer"},
    "consumer-range": {"group_protocol": "consumer", "group_remote_assignor": "range"},
}


class Members:
    """Consumers of one group, polled in turn as their application would; what they read is kept."""

    def __init__(self, broker: BrokerProcess, topic: str, **config: Any) -> None:
        self._broker = broker
        self.topic = topic
        self._config = {"group_id": f"group-of-{topic}", "auto_offset_reset": "earliest", **config}
        self.running: list[Consumer] = []
        self.read: list[bytes] = []

    def add(self, **config: Any) -> Consumer:
        consumer = make_consumer(self._broker, **{**self._config, **config})
        consumer.subscribe([self.topic])
        self.running.append(consumer)
        return consumer

    def close(self, consumer: Consumer) -> None:
        self.running.remove(consumer)
        consumer.close()

    def poll(self) -> None:
        for consumer in self.running:
            message = consumer.poll(0.02)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            self.read.append(message.value())

    def shares(self) -> list[int]:
        return sorted(len(consumer.assignment()) for consumer in self.running)

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        def polled() -> bool:
            self.poll()
            return condition()

        eventually(polled, what)

    def await_shares(self, *shares: int) -> None:
        self.poll_until(lambda: self.shares() == sorted(shares), f"partitions shared as {shares}, not {self.shares()}")

    def await_read(self, count: int) -> None:
        self.poll_until(lambda: len(self.read) >= count, f"{count} records, not {len(self.read)}")


@pytest.fixture
def group_of(broker: BrokerProcess, new_topic: Topics) -> Iterator[Callable[..., Members]]:
    made: list[Members] = []

    def make(**config: Any) -> Members:
        topic = new_topic()
        create_topic(broker, topic, partitions=PARTITIONS)
        made.append(Members(broker, topic, **config))
        return made[-1]

    yield make
    for members in made:
        for consumer in list(members.running):
            members.close(consumer)


def write(broker: BrokerProcess, topic: str, first: int = 0, count: int = COUNT) -> list[bytes]:
    values = [b"%d" % n for n in range(first, first + count)]
    send(make_producer(broker), topic, ({"value": value, "partition": int(value) % PARTITIONS} for value in values))
    return values


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("kind", KINDS)
def test_members_share_come_and_go(broker: BrokerProcess, group_of: Callable[..., Members], kind: str) -> None:
    """Partitions are shared, move to a new member and back when it leaves; each record is read once, with commits."""
    members = group_of(**KINDS[kind])
    first = members.add()
    members.await_shares(PARTITIONS)
    written = write(broker, members.topic)
    members.await_read(COUNT)
    first.commit(asynchronous=False)
    second = members.add()
    members.await_shares(2, 2)
    assert not {*first.assignment()} & {*second.assignment()}
    written += write(broker, members.topic, COUNT)
    members.await_read(2 * COUNT)
    for consumer in (first, second):
        consumer.commit(asynchronous=False)
    members.close(second)
    members.await_shares(PARTITIONS)
    written += write(broker, members.topic, 2 * COUNT)
    members.await_read(3 * COUNT)
    first.commit(asynchronous=False)
    committed = first.committed([TopicPartition(members.topic, n) for n in range(PARTITIONS)], TIMEOUT_S)
    assert [each.offset for each in committed] == [3 * COUNT // PARTITIONS] * PARTITIONS
    assert sorted(members.read) == sorted(written), "every record once"


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("kind", ["range", "consumer"])
def test_offsets_outlive_the_members(broker: BrokerProcess, group_of: Callable[..., Members], kind: str) -> None:
    members = group_of(**KINDS[kind])
    first = members.add()
    write(broker, members.topic)
    members.await_read(COUNT)
    first.commit(asynchronous=False)
    members.close(first)
    members.add()
    new = write(broker, members.topic, COUNT, 4)
    members.await_read(COUNT + 4)
    assert sorted(members.read[COUNT:]) == sorted(new), "nothing is read again"


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("kind", ["range", "consumer"])
def test_static_members_keep_their_partitions(
    broker: BrokerProcess, group_of: Callable[..., Members], kind: str
) -> None:
    """A member that comes back under its instance id takes up where it was, and the others hear nothing of it."""
    members = group_of(**KINDS[kind])
    staying = members.add(group_instance_id="staying")
    leaving = members.add(group_instance_id="leaving")
    members.await_shares(2, 2)
    kept, before = set(map(str, staying.assignment())), set(map(str, leaving.assignment()))
    members.close(leaving)
    back = members.add(group_instance_id="leaving")
    members.await_shares(2, 2)
    assert set(map(str, back.assignment())) == before
    assert set(map(str, staying.assignment())) == kept


@pytest.mark.parametrize("kind", ["range", "consumer"])
def test_a_pattern_finds_topics_that_come_later(
    broker: BrokerProcess, group_of: Callable[..., Members], kind: str
) -> None:
    members = group_of(topic_metadata_refresh_interval_ms=200, **KINDS[kind])
    consumer = members.add()
    consumer.unsubscribe()
    consumer.subscribe([f"^{members.topic}.*"])
    members.await_shares(PARTITIONS)
    create_topic(broker, f"{members.topic}-later", partitions=2)
    members.await_shares(PARTITIONS + 2)


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("kind", ["range", "consumer"])
def test_partitions_that_are_added_are_assigned(
    broker: BrokerProcess, group_of: Callable[..., Members], kind: str
) -> None:
    members = group_of(topic_metadata_refresh_interval_ms=200, **KINDS[kind])
    members.add()
    members.await_shares(PARTITIONS)
    admin = make_admin(broker)
    for future in admin.create_partitions([NewPartitions(members.topic, PARTITIONS + 3)]).values():
        future.result(TIMEOUT_S)
    members.await_shares(PARTITIONS + 3)


@pytest.mark.on_both_brokers
def test_the_admin_client(broker: BrokerProcess, group_of: Callable[..., Members]) -> None:
    members = group_of()
    consumer = members.add(client_id="the-member")
    members.await_shares(PARTITIONS)
    write(broker, members.topic)
    members.await_read(COUNT)
    consumer.commit(asynchronous=False)
    admin, group = make_admin(broker), f"group-of-{members.topic}"
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    (member,) = described.members
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    assert (member.client_id, len(member.assignment.topic_partitions)) == ("the-member", PARTITIONS)
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(TIMEOUT_S).valid
    assert group in {each.group_id for each in listed}
    with pytest.raises(KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    members.close(consumer)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(members.topic, 0, 3)])
    admin.alter_consumer_group_offsets([wanted])[group].result(TIMEOUT_S)
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(TIMEOUT_S)
    assert {each.partition: each.offset for each in offsets.topic_partitions} == {0: 3, 1: 10, 2: 10, 3: 10}
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert group not in {each.group_id for each in admin.list_consumer_groups().result(TIMEOUT_S).valid}


# --- members and brokers that die ---

MORTAL = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic, *settings = sys.argv[1:]
config = dict(each.split("=") for each in settings)
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **config})
consumer.subscribe([topic], on_assign=lambda _, partitions: print("assigned", len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""
AT_ONCE = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
SHORT_SESSIONS = {
    **AT_ONCE,
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that may be killed, and that notices soon when others are."""
    with OncelogBroker(tmp_path, SHORT_SESSIONS) as broker:
        yield broker


@pytest.mark.parametrize("kind", ["range", "consumer"])
def test_the_partitions_of_a_killed_member_move(own_broker: BrokerProcess, kind: str) -> None:
    create_topic(own_broker, "orders", partitions=PARTITIONS)
    config = {**KINDS[kind], **({"session_timeout_ms": 2_000} if kind == "range" else {})}
    members = Members(own_broker, "orders", **config)
    survivor = members.add()
    members.await_shares(PARTITIONS)
    settings = [f"{key.replace('_', '.')}={value}" for key, value in config.items()]
    command = [sys.executable, "-c", MORTAL, own_broker.bootstrap, "group-of-orders", "orders", *settings]
    mortal = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        members.await_shares(2)
    finally:
        mortal.kill()
        mortal.wait()
        assert mortal.stdout is not None
        mortal.stdout.close()
    members.await_shares(PARTITIONS)
    members.close(survivor)


@pytest.mark.parametrize("kind", ["range", "consumer"])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_group_goes_on_when_its_broker_restarts(tmp_path: Path, kind: str, how: str) -> None:
    """Members, generation and offsets are there again; nothing is read twice, nothing is missed."""
    with OncelogBroker(tmp_path, AT_ONCE) as broker:
        _go_on_after_a_restart(broker, kind, how)


def _go_on_after_a_restart(own_broker: BrokerProcess, kind: str, how: str) -> None:
    create_topic(own_broker, "orders", partitions=PARTITIONS)
    members = Members(own_broker, "orders", **KINDS[kind], reconnect_backoff_max_ms=200)
    first, second = members.add(), members.add()
    members.await_shares(2, 2)
    written = write(own_broker, "orders")
    members.await_read(COUNT)
    for consumer in (first, second):
        consumer.commit(asynchronous=False)
    getattr(own_broker, how)()
    own_broker.start()
    written += write(own_broker, "orders", COUNT)
    members.await_read(2 * COUNT)
    for consumer in (first, second):
        _commit_patiently(members, consumer)
    assert sorted(members.read) == sorted(written), "every record once"
    committed = first.committed([TopicPartition("orders", n) for n in range(PARTITIONS)], TIMEOUT_S)
    assert [each.offset for each in committed] == [2 * COUNT // PARTITIONS] * PARTITIONS
    for consumer in (first, second):
        members.close(consumer)


def _commit_patiently(members: Members, consumer: Consumer) -> None:
    """The member may have to find out first that its coordinator was away."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.commit(asynchronous=False)
            return
        except KafkaException:
            assert time.monotonic() < deadline
            members.poll()
