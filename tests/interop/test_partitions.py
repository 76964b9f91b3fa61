"""The same key, the same partition, whether Kafka's Java producer, librdkafka or ours sends it.

`tests/golden/test_partitions.py` compares many more keys, and all byte values, with Kafka's own classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from oncelog.client.partitioner import partition_for_key
from oncelog.producer.producer import Producer
from tests.support import parts
from tests.support.confluent import create_topic, make_consumer, make_producer, poll, send
from tests.support.kafka import run_tool
from tests.support.keys import keys
from tests.support.process import BrokerProcess

Topics = Callable[[], str]

PARTITIONS = 7
SAMPLE_EVERY = 5
SEPARATOR = "\t"


def placed_by_us(sent: list[bytes]) -> dict[bytes, int]:
    return {key: partition_for_key(key, PARTITIONS) for key in sent}


def test_kafkas_java_producer(broker: BrokerProcess, new_topic: Topics) -> None:
    """The console producer sends text, one record a line."""
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    topic, sent = new_topic(), [key for key in keys() if is_text_of_one_line(key)]
    assert len(sent) > 4_000
    create_topic(broker, topic, partitions=PARTITIONS)
    lines = "".join(f"{key.decode()}{SEPARATOR}v\n" for key in sent)
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    options = ("parse.key=true", f"key.separator={SEPARATOR}")
    how = [argument for each in options for argument in ("--reader-property", each)]
    run_tool("org.apache.kafka.tools.ConsoleProducer", *where, *how, text_in=lines)
    assert found(broker, topic, len(sent)) == placed_by_us(sent)


def is_text_of_one_line(key: bytes) -> bool:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return False
    return text != "" and text.isprintable()


def found(broker: BrokerProcess, topic: str, count: int) -> dict[bytes, int]:
    consumer = make_consumer(broker, auto_offset_reset="earliest")
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        return {message.key(): message.partition() for message in poll(consumer, count)}
    finally:
        consumer.close()


@pytest.mark.parametrize("partitioner", ["murmur2", "murmur2_random"])
def test_librdkafka(broker: BrokerProcess, new_topic: Topics, partitioner: str) -> None:
    topic, sent = new_topic(), [b"", *keys()[::SAMPLE_EVERY]]
    create_topic(broker, topic, partitions=PARTITIONS)
    producer = make_producer(broker, partitioner=partitioner)
    delivered = send(producer, topic, ({"key": key, "value": b"v"} for key in sent))
    assert {message.key(): message.partition() for message in delivered} == placed_by_us(sent)


def test_ours(broker: BrokerProcess, new_topic: Topics) -> None:
    """The producer's whole path, on every key there is."""
    topic, sent = new_topic(), keys()
    create_topic(broker, topic, partitions=PARTITIONS)
    with Producer(broker.bootstrap) as producer:
        futures = [(key, producer.send(topic, b"v", key=key)) for key in sent]
        producer.flush()
    assert {key: future.result().partition for key, future in futures} == placed_by_us(sent)


@pytest.mark.parametrize("partitioner", ["consistent", "consistent_random", "fnv1a", "fnv1a_random"])
def test_librdkafkas_other_partitioners(broker: BrokerProcess, new_topic: Topics, partitioner: str) -> None:
    """confluent-kafka's default is `consistent_random`: whoever comes from there says so, and every key stays where it
    was, sent one by one or in a table."""
    topic, sent = new_topic(), keys()[::SAMPLE_EVERY]
    create_topic(broker, topic, partitions=PARTITIONS)
    theirs = send(make_producer(broker, partitioner=partitioner), topic, ({"key": key, "value": b"v"} for key in sent))
    table = pa.table({"key": pa.array(sent, pa.binary()), "value": pa.array([b"v"] * len(sent), pa.binary())})
    with Producer(broker.bootstrap, partitioner=partitioner) as producer:
        ours = {key: producer.send(topic, b"v", key=key) for key in sent}
        stored = producer.send_table(topic, table).result(timeout=60)
        assert producer.flush(60) == 0
    placed = {message.key(): message.partition() for message in theirs}
    assert {key: future.result().partition for key, future in ours.items()} == placed
    counts = Counter(placed[key] for key in sent)
    assert {one.partition: one.row_count for one in stored.partitions} == dict(counts)


@pytest.mark.parametrize("partitioner", ["consistent", "fnv1a"])
def test_librdkafkas_partition_of_no_key(broker: BrokerProcess, new_topic: Topics, partitioner: str) -> None:
    topic = new_topic()
    create_topic(broker, topic, partitions=PARTITIONS)
    (theirs,) = send(make_producer(broker, partitioner=partitioner), topic, [{"key": b"", "value": b"v"}])
    with Producer(broker.bootstrap, partitioner=partitioner) as producer:
        ours = [producer.send(topic, b"v", key=key).result(timeout=60).partition for key in (None, b"")]
    assert ours == [theirs.partition()] * 2
