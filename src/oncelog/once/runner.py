"""The loop: polls a consumer, has a worker do each batch, and gets over what can go wrong on the way.

- An effect that raises undoes its batch, which is redone one record at a time; the one to blame is tried again, then
goes to the dead-letter topic, or stops the runner if there is none. - A database that is away: rolled back, connected
anew, the same records again. Meanwhile the consumer keeps polling with all partitions paused, so that it stays in its
group. - A partition that goes to another member: what is in hand of it is dropped. It is marked nowhere, so it is not
lost.

Offsets are committed to the broker after the database's transaction, never before.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from oncelog.client import arguments as checked
from oncelog.client import foreign_calls
from oncelog.client.consumer_errors import RecordDeserializationError, WokenUp
from oncelog.client.failure_run import MAX_FAILURES_IN_A_ROW, FailureRun
from oncelog.client.hinting import explained
from oncelog.client.occasional import OccasionalWarning
from oncelog.errors import UnknownTopicOrPartition
from oncelog.once.absence import Absence
from oncelog.once.backoff import Backoff
from oncelog.once.cleaning import STEP, Cleaner, age_ms, clean_dead_letters
from oncelog.once.database import Transaction
from oncelog.once.dead_letters import DeadLetter, DeadLetters, reason_of
from oncelog.once.errors import (
    BadIdentity,
    DatabaseUnavailable,
    LeaseHeld,
    LeaseLost,
    OnceError,
    PartitionFenced,
    PoisonRecord,
)
from oncelog.once.footing import Footing, check_consumer
from oncelog.once.hand import Hand, Unreadable, partition_of
from oncelog.once.handlers import raised_by_handler
from oncelog.once.identity import place
from oncelog.once.outcome import Mark, Outcome, Tally
from oncelog.once.patience import Patience
from oncelog.once.strategy import DEFAULT_SCOPE, Effect, Record, Strategy
from oncelog.once.worker import Worker
from oncelog.printable import clause, counted

logger = logging.getLogger(__name__)

POLL_S = 0.5
WARNINGS_AT_ONCE = 10
"""So many records that are given up are told of one by one in ten seconds; of the others there is a count."""
COMMIT_INTERVAL_S = 1.0
COMMIT_PATIENCE_S = 5.0
"""How long the end of a run waits for the broker to take the last offsets; records are recognised without them."""
SHIP_INTERVAL_S = 5.0
SHIP_SLICE_S = 0.5
"""How long a shipment of dead letters is waited for in between: a producer may need minutes while brokers are away."""
SHIP_PATIENCE_S = 5.0
"""How long the end of a run waits for its dead letters; those that are not stored by then wait in the database."""
CLEAN_INTERVAL_S = 1.0
MAX_CLEAN_STEPS = 100
DEFAULT_ATTEMPTS = 5
DEFAULT_PATIENCE_S = 300.0


class Runner:
    """Makes `effect(connection, record)` happen once for every record that `consumer` reads.

    `database` is a path of SQLite, a URL such as `postgresql://user@host/name`, an SQLAlchemy engine (SQLite,
    PostgreSQL), or a `once.Database`. `topics` are
    subscribed to, unless the consumer was subscribed or assigned before. The `scope` keeps effects of several groups in
    one database apart; it is the group's id unless you say otherwise.

    `attempts` is how often an effect is tried before its record is sent to `dead_letter`, or, without one,
    `PoisonRecord` is raised. Each of them is a WARNING in the log. After `max_failures_in_a_row` without one that went
    well between them `TooManyFailures` is raised instead: then the effect is to blame, and the topic stays where it is.
    `patience_s` is how long the database may be away before `run` raises. `keep_s` deletes
    marks of messages that are older; it must be longer than a message can be delivered again, and without it marks are
    kept forever.
    """

    @explained(foreign_calls.RUNNER)
    def __init__(
        self,
        consumer: Any,
        database: Any,
        effect: Effect,
        *,
        topics: Any = None,
        strategy: Strategy | None = None,
        scope: str | None = None,
        batch_size: int = 500,
        attempts: int = DEFAULT_ATTEMPTS,
        dead_letter: DeadLetter | None = None,
        max_failures_in_a_row: int = MAX_FAILURES_IN_A_ROW,
        keep_s: float | None = None,
        patience_s: float = DEFAULT_PATIENCE_S,
    ) -> None:
        check_consumer(consumer)
        if dead_letter is not None and not isinstance(dead_letter, DeadLetter):
            raise TypeError(f"dead_letter is a once.DeadLetter(producer, topic), not {checked.shown(dead_letter)}")
        checked.whole_number(batch_size, "batch_size", least=1)
        checked.whole_number(attempts, "attempts", least=1)
        checked.whole_number(max_failures_in_a_row, "max_failures_in_a_row", least=1)
        self._consumer = consumer
        scope = scope or getattr(getattr(consumer, "config", None), "group_id", None) or DEFAULT_SCOPE
        self._worker = Worker(database, effect, strategy, scope=scope)
        self._hand = Hand()
        self._footing = Footing(consumer, self._worker.guard, self._hand, topics)
        self._batch_size = batch_size
        self._attempts = attempts
        self._dead_letters = DeadLetters(self._worker.database, scope, dead_letter) if dead_letter else None
        self._failures = FailureRun(max_failures_in_a_row)
        self._burials = OccasionalWarning(logger, at_once=WARNINGS_AT_ONCE)
        self._patience_s = checked.seconds(patience_s, "patience_s")
        self._keep_ms = None if keep_s is None else age_ms(keep_s, "keep_s")
        self._cleaner = Cleaner(self._worker.database, self._worker.guard.table) if self._worker.guard.table else None
        self._absence = Absence(f"once: {self._worker.database.place}")
        self._stopping = threading.Event()
        self._next_commit = self._next_ship = self._next_clean = 0.0
        self._cleaned_at = 0
        self.tally = Tally()

    # --- the loop --------------------------------------------------------------------------------------------------

    @explained(foreign_calls.RUN)
    def run(self, *, max_records: int | None = None, until_idle: float | None = None) -> Tally:
        """Work until `stop()`, until `max_records` are dealt with, or until none came for `until_idle` seconds after
        the group assigned partitions.

        Returns how many records came to which end since the runner was made. Whatever is raised, nothing is lost: what
        is not dealt with is read again by the next run. With `until_idle` ConsumerTimedOut is raised if that time
        passes without a connection to any broker, or if the group assigns nothing within `max.poll.interval.ms`;
        without it the runner waits for as long as it takes, and its log says for what. UnknownTopicOrPartition is
        raised instead of ending if none of the topics exists by then.
        """
        until_idle = checked.timeout_s(until_idle, "until_idle")
        checked.limit(max_records)
        self._footing.take()
        try:
            self._run(max_records, until_idle)
        finally:
            self._footing.return_unsettled()
            self._footing.commit(COMMIT_PATIENCE_S if until_idle is None else min(COMMIT_PATIENCE_S, until_idle))
            self._stopping.clear()
        return self.tally

    def _run(self, max_records: int | None, until_idle: float | None) -> None:
        goal = None if max_records is None else self.tally.total + max_records
        assignments, last_seen = 0, time.monotonic()
        patience = None if until_idle is None else Patience(self._consumer, until_idle, last_seen)
        while not self._stopping.is_set() and (goal is None or self.tally.total < goal):
            limit = self._batch_size if goal is None else min(self._batch_size, goal - self.tally.total)
            if self._footing.unclaimed:
                self._insist(self._footing.claim)
            self._hand.take(self._next_records(limit))
            if self._hand.records or assignments != self._footing.assignments or not self._footing.is_placed:
                self._work(self._hand.records)
                assignments, last_seen = self._footing.assignments, time.monotonic()
            elif until_idle is not None and time.monotonic() - last_seen >= until_idle:
                if patience is not None:
                    patience.check_connected()
                self._check_topics()
                break
            if patience is not None:
                patience.check(time.monotonic(), is_assigned=self._footing.is_placed)
            self._keep_house()
        self._ship_last()

    def _check_topics(self) -> None:
        """What ends because nothing came ends well, unless there is no topic that anything could come from."""
        topics = self._consumer.subscription()
        names = frozenset() if isinstance(topics, re.Pattern) else frozenset(topics or ())
        missing: frozenset[str] = getattr(self._consumer, "missing_topics", frozenset())
        if names and missing >= names:
            raise UnknownTopicOrPartition(f"there is nothing to read: no topic {', '.join(sorted(names))} exists")

    def stop(self) -> None:
        """End `run` after the batch in hand. May be called from any thread, or from a signal's handler."""
        self._stopping.set()

    def close(self) -> None:
        """Let go of the database. The consumer is yours to close."""
        if self._dead_letters is not None:
            self._unless_away(self._dead_letters.give_up)
        self._worker.close()

    def _next_records(self, limit: int) -> list[Any]:
        spare, self._hand.spare = self._hand.spare[:limit], self._hand.spare[limit:]
        return spare or self._poll(POLL_S, limit)

    def _poll(self, timeout_s: float, limit: int) -> list[Any]:
        try:
            return list(self._consumer.poll(timeout_s, max_records=limit))
        except WokenUp:
            return []
        except RecordDeserializationError as error:
            if self._dead_letters is None:
                raise
            return [Unreadable(*error.partition, error.offset, error)]

    # --- records ---------------------------------------------------------------------------------------------------

    def _work(self, records: Sequence[Record]) -> None:
        """All at once; if an effect fails, one by one."""
        if records and isinstance(records[0], Unreadable):  # it comes alone
            self._pass_over(records[0])
            return
        try:
            self._insist(lambda: self._do(records))
            return
        except Exception as error:
            if not self._is_poison(error):
                raise
            failure = error
        if len(records) == 1:
            self._retry(records[0], failure)
            return
        for record in records:
            if not self._stopping.is_set():
                self._work([record])

    def _pass_over(self, record: Unreadable) -> None:
        """The consumer stays at it until it is told otherwise. If burying it was given up, it is read again: the runner
        was stopped, or the partition went, even if it came back."""
        self._bury(record, record.error, 1)
        if self._hand.is_settled(record):
            self._consumer.seek(partition_of(record), record.offset + 1)

    def _do(self, records: Sequence[Record]) -> None:
        valid = self._hand.valid(records)
        if valid:
            self._settle(valid, self._worker.process(valid))

    def _settle(self, records: Sequence[Record], outcomes: list[Outcome]) -> None:
        self._hand.settle(records)
        self.tally.add(outcomes)
        if Outcome.DONE in outcomes:
            self._failures.succeeded()

    def _retry(self, record: Record, failure: Exception) -> None:
        backoff = Backoff()
        for _ in range(1, self._attempts):
            self._rest(backoff)
            if self._stopping.is_set():
                return
            try:
                self._insist(lambda: self._do([record]))
                return
            except Exception as error:
                if not self._is_poison(error):
                    raise
                failure = error
        self._bury(record, failure, self._attempts)

    def _is_poison(self, error: Exception) -> bool:
        """Whether the record is to blame: what its effect raised, or an id that is none."""
        if not self._worker.is_performing and raised_by_handler(error) is not None:
            return False
        return isinstance(error, BadIdentity) or not isinstance(error, OnceError)

    # --- dead letters ----------------------------------------------------------------------------------------------

    def _bury(self, record: Record, failure: Exception, attempts: int) -> None:
        if self._dead_letters is None:
            raise PoisonRecord(
                f"the effect of {place(record)} failed {counted(attempts, 'time')}: {failure!r}. Fix the effect, or"
                " give the runner a dead_letter to send such records to"
            ) from failure
        reason, dead_letters = reason_of(failure, record), self._dead_letters
        self._failures.failed(place(record), failure)
        self._burials.give(
            int(time.monotonic() * 1000),
            "%s goes to the dead-letter topic %r after %s: %s",
            place(record),
            dead_letters.topic,
            counted(attempts, "attempt"),
            reason,
        )
        self._insist(lambda: self._fail(record, reason, attempts, dead_letters))
        self._next_ship = 0.0

    def _fail(self, record: Record, reason: str, attempts: int, dead_letters: DeadLetters) -> None:
        """Its mark says failed, and its dead letter is written, in one transaction."""
        if not self._hand.valid([record]):
            return

        def write(transaction: Transaction, admitted: list[Record]) -> None:
            for each in admitted:
                dead_letters.write(transaction, each, reason, attempts)

        try:
            outcomes = self._worker.apply([record], Mark("failed", reason), write)
        except Exception as error:
            if self._worker.is_outage(error) or not self._is_poison(error):
                raise
            outcomes = [dead_letters.write_unmarked(record, reason, attempts)]  # not even its id can be told
        self._settle([record], [Outcome.FAILED if each is Outcome.DONE else each for each in outcomes])
        self._failures.moved()

    # --- what may be away for a while ------------------------------------------------------------------------------

    def _insist(self, act: Callable[[], object]) -> None:
        """Until it succeeds, or the runner is stopped. Only what waiting cannot mend is raised."""
        backoff, began = Backoff(), time.monotonic()
        database = self._worker.database
        while True:
            try:
                act()
                self._absence.ends()
                return
            except PartitionFenced as fenced:
                self._footing.step_back(fenced)
                continue
            except Exception as error:
                is_outage = self._worker.is_outage(error)
                interruption = raised_by_handler(error)
                if interruption is not None and not self._worker.is_performing:
                    raise interruption from None
                if not is_outage and not isinstance(error, LeaseHeld | LeaseLost):
                    raise
                if time.monotonic() - began > self._patience_s:
                    raise DatabaseUnavailable(
                        f"gave up after {self._patience_s:g} s: {clause(error)}. Nothing is lost: run again later"
                    ) from error
                if database.is_outage(error):
                    again = f"the same records are tried again, for up to {self._patience_s:g} s; nothing is lost"
                    self._absence.begins(first_line(error), again)
            if is_outage:
                database.disconnect()
            self._rest(backoff)
            if self._stopping.is_set():
                return

    def _rest(self, backoff: Backoff) -> None:
        """Wait, but keep polling, at least once: a consumer that does not poll is put out of its group."""
        left_s = backoff.next_s(random.random())
        until = time.monotonic() + left_s
        self._footing.pause_all()
        try:
            while not self._stopping.is_set() and left_s > 0:
                try:
                    polled = self._consumer.poll(min(left_s, POLL_S), max_records=self._batch_size)
                    self._hand.spare += polled  # not in one line: polling may drop what was spare before
                except (WokenUp, RecordDeserializationError):
                    self._stopping.wait(min(left_s, POLL_S))  # of a new partition; it will be said again
                left_s = until - time.monotonic()
        finally:
            self._footing.resume_all()

    # --- now and then ----------------------------------------------------------------------------------------------

    def _keep_house(self) -> None:
        now = time.monotonic()
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_INTERVAL_S
            self._footing.commit_later()
        if now >= self._next_ship:
            self._next_ship = now + SHIP_INTERVAL_S
            self._unless_away(self._ship)
        if self._keep_ms is not None and now >= self._next_clean:
            self._next_clean = now + CLEAN_INTERVAL_S
            self._unless_away(lambda: self._clean(self._keep_ms or 0))

    def _ship(self) -> None:
        """A shipment at a time: records go on meanwhile."""
        dead_letters = self._dead_letters
        if dead_letters is not None:
            patience_s = 0.0 if dead_letters.is_shipping else SHIP_SLICE_S
            if dead_letters.ship(patience_s, time.monotonic()):
                self._next_ship = 0.0

    def _ship_last(self) -> None:
        """As many as can be sent in a while: no poll has to wait for them any more, but whoever wants the end."""
        dead_letters = self._dead_letters
        if dead_letters is None:
            return
        deadline = time.monotonic() + SHIP_PATIENCE_S

        def ship() -> None:
            now = time.monotonic()
            while dead_letters.ship(max(0.0, deadline - now), now) and now < deadline:
                now = time.monotonic()

        self._unless_away(ship)
        self._unless_away(dead_letters.give_up)

    def _clean(self, keep_ms: int) -> None:
        """Looks at twice as many rows as have come, so that the table stays within a bound."""
        came, self._cleaned_at = self.tally.total - self._cleaned_at, self.tally.total
        if self._cleaner is not None:
            for _ in range(min(1 + 2 * came // STEP, MAX_CLEAN_STEPS)):
                self._cleaner.step(keep_ms)
        if self._dead_letters is not None:
            clean_dead_letters(self._worker.database, keep_ms)

    def _unless_away(self, act: Callable[[], object]) -> None:
        """What can wait for another time."""
        try:
            act()
        except Exception as error:
            if not self._worker.is_outage(error):
                raise
            self._worker.database.disconnect()


def first_line(error: BaseException) -> str:
    """Drivers add hints, and SQLAlchemy the statement, in further lines."""
    return str(error).partition("\n")[0]
