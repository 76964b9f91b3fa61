"""The order of things in `plan`, `commit` and `abort`, written once, over whatever the shell provides.

A crash between any two calls leaves a journal from which the next plan goes on. `plan` runs before the tasks of a batch
are started, and nowhere else: it fences every open transaction that is not decided, those of running tasks too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark.sink.attempts import TaskResult
from oncelog.spark.sink.deciding import AlreadyDone, Decide, NothingToDecide, check_term, decide, withdraw
from oncelog.spark.sink.errors import NotFinished
from oncelog.spark.sink.finishing import (
    Commit,
    Fate,
    Finish,
    Look,
    Salvage,
    after_commit,
    after_look,
    after_salvage,
    next_step,
    to_fence,
)
from oncelog.spark.sink.identity import Term
from oncelog.spark.sink.journal import Decided, Done, Ledger, done, fold, pending
from oncelog.spark.sink.ports import Journal, Log, Transactions

MAX_SALVAGES: Final = 3
"""In one call. Each is undone only by a timeout or a takeover in between: more of them mean that something is amiss."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Goes to the tasks: what they may skip, and whose plan they follow."""

    term: Term
    last_done: Mapping[str, Done]


@dataclass(frozen=True, slots=True)
class Sink:
    prefix: str
    journal: Journal
    transactions: Transactions
    log: Log

    def plan(self) -> Planned:
        """Idempotent. Fences first: readers of committed records, of whom a look is one, wait for what is open."""
        self.journal.take_over()
        ledger = fold(self.journal.read())
        foreign = to_fence(self.prefix, self.transactions.list_open(self.prefix), pending(ledger))
        if foreign:
            self.transactions.fence(foreign)
        last_done = done(self._finish_all(ledger))
        return Planned(self.journal.held(), last_done)

    def commit(
        self, batch_id: int, results: Sequence[TaskResult], digest: str | None, now_ms: Callable[[], int]
    ) -> None:
        """Returns when the batch is visible. When it raises, the batch is decided or not: only the journal tells. The
        time is read when it is decided: what comes before may take long."""
        if not results:
            return
        check_term(self.journal.term(), results)
        self.journal.take_over()
        ledger = self._finish_all(fold(self.journal.read()))
        match decide(ledger, batch_id, results, digest, now_ms()):
            case Decide(decided):
                self.journal.append(decided)
                self._finish(decided)
            case AlreadyDone(attempts) if attempts:
                self.transactions.abort(attempts)
            case AlreadyDone() | NothingToDecide():
                pass

    def abort(self, results: Sequence[TaskResult]) -> None:
        """Takes over before it reads: a decision whose append was not answered is in the journal then, or never."""
        self.journal.take_over()
        attempts = withdraw(fold(self.journal.read()), results)
        if attempts:
            self.transactions.abort(attempts)

    def _finish_all(self, ledger: Ledger) -> Ledger:
        return {**ledger, **{one.query_id: self._finish(one) for one in pending(ledger)}}

    def _finish(self, decided: Decided) -> Done:
        fates: dict[PreparedTransaction, Fate] = {}
        salvages = 0
        while True:
            match next_step(self.prefix, decided, fates):
                case Commit(attempts):
                    answers = self.transactions.commit(attempts)
                    fates |= {a.transaction: after_commit(decided, a, answers[a.transaction]) for a in attempts}
                case Look(attempts):
                    seen = self.log.look(attempts)
                    fates |= {a.transaction: after_look(decided, a, seen[a.transaction]) for a in attempts}
                case Salvage(copies):
                    if salvages == MAX_SALVAGES:
                        raise NotFinished(f"batch {decided.batch_id}: its copies are aborted again and again")
                    salvages += 1
                    # An attempt that took the slot may be writing, or dead: readers would wait before the copy.
                    self.transactions.fence([plan.source.transaction for plan in copies])
                    decided = after_salvage(decided, [(plan, self.log.copy(plan)) for plan in copies])
                    self.journal.append(decided)
                case Finish(entry):
                    self.journal.append(entry)
                    return entry
