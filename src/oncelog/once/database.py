"""A database that effects go to: transactions on one connection, which is opened again after it was lost.

`Database.of` takes what people have: a path of SQLite, an engine of SQLAlchemy, or an open connection of either. This
module knows no strategy and no record. It never retries by itself: who asked decides what a lost connection means.
"""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from oncelog.once.dialect import Dialect
from oncelog.once.errors import UnsupportedDatabase
from oncelog.once.tables import DEFAULT_PREFIX, Tables

Row = tuple[Any, ...]
NO_VALUES: Mapping[str, Any] = {}


class Transaction(ABC):
    """One open transaction. `connection` is what the user's effect works with."""

    connection: Any

    @abstractmethod
    def run(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> list[Row]:
        """Run one statement; the rows that it returns, if any."""


class Database(ABC):
    dialect: Dialect
    tables: Tables

    @staticmethod
    def of(target: object, *, prefix: str = DEFAULT_PREFIX, schema: str | None = None) -> Database:
        """The database behind a path of SQLite, a URL (`postgresql://user@host/name`, SQLAlchemy's), an SQLAlchemy
        engine, or an open connection of `sqlite3` or SQLAlchemy."""
        if isinstance(target, Database):
            return target
        from oncelog.once.sqlite_database import SqliteDatabase

        tables = Tables(prefix, schema)
        if isinstance(target, str):
            check_text(target)
            if is_url(target):
                return _of_url(target, tables)
        if isinstance(target, sqlite3.Connection | str) or hasattr(target, "__fspath__"):
            return SqliteDatabase(target, tables)
        if type(target).__module__.partition(".")[0] == "sqlalchemy":
            from oncelog.once.sqlalchemy_database import SqlalchemyDatabase

            return SqlalchemyDatabase(target, tables)
        raise UnsupportedDatabase(
            f"{target!r} is not a database that is known here: give a path of SQLite, a URL such as"
            " postgresql://user@host/name, an SQLAlchemy engine, or an open connection of either"
        )

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Committed when the block ends, rolled back when it ends by an exception. Connects first if need be."""

    @abstractmethod
    def is_outage(self, error: BaseException) -> bool:
        """Whether the database, not the statement, is to blame, so that the same again may succeed."""

    @property
    def place(self) -> str:
        """Where it is, for messages; no password."""
        return "the database"

    @abstractmethod
    def disconnect(self) -> None:
        """Let go of a connection that may be broken; the next transaction opens a new one."""

    def close(self) -> None:
        self.disconnect()

    def ensure(self, names: Iterable[str]) -> None:
        """Create what is missing of our tables."""
        with self.transaction() as transaction:
            missing = [name for name in names if not transaction.run(self.tables.exists(name, self.dialect))]
        for name in missing:
            with self.transaction() as transaction:
                for statement in self.tables.creation(name, self.dialect):
                    transaction.run(statement)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def is_url(text: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def check_text(text: str) -> None:
    """What would become a file of that name, and was meant as something else."""
    if text.lower().startswith("jdbc:"):
        raise UnsupportedDatabase(
            f"{without_password(text)!r} is a URL of Java's: write postgresql://user:password@host/name instead"
        )
    if re.search(r"\b(host|dbname|user)\s*=", text):
        raise UnsupportedDatabase(
            f"{without_password(text)!r} looks like a connection string of libpq: write it as a URL, such as"
            " postgresql://user:password@host/name"
        )
    if not text:
        raise UnsupportedDatabase("the path of the database is empty: name a file of SQLite, or give a URL")


def without_password(text: str) -> str:
    """For messages."""
    return re.sub(r"(password=)[^&\s]+", r"\1***", re.sub(r"(://[^:/@]+):[^@]*@", r"\1:***@", text))


def _of_url(url: str, tables: Tables) -> Database:
    try:
        from oncelog.once.sqlalchemy_database import SqlalchemyDatabase, engine_of
    except ImportError as error:
        raise UnsupportedDatabase(
            f"a URL needs SQLAlchemy ({error}): pip install 'oncelog[postgres]', or give the path of a file of SQLite"
        ) from error
    return SqlalchemyDatabase(engine_of(url), tables, is_ours=True)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it: an effect may have wrapped the database's own."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
