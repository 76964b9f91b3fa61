"""One batch at a time: the effects that are to happen, and the marks that they have, in one transaction.

Retries nothing and polls nothing: that is the `Runner`'s part, or yours if you have a loop of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oncelog.client.arguments import shown
from oncelog.client.functions import objection_to
from oncelog.once.database import Database, Transaction
from oncelog.once.errors import BadEffect
from oncelog.once.message_table import MessageTable
from oncelog.once.outcome import DONE, Mark, Outcome
from oncelog.once.strategy import DEFAULT_SCOPE, Effect, Guard, Record, Strategy, check_strategy
from oncelog.types import TopicPartition

Perform = Callable[[Transaction, list[Record]], object]


class Worker:
    """Makes `effect(connection, record)` happen once per message, in the database behind `database`.

    `scope` keeps several users of one database apart: what one has done, another has not. A worker serves one thread.
    """

    def __init__(
        self, database: Any, effect: Effect, strategy: Strategy | None = None, *, scope: str = DEFAULT_SCOPE
    ) -> None:
        if not callable(effect):
            raise BadEffect(f"the effect is a function of (connection, record), not {shown(effect)}")
        objection = objection_to(effect, ("connection", "record"))
        if objection is not None:
            raise BadEffect(f"the effect: {objection}")
        check_strategy(strategy)
        self.database = Database.of(database)
        self.scope = scope
        self.guard: Guard = (strategy or MessageTable()).bind(self.database, scope)
        self._effect = effect
        self.is_performing = False
        """The last batch ended within its effects: what was raised is theirs, also if a signal's handler raised it."""

    def process(self, records: Sequence[Any]) -> list[Outcome]:
        """All effects in one transaction, and what became of each record. Whatever an effect raises undoes all of them,
        and is raised."""
        effect = self._effect

        def perform(transaction: Transaction, admitted: list[Record]) -> None:
            connection = transaction.connection
            for record in admitted:
                effect(connection, record)

        return self.apply(records, DONE, perform)

    def apply(self, records: Sequence[Record], mark: Mark, perform: Perform) -> list[Outcome]:
        """Mark the records, and perform what is to be done for those that nobody has dealt with, or neither."""
        is_committed = self.is_performing = False
        try:
            self.guard.prepare(records)
            with self.database.transaction() as transaction:
                outcomes = self.guard.admit(transaction, records, mark)
                self.is_performing = True
                perform(transaction, [record for record, each in zip(records, outcomes, strict=True) if each is _DO])
                self.is_performing = False
                self.guard.confirm(transaction)
            is_committed = True
        finally:
            self.guard.settle(is_committed)
        return outcomes

    def is_outage(self, error: BaseException) -> bool:
        """Whether the same records may succeed later, with nothing changed."""
        return self.database.is_outage(error) or self.guard.is_outage(error)

    def close(self) -> None:
        self.database.close()


_DO = Outcome.DONE


def process(
    database: Any, record: Any, effect: Effect, strategy: Strategy | None = None, *, scope: str = DEFAULT_SCOPE
) -> Outcome:
    """One record, once, for people with a loop of their own; a `Worker` saves looking for the tables every time."""
    worker = Worker(database, effect, strategy, scope=scope)
    try:
        worker.guard.claim([TopicPartition(record.topic, record.partition)])
        return worker.process([record])[0]
    finally:
        if worker.database is not database:
            worker.close()
