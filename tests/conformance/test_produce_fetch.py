"""What goes in comes out: records through confluent-kafka, on every broker, in every codec and shape."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from tests.support.batches import CODECS, read_batches
from tests.support.confluent import create_topic, make_consumer, make_producer, poll, read, send
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import LATEST, fetch, list_offset

Topics = Callable[[], str]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_returns_the_same_records(broker: BrokerProcess, new_topic: Topics, codec: str) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    values = [f"record {n} ".encode() * (n % 50) for n in range(1_000)]
    producer = make_producer(broker, compression_type=codec, enable_idempotence=True, linger_ms=20)
    send(producer, topic, ({"key": f"key-{n}", "value": value} for n, value in enumerate(values)))

    messages = read(broker, topic, len(values))
    assert [message.value() for message in messages] == values
    assert [message.key() for message in messages] == [f"key-{n}".encode() for n in range(len(values))]
    assert [message.offset() for message in messages] == list(range(len(values)))


@pytest.mark.parametrize("codec", CODECS)
def test_batches_stay_compressed_as_sent(broker: BrokerProcess, new_topic: Topics, codec: str) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    producer = make_producer(broker, compression_type=codec, linger_ms=50)
    send(producer, topic, ({"value": b"the same again and again"} for _ in range(500)))
    with RawClient(broker.address) as client:
        batches = read_batches(fetch(client, topic)["records"])
    # librdkafka leaves a batch alone that compression would not make smaller, as a first batch of one record.
    assert max(batches, key=lambda batch: batch.record_count).codec == CODECS[codec]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(broker: BrokerProcess, new_topic: Topics, acks: str) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    delivered = send(make_producer(broker, acks=acks), topic, ({"value": b"%d" % n} for n in range(20)))
    assert [message.value() for message in read(broker, topic, 20)] == [b"%d" % n for n in range(20)]
    if acks != "0":
        assert [message.offset() for message in delivered] == list(range(20))


def test_keys_values_and_headers_of_every_shape(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    sent = [
        {"key": None, "value": None, "headers": None},
        {"key": b"", "value": b"", "headers": []},
        {"key": b"\x00\xff", "value": bytes(range(256)), "headers": [("a", b"1"), ("a", b"2"), ("a", None)]},
        {
            "key": "ключ".encode(),
            "value": "значение 🎯".encode(),
            "headers": [("заголовок", "значение".encode()), ("", b"")],
        },
        {"key": b"k", "value": b"v", "headers": [(f"h{n}", os.urandom(20)) for n in range(100)]},
    ]
    send(make_producer(broker), topic, sent)
    for message, expected in zip(read(broker, topic, len(sent)), sent, strict=True):
        assert message.key() == expected["key"]
        assert message.value() == expected["value"]
        assert (message.headers() or []) == (expected["headers"] or [])


def test_partitions_are_independent_logs(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic, partitions=4)
    producer = make_producer(broker, enable_idempotence=True)
    send(producer, topic, ({"value": b"%d" % n, "partition": n % 4} for n in range(400)))
    for partition in range(4):
        messages = read(broker, topic, 100, partition=partition)
        assert [int(message.value()) for message in messages] == list(range(partition, 400, 4))
        assert [message.offset() for message in messages] == list(range(100))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_message_just_below_the_limit(broker: BrokerProcess, new_topic: Topics, codec: str) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    value = os.urandom(999_000)
    send(make_producer(broker, compression_type=codec), topic, [{"value": value}])
    assert read(broker, topic, 1)[0].value() == value


def test_a_large_message_where_the_topic_allows_it(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic, configs={"max.message.bytes": "20000000"})
    value = os.urandom(12_000_000)
    send(make_producer(broker, message_max_bytes=20_000_000), topic, [{"value": value}, {"value": b"small"}])
    messages = read(broker, topic, 2, fetch_max_bytes=21_000_000, receive_message_max_bytes=22_000_000)
    assert [message.value() for message in messages] == [value, b"small"]


def test_a_large_message_is_delivered_to_a_small_fetch(broker: BrokerProcess, new_topic: Topics) -> None:
    """The first batch is handed out whole even when it exceeds the reader's limits, or it could never be read."""
    topic = new_topic()
    create_topic(broker, topic)
    value = os.urandom(500_000)
    send(make_producer(broker), topic, [{"value": value}, {"value": b"next"}])
    messages = read(broker, topic, 2, max_partition_fetch_bytes=1_000)
    assert [message.value() for message in messages] == [value, b"next"]


