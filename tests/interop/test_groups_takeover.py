"""A data folder changes hands between Apache Kafka and oncelog: groups and offsets go on, whoever wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.support import parts
from tests.support.broker import OncelogBroker
from tests.support.confluent import TIMEOUT_S, create_topic, make_consumer, make_producer, poll, send
from tests.support.groups import await_coordinator
from tests.support.kafka import KafkaBroker
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

pytestmark = pytest.mark.kafka

TOPIC = "orders"
GROUPS = {"classic-group": "classic", "consumer-group": "consumer"}
SETTINGS = {
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture(autouse=True)
def jars() -> None:
    parts.required(parts.java)
    parts.required(parts.kafka_libs)


def read_and_commit(broker: BrokerProcess, group: str, count: int) -> list[int]:
    """What a member of the group reads next, committed before it leaves."""
    consumer = make_consumer(broker, group_id=group, group_protocol=GROUPS[group], auto_offset_reset="earliest")
    try:
        consumer.subscribe([TOPIC])
        values = [int(message.value()) for message in poll(consumer, count)]
        consumer.commit(asynchronous=False)
        return values
    finally:
        consumer.close()


def commit_in_transactions(kafka: BrokerProcess) -> None:
    """One that commits its offset, and one that takes it back."""
    for offset, end in ((5, Producer.commit_transaction), (9, Producer.abort_transaction)):
        producer = make_producer(kafka, transactional_id=f"transaction-{offset}")
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        member = make_consumer(kafka, group_id="transactional-group")
        here = TopicPartition(TOPIC, 0, offset)
        producer.send_offsets_to_transaction([here], member.consumer_group_metadata(), TIMEOUT_S)
        end(producer, TIMEOUT_S)
        member.close()


def committed(broker: BrokerProcess, group: str) -> int:
    with RawClient(broker.address) as client:
        await_coordinator(client, group)
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        wanted = {"groups": [{"group_id": group, "topics": topics}], "require_stable": False}
        (answer,) = client.request("offset_fetch", 8, wanted)["groups"]
    assert answer["error_code"] == 0, answer
    return int(answer["topics"][0]["partitions"][0]["committed_offset"])


def states(broker: BrokerProcess) -> dict[str, tuple[str, str]]:
    with RawClient(broker.address) as client:
        await_coordinator(client, "any")
        groups = client.request("list_groups", 5, {})["groups"]
    return {each["group_id"]: (each["group_type"], each["group_state"]) for each in groups}


def write(broker: BrokerProcess, numbers: range) -> None:
    send(make_producer(broker), TOPIC, ({"value": b"%d" % n} for n in numbers))


def go_on(broker: BrokerProcess, first: int) -> None:
    write(broker, range(first, first + 10))
    for group in GROUPS:
        assert committed(broker, group) == first
        assert read_and_commit(broker, group, 10) == list(range(first, first + 10)), "neither again nor later"


def test_groups_move_from_kafka_to_oncelog_and_back(tmp_path: Path) -> None:
    kafka = KafkaBroker(tmp_path / "kafka", {**SETTINGS, "offsets.topic.num.partitions": "3"})
    with kafka:
        create_topic(kafka, TOPIC)
        write(kafka, range(10))
        for group in GROUPS:
            assert read_and_commit(kafka, group, 10) == list(range(10))
        commit_in_transactions(kafka)
        expected = states(kafka)
    oncelog = OncelogBroker(tmp_path / "oncelog", SETTINGS)
    oncelog.data_dir = kafka.data_dir
    with oncelog:
        eventually(lambda: states(oncelog) == expected, f"{expected}")
        # Kafka answers before it writes markers: those that it did not come to are written by whoever is next.
        eventually(lambda: committed(oncelog, "transactional-group") == 5, "the committed transaction's offset")
        go_on(oncelog, 10)
    with kafka:
        eventually(lambda: states(kafka) == expected, f"{expected}")
        assert committed(kafka, "transactional-group") == 5
        go_on(kafka, 20)
