"""`Producer` with a broker process of its own, which the test stops, restarts or configures."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from oncelog.client.producer_errors import DeliveryTimedOut
from oncelog.errors import UnknownTopicOrPartition
from oncelog.producer.producer import Producer
from tests.support.broker import OncelogBroker
from tests.support.confluent import create_topic, read
from tests.support.patience import PATIENCE_S, once_heard


def test_a_missing_topic_where_nobody_creates_any(tmp_path: Path) -> None:
    with OncelogBroker(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        create_topic(broker, "orders")
        with Producer(broker.bootstrap, max_block_ms=500) as producer:
            before = once_heard(lambda: producer.send("orders", b"1"))
            began = time.monotonic()
            with pytest.raises(UnknownTopicOrPartition, match=r"'missing' does not exist.*create it first"):
                once_heard(lambda: producer.send("missing", b""))
            assert time.monotonic() - began >= 0.5
            assert before.result(PATIENCE_S).offset == 0
            assert producer.send("orders", b"2").result(PATIENCE_S).offset == 1


def test_a_broker_that_stops_answering(tmp_path: Path) -> None:
    """What was sent may be written, what was not is not: the errors say which, and the broker agrees."""
    times = {"delivery_timeout_ms": 12_000, "request_timeout_ms": 6_000, "linger_ms": 0}
    with OncelogBroker(tmp_path) as broker:
        create_topic(broker, "orders")
        with Producer(broker.bootstrap, max_in_flight_requests_per_connection=1, batch_size=0, **times) as producer:
            producer.send("orders", b"before").result(PATIENCE_S)
            broker.pause()
            futures = [producer.send("orders", b"%d" % number) for number in range(3)]
            errors = [future.exception(PATIENCE_S) for future in futures]
            broker.resume()
            assert all(isinstance(error, DeliveryTimedOut) for error in errors)
            assert [error.may_be_written for error in errors if isinstance(error, DeliveryTimedOut)] == [
                True, False, False,
            ]  # fmt: skip
            assert "a broker may have stored them, but none confirmed it" in str(errors[0])
            after = producer.send("orders", b"after").result(PATIENCE_S)
        stored = [message.value() for message in read(broker, "orders", after.offset + 1)]
    assert stored in ([b"before", b"0", b"after"], [b"before", b"after"])


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_broker_that_restarts(tmp_path: Path, is_killed: bool) -> None:
    with OncelogBroker(tmp_path) as broker:
        create_topic(broker, "orders")
        with Producer(broker.bootstrap, linger_ms=0, batch_size=100) as producer:
            futures = [producer.send("orders", b"%d" % number) for number in range(200)]
            futures[0].result(PATIENCE_S)
            _ = broker.kill() if is_killed else broker.stop()
            futures += [producer.send("orders", b"%d" % number) for number in range(200, 400)]
            broker.start()
            offsets = [future.result(PATIENCE_S).offset for future in futures]
        assert offsets == list(range(400))
        assert [message.value() for message in read(broker, "orders", 400)] == [b"%d" % n for n in range(400)]
