"""kafka-python: producer, consumer with partitions assigned by hand, admin client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
from kafka import codec as kafka_codec
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.support.confluent import create_topic
from tests.support.confluent import read as read_with_confluent
from tests.support.process import BrokerProcess

Topics = Callable[[], str]

READ_TIMEOUT_S = 60
CODECS = {
    None: True,
    "gzip": kafka_codec.has_gzip(),
    "snappy": kafka_codec.has_snappy(),
    "lz4": kafka_codec.has_lz4(),
    "zstd": kafka_codec.has_zstd(),
}


def read(broker: BrokerProcess, topic: str, count: int, offset: int = 0) -> list[Any]:
    here = TopicPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)) as consumer:
        consumer.assign([here])
        consumer.seek(here, offset)
        records: list[Any] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while len(records) < count and time.monotonic() < deadline:
            records += consumer.poll(timeout_ms=200).get(here, [])
        return records


@pytest.mark.parametrize("codec", [name for name, supported in CODECS.items() if supported])
@pytest.mark.parametrize("idempotent", [False, True])
def test_produce_and_read(broker: BrokerProcess, new_topic: Topics, codec: str | None, idempotent: bool) -> None:
    topic, count = new_topic(), 500
    create_topic(broker, topic)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        acks="all",
        compression_type=codec,
        enable_idempotence=idempotent,
        linger_ms=5,
    )
    with closing(producer):
        futures = [
            producer.send(
                topic, key=b"%d" % n, value=b"value %d" % n, headers=[("n", b"%d" % n)], timestamp_ms=1000 + n
            )
            for n in range(count)
        ]
        producer.flush(timeout=READ_TIMEOUT_S)
        assert [future.get(timeout=READ_TIMEOUT_S).offset for future in futures] == list(range(count))
    records = read(broker, topic, count)
    assert [(r.offset, r.key, r.value, r.timestamp, list(r.headers)) for r in records] == [
        (n, b"%d" % n, b"value %d" % n, 1000 + n, [("n", b"%d" % n)]) for n in range(count)
    ]
    messages = read_with_confluent(broker, topic, count)
    assert [message.value() for message in messages] == [record.value for record in records]


def test_offsets(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    here = TopicPartition(topic, 0)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        for n in range(5):
            producer.send(topic, b"v", timestamp_ms=1_000_000 + 1_000 * n).get(timeout=READ_TIMEOUT_S)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)) as consumer:
        assert consumer.beginning_offsets([here]) == {here: 0}
        assert consumer.end_offsets([here]) == {here: 5}
        found = consumer.offsets_for_times({here: 1_002_500})[here]
        assert (found.offset, found.timestamp) == (3, 1_003_000)
    assert [record.offset for record in read(broker, topic, 2, offset=3)] == [3, 4]


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


def test_topics(admin: KafkaAdminClient, new_topic: Topics) -> None:
    topic = new_topic()
    wanted = {topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "60000"}}}
    admin.create_topics(wanted, wait_for_metadata=True)
    assert topic in admin.list_topics()
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(wanted)
    admin.create_partitions({topic: 4})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    admin.delete_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_configs(admin: KafkaAdminClient, broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    change = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": (AlterConfigOp.SET, "12345")})
    admin.alter_configs([change])
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert "12345" in str(described)


def test_the_cluster_and_its_logs(admin: KafkaAdminClient, broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    here = TopicPartition(topic, 0)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)) as producer:
        for _ in range(4):
            producer.send(topic, b"v").get(timeout=READ_TIMEOUT_S)
    assert [each["port"] for each in admin.describe_cluster()["brokers"]] == [broker.port]
    assert admin.list_partition_offsets({here: OffsetSpec.LATEST})[here].offset == 4
    assert len(admin.describe_producers([here])[here].active_producers) == 1
    admin.delete_records({here: 3})
    assert admin.list_partition_offsets({here: OffsetSpec.EARLIEST})[here].offset == 3
    assert topic in str(admin.describe_log_dirs())
