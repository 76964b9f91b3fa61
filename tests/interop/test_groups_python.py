"""Groups of kafka-python and aiokafka, which speak older versions of the classic protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition

from tests.support.confluent import create_topic, make_producer, send
from tests.support.kafka_python import group_member
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess

Topics = Callable[[], str]

PARTITIONS = 4
COUNT = 20


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Topics) -> str:
    name = new_topic()
    create_topic(broker, name, partitions=PARTITIONS)
    return name


def write(broker: BrokerProcess, topic: str, count: int = COUNT) -> None:
    send(make_producer(broker), topic, ({"value": b"%d" % n, "partition": n % PARTITIONS} for n in range(count)))


def kafka_python(broker: BrokerProcess, topic: str) -> KafkaConsumer:
    return group_member(broker.bootstrap, topic, f"group-of-{topic}", enable_auto_commit=False)


@pytest.mark.on_both_brokers
def test_kafka_python(broker: BrokerProcess, topic: str) -> None:
    read: list[bytes] = []

    def poll(*consumers: KafkaConsumer) -> None:
        for consumer in consumers:
            for records in consumer.poll(timeout_ms=100).values():
                read.extend(record.value for record in records)

    def shared(*consumers: KafkaConsumer) -> bool:
        poll(*consumers)
        return {len(consumer.assignment()) for consumer in consumers} == {PARTITIONS // len(consumers)}

    write(broker, topic)
    with closing(kafka_python(broker, topic)) as first:
        eventually(lambda: shared(first) and len(read) == COUNT, "all is read")
        first.commit()
        assert first.committed(TopicPartition(topic, 1)) == COUNT // PARTITIONS
        with closing(kafka_python(broker, topic)) as second:
            eventually(lambda: shared(first, second), "the members share")
            here = sorted(second.assignment())[0]
            second.commit({here: OffsetAndMetadata(2, "note", -1)})
        eventually(lambda: shared(first), "what a member leaves comes back")
    read.clear()  # the first may have begun to read again what was taken back, without committing it
    with closing(kafka_python(broker, topic)) as later:
        eventually(lambda: shared(later) and len(read) == 3, "only what was taken back is read again")


@pytest.mark.on_both_brokers
def test_kafka_pythons_admin(broker: BrokerProcess, topic: str) -> None:
    group = f"group-of-{topic}"
    write(broker, topic)
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        with closing(kafka_python(broker, topic)) as member:
            eventually(lambda: bool(member.poll(timeout_ms=100)), "something is read")
            member.commit()
            described = admin.describe_groups([group])[group]
            assert described["group_state"] == "Stable"
            assert len(described["members"]) == 1
            assert group in {each["group_id"] for each in admin.list_groups()}
        offsets = admin.list_group_offsets(group)[group]
        assert any(each.offset > 0 for each in offsets.values())
        admin.delete_groups([group])
        assert group not in {each["group_id"] for each in admin.list_groups()}


@pytest.mark.on_both_brokers
def test_aiokafka(broker: BrokerProcess, topic: str) -> None:
    read: list[bytes] = []

    async def member() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        consumer.subscribe([topic])
        await consumer.start()
        return consumer

    async def until(condition: Callable[[], bool], *consumers: AIOKafkaConsumer) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                for consumer in consumers:
                    for records in (await consumer.getmany(timeout_ms=50)).values():
                        read.extend(record.value for record in records)

    def shared(*consumers: AIOKafkaConsumer) -> bool:
        return {len(consumer.assignment()) for consumer in consumers} == {PARTITIONS // len(consumers)}

    async def run() -> None:
        first = await member()
        await until(lambda: len(read) == COUNT, first)
        await first.commit()
        second = await member()
        await until(lambda: shared(first, second), first, second)
        await second.stop()
        await until(lambda: shared(first), first)
        await first.stop()
        later = await member()
        await until(lambda: shared(later), later)
        assert await later.committed(next(iter(later.assignment()))) == COUNT // PARTITIONS
        await later.stop()

    write(broker, topic)
    asyncio.run(run())
    assert len(read) == COUNT, "nothing is read again"
