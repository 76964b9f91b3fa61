"""The shortest conversation that has everything: two transactions of a real client, one committed and one aborted."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Message, Producer, TopicPartition

from tests.support.confluent import TIMEOUT_S, make_consumer
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import create_topic


def test_a_committed_reader_sees_what_was_committed(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    with RawClient(oncelog_broker.address) as client:
        create_topic(client, topic)
    producer = Producer({"bootstrap.servers": oncelog_broker.bootstrap, "transactional.id": f"smoke-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    for number, end in enumerate((producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        for value in (b"a", b"b"):
            producer.produce(topic, value + b"%d" % number)
        producer.flush(TIMEOUT_S)  # an abort would throw away what was not sent yet
        end(TIMEOUT_S)
    assert read(oncelog_broker, topic, "read_committed", 2) == [b"a1", b"b1"]
    assert sorted(read(oncelog_broker, topic, "read_uncommitted", 4)) == [b"a0", b"a1", b"b0", b"b1"]


def read(broker: BrokerProcess, topic: str, isolation_level: str, count: int) -> list[bytes]:
    consumer = make_consumer(broker, isolation_level=isolation_level)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Message] = []

    def has_all() -> bool:
        found.extend(consumer.consume(count, 0.1))
        return len(found) >= count

    try:
        eventually(has_all, f"{count} records")
    finally:
        consumer.close()
    return [message.value() or b"" for message in found]
