"""PostgreSQL through psycopg: rows by binary COPY into an unlogged table, published by one INSERT ... SELECT.

The staging table is not in the write-ahead log, which halves the work; after a crash of the server it is empty, which
the committer finds by counting. The transaction that publishes waits for the disk even where the server's default is
not to: Spark notes the batch as complete afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors as found_by_server
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oncelog.spark.table.columns import Kind
from oncelog.spark.table.errors import BadValue, StagingLost, TableError, UnfitTable, UnreachableDatabase
from oncelog.spark.table.layout import Found, FoundColumn, Layout
from oncelog.spark.table.names import TableName, quote
from oncelog.spark.table.postgres_dialect import PostgresDialect
from oncelog.spark.table.settings import Settings, Upsert
from oncelog.spark.table.store import NO_VALUES, Row, Session, Store

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

CONNECT_TIMEOUT_S: Final = 20
DROP_PATIENCE_MS: Final = 1_000
LOCK_PATIENCE_MS: Final = 120_000
"""How long a plan or a committer waits for whoever holds the sink."""
SORT_MEMORY_MB: Final = 64
"""Of the server, while a batch is published: with less it would sort an ordinary batch on the disk."""
IDLE_PATIENCE_MS: Final = 60_000
"""After which the server ends the transaction of a committer that has stopped in the middle of it."""
KEEPALIVE: Final = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
SHOWN_CHARACTERS: Final = 40
"""Of each column of a row that was refused."""
OUTAGES: Final = ("08", "40", "53", "55P03", "57P", "58")
"""Beginnings of SQLSTATEs after which the same may succeed."""

FIND: Final = (
    "SELECT c.oid, n.nspname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.oid = to_regclass(%(table)s)"
)
COLUMNS: Final = (
    "SELECT a.attname, coalesce(b.typname, t.typname), format_type(coalesce(b.oid, t.oid), NULL), "
    "CASE WHEN b.oid IS NULL THEN a.atttypmod ELSE t.typtypmod END, a.attnotnull OR t.typnotnull, "
    "a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL, a.attgenerated <> '' OR a.attidentity = 'a', "
    "coalesce(b.typtype, t.typtype) = 'e', (SELECT quote_ident(l.nspname) || '.' || quote_ident(k.collname) "
    "FROM pg_collation k JOIN pg_namespace l ON l.oid = k.collnamespace WHERE k.oid = a.attcollation) "
    "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "LEFT JOIN pg_type b ON b.oid = t.typbasetype WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped "
    "ORDER BY a.attnum"
)
UNIQUE: Final = (
    "SELECT i.indexrelid, a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
    "AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1]) WHERE i.indrelid = %(oid)s AND i.indisunique "
    "AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL"
)
FITS: Final = (
    "CREATE OR REPLACE FUNCTION pg_temp.oncelog_fits(given text) RETURNS boolean LANGUAGE plpgsql AS $fits$ BEGIN "
    "PERFORM CAST(given AS {type}); RETURN true; EXCEPTION WHEN data_exception THEN RETURN false; END $fits$"
)
"""Goes with the session."""
SEARCH_PATIENCE_MS: Final = 10_000
"""For the one row that was refused among all that were staged."""
TABLE_KINDS: Final = ("r", "p")


class PostgresSession(Session):
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def rows(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> list[Row]:
        return self._connection.execute(statement.encode(), values).fetchall()

    def change(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> int:
        return self._connection.execute(statement.encode(), values).rowcount


class PostgresStore(Store):
    dialect = PostgresDialect()

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: psycopg.Connection[Any] | None = None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            given = {"user": self._settings.user, "password": self._settings.password}
            try:
                target = make_conninfo(
                    self._settings.url,
                    application_name=f"oncelog.table {self._settings.sink}",
                    connect_timeout=CONNECT_TIMEOUT_S,
                    **{name: value for name, value in given.items() if value is not None},
                    **KEEPALIVE,
                )
                connection = psycopg.connect(target, autocommit=True)
            except psycopg.Error as error:
                raise UnreachableDatabase(_unreachable(self._settings.url, error)) from None
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            self._connection = connection
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        connection = self._connected()
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {LOCK_PATIENCE_MS}")
            connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_PATIENCE_MS}")
            yield PostgresSession(connection)

    @contextmanager
    def publishing(self, stage: TableName) -> Iterator[tuple[Session, str]]:
        with self.transaction() as session:
            if session.rows("SHOW synchronous_commit") == [("off",)]:
                session.change("SET LOCAL synchronous_commit = on")
            session.change(f"SET LOCAL work_mem = '{SORT_MEMORY_MB}MB'")
            session.change("SET LOCAL jit = off")  # to compile the one statement takes longer than to run it
            try:
                yield session, self.dialect.escaped(stage.sql)
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                raise BadValue(f"PostgreSQL refuses a row, so nothing of the batch was published: {error}") from error

    def find(self, session: Session, table: TableName) -> Found | None:
        found = session.rows(FIND, {"table": table.sql})
        if not found:
            return None
        oid, schema, kind = found[0]
        name = TableName(table.name, schema)
        if kind not in TABLE_KINDS:
            raise UnfitTable(f"{name} is not a table (kind {kind!r} in pg_class): rows can be published to tables only")
        columns = {row[0]: _column(row) for row in session.rows(COLUMNS, {"oid": oid})}
        unique: dict[int, set[str]] = {}
        for index, column in session.rows(UNIQUE, {"oid": oid}):
            unique.setdefault(index, set()).add(column)
        return Found(name, columns, frozenset(map(frozenset, unique.values())))

    def check_schema(self, session: Session, table: TableName) -> None:
        if table.schema is None:
            if session.rows("SELECT current_schema()") == [(None,)]:
                raise UnfitTable(
                    f"{table} is in no schema, as none of search_path exists: name one, public.{table.name}"
                )
        elif session.rows("SELECT to_regnamespace(%(schema)s)", {"schema": quote(table.schema)}) == [(None,)]:
            raise UnfitTable(
                f"there is no schema {table.schema!r} for the table {table}: CREATE SCHEMA {quote(table.schema)}, or "
                "name another one. Names are compared exactly, also their case"
            )

    def may_write(self, session: Session, layout: Layout) -> None:
        needed = ["INSERT"]
        needed += ["SELECT"] if layout.unique else []
        needed += ["UPDATE"] if isinstance(layout.write, Upsert) else []
        table = {"table": layout.target.sql, "schema": layout.target.schema}
        missing = [
            right
            for right in needed
            if not session.rows(f"SELECT has_any_column_privilege(%(table)s, '{right}')", table)[0][0]
        ]
        deletes = layout.overwrite or layout.delete_when is not None
        if deletes and not session.rows("SELECT has_table_privilege(%(table)s, 'DELETE')", table)[0][0]:
            missing.append("DELETE")
        user = session.rows("SELECT current_user")[0][0]
        if missing:
            raise UnfitTable(f"the user {user!r} may not {' nor '.join(missing)} on {layout.target}: grant it")
        if not session.rows("SELECT has_schema_privilege(%(schema)s, 'CREATE')", table)[0][0]:
            raise UnfitTable(
                f"the user {user!r} may not create tables in the schema {layout.target.schema!r}, where rows are "
                f"staged and the ledger is: GRANT CREATE ON SCHEMA {quote(layout.target.schema or '')} TO ..."
            )

    def lock_creation(self, session: Session) -> None:
        session.rows("SELECT pg_advisory_xact_lock(hashtext('oncelog.table'))")

    def create_stage(self, stage: TableName, layout: Layout) -> None:
        with self.transaction() as session:
            name = self.dialect.escaped(stage.sql)
            session.change(f"DROP TABLE IF EXISTS {name}")
            session.change(
                f"CREATE UNLOGGED TABLE {name} ({self.dialect.stage_columns(layout)}) WITH (autovacuum_enabled = false)"
            )

    def stages(self, target: TableName, family: str) -> Sequence[str]:
        with self.transaction() as session:
            rows = session.rows(
                "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = %(schema)s AND starts_with(c.relname, %(family)s) AND c.relkind = 'r'",
                {"schema": target.schema, "family": family},
            )
        return [row[0] for row in rows]

    def drop_stage(self, stage: TableName) -> None:
        with contextlib.suppress(psycopg.Error, UnreachableDatabase):
            connection = self._connected()
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {DROP_PATIENCE_MS}")
                connection.execute(f"DROP TABLE IF EXISTS {stage.sql}".encode())

    def fill(self, stage: TableName, layout: Layout, attempt: int, batches: Iterator[pa.RecordBatch]) -> int:
        from oncelog.spark.table.copy_rows import HEADER, TRAILER, encode  # pyarrow, which a committer does not need
        from oncelog.spark.table.values import checked

        connection, rows = self._connected(), 0
        proper = checked(
            batches, layout, nul_replacement=self._settings.nul_replacement, keeps_nul=False, keeps_nan=True
        )
        try:
            with connection.cursor() as cursor, cursor.copy(f"COPY {stage.sql} FROM STDIN BINARY".encode()) as copy:
                copy.write(HEADER)
                for batch in proper:
                    for chunk in encode(batch, layout, attempt, rows):
                        copy.write(memoryview(chunk))
                    rows += batch.num_rows
                copy.write(TRAILER)
        except found_by_server.UndefinedTable:
            raise StagingLost(
                f"the staging area {stage} is gone: another driver has taken over the sink {self._settings.sink!r}, or "
                "this attempt has outlived its batch. Nothing of it is published"
            ) from None
        except psycopg.DataError as error:
            raise BadValue(f"PostgreSQL refuses a value: {error}") from error
        return rows

    def is_outage(self, error: BaseException) -> bool:
        if isinstance(error, UnreachableDatabase):
            return True
        if not isinstance(error, psycopg.Error):
            return False
        if error.sqlstate is not None:
            return error.sqlstate.startswith(OUTAGES)
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)

    def refused_row(self, stage: TableName, layout: Layout, attempts: Sequence[int]) -> str:
        """Of text that is not what its column needs; of what a constraint refuses PostgreSQL shows the row itself."""
        for place, cast in enumerate(layout.casts):
            if cast is None or layout.columns[place].kind is not Kind.TEXT:
                continue
            find = f"SELECT * FROM {self.dialect.escaped(stage.sql)} WHERE {self.dialect.among_attempts()} "
            find += f"AND NOT pg_temp.oncelog_fits(c{place}) LIMIT 1"
            with contextlib.suppress(psycopg.Error, UnreachableDatabase), self.transaction() as session:
                session.change(f"SET LOCAL statement_timeout = {SEARCH_PATIENCE_MS}")
                session.change(FITS.format(type=self.dialect.escaped(cast)))
                for row in session.rows(find, {"attempts": list(attempts)}):
                    return f". It is the row with {_shown(row[-len(layout.columns) :], layout)}"
        return ""

    def explained(self, error: Exception) -> TableError | None:
        if not isinstance(error, psycopg.Error):
            return None
        if self.is_outage(error):
            return UnreachableDatabase(f"PostgreSQL was lost, or does not answer: {_plain(error)}")
        return UnfitTable(f"PostgreSQL refuses what the sink asks of it: {_plain(error)}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _shown(values: Sequence[Any], layout: Layout) -> str:
    return ", ".join(
        f"{column.name}={str(value)[:SHOWN_CHARACTERS]!r}"
        for column, value in zip(layout.columns, values, strict=True)
        if value is not None
    )


def _plain(error: psycopg.Error) -> str:
    """In one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _column(row: Row) -> FoundColumn:
    name, type_name, sql_type, modifier, is_not_null, has_default, is_computed, is_enumeration, collation = row
    precision, scale = None, None
    if type_name == "numeric" and modifier >= 4:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    return FoundColumn(
        name=name,
        type=type_name,
        sql_type=sql_type,
        is_required=is_not_null and not has_default,
        is_computed=is_computed,
        is_free=is_enumeration,
        precision=precision,
        scale=scale,
        collation=collation,
    )


def _unreachable(url: str, error: psycopg.Error) -> str:
    """Without the password, which is part of the address."""
    try:
        parts = conninfo_to_dict(url)
        where = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
    except psycopg.Error:
        return f"the option 'url' is not an address of PostgreSQL ({error}): postgresql://user@host:port/database"
    return f"PostgreSQL at {where} cannot be reached: {str(error).strip()}"
