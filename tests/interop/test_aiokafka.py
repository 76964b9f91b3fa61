"""aiokafka: idempotent producer, consumer with partitions assigned by hand, admin client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete

from tests.support.confluent import create_topic
from tests.support.process import BrokerProcess

Topics = Callable[[], str]

READ_TIMEOUT_S = 60


async def read(broker: BrokerProcess, topic: str, count: int, offset: int = 0) -> list[Any]:
    here = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
    await consumer.start()
    try:
        consumer.assign([here])
        consumer.seek(here, offset)
        return [await asyncio.wait_for(consumer.getone(), READ_TIMEOUT_S) for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_produce_and_read(broker: BrokerProcess, new_topic: Topics, codec: str | None, idempotent: bool) -> None:
    topic, count = new_topic(), 500
    create_topic(broker, topic)

    async def run() -> list[Any]:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, compression_type=codec, enable_idempotence=idempotent, linger_ms=5
        )
        await producer.start()
        try:
            sends = [
                await producer.send(
                    topic, b"value %d" % n, key=b"%d" % n, headers=[("n", b"%d" % n)], timestamp_ms=1000 + n
                )
                for n in range(count)
            ]
            delivered = await asyncio.wait_for(asyncio.gather(*sends), READ_TIMEOUT_S)
            assert [each.offset for each in delivered] == list(range(count))
        finally:
            await producer.stop()
        return await read(broker, topic, count)

    records = asyncio.run(run())
    assert [(r.offset, r.key, r.value, r.timestamp, r.headers) for r in records] == [
        (n, b"%d" % n, b"value %d" % n, 1000 + n, (("n", b"%d" % n),)) for n in range(count)
    ]


def test_offsets(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    here = TopicPartition(topic, 0)

    async def run() -> tuple[Any, ...]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
        await producer.start()
        await consumer.start()
        try:
            for n in range(5):
                await producer.send_and_wait(topic, b"v", timestamp_ms=1_000_000 + 1_000 * n)
            found = (await consumer.offsets_for_times({here: 1_002_500}))[here]
            ends = (await consumer.beginning_offsets([here]))[here], (await consumer.end_offsets([here]))[here]
            return ends, (found.offset, found.timestamp)
        finally:
            await consumer.stop()
            await producer.stop()

    assert asyncio.run(run()) == ((0, 5), (3, 1_003_000))


def test_administration(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "60000"})])
            assert topic in await admin.list_topics()
            await admin.create_partitions({topic: NewPartitions(3)})
            (described,) = await admin.describe_topics([topic])
            assert (described["error_code"], len(described["partitions"])) == (0, 3)
            await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=0)})
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(run())
