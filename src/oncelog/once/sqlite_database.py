"""SQLite through the standard library: a file, written by one transaction at a time.

Every transaction takes the write lock when it begins (`BEGIN IMMEDIATE`): nothing that it read can have changed when
it commits. Others wait for up to `BUSY_TIMEOUT_S`. With `synchronous=FULL` a commit survives a power failure, which
the offset that is committed to the broker afterwards relies on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from oncelog.once.database import NO_VALUES, Database, Row, Transaction, causes
from oncelog.once.dialect import SQLITE
from oncelog.once.errors import DatabaseUnavailable, EffectEndedTransaction, UnsupportedDatabase
from oncelog.once.tables import Tables
from oncelog.sqlite_file import RESULT_CODE, connect, why_not_opened

BUSY_TIMEOUT_S = 30.0
OUTAGES = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM,
}  # fmt: skip


class EffectConnection(sqlite3.Connection):
    """A connection whose transaction is not the effect's to end: the message's mark belongs to it as well."""

    def commit(self) -> NoReturn:
        raise EffectEndedTransaction("an effect must not commit: it is committed together with the message's mark")

    def rollback(self) -> NoReturn:
        raise EffectEndedTransaction("an effect must not roll back: raise an exception to undo it")

    def executescript(self, script: str, /) -> NoReturn:
        raise EffectEndedTransaction("executescript() commits what came before it: use execute() for each statement")

    def __exit__(self, *exc_info: object) -> NoReturn:
        raise EffectEndedTransaction("`with connection:` commits at its end: leave the transaction to oncelog.once")


class SqliteTransaction(Transaction):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def run(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> list[Row]:
        return list(self.connection.execute(statement, values))


class SqliteDatabase(Database):
    dialect = SQLITE

    def __init__(self, target: Any, tables: Tables) -> None:
        if tables.schema is not None:
            raise UnsupportedDatabase(
                "SQLite has no schemas: keep the tables apart by their prefix, or in another file"
            )
        self.tables = tables
        self._given = target if isinstance(target, sqlite3.Connection) else None
        self._path = target
        self._connection: sqlite3.Connection | None = None

    def _connected(self) -> sqlite3.Connection:
        if self._given is not None:
            return self._given
        if self._connection is None:
            try:
                self._connection = connect(
                    self._path, timeout_s=BUSY_TIMEOUT_S, factory=EffectConnection, check_same_thread=False
                )
            except sqlite3.Error as error:  # SQLite does not say which file
                kind = DatabaseUnavailable if is_sqlite_outage(error) else UnsupportedDatabase
                why = why_not_opened(self._path, error)
                raise kind(f"{str(self._path)!r} cannot be opened as a database of SQLite: {why}") from error
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        connection = self._connected()
        if connection.in_transaction:
            raise EffectEndedTransaction("the connection is inside a transaction already: commit or roll it back first")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield SqliteTransaction(connection)
            if not connection.in_transaction:
                raise EffectEndedTransaction("the effect ended the transaction that its message's mark belongs to")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @property
    def place(self) -> str:
        return "the database" if self._given is not None else f"the database {self._path}"

    def is_outage(self, error: BaseException) -> bool:
        return any(is_sqlite_outage(each) for each in causes(error))

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def is_sqlite_outage(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and (
        getattr(error, "sqlite_errorcode", 0) & RESULT_CODE in OUTAGES
    )