def test_a_message_over_the_topics_limit_is_refused(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    producer = make_producer(broker, message_max_bytes=20_000_000)
    with pytest.raises(KafkaException) as refused:
        send(producer, topic, [{"value": bytes(2_000_000)}])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    with RawClient(broker.address) as client:
        assert list_offset(client, topic, LATEST)["offset"] == 0


def test_reading_starts_where_asked(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    producer = make_producer(broker, linger_ms=0, batch_num_messages=7)
    send(producer, topic, ({"value": b"%d" % n} for n in range(100)))
    for offset in (0, 1, 6, 7, 50, 99):
        messages = read(broker, topic, 100 - offset, offset=offset)
        assert [int(message.value()) for message in messages] == list(range(offset, 100))


def test_an_offset_out_of_range(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    send(make_producer(broker), topic, [{"value": b"only"}])
    with pytest.raises(KafkaException) as refused:
        read(broker, topic, 1, offset=100, auto_offset_reset="error")
    assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in refused.value.args[0].str().lower()
    assert read(broker, topic, 1, offset=100, auto_offset_reset="earliest")[0].value() == b"only"


def test_a_reader_at_the_end_gets_what_arrives_later(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    producer = make_producer(broker)
    send(producer, topic, [{"value": b"before"}])
    consumer = make_consumer(broker, enable_partition_eof=True)
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        reached_end = consumer.poll(60)
        assert reached_end.error().code() == KafkaError._PARTITION_EOF
        assert reached_end.offset() == 1
        send(producer, topic, [{"value": b"after"}])
        assert [message.value() for message in poll(consumer, 1)] == [b"after"]
    finally:
        consumer.close()


def test_one_reader_of_many_partitions_and_topics(broker: BrokerProcess, new_topic: Topics) -> None:
    topics = [new_topic() for _ in range(3)]
    producer = make_producer(broker)
    for topic in topics:
        create_topic(broker, topic, partitions=3)
        send(producer, topic, ({"value": b"%d" % n, "partition": n % 3} for n in range(30)))
    consumer = make_consumer(broker)
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for topic in topics for p in range(3)])
        messages = poll(consumer, 90)
        seen = {(message.topic(), message.partition(), message.offset()) for message in messages}
        assert seen == {(topic, p, offset) for topic in topics for p in range(3) for offset in range(10)}
    finally:
        consumer.close()


def test_pause_resume_and_seek(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    send(make_producer(broker), topic, ({"value": b"%d" % n} for n in range(10)))
    consumer = make_consumer(broker)
    try:
        here = TopicPartition(topic, 0, 0)
        consumer.assign([here])
        assert [int(message.value()) for message in poll(consumer, 10)] == list(range(10))
        consumer.seek(TopicPartition(topic, 0, 4))
        assert [int(message.value()) for message in poll(consumer, 6)] == list(range(4, 10))
        consumer.pause([here])
        consumer.seek(TopicPartition(topic, 0, 8))
        assert consumer.poll(0.3) is None
        consumer.resume([here])
        assert [int(message.value()) for message in poll(consumer, 2)] == [8, 9]
    finally:
        consumer.close()


def test_sending_to_an_unknown_topic_creates_it(broker: BrokerProcess, new_topic: Topics) -> None:
    """`auto.create.topics.enable` is true by default, as in Kafka."""
    topic = new_topic()
    delivered = send(make_producer(broker), topic, [{"value": b"first"}])
    assert [(message.partition(), message.offset()) for message in delivered] == [(0, 0)]
    assert read(broker, topic, 1)[0].value() == b"first"


def test_a_partition_that_does_not_exist(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    with pytest.raises(KafkaException) as refused:
        send(make_producer(broker), topic, [{"value": b"v", "partition": 7}])
    assert refused.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


def test_many_requests_in_flight_keep_their_order(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    producer = make_producer(
        broker, enable_idempotence=True, max_in_flight_requests_per_connection=5, linger_ms=0, batch_num_messages=3
    )
    send(producer, topic, ({"value": b"%d" % n} for n in range(3_000)))
    assert [int(message.value()) for message in read(broker, topic, 3_000)] == list(range(3_000))
