"""Local message table: a row per message, under a unique index, inserted in the transaction of its effect.

Whoever inserts the row does the effect. A second delivery finds the row; a racing one waits for the first to commit or
to roll back, and then finds it or inserts its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.once.database import Database, Transaction
from oncelog.once.identity import SOURCES, Identities, IdOf, first_of_each, run_for_each_source
from oncelog.once.outcome import DONE, Mark, Outcome
from oncelog.once.strategy import Guard, Record, Strategy

MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class MessageTable(Strategy):
    """Each message id once. `id` is a function of the record; without it the id is topic, partition and offset."""

    id: IdOf | None = None

    def bind(self, database: Database, scope: str) -> Guard:
        database.ensure((SOURCES, MESSAGES))
        return _MessageTableGuard(database, Identities(database, scope, self.id))


class _MessageTableGuard(Guard):
    table = MESSAGES

    def __init__(self, database: Database, identities: Identities) -> None:
        self._identities = identities
        dialect = database.dialect
        self._insert = (
            f"INSERT INTO {database.tables.name(MESSAGES)} (source, id, changed_at_ms) "
            f"SELECT :source, value, {dialect.now_ms} FROM {dialect.each_value} WHERE true "
            "ON CONFLICT DO NOTHING RETURNING id"
        )

    def prepare(self, records: Sequence[Record]) -> None:
        self._identities.learn(records)

    def admit(self, transaction: Transaction, records: Sequence[Record], mark: Mark = DONE) -> list[Outcome]:
        keys = self._identities.keys(records)
        rows = run_for_each_source(transaction, self._insert, keys)
        return first_of_each(keys, {(source, row[0]) for source, row in rows})
