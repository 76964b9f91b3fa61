"""PostgreSQL, or SQLite, through SQLAlchemy: the user's engine with its own settings, on one connection of its pool.

Two things can silently undo what a transaction promises, and are refused: a connection in autocommit mode, and an
effect that catches a database error and goes on (PostgreSQL answers the COMMIT that follows with a rollback, and no
error).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, create_engine, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError

from oncelog.once.absence import Absence
from oncelog.once.database import NO_VALUES, Database, Row, Transaction, causes, without_password
from oncelog.once.dialect import POSTGRESQL, SQLITE
from oncelog.once.errors import EffectEndedTransaction, UnsupportedDatabase
from oncelog.once.sqlite_database import is_sqlite_outage
from oncelog.once.tables import Tables

DIALECTS = {"sqlite": SQLITE, "postgresql": POSTGRESQL}
STATEMENT_CACHE = 256
# Beginnings of SQLSTATEs after which the same may succeed: connection lost, serialization failure or deadlock,
# resources exhausted, lock not available, server going or coming, I/O error of the server.
CONNECTING = "waiting as long as the driver's own timeout says (connect_timeout); nothing is lost"
OUTAGES = ("08", "40", "53", "55P03", "57P", "58")


class SqlalchemyTransaction(Transaction):
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def run(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> list[Row]:
        result = self.connection.execute(_parsed(statement), values)
        return [tuple(row) for row in result] if result.returns_rows else []


@lru_cache(STATEMENT_CACHE)
def _parsed(statement: str) -> TextClause:
    return text(statement)


def engine_of(url: str) -> Engine:
    """Raises UnsupportedDatabase. The driver is psycopg, unless the URL names one."""
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url)
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in DIALECTS:
            raise UnsupportedDatabase(
                f"{without_password(url)!r}: only SQLite and PostgreSQL are known here, such as"
                " postgresql://user@host/name"
            )
        return create_engine(parsed)
    except (ArgumentError, ImportError) as error:
        raise UnsupportedDatabase(f"{without_password(url)!r} cannot be used: {error}") from error


class SqlalchemyDatabase(Database):
    def __init__(self, target: Any, tables: Tables, *, is_ours: bool = False) -> None:
        """An engine that is ours ends with the database; one of the user's goes on."""
        if not isinstance(target, Engine | Connection) or target.dialect.name not in DIALECTS:
            raise UnsupportedDatabase(f"{target!r}: only (not asyncio) engines of SQLite and PostgreSQL are known here")
        self.dialect = DIALECTS[target.dialect.name]
        if self.dialect is SQLITE and tables.schema is not None:
            raise UnsupportedDatabase(
                "SQLite has no schemas: keep the tables apart by their prefix, or in another file"
            )
        self.tables = tables
        self._engine = target if isinstance(target, Engine) else None
        self._connection = target if isinstance(target, Connection) else None
        self._is_ours = is_ours
        self._absence = Absence(self.place)

    @property
    def place(self) -> str:
        engine = target.engine if (target := self._connection) is not None else self._engine
        assert engine is not None
        return f"the database {engine.url.render_as_string(hide_password=True)}"

    def _connected(self) -> Connection:
        if self._connection is None:
            assert self._engine is not None
            if self.dialect is SQLITE:
                self._connection = self._engine.connect()
            else:
                with self._absence.told_if_slow("does not accept the connection", CONNECTING):
                    self._connection = self._engine.connect()
                self._absence.ends()
            self._refuse_autocommit(self._connection)
        return self._connection

    def _refuse_autocommit(self, connection: Connection) -> None:
        level = connection.get_execution_options().get("isolation_level", "")
        dbapi = connection.connection.dbapi_connection
        if level == "AUTOCOMMIT" or (self.dialect is POSTGRESQL and getattr(dbapi, "autocommit", False) is True):
            raise UnsupportedDatabase(
                "the engine commits every statement by itself (AUTOCOMMIT): an effect and its mark would not be one "
                "transaction. Use an engine with isolation_level='READ COMMITTED'"
            )

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        connection = self._connected()
        if connection.in_transaction():
            raise EffectEndedTransaction("the connection is inside a transaction already: commit or roll it back first")
        with connection.begin() as root:
            if self.dialect is SQLITE:
                _take_write_lock(connection)
            transaction = SqlalchemyTransaction(connection)
            yield transaction
            if not root.is_active or not connection.in_transaction():
                raise EffectEndedTransaction("the effect ended the transaction that its message's mark belongs to")
            transaction.run("SELECT 1")  # fails if an error that the effect hid has undone the transaction

    def is_outage(self, error: BaseException) -> bool:
        return any(_is_outage(each) for each in causes(error))

    def disconnect(self) -> None:
        if self._connection is not None and self._engine is not None:
            with contextlib.suppress(DBAPIError):
                self._connection.invalidate()
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        if self._connection is not None and self._engine is not None:
            self._connection.close()
            self._connection = None
        if self._is_ours and self._engine is not None:
            self._engine.dispose()


def _take_write_lock(connection: Connection) -> None:
    driver: Any = connection.connection.dbapi_connection
    if driver.in_transaction:  # begun by an event of the engine, and empty
        connection.exec_driver_sql("COMMIT")
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _is_outage(error: BaseException) -> bool:
    if is_sqlite_outage(error):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    if state is not None:
        return str(state).startswith(OUTAGES)
    is_sqlite = type(error.orig).__module__.startswith("sqlite3")
    return isinstance(error, OperationalError | InterfaceError) and not is_sqlite
