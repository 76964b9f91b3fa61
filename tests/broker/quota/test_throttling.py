"""Throttling by a running broker: what outlives a kill, what is cut off, what is counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.admin import Admin
from tests.broker.support import MetricsPage, await_that
from tests.support.batches import make_batch
from tests.support.broker import OncelogBroker
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient
from tests.support.requests import create_topic, fetch_request, list_offset, produce_request

LATEST = -1
LIMIT = 100_000
IDLE_MS = 3_000
CLIENT = {"client-id": "raw"}  # what RawClient calls itself
ABOVE = make_batch([bytes(300_000)])
"""A second above the limit, which two seconds' worth are not."""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with OncelogBroker(tmp_path / "broker", {"quota.window.num": "3", "metrics.port": "0"}) as broker:
        yield broker


def limit(broker: BrokerProcess, **limits: float) -> None:
    with Admin(broker.bootstrap, client_id="operator") as admin:
        admin.alter_client_quotas(CLIENT, assign=limits)


def produce(client: RawClient, topic: str) -> Message:
    answer = client.request("produce", 9, produce_request(topic, ABOVE))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return answer


def test_quotas_outlive_a_kill(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.address) as client:
        create_topic(client, "orders")
    limit(own_broker, producer_byte_rate=LIMIT)
    own_broker.kill()
    own_broker.start()
    with Admin(own_broker.bootstrap) as admin:
        (quota,) = admin.describe_client_quotas()
    assert (quota.entity, quota.limits) == (CLIENT, {"producer_byte_rate": LIMIT})
    with RawClient(own_broker.address) as client:
        assert produce(client, "orders")["throttle_time"] >= 1000


def test_a_muted_connection_is_not_idle(tmp_path: Path) -> None:
    """Its pause is longer than connections.max.idle.ms, and what it sent meanwhile is answered."""
    settings = {"quota.window.num": "8", "connections.max.idle.ms": str(IDLE_MS)}
    with OncelogBroker(tmp_path / "broker", settings) as broker:
        limit(broker, producer_byte_rate=LIMIT // 8)
        with RawClient(broker.address) as client:
            create_topic(client, "orders")
            assert produce(client, "orders")["throttle_time"] > 2 * IDLE_MS
            waiting = client.send("metadata", 12, {"topics": []})
            client.receive("metadata", 12, waiting)


def test_pauses_are_counted(own_broker: BrokerProcess) -> None:
    page = MetricsPage(own_broker)
    with RawClient(own_broker.address) as client:
        create_topic(client, "orders")
        limit(own_broker, producer_byte_rate=LIMIT)
        throttle_ms = produce(client, "orders")["throttle_time"]
    assert page.value("oncelog_throttles_total", quota="producer_byte_rate") == 1
    assert page.value("oncelog_throttle_time_ms_total", quota="producer_byte_rate") == throttle_ms
    assert page.value("oncelog_quota_rates") == 1


def test_requests_that_came_together_are_all_done(own_broker: BrokerProcess) -> None:
    """The first mutes the connection while the others are read already: they wait in the own_broker, in order."""
    small = make_batch([b"small"])
    with RawClient(own_broker.address) as client:
        create_topic(client, "orders")
        limit(own_broker, producer_byte_rate=LIMIT)
        sent = [client.send("produce", 9, produce_request("orders", batch)) for batch in (ABOVE, small, small)]
        answers = [client.receive("produce", 9, each) for each in sent]
    offsets = [answer["responses"][0]["partition_responses"][0]["base_offset"] for answer in answers]
    assert offsets == [0, 1, 2]


def test_a_client_that_leaves_while_it_is_muted(own_broker: BrokerProcess) -> None:
    page = MetricsPage(own_broker)
    with RawClient(own_broker.address) as client:
        create_topic(client, "orders")
        limit(own_broker, producer_byte_rate=LIMIT)
        produce(client, "orders")
        client.send("produce", 9, produce_request("orders", ABOVE))
    await_that(lambda: page.connections == 0, "the broker lets the connection go")
    assert "Traceback" not in own_broker.log
    limit(own_broker, producer_byte_rate=10**9)
    with RawClient(own_broker.address) as client:
        assert list_offset(client, "orders", LATEST)["error_code"] == 0


def test_a_fetch_that_waits_mutes_when_it_ends(own_broker: BrokerProcess) -> None:
    """The records come with another client's request; the reader's connection is muted from then on."""
    page = MetricsPage(own_broker)
    with RawClient(own_broker.address) as reader, RawClient(own_broker.address) as writer:
        create_topic(writer, "orders")
        limit(own_broker, consumer_byte_rate=LIMIT)
        fetching = reader.send("fetch", 12, fetch_request("orders", 0, max_wait=300_000))
        await_that(lambda: page.waiting_fetches == 1, "the fetch waits")
        began = time.monotonic()
        writer.request("produce", 9, produce_request("orders", ABOVE))
        answer = reader.receive("fetch", 12, fetching)
        # The first records after silence are sent, though they are above the limit alone.
        assert answer["responses"][0]["partitions"][0]["records"]
        assert answer["throttle_time"] >= 1000
        waiting = reader.send("metadata", 12, {"topics": []})
        reader.receive("metadata", 12, waiting)
        assert time.monotonic() - began >= 1


def test_removing_the_quota_ends_measuring(own_broker: BrokerProcess) -> None:
    page = MetricsPage(own_broker)
    with RawClient(own_broker.address) as client:
        create_topic(client, "orders")
        limit(own_broker, producer_byte_rate=10**9)
        produce(client, "orders")
        assert page.value("oncelog_quota_rates") == 1
        with Admin(own_broker.bootstrap, client_id="operator") as admin:
            admin.alter_client_quotas(CLIENT, remove=["producer_byte_rate"])
        assert page.value("oncelog_quota_rates") == 0
        assert produce(client, "orders")["throttle_time"] == 0


def test_a_users_limit_holds_for_all_of_its_clients(own_broker: BrokerProcess) -> None:
    """Without authentication there is one user."""
    with RawClient(own_broker.address) as client, Admin(own_broker.bootstrap, client_id="operator") as admin:
        create_topic(client, "orders")
        admin.alter_client_quotas({"user": "ANONYMOUS"}, assign={"producer_byte_rate": LIMIT})
        admin.alter_client_quotas(CLIENT, assign={"producer_byte_rate": 10**9})
        assert produce(client, "orders")["throttle_time"] >= 1000
