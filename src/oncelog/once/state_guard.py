"""State guard: a message goes from unprocessed to done or failed, once; its effect runs in that transaction.

No row and a row that says `unprocessed` mean the same. The way back, from failed to unprocessed, is `reopen`, which
people call after they have mended what made an effect fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.once.database import Database, Transaction
from oncelog.once.identity import SOURCES, Identities, IdOf, first_of_each, run_for_each_source
from oncelog.once.outcome import DONE, Mark, Outcome
from oncelog.once.strategy import DEFAULT_SCOPE, Guard, Record, Strategy

STATES = "states"


@dataclass(frozen=True, slots=True)
class StateGuard(Strategy):
    """Only unprocessed -> done | failed. `id` as for MessageTable."""

    id: IdOf | None = None

    def bind(self, database: Database, scope: str) -> Guard:
        database.ensure((SOURCES, STATES))
        return _StateGuard(database, Identities(database, scope, self.id))

    def reopen(self, database: object, *, scope: str = DEFAULT_SCOPE) -> int:
        """Failed messages of the scope are unprocessed again: their effects run when they are delivered again."""
        opened = Database.of(database)
        opened.ensure((SOURCES, STATES))
        sources = opened.tables.name(SOURCES)
        statement = (
            f"UPDATE {opened.tables.name(STATES)} SET state = 'unprocessed', changed_at_ms = {opened.dialect.now_ms} "
            f"WHERE state = 'failed' AND source IN (SELECT number FROM {sources} "
            "WHERE name = :own_ids OR substr(name, 1, length(:positions)) = :positions) RETURNING id"
        )
        with opened.transaction() as transaction:
            return len(transaction.run(statement, {"own_ids": f"id:{scope}", "positions": f"position:{scope}/"}))


class _StateGuard(Guard):
    table = STATES

    def __init__(self, database: Database, identities: Identities) -> None:
        self._identities = identities
        dialect = database.dialect
        self._move = (
            f"INSERT INTO {database.tables.name(STATES)} AS stored (source, id, changed_at_ms, state, reason) "
            f"SELECT :source, value, {dialect.now_ms}, :state, :reason FROM {dialect.each_value} WHERE true "
            "ON CONFLICT (source, id) DO UPDATE SET state = excluded.state, reason = excluded.reason, "
            "changed_at_ms = excluded.changed_at_ms WHERE stored.state = 'unprocessed' RETURNING id"
        )

    def prepare(self, records: Sequence[Record]) -> None:
        self._identities.learn(records)

    def admit(self, transaction: Transaction, records: Sequence[Record], mark: Mark = DONE) -> list[Outcome]:
        keys = self._identities.keys(records)
        rows = run_for_each_source(transaction, self._move, keys, state=mark.state, reason=mark.reason)
        return first_of_each(keys, {(source, row[0]) for source, row in rows})
