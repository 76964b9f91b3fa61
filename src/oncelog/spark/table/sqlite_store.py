"""SQLite through the standard library: rows are staged in a file beside the database, published by INSERT ... SELECT.

Each plan has a staging file of its own. Tasks take turns to write to it, one Arrow batch at a time, so that no task
holds the others up while it waits for its rows. All processes must be on the machine that has the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote as quote_path

from oncelog.once.sqlite_database import is_sqlite_outage
from oncelog.spark.options import BadOption
from oncelog.spark.table.columns import Kind
from oncelog.spark.table.errors import BadValue, StagingLost, TableError, UnfitTable, UnreachableDatabase
from oncelog.spark.table.layout import Found, FoundColumn, Layout
from oncelog.spark.table.names import TableName
from oncelog.spark.table.settings import SQLITE, Settings
from oncelog.spark.table.sqlite_dialect import STAGE_SCHEMA, STAGE_TABLE, SqliteDialect
from oncelog.spark.table.store import NO_VALUES, Row, Session, Store
from oncelog.sqlite_file import connect, use_write_ahead_log

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

BUSY_TIMEOUT_S: Final = 120.0
CONNECTION = sqlite3.Connection
"""What all connections are made from; tests have one that crashes."""
AS_TEXT: Final = frozenset({Kind.DECIMAL, Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP, Kind.DATE})
BESIDE: Final = ("", "-wal", "-shm", "-journal")
COMPUTED: Final = (2, 3)
"""`hidden` of pragma table_xinfo: generated columns."""


class SqliteSession(Session):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> list[Row]:
        return self._connection.execute(statement, _plain(values)).fetchall()

    def change(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> int:
        return self._connection.execute(statement, _plain(values)).rowcount


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json.dumps(value) if isinstance(value, list) else value for name, value in values.items()}


class SqliteStore(Store):
    dialect = SqliteDialect()

    def __init__(self, settings: Settings) -> None:
        if settings.table.schema is not None:
            raise BadOption(f"SQLite has no schemas: {settings.table} cannot be a table of it")
        self._path = os.path.abspath(settings.url.removeprefix(SQLITE))
        self._create = settings.create
        self._connection: sqlite3.Connection | None = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = connect(
                    _uri(self._path, "rwc" if self._create else "rw"),
                    timeout_s=BUSY_TIMEOUT_S,
                    factory=CONNECTION,
                    uri=True,
                )
            except sqlite3.Error as error:
                raise UnreachableDatabase(
                    f"the SQLite database {self._path} cannot be opened: {error}. Does its folder exist, and may this "
                    "user write there? With create=true the file is made"
                ) from None
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        connection = self._connected()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield SqliteSession(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextmanager
    def publishing(self, stage: TableName) -> Iterator[tuple[Session, str]]:
        path = self._stage_path(stage)
        if not os.path.exists(path):
            raise StagingLost(f"the staging file {path} is gone: nothing was published; start the query again")
        connection = self._connected()
        connection.execute(f"ATTACH DATABASE ? AS {STAGE_SCHEMA}", [_uri(path, "rw")])
        try:
            with self.transaction() as session:
                yield session, f"{STAGE_SCHEMA}.{STAGE_TABLE}"
        except sqlite3.IntegrityError as error:
            raise BadValue(f"SQLite refuses a row, so nothing of the batch was published: {error}") from error
        finally:
            connection.execute(f"DETACH DATABASE {STAGE_SCHEMA}")

    def find(self, session: Session, table: TableName) -> Found | None:
        found = session.rows(
            "SELECT name, type FROM sqlite_master WHERE name = :name COLLATE NOCASE AND type IN ('table', 'view')",
            {"name": table.name},
        )
        if not found:
            return None
        name, kind = found[0]
        if kind != "table":
            raise UnfitTable(f"{table} is a {kind}: rows can be published to tables only")
        rows = session.rows(
            'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(:name)', {"name": name}
        )
        return Found(TableName(name), {row[0]: _column(row) for row in rows}, self._unique(session, name, rows))

    def _unique(self, session: Session, name: str, rows: Sequence[Row]) -> frozenset[frozenset[str]]:
        found = {frozenset(row[0] for row in rows if row[4])}
        indexes = session.rows(
            'SELECT name FROM pragma_index_list(:name) WHERE "unique" AND NOT partial', {"name": name}
        )
        for (index,) in indexes:
            columns = session.rows("SELECT name FROM pragma_index_info(:index)", {"index": index})
            if all(column is not None for (column,) in columns):
                found.add(frozenset(column for (column,) in columns))
        return frozenset(found)

    def check_schema(self, session: Session, table: TableName) -> None:
        """There are no schemas."""

    def may_write(self, session: Session, layout: Layout) -> None:
        """The transaction that asks has the file's write lock: so it may."""

    def lock_creation(self, session: Session) -> None:
        """Every transaction is alone."""

    def _stage_path(self, stage: TableName) -> str:
        return f"{self._path}-{stage.name}"

    def create_stage(self, stage: TableName, layout: Layout) -> None:
        self.drop_stage(stage)  # of a database that was there before, with the same number
        with closing(_open(self._stage_path(stage), "rwc")) as connection:
            use_write_ahead_log(connection, BUSY_TIMEOUT_S)
            connection.execute(f"CREATE TABLE {STAGE_TABLE} ({self.dialect.stage_columns(layout)})")

    def stages(self, target: TableName, family: str) -> Sequence[str]:
        folder, name = os.path.split(self._path)
        begin = f"{name}-{family}"
        return [f"{family}{one.removeprefix(begin)}" for one in os.listdir(folder) if one.startswith(begin)]

    def drop_stage(self, stage: TableName) -> None:
        for suffix in BESIDE:
            with contextlib.suppress(OSError):
                os.unlink(self._stage_path(stage) + suffix)

    def fill(self, stage: TableName, layout: Layout, attempt: int, batches: Iterator[pa.RecordBatch]) -> int:
        from oncelog.spark.table.values import checked  # pyarrow, which a committer does not need

        path, rows = self._stage_path(stage), 0
        try:
            connection = _open(path, "rw")
        except sqlite3.Error:
            raise StagingLost(
                f"the staging file {path} is not on {socket.gethostname()}: SQLite is a file of one machine, so run "
                "with a local master, or use PostgreSQL. (Or another driver has taken the sink over.)"
            ) from None
        with closing(connection):
            connection.execute("PRAGMA synchronous = OFF")  # what a power failure takes is counted, and replayed
            places = ", ".join("?" * (len(layout.columns) + 1 + layout.has_ordinals))
            statement = f"INSERT INTO {STAGE_TABLE} VALUES ({places})"
            for batch in checked(batches, layout, nul_replacement=None, keeps_nul=True, keeps_nan=False):
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(statement, _rows(batch, layout, attempt, rows))
                connection.execute("COMMIT")
                rows += batch.num_rows
        return rows

    def is_outage(self, error: BaseException) -> bool:
        return is_sqlite_outage(error)

    def explained(self, error: Exception) -> TableError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        if self.is_outage(error):
            return UnreachableDatabase(f"the SQLite database {self._path} does not answer: {error}")
        return UnfitTable(f"SQLite refuses what the sink asks of {self._path}: {error}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _rows(batch: pa.RecordBatch, layout: Layout, attempt: int, first_ordinal: int) -> Iterator[Row]:
    columns: list[Any] = [repeat(attempt, batch.num_rows)]
    if layout.has_ordinals:
        columns.append(range(first_ordinal, first_ordinal + batch.num_rows))
    for column, values in zip(layout.columns, batch.columns, strict=True):
        columns.append((_as_text(values, column.kind) if column.kind in AS_TEXT else values).to_pylist())
    return zip(*columns, strict=True)


def _as_text(values: pa.Array, kind: Kind) -> pa.Array:
    """A timestamp comes in the time zone of Spark's session, and would be written with that. In UTC, texts of one
    moment are equal, and compare as their moments do."""
    if kind is Kind.TIMESTAMP:
        import pyarrow as pa

        values = values.cast(pa.timestamp("us", "UTC"))
    return values.cast("string")


def _open(path: str, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(_uri(path, mode), uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, factory=CONNECTION)


def _uri(path: str, mode: str) -> str:
    return f"file:{quote_path(path)}?mode={mode}"


def _column(row: Row) -> FoundColumn:
    name, declared, is_not_null, default, key, hidden = row
    is_row_id = key == 1 and declared.upper() == "INTEGER"
    return FoundColumn(
        name=name,
        type=declared,
        sql_type=declared,
        is_required=bool(is_not_null) and default is None and not is_row_id,
        is_computed=hidden in COMPUTED,
    )
