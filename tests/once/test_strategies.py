"""What each strategy promises, on SQLite (both ways in) and PostgreSQL; and what effects must not do."""

from __future__ import annotations

import sqlite3
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from oncelog import once
from oncelog.once.token import TOKENS
from oncelog.types import TopicPartition
from tests.once.crashing import Helper, Job
from tests.once.shop import NAMES, PARTITION, Order, Shop, engine_of, expected, orders, strategy
from tests.support.postgres import PostgresServer
from tests.support.redis import RedisServer

DONE, REPEATED, OUTDATED = once.Outcome.DONE, once.Outcome.REPEATED, once.Outcome.OUTDATED
_numbers = count(1)


@pytest.fixture(params=["path", "sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").url
    else:
        url = str(tmp_path / "shop.db") if request.param == "path" else f"sqlite:///{tmp_path / 'shop.db'}"
    made = Shop(url, f"strategy_{next(_numbers)}_")
    made.build()
    return made


def worker_of(shop: Shop, chosen: once.Strategy, effect: Any = None, scope: str = "billing") -> once.Worker:
    worker = once.Worker(shop.open(), effect or shop.book, chosen, scope=scope)
    worker.guard.claim([PARTITION])
    return worker


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_delivered_three_times_is_done_once(shop: Shop, name: str) -> None:
    records = orders(5)
    wanted = expected(name, records)
    worker = worker_of(shop, strategy(name))
    first = worker.process(records + records)
    assert [record.offset for record, each in zip(records, first[:5], strict=True) if each is DONE] == wanted
    assert DONE not in first[5:], "repeated within one batch"
    assert DONE not in worker_of(shop, strategy(name)).process(records)
    assert shop.booked() == wanted


@pytest.mark.parametrize("name", NAMES)
def test_an_effect_that_raises_leaves_no_trace(shop: Shop, name: str) -> None:
    def effect(connection: Any, record: Any) -> None:
        shop.book(connection, record)
        if record.offset == 1:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        worker_of(shop, strategy(name), effect).process(orders(3))
    assert shop.booked() == []
    worker_of(shop, strategy(name)).process(orders(3))
    assert shop.booked() == expected(name, orders(3))


@pytest.mark.parametrize("name", NAMES)
def test_scopes_know_nothing_of_each_other(shop: Shop, name: str) -> None:
    for scope in ("billing", "shipping"):
        worker_of(shop, strategy(name), scope=scope).process(orders(2))
    assert shop.booked() == sorted(expected(name, orders(2)) * 2)


def test_one_record_through_process(shop: Shop) -> None:
    for chosen in (once.MessageTable(), once.DatabaseOffsets()):
        outcomes = [once.process(shop.open(), orders(1)[0], shop.book, chosen, scope="one") for _ in range(2)]
        assert outcomes == [DONE, REPEATED]


def test_partitions_have_offsets_of_their_own(shop: Shop) -> None:
    records = [*orders(2), *(Order(offset, partition=1) for offset in range(2))]
    worker = worker_of(shop, once.MessageTable())
    assert worker.process(records) == [DONE] * 4


# --- ids
# ----------------------------------------------------------------------------------------------------------------


def test_a_message_that_was_sent_twice_is_recognised_by_its_own_id(shop: Shop) -> None:
    worker = worker_of(shop, once.MessageTable(once.header_id("id")))
    twice = [Order(0, headers=(("id", b"a"),)), Order(1, headers=(("id", b"a"),)), Order(2, headers=(("id", b"b"),))]
    assert worker.process(twice) == [DONE, REPEATED, DONE]


@pytest.mark.parametrize("bad", [None, "", b"\xff", 1.5, True, "a\0b", "x" * 1_001])
def test_what_is_no_id_is_refused(tmp_path: Path, bad: object) -> None:
    shop = Shop(str(tmp_path / "shop.db"))
    shop.build()
    with pytest.raises(once.BadIdentity, match="orders/0/0"):
        worker_of(shop, once.MessageTable(lambda record: bad)).process(orders(1))


# --- states
# -------------------------------------------------------------------------------------------------------------


def test_failed_messages_can_be_opened_again(shop: Shop) -> None:
    worker = worker_of(shop, once.StateGuard())
    worker.process(orders(1))
    worker.apply(orders(1, start=1), once.outcome.Mark("failed", "no stock"), lambda transaction, admitted: None)
    assert worker.process(orders(2)) == [REPEATED, REPEATED]
    assert shop.rows("SELECT state, reason FROM {prefix}states ORDER BY state") == [
        ("done", None),
        ("failed", "no stock"),
    ]
    assert once.StateGuard().reopen(shop.open(), scope="billing") == 1
    assert worker.process(orders(2)) == [REPEATED, DONE]
    assert once.StateGuard().reopen(shop.open(), scope="bill") == 0, "another scope"


# --- versions
# -----------------------------------------------------------------------------------------------------------


def test_older_and_equal_versions_are_skipped_in_any_order(shop: Shop) -> None:
    def change(entity: bytes, version: int) -> Order:
        return Order(version, key=entity, value=b"%d" % version)

    worker = worker_of(shop, once.Version(version=lambda record: int(record.value)))
    batch = [change(b"a", 2), change(b"b", 1), change(b"a", 1), change(b"a", 3), change(b"b", 1)]
    assert worker.process(batch) == [DONE, DONE, OUTDATED, DONE, REPEATED]
    assert worker.process([change(b"a", 3), change(b"a", 2), change(b"b", 9)]) == [REPEATED, OUTDATED, DONE]


@pytest.mark.parametrize("bad", ["1", 1.0, True, 2**63, None])
def test_what_is_no_version_is_refused(tmp_path: Path, bad: Any) -> None:
    shop = Shop(str(tmp_path / "shop.db"))
    shop.build()
    with pytest.raises(once.BadIdentity, match="not a version"):
        worker_of(shop, once.Version(version=lambda record: bad)).process(orders(1))


# --- leases
# -------------------------------------------------------------------------------------------------------------


def leased(shop: Shop, redis_server: RedisServer | None, lease_ms: int = 60_000) -> once.Token:
    if redis_server is None:
        return once.Token(lease_ms=lease_ms)
    return once.Token(lease_ms=lease_ms, leases=once.RedisLeases(redis_server.client(), prefix=shop.prefix))


@pytest.fixture(params=["database", pytest.param("redis", marks=pytest.mark.real)])
def maybe_redis(request: pytest.FixtureRequest) -> RedisServer | None:
    return request.getfixturevalue("redis_server") if request.param == "redis" else None


def test_a_lease_that_another_holds_is_not_given_out(shop: Shop, maybe_redis: RedisServer | None) -> None:
    holder, other = (worker_of(shop, leased(shop, maybe_redis)) for _ in range(2))
    holder.guard.prepare(orders(2))
    with pytest.raises(once.LeaseHeld):
        other.process(orders(4))
    assert shop.booked() == []
    holder.guard.settle(False)  # it gives up
    assert other.process(orders(4)) == [DONE] * 4


def test_the_transaction_of_who_lost_a_lease_while_working_is_refused(
    shop: Shop, maybe_redis: RedisServer | None
) -> None:
    """A worker stalls after it got its lease; another gets the lease, and does the work; then the first wakes up."""
    slow, quick = worker_of(shop, leased(shop, maybe_redis, lease_ms=1)), worker_of(shop, leased(shop, maybe_redis))
    records = orders(2)
    slow.guard.prepare(records)
    _until_leased(quick, records)
    with pytest.raises(once.LeaseLost):
        _go_on(slow, shop, records)
    assert shop.booked() == [], "the late worker's effects were undone"
    _go_on(quick, shop, records)
    assert shop.booked() == [0, 1]
    assert slow.process(records) == [REPEATED, REPEATED]


def _go_on(worker: once.Worker, shop: Shop, records: list[Order]) -> None:
    """What `Worker.process` does once it has the leases."""
    with worker.database.transaction() as transaction:
        assert worker.guard.admit(transaction, records) == [DONE] * len(records)
        for record in records:
            shop.book(transaction.connection, record)
        worker.guard.confirm(transaction)
    worker.guard.settle(True)


def _until_leased(worker: once.Worker, records: list[Order]) -> None:
    for _ in range(10_000):
        try:
            return worker.guard.prepare(records)
        except once.LeaseHeld:
            continue
    raise AssertionError("a lease of a millisecond did not end")


def test_tokens_grow_even_if_redis_loses_its_memory(shop: Shop, redis_server: RedisServer) -> None:
    first = worker_of(shop, leased(shop, redis_server))
    for _ in range(5):
        first.guard.prepare(orders(1))
    redis_server.client().flushall()
    second = worker_of(shop, leased(shop, redis_server))
    assert second.process(orders(1)) == [DONE]
    assert shop.rows(f"SELECT token > 5 FROM {{prefix}}{TOKENS}") in ([(1,)], [(True,)])
    with pytest.raises(once.LeaseLost):
        _go_on(first, shop, orders(1))
    assert shop.booked() == [0]


# --- offsets
# ------------------------------------------------------------------------------------------------------------


def test_a_zombie_is_refused_by_the_database(shop: Shop) -> None:
    zombie = worker_of(shop, once.DatabaseOffsets())
    zombie.process(orders(2))
    successor = once.Worker(shop.open(), shop.book, once.DatabaseOffsets(), scope="billing")
    assert successor.guard.claim([PARTITION], 5) == {PARTITION: 2}
    with pytest.raises(once.PartitionFenced) as fenced:
        zombie.process(orders(2, start=2))
    assert fenced.value.partitions == {PARTITION: 5}
    assert successor.process(orders(2, start=2)) == [DONE, DONE]
    assert shop.booked() == [0, 1, 2, 3]


def test_a_partition_has_to_be_claimed(shop: Shop) -> None:
    worker = once.Worker(shop.open(), shop.book, once.DatabaseOffsets())
    with pytest.raises(once.NotClaimed, match="orders-0"):
        worker.process(orders(1))
    assert worker.guard.claim([TopicPartition("orders", 0)]) == {}
    worker.guard.give_up([PARTITION])
    with pytest.raises(once.NotClaimed):
        worker.process(orders(1))


# --- what effects must not do
# ------------------------------------------------------------------------------------------


def test_an_error_that_the_effect_hides_does_not_pass_for_done(postgres: PostgresServer) -> None:
    """PostgreSQL would answer the COMMIT with a rollback, and no error."""
    shop = Shop(postgres.url, f"strategy_{next(_numbers)}_")
    shop.build()

    def effect(connection: Any, record: Any) -> None:
        shop.book(connection, record)
        try:
            connection.execute(text("SELECT 1 / 0"))
        except DBAPIError:
            return

    with pytest.raises(DBAPIError, match="aborted"):
        worker_of(shop, once.MessageTable(), effect).process(orders(1))
    assert worker_of(shop, once.MessageTable()).process(orders(1)) == [DONE]


def with_block(connection: sqlite3.Connection) -> None:
    with connection:
        pass


@pytest.mark.parametrize(
    "end",
    [
        lambda connection: connection.commit(),
        lambda connection: connection.rollback(),
        lambda connection: connection.execute("COMMIT"),
        lambda connection: connection.executescript("SELECT 1"),
        with_block,
    ],
)
def test_an_effect_that_ends_the_transaction_is_an_error(tmp_path: Path, end: Any) -> None:
    shop = Shop(str(tmp_path / "shop.db"))
    shop.build()
    with pytest.raises(once.EffectEndedTransaction):
        worker_of(shop, once.MessageTable(), lambda connection, record: end(connection)).process(orders(1))


def test_an_effect_that_commits_through_sqlalchemy_is_an_error(postgres: PostgresServer) -> None:
    shop = Shop(postgres.url, f"strategy_{next(_numbers)}_")
    shop.build()
    with pytest.raises(once.EffectEndedTransaction):
        worker_of(shop, once.MessageTable(), lambda connection, record: connection.commit()).process(orders(1))


def test_an_engine_that_commits_every_statement_is_refused(postgres: PostgresServer) -> None:
    engine = postgres.engine(isolation_level="AUTOCOMMIT")
    with pytest.raises(once.UnsupportedDatabase, match="AUTOCOMMIT"):
        once.Worker(engine, lambda connection, record: None)


def test_connections_of_the_users_own_will_do(tmp_path: Path, postgres: PostgresServer) -> None:
    with sqlite3.connect(tmp_path / "own.db") as own:
        assert once.process(own, orders(1)[0], lambda connection, record: None) is DONE
        own.execute("CREATE TABLE more (number INTEGER)")
        own.execute("INSERT INTO more VALUES (1)")
        with pytest.raises(once.EffectEndedTransaction, match="inside a transaction already"):
            once.process(own, orders(1)[0], lambda connection, record: None)
    own.close()
    with engine_of(postgres.url, 0).connect() as connection:
        database = once.Database.of(connection, prefix="own_")
        assert once.process(database, orders(1)[0], lambda connection, record: None) is DONE


@pytest.mark.parametrize("bad", [7, None, object()])
def test_what_is_no_database_is_refused(bad: object) -> None:
    with pytest.raises(once.UnsupportedDatabase, match="SQLAlchemy engine"):
        once.Database.of(bad)


def test_tables_can_stand_in_a_schema_under_a_prefix(postgres: PostgresServer) -> None:
    database = once.Database.of(postgres.engine(), prefix="jobs_", schema="apart")
    assert once.process(database, orders(1)[0], lambda connection, record: None) is DONE
    with database.transaction() as transaction:
        assert transaction.run("SELECT count(*) FROM apart.jobs_messages") == [(1,)]
    database.close()
    with pytest.raises(once.OnceError, match="letters, digits"):
        once.Database.of("shop.db", prefix="x; DROP TABLE")


# --- cleaning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "table"), [("message table", "messages"), ("token", "tokens"), ("version", "versions")]
)
def test_old_marks_are_cleaned_in_bounded_steps(shop: Shop, name: str, table: str) -> None:
    records = [Order(offset, key=b"%d" % offset) for offset in range(2_500)]
    worker_of(shop, strategy(name), lambda connection, record: None).process(records)
    assert once.clean(shop.open(), table, older_than_s=3_600) == 0
    shop.rows(f"UPDATE {{prefix}}{table} SET changed_at_ms = 0 WHERE CAST(id AS INTEGER) % 2 = 0")
    assert once.clean(shop.open(), table, older_than_s=3_600) == 1_250
    assert shop.rows(f"SELECT count(*) FROM {{prefix}}{table}") == [(1_250,)]


# --- two at once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "redis token"])
def test_processes_that_race_do_everything_once(
    name: str, shop: Shop, redis_server: RedisServer, helper: Helper
) -> None:
    """Each delivers every message three times, in batches of its own size."""
    records = orders(40)
    jobs = [Job(shop, name, records * 3, redis_server.port, batch_size) for batch_size in (7, 11)]
    assert helper.run(*jobs) == [True, True]
    assert shop.booked() == expected(name, records)
