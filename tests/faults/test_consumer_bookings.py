"""From the first `send()` to the rows of a database, through everything that can be killed: each order is booked once.

Orders are sent by an idempotent producer through a proxy that loses answers and cuts connections. A group of
`once.Runner`s books them, each a process of its own that is killed (SIGKILL) at some moment and replaced; the broker is
killed as well. And a runner that was paused with orders in hand while others took over wakes up and books none of them.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from oncelog.broker.process import Broker
from oncelog.faults import FaultProxy, Rule
from tests.faults.group_books import Chronicle
from tests.faults.group_lives import Lives
from tests.faults.group_scene import GROUP, PARTITIONS, PROTOCOLS, TOPIC, WAIT_S, Load, short_sessions
from tests.support import parts
from tests.support.patience import eventually
from tests.support.postgres import PostgresServer

MEMBER_KILLS = 3
BROKER_KILLS = 2
ORDERS_PER_KILL = 40
RULES = [
    Rule.drop_response("Produce", probability=0.03),
    Rule.cut("Produce", probability=0.02),
    Rule.drop_response("Fetch", "OffsetCommit", "Heartbeat", "ConsumerGroupHeartbeat", probability=0.01),
]
COLUMNS = "kafka_partition INTEGER NOT NULL, number INTEGER NOT NULL, booked_by TEXT NOT NULL"
COMMITTED = "SELECT kafka_partition, number, booked_by FROM bookings"


class Shop:
    """A table of bookings that allows any number of the same; what is in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = create_engine(url if "://" in url else f"sqlite:///{url}")
        with self._engine.begin() as connection:
            connection.execute(text(f"CREATE TABLE bookings ({COLUMNS})"))

    def booked(self) -> list[tuple[int, int]]:
        with self._engine.connect() as connection:
            return [(partition, number) for partition, number, _ in connection.execute(text(COMMITTED))]

    def booked_by(self, name: str) -> set[tuple[int, int]]:
        with self._engine.connect() as connection:
            return {
                (partition, number) for partition, number, who in connection.execute(text(COMMITTED)) if who == name
            }

    def close(self) -> None:
        self._engine.dispose()


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Broker]:
    with short_sessions(tmp_path) as broker:
        yield broker


def await_bookings(shop: Shop, chronicle: Chronicle, orders: int) -> None:
    """At least so many different orders of each partition."""

    def are_there() -> bool:
        broken = chronicle.said("broke")
        assert not broken, broken
        return len(set(shop.booked())) >= orders * PARTITIONS

    eventually(are_there, f"{orders} orders of each partition", WAIT_S)


def everything_is_booked_once(shop: Shop, orders: int) -> None:
    assert sorted(shop.booked()) == [(index, number) for index in range(PARTITIONS) for number in range(orders)]


@pytest.fixture
def postgres_url() -> Iterator[str]:
    parts.required(parts.postgres)
    with PostgresServer() as server:
        yield server.url


def book_through_kills(
    victim: Broker, shop: Shop, tmp_path: Path, rng: random.Random, protocol: str, strategy: str
) -> None:
    with (
        closing(shop),
        FaultProxy(victim.bootstrap_servers, RULES, seed=rng.getrandbits(32)) as proxy,
        Lives(tmp_path, proxy.bootstrap_servers, TOPIC, group=GROUP, settings=PROTOCOLS[protocol]) as lives,
        Load(proxy.bootstrap_servers) as load,
    ):
        chronicle = Chronicle(lives.journal)
        order = {"database": shop.url, "strategy": strategy}
        bookers = [lives.start("booker", **order) for _ in range(2)]
        load.start()
        broker_dies_at = rng.sample(range(MEMBER_KILLS), BROKER_KILLS)
        for turn in range(MEMBER_KILLS):
            await_bookings(shop, chronicle, len(shop.booked()) // PARTITIONS + ORDERS_PER_KILL)
            time.sleep(rng.uniform(0, 0.1))
            lives.kill(bookers.pop(rng.randrange(2)))
            if turn in broker_dies_at:
                victim.kill()
                victim.start()
            bookers.append(lives.start("booker", **order))
        orders = load.end()
        await_bookings(shop, chronicle, orders)
        for booker in bookers:
            lives.signal(booker, signal.SIGTERM)
        eventually(lambda: len(chronicle.said("left")) == 2, "both have left", WAIT_S)
        everything_is_booked_once(shop, orders)
        assert proxy.report().total.dropped > 0


@pytest.mark.parametrize(("strategy", "protocol"), [("MessageTable", "classic"), ("DatabaseOffsets", "consumer")])
def test_orders_are_booked_once_whoever_is_killed(
    victim: Broker, tmp_path: Path, rng: random.Random, strategy: str, protocol: str
) -> None:
    shop = Shop(str(tmp_path / "shop.db"))
    book_through_kills(victim, shop, tmp_path, rng, protocol, strategy)


def test_orders_are_booked_once_in_postgresql(
    victim: Broker, tmp_path: Path, rng: random.Random, postgres_url: str
) -> None:
    book_through_kills(victim, Shop(postgres_url), tmp_path, rng, "classic", "DatabaseOffsets")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_zombie_books_nothing(victim: Broker, tmp_path: Path, protocol: str) -> None:
    servers = victim.bootstrap_servers
    shop = Shop(str(tmp_path / "shop.db"))
    with (
        closing(shop),
        Lives(tmp_path, servers, TOPIC, group=GROUP, settings=PROTOCOLS[protocol]) as lives,
        Load(servers) as load,
    ):
        chronicle = Chronicle(lives.journal)
        order = {"database": shop.url, "strategy": "DatabaseOffsets"}
        load.send(100)
        zombie = lives.start("booker", stop_at=40, **order)
        eventually(lambda: bool(chronicle.said("stopping", zombie)), "it stops", WAIT_S)
        before = shop.booked_by(zombie)
        heir = lives.start("booker", **order)
        await_bookings(shop, chronicle, 100)
        lives.signal(zombie, signal.SIGCONT)
        eventually(lambda: bool(chronicle.said("woken", zombie)), "it wakes up", WAIT_S)
        load.send(100)
        orders = load.end()
        await_bookings(shop, chronicle, orders)
        for booker in (zombie, heir):
            lives.signal(booker, signal.SIGTERM)
        eventually(lambda: len(chronicle.said("left")) == 2, "both have left", WAIT_S)
        everything_is_booked_once(shop, orders)
        in_hand = {(index, number) for index in range(PARTITIONS) for number in range(100)}
        assert shop.booked_by(zombie) & in_hand == before, "what it held when it stopped was another's by then"
