"""The shop that effects are tried on: bookings and their sum, in a database of either kind.

An effect has two statements, so that a crash between them would show: a booking without its money.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import redis
from sqlalchemy import Connection, Engine, create_engine, text

from oncelog import once
from oncelog.once.strategy import Strategy
from oncelog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Order:
    """A record as a consumer gives it."""

    offset: int
    key: bytes = b"shop"
    value: bytes = b"1"
    topic: str = "orders"
    partition: int = 0
    timestamp_ms: int = 1_000
    headers: tuple[tuple[str, bytes], ...] = ()


def orders(count: int, start: int = 0) -> list[Order]:
    return [Order(offset, headers=(("id", f"order-{offset}".encode()),)) for offset in range(start, start + count)]


PARTITION = TopicPartition("orders", 0)
BOOK = "INSERT INTO {prefix}bookings (scope, number) VALUES (:scope, :number)"
COUNT = "UPDATE {prefix}balance SET amount = amount + 1 WHERE scope = :scope"


@lru_cache
def engine_of(url: str, process: int) -> Engine:
    """One per process: connections are not for forked children."""
    return create_engine(url)


@dataclass(frozen=True, slots=True)
class Shop:
    """`url` is a path of SQLite, or an URL of SQLAlchemy; shops there differ by prefix (of tables) or by scope."""

    url: str
    prefix: str = "t_"
    scope: str = "shop"

    @property
    def is_path(self) -> bool:
        return "://" not in self.url

    def open(self) -> once.Database:
        target = self.url if self.is_path else engine_of(self.url, os.getpid())
        return once.Database.of(target, prefix=self.prefix)

    def build(self) -> None:
        with self.open() as database, database.transaction() as transaction:
            columns = "scope TEXT NOT NULL, number INTEGER NOT NULL"
            transaction.run(f"CREATE TABLE IF NOT EXISTS {self.prefix}bookings ({columns})")
            columns = "scope TEXT PRIMARY KEY, amount INTEGER NOT NULL"
            transaction.run(f"CREATE TABLE IF NOT EXISTS {self.prefix}balance ({columns})")
            transaction.run(f"INSERT INTO {self.prefix}balance VALUES (:scope, 0)", {"scope": self.scope})

    def book(self, connection: Any, record: Any) -> None:
        """The effect."""
        book, count = BOOK.format(prefix=self.prefix), COUNT.format(prefix=self.prefix)
        values = {"scope": self.scope, "number": record.offset}
        if isinstance(connection, sqlite3.Connection):
            connection.execute(book, values)
            connection.execute(count, values)
        else:
            assert isinstance(connection, Connection)
            connection.execute(text(book), values)
            connection.execute(text(count), values)

    def booked(self) -> list[int]:
        """Every booking, in order; the balance agrees with them."""
        with self.open() as database, database.transaction() as transaction:
            mine = {"scope": self.scope}
            bookings = f"SELECT number FROM {self.prefix}bookings WHERE scope = :scope ORDER BY number"
            numbers = [row[0] for row in transaction.run(bookings, mine)]
            amount = transaction.run(f"SELECT amount FROM {self.prefix}balance WHERE scope = :scope", mine)[0][0]
        assert amount == len(numbers), "an effect was done by half"
        return numbers

    def rows(self, statement: str) -> list[Any]:
        with self.open() as database, database.transaction() as transaction:
            return transaction.run(statement.format(prefix=self.prefix))


# Versions of one entity that arrive out of order: 0 and 2 are applied, 1 comes too late.
VERSIONS = {0: 1, 1: 3, 2: 2, 3: 4}
LEASE_MS = 150


def version_of(record: Order) -> int:
    return VERSIONS.get(record.offset, record.offset)


def strategy(name: str, redis_port: int | None = None) -> Strategy:
    """By name, since processes are told names."""
    if name == "redis token":
        assert redis_port is not None
        leases = once.RedisLeases(redis.Redis(port=redis_port), prefix=f"test-{os.getpid()}")
        return once.Token(leases=leases, lease_ms=LEASE_MS)
    made: dict[str, Strategy] = {
        "message table": once.MessageTable(),
        "own ids": once.MessageTable(once.header_id("id")),
        "state guard": once.StateGuard(),
        "token": once.Token(lease_ms=LEASE_MS),
        "version": once.Version(version=version_of),
        "offsets": once.DatabaseOffsets(),
    }
    return made[name]


NAMES = ("message table", "own ids", "state guard", "token", "version", "offsets")


def expected(name: str, records: list[Order]) -> list[int]:
    """The offsets whose effects are to happen."""
    if name != "version":
        return [record.offset for record in records]
    newest, wanted = 0, []
    for record in records:
        if version_of(record) > newest:
            newest = version_of(record)
            wanted.append(record.offset)
    return wanted
