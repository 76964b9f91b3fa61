"""Servers that are killed in the middle of a transaction and come back: nothing is lost, nothing is done twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog import once
from tests.once.fake_consumer import FakeConsumer
from tests.once.shop import NAMES, PARTITION, Shop, expected, orders, strategy
from tests.support import parts
from tests.support.postgres import PostgresServer
from tests.support.redis import RedisServer


@pytest.fixture(scope="module")
def doomed_postgres() -> Iterator[PostgresServer]:
    parts.required(parts.postgres)
    with PostgresServer() as server:
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_postgres_is_killed_in_mid_transaction_and_comes_back(name: str, doomed_postgres: PostgresServer) -> None:
    server, kills = doomed_postgres, []
    shop = Shop(server.url, f"outage_{name.replace(' ', '_')}_")
    shop.build()
    records, starting = orders(5), []

    def effect(connection: Any, record: Any) -> None:
        shop.book(connection, record)
        if record.offset == 1 and not kills:
            kills.append(1)
            server.kill()
            starting.append(threading.Thread(target=server.start))
            starting[0].start()  # it is back after a while, during which the runner has to wait

    consumer = FakeConsumer({PARTITION: records})
    consumer.poll = _polling_slowly(consumer.poll)  # type: ignore[method-assign]
    runner = once.Runner(consumer, shop.open(), effect, topics=["orders"], strategy=strategy(name), attempts=1)
    tally = runner.run(max_records=len(records))
    starting[0].join()
    assert tally.done == len(expected(name, records))
    assert shop.booked() == expected(name, records)


def _polling_slowly(poll: Any) -> Any:
    """As a real consumer does: it waits if there is nothing to read."""

    def slow(timeout: float, **options: Any) -> Any:
        return poll(timeout, **options) or threading.Event().wait(timeout) or []

    return slow


def test_redis_is_killed_with_all_its_leases_and_comes_back(tmp_path: Any) -> None:
    parts.required(parts.redis_server)
    shop = Shop(str(tmp_path / "shop.db"))
    shop.build()
    with RedisServer() as server:
        leases = once.RedisLeases(server.client())
        kills: list[int] = []

        def effect(connection: Any, record: Any) -> None:
            shop.book(connection, record)
            if not kills:
                kills.append(1)
                server.kill()
                server.start()

        consumer = FakeConsumer({PARTITION: orders(4)})
        runner = once.Runner(
            consumer, shop.open(), effect, topics=["orders"], strategy=once.Token(leases=leases), batch_size=2
        )
        assert runner.run(max_records=4).done == 4
    assert shop.booked() == [0, 1, 2, 3]


def test_redis_that_is_away_is_waited_for(tmp_path: Any) -> None:
    parts.required(parts.redis_server)
    shop = Shop(str(tmp_path / "shop.db"))
    shop.build()
    with RedisServer() as server:
        leases = once.RedisLeases(server.client())
        server.kill()
        consumer = FakeConsumer({PARTITION: orders(2)})
        consumer.plan.append(lambda: None)
        runner = once.Runner(consumer, shop.open(), shop.book, topics=["orders"], strategy=once.Token(leases=leases))
        back = threading.Thread(target=server.start)
        back.start()
        assert runner.run(max_records=2).done == 2
        back.join()
    assert shop.booked() == [0, 1]
