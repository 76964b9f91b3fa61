"""Every strategy is killed after every statement it makes, and each message is delivered three times: effects once.

For every statement: a first process is killed there, a second one, which finds what the first has left, is killed
there as well, and then two threads race to deliver everything a third time. Tables are created under the same regime
once for each database; elsewhere they are there before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.once.crashing import Helper, Job, race, work
from tests.once.shop import NAMES, Shop, expected, orders
from tests.support.postgres import PostgresServer
from tests.support.redis import RedisServer
from tests.support.sizes import IS_SOAK

RECORDS = orders(3 if IS_SOAK else 2)
MOST_STATEMENTS = 60
FEWEST_STATEMENTS = 10
CREATES_TABLES = "message table"


def effects_happen_once_wherever_it_is_killed(helper: Helper, job: Job, shop_for: Callable[[int], Shop]) -> None:
    for kill_at in range(1, MOST_STATEMENTS):
        shop = shop_for(kill_at)
        shop.build()
        whole = replace(job, shop=shop)
        if job.strategy != CREATES_TABLES:
            work(replace(whole, records=[]))
        doomed = replace(whole, kill_at=kill_at)
        first = helper.run(doomed)
        helper.run(doomed)
        race(whole, whole)
        assert shop.booked() == expected(job.strategy, job.records), f"killed at statement {kill_at}"
        if first == [True]:
            assert kill_at > FEWEST_STATEMENTS, "statements were not counted"
            return
    raise AssertionError(f"more than {MOST_STATEMENTS} statements for {len(job.records)} records")


def shop_of(name: str, number: int, url: str) -> Shop:
    """Tables of its own where they are created under fire, otherwise a scope of its own."""
    prefix = f"{name.replace(' ', '_')}_"
    return Shop(url, f"{prefix}{number}_") if name == CREATES_TABLES else Shop(url, prefix, f"shop {number}")


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_any_statement_on_sqlite(name: str, tmp_path: Path, helper: Helper) -> None:
    job = Job(Shop(""), name, RECORDS)
    effects_happen_once_wherever_it_is_killed(
        helper, job, lambda number: shop_of(name, number, str(tmp_path / "shop.db"))
    )


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_any_statement_on_postgres(name: str, postgres: PostgresServer, helper: Helper) -> None:
    job = Job(Shop(""), name, RECORDS)
    effects_happen_once_wherever_it_is_killed(helper, job, lambda number: shop_of(name, number, postgres.url))


def test_killed_at_any_statement_with_leases_on_redis(
    tmp_path: Path, redis_server: RedisServer, helper: Helper
) -> None:
    job = Job(Shop(""), "redis token", RECORDS, redis_server.port)
    effects_happen_once_wherever_it_is_killed(
        helper, job, lambda number: shop_of("redis", number, str(tmp_path / "shop.db"))
    )


def test_killed_at_any_statement_with_leases_on_redis_and_effects_on_postgres(
    postgres: PostgresServer, redis_server: RedisServer, helper: Helper
) -> None:
    job = Job(Shop(""), "redis token", RECORDS, redis_server.port)
    effects_happen_once_wherever_it_is_killed(helper, job, lambda number: shop_of("redis", number, postgres.url))
