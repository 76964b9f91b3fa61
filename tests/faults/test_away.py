"""Brokers that cannot be reached, or accept connections and say nothing: each call with a limit keeps it, and says why.

Whether a call keeps its limit is seen by its return: one that does not would wait for ever, or for a minute.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import oncelog
from oncelog import TopicPartition, once
from oncelog.client.blocking import BrokersUnreachable, ConnectionLost
from oncelog.client.consumer_errors import ConsumerTimedOut
from oncelog.client.delivery import NotDeliveredYet
from oncelog.client.producer_errors import DeliveryTimedOut, TopicUnavailable
from oncelog.client.transaction_errors import OutcomeUnknown
from tests.support.ports import unused_port

SHORT_S = 0.3
ENOUGH_S = 30.0
"""Far below every limit that is not the call's own."""
FIRST = TopicPartition("t", 0)


@pytest.fixture(params=["nobody listens", "nobody answers"])
def away(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address where no broker is."""
    if request.param == "nobody listens":
        yield f"127.0.0.1:{unused_port()}"
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def in_time(call: Callable[[], Any]) -> Any:
    began = time.monotonic()
    try:
        return call()
    finally:
        assert time.monotonic() - began < ENOUGH_S


CONSUMER_CALLS: dict[str, Callable[[oncelog.Consumer], Any]] = {
    "position": lambda consumer: consumer.position(FIRST, timeout=SHORT_S),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets(FIRST, timeout=SHORT_S),
    "end_offsets": lambda consumer: consumer.end_offsets(FIRST, timeout=SHORT_S),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({FIRST: 5}, timeout=SHORT_S),
    "committed": lambda consumer: consumer.committed(FIRST, timeout=SHORT_S),
    "commit of nothing": lambda consumer: consumer.commit(timeout=SHORT_S),
    "commit": lambda consumer: consumer.commit({FIRST: 3}, timeout=SHORT_S),
}


def test_calls_of_a_consumer(away: str) -> None:
    with oncelog.Consumer(away, group_id="g") as consumer:
        consumer.assign([FIRST])
        for name, call in CONSUMER_CALLS.items():
            with pytest.raises(ConsumerTimedOut):
                in_time(lambda call=call: call(consumer))  # type: ignore[misc]
            assert not consumer.is_connected, name
        assert in_time(lambda: consumer.poll(SHORT_S)) == []
        assert in_time(lambda: consumer.read_table(SHORT_S)).num_rows == 0
        in_time(lambda: consumer.close(SHORT_S))
    with oncelog.Consumer(away, group_id="g") as consumer:
        consumer.subscribe(["t"])
        assert in_time(lambda: consumer.poll(SHORT_S)) == []
        with pytest.raises(ConsumerTimedOut, match="no broker can be reached within 300 ms"):
            in_time(lambda: consumer.commit(timeout=SHORT_S))
        in_time(lambda: consumer.close(SHORT_S))


def test_calls_of_a_producer(away: str) -> None:
    producer = oncelog.Producer(away, max_block_ms=300)
    with pytest.raises(TopicUnavailable):
        in_time(lambda: producer.send("t", b""))
    with pytest.raises(TopicUnavailable):
        in_time(lambda: producer.partitions_for("t"))
    in_time(lambda: producer.flush(SHORT_S))
    in_time(lambda: producer.close(SHORT_S))
    transactional = oncelog.Producer(away, transactional_id="x")
    with pytest.raises(OutcomeUnknown):
        in_time(lambda: transactional.init_transactions(SHORT_S))
    in_time(lambda: transactional.close(SHORT_S))


def test_calls_of_asyncio(away: str) -> None:
    async def use() -> None:
        async with oncelog.AsyncConsumer(away, group_id="g") as consumer:
            await consumer.assign([FIRST])
            with pytest.raises(ConsumerTimedOut):
                await consumer.commit(timeout=SHORT_S)
            with pytest.raises(ConsumerTimedOut):
                await consumer.position(FIRST, timeout=SHORT_S)
            assert await consumer.poll(SHORT_S) == []
            assert f"not connected (tries {away})" in repr(consumer)
            await consumer.close(SHORT_S)
        producer = oncelog.AsyncProducer(away, transactional_id="x")
        with pytest.raises(OutcomeUnknown):
            await producer.init_transactions(SHORT_S)
        assert f"not connected (tries {away})" in repr(producer)
        await producer.close(SHORT_S)

    in_time(lambda: asyncio.run(use()))


def test_calls_of_admin(away: str) -> None:
    with oncelog.Admin(away, default_api_timeout_ms=300) as admin:
        for call in (admin.list_topics, lambda: admin.create_topic("t"), admin.list_groups):
            with pytest.raises((BrokersUnreachable, ConnectionLost), match=away):
                in_time(call)
        assert repr(admin) == f"<Admin 'oncelog' not connected (tries {away})>"


def test_a_runner_until_it_is_idle(away: str, tmp_path: Any) -> None:
    with oncelog.Consumer(away, group_id="g", enable_auto_commit=False) as consumer:
        runner = once.Runner(consumer, tmp_path / "shop.db", lambda connection, record: None, topics=["t"])
        with pytest.raises(ConsumerTimedOut, match=r"no broker can be reached for 0\.3 s"):
            in_time(lambda: runner.run(until_idle=SHORT_S))
        runner.close()
        in_time(lambda: consumer.close(SHORT_S))


def test_processing_until_the_end(away: str) -> None:
    def process() -> None:
        oncelog.process(
            "t",
            list,
            "u",
            bootstrap_servers=away,
            group="g",
            transactional_id="x",
            until_end=True,
            consumer={"default_api_timeout_ms": 300},
            producer={"max_block_ms": 300},
        )

    with pytest.raises(OutcomeUnknown):
        in_time(process)


def test_every_client_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    away = f"127.0.0.1:{unused_port()}"
    with oncelog.Consumer(away, client_id="reader", group_id="g") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(1.0)
        consumer.close(0)
    with oncelog.Producer(away, client_id="writer", max_block_ms=1_000) as producer, pytest.raises(TopicUnavailable):
        producer.send("t", b"")
    for client in ("reader", "writer"):
        (told,) = [one.getMessage() for one in caplog.records if one.getMessage().startswith(f"{client}:")]
        assert f"broker {away} cannot be reached: Connection refused" in told
        assert "trying again in" in told


class TestABrokerThatGoesAway:
    """While clients are at work with it."""

    def test_its_clients_say_so_and_keep_their_limits(self, caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
        caplog.set_level(logging.WARNING)
        with oncelog.Broker(data_dir=tmp_path / "data") as broker:
            servers = broker.bootstrap_servers
            with oncelog.Admin(servers, default_api_timeout_ms=500) as admin:
                admin.create_topic("t", partitions=1)
                producer = oncelog.Producer(servers, delivery_timeout_ms=600, request_timeout_ms=300, linger_ms=0)
                producer.send("t", b"one").result(ENOUGH_S)
                assert repr(producer) == f"<Producer {producer.client_id!r} connected to {servers}>"
                consumer = oncelog.Consumer(
                    servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
                )
                runner = once.Runner(consumer, tmp_path / "shop.db", lambda connection, record: None, topics=["t"])
                assert runner.run(max_records=1).done == 1
                assert repr(consumer) == f"<Consumer {consumer.client_id!r} group 'g' connected to {servers}>"
                broker.kill()
                with pytest.raises(ConnectionLost):
                    in_time(admin.list_topics)
                with pytest.raises((DeliveryTimedOut, NotDeliveredYet)):
                    producer.send("t", b"two").result(ENOUGH_S)
                with pytest.raises(ConsumerTimedOut, match="no broker can be reached"):
                    in_time(lambda: runner.run(until_idle=1.0))
                in_time(lambda: producer.close(SHORT_S))
                in_time(lambda: consumer.close(SHORT_S))
                runner.close()
        for client in (producer.client_id, consumer.client_id):
            told = [one.getMessage() for one in caplog.records if one.getMessage().startswith(f"{client}: broker")]
            assert len(told) == 1, told
        assert repr(producer) == f"<Producer {producer.client_id!r} closed>"
