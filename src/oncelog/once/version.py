"""Version number: of each entity only newer versions are applied, in whatever order they arrive.

The rows of a batch's entities are locked first, so that two workers with versions of one entity take turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oncelog.once.database import Database, Transaction
from oncelog.once.errors import BadIdentity
from oncelog.once.identity import SOURCES, Identities, IdOf, as_id, place, readable
from oncelog.once.outcome import DONE, Mark, Outcome
from oncelog.once.strategy import Guard, Record, Strategy

VERSIONS = "versions"
NO_VERSION = -(2**63)
MAX_VERSION = 2**63 - 1


def record_key(record: Record) -> object:
    return record.key


@dataclass(frozen=True, slots=True)
class Version(Strategy):
    """`version` tells a record's version, a whole number that grows; `entity` of what it is one (else: its key)."""

    version: Callable[[Any], int]
    entity: IdOf = record_key

    def bind(self, database: Database, scope: str) -> Guard:
        database.ensure((SOURCES, VERSIONS))
        return _VersionGuard(database, scope, self)


class _VersionGuard(Guard):
    table = VERSIONS

    def __init__(self, database: Database, scope: str, strategy: Version) -> None:
        self._strategy = strategy
        self._source = Identities(database, scope).number(f"entity:{scope}")
        table, dialect = database.tables.name(VERSIONS), database.dialect
        self._begin = (
            f"INSERT INTO {table} (source, id, changed_at_ms, version) "
            f"SELECT :source, value, {dialect.now_ms}, {NO_VERSION} FROM {dialect.each_value} WHERE true "
            "ON CONFLICT DO NOTHING"
        )
        self._lock = (
            f"SELECT id, version FROM {table} WHERE source = :source "
            f"AND id IN (SELECT value FROM {dialect.each_value}) ORDER BY id{dialect.for_update}"
        )
        # The rows are there: an INSERT that conflicts finds each by its key, where an UPDATE may search for it.
        self._advance = (
            f"INSERT INTO {table} (source, id, changed_at_ms, version) "
            f"SELECT :source, {dialect.field(0)}, {dialect.now_ms}, {dialect.field(1, 'BIGINT')} "
            f"FROM {dialect.each_row} WHERE true ON CONFLICT (source, id) DO UPDATE SET version = excluded.version, "
            "changed_at_ms = excluded.changed_at_ms"
        )

    def admit(self, transaction: Transaction, records: Sequence[Record], mark: Mark = DONE) -> list[Outcome]:
        found = [self._version_of(record) for record in records]
        entities = {"source": self._source, "rows": json.dumps(sorted({entity for entity, _ in found}))}
        transaction.run(self._begin, entities)
        newest: dict[str, int] = {row[0]: row[1] for row in transaction.run(self._lock, entities)}
        outcomes, advanced = [], {}
        for entity, version in found:
            if version > newest[entity]:
                newest[entity] = advanced[entity] = version
                outcomes.append(Outcome.DONE)
            else:
                outcomes.append(Outcome.REPEATED if version == newest[entity] else Outcome.OUTDATED)
        if advanced:
            transaction.run(self._advance, {"source": self._source, "rows": json.dumps(list(advanced.items()))})
        return outcomes

    def _version_of(self, record: Record) -> tuple[str, int]:
        version = self._strategy.version(readable(record))
        if not isinstance(version, int) or isinstance(version, bool) or not NO_VERSION < version <= MAX_VERSION:
            raise BadIdentity(f"{version!r:.80} is not a version of {place(record)}: give a whole number of 64 bits")
        return as_id(self._strategy.entity(record), record), version
