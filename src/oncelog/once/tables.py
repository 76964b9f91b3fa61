"""The tables that effects happen once by: their names, their columns, and how they come to be."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncelog.once.dialect import Dialect
from oncelog.once.errors import OnceError

DEFAULT_PREFIX = "oncelog_"
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")

COLUMNS = {
    "sources": "number {serial}, name TEXT NOT NULL UNIQUE",
    "messages": "source BIGINT NOT NULL, id {id} NOT NULL, changed_at_ms BIGINT NOT NULL, PRIMARY KEY (source, id)",
    "states": (
        "source BIGINT NOT NULL, id {id} NOT NULL, changed_at_ms BIGINT NOT NULL, "
        "state TEXT NOT NULL CHECK (state IN ('unprocessed', 'done', 'failed')), reason TEXT, PRIMARY KEY (source, id)"
    ),
    "tokens": (
        "source BIGINT NOT NULL, id {id} NOT NULL, changed_at_ms BIGINT NOT NULL, "
        "state TEXT NOT NULL CHECK (state IN ('unprocessed', 'done', 'failed')), reason TEXT, "
        "token BIGINT NOT NULL, owner TEXT NOT NULL, expires_at_ms BIGINT NOT NULL, PRIMARY KEY (source, id)"
    ),
    "versions": (
        "source BIGINT NOT NULL, id {id} NOT NULL, changed_at_ms BIGINT NOT NULL, version BIGINT NOT NULL, "
        "PRIMARY KEY (source, id)"
    ),
    "offsets": (
        "scope TEXT NOT NULL, topic TEXT NOT NULL, kafka_partition INTEGER NOT NULL, next_offset BIGINT, "
        "claim BIGINT NOT NULL, owner TEXT NOT NULL, generation INTEGER NOT NULL, changed_at_ms BIGINT NOT NULL, "
        "PRIMARY KEY (scope, topic, kafka_partition)"
    ),
    "dead_letters": (
        "number {serial}, scope TEXT NOT NULL, topic TEXT NOT NULL, kafka_partition INTEGER NOT NULL, "
        "kafka_offset BIGINT NOT NULL, timestamp_ms BIGINT NOT NULL, key {bytes}, value {bytes}, "
        "headers TEXT NOT NULL, reason TEXT NOT NULL, attempts INTEGER NOT NULL, failed_at_ms BIGINT NOT NULL, "
        "claimed_until_ms BIGINT NOT NULL, sent_at_ms BIGINT, UNIQUE (scope, topic, kafka_partition, kafka_offset)"
    ),
}


@dataclass(frozen=True, slots=True)
class Tables:
    """Where the tables stand: `prefix` before every name, and a `schema` of PostgreSQL if you keep them apart."""

    prefix: str = DEFAULT_PREFIX
    schema: str | None = None

    def __post_init__(self) -> None:
        for name in (self.prefix, self.schema):
            if name is not None and not IDENTIFIER.fullmatch(name):
                raise OnceError(f"{name!r} cannot be part of a table's name: use up to 40 letters, digits and _")

    def name(self, table: str) -> str:
        assert table in COLUMNS
        plain = f"{self.prefix}{table}"
        return plain if self.schema is None else f'"{self.schema}".{plain}'

    def exists(self, table: str, dialect: Dialect) -> str:
        """A statement that gives one row if the table is there: who may not create tables can still use them."""
        if dialect.name == "sqlite":
            return f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{self.prefix}{table}'"
        return f"SELECT 1 WHERE to_regclass('{self.name(table)}') IS NOT NULL"

    def creation(self, table: str, dialect: Dialect) -> list[str]:
        columns = COLUMNS[table].format(id=dialect.id_type, bytes=dialect.bytes_type, serial=dialect.serial_key)
        options = "" if "{serial}" in COLUMNS[table] else dialect.table_options
        statements = [f"CREATE TABLE IF NOT EXISTS {self.name(table)} ({columns}){options}"]
        if dialect.name == "postgresql":
            # Two who create at once would meet in PostgreSQL's catalogue, and one would fail.
            statements.insert(0, f"SELECT pg_advisory_xact_lock(hashtext('oncelog {self.name(table)}'))")
            if self.schema is not None:
                statements.insert(1, f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
        return statements
