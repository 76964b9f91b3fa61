"""From DECIDED to DONE: which transactions to commit, which to look at, which to copy, until all are visible.

Owns what each answer means and what comes next; asks nobody. Sending EndTxn(commit) again is always right for what is
decided. What its answers leave open, the records settle; what was aborted (by its timeout, or by a task that woke late
and took the transactional id) is copied, and the copy takes its place in the journal before it is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark.sink.attempts import Prepared, Range
from oncelog.spark.sink.errors import NotFinished, RecordsGone
from oncelog.spark.sink.identity import holds_output, salvage_id
from oncelog.spark.sink.journal import Decided, Done


class Answer(Enum):
    """What came of EndTxn."""

    COMMITTED = "it is committed, now or before"
    ABORTED = "it was aborted, for certain"
    UNCLEAR = "it is over, or was never there: the coordinator cannot tell which"
    UNANSWERED = "the coordinator could not be asked"


class Seen(Enum):
    """What the marker and the records of the journaled ranges show to a reader of committed records."""

    COMMITTED = "they are visible"
    ABORTED = "they are there, and will never be visible"
    UNSETTLED = "the last stable offset lies before them"
    GONE = "neither the marker nor any record is in the log"


class Fate(Enum):
    UNASKED = "EndTxn must be sent, again perhaps"
    UNCLEAR = "only the records can tell"
    COMMITTED = "visible"
    ABORTED = "to be copied"


Fates = Mapping[PreparedTransaction, Fate]


@dataclass(frozen=True, slots=True)
class Commit:
    attempts: tuple[Prepared, ...]


@dataclass(frozen=True, slots=True)
class Look:
    attempts: tuple[Prepared, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """In a new transaction of `transactional_id`, with a marker: the records of the source's producer id and epoch in
    its ranges, read uncommitted, each to the partition that it is in, in order. Left open."""

    source: Prepared
    transactional_id: str


@dataclass(frozen=True, slots=True)
class Salvage:
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    done: Done


Step = Commit | Look | Salvage | Finish


def next_step(prefix: str, decided: Decided, fates: Fates) -> Step:
    """One kind at a time, for all that need it. Copies are made when no fate is open: one journal record for all."""
    by_fate: dict[Fate, list[Prepared]] = {fate: [] for fate in Fate}
    for one in decided.attempts:
        by_fate[fates.get(one.transaction, Fate.UNASKED)].append(one)
    if by_fate[Fate.UNASKED]:
        return Commit(tuple(by_fate[Fate.UNASKED]))
    if by_fate[Fate.UNCLEAR]:
        return Look(tuple(by_fate[Fate.UNCLEAR]))
    if by_fate[Fate.ABORTED]:
        return Salvage(tuple(Copy(one, salvage_id(prefix, one.slot)) for one in by_fate[Fate.ABORTED]))
    return Finish(Done(decided.query_id, decided.batch_id, decided.digest))


def after_commit(decided: Decided, attempt: Prepared, answer: Answer) -> Fate:
    match answer:
        case Answer.COMMITTED:
            return Fate.COMMITTED
        case Answer.ABORTED:
            return Fate.ABORTED
        case Answer.UNCLEAR:
            return Fate.UNCLEAR
        case Answer.UNANSWERED:
            raise NotFinished(f"{_name(decided, attempt)} could not be committed: its coordinator does not answer")


def after_look(decided: Decided, attempt: Prepared, seen: Seen) -> Fate:
    match seen:
        case Seen.COMMITTED:
            return Fate.COMMITTED
        case Seen.ABORTED:
            return Fate.ABORTED
        case Seen.UNSETTLED:
            raise NotFinished(f"{_name(decided, attempt)} is over, but readers wait before it for another transaction")
        case Seen.GONE:
            raise _gone(decided, attempt, "nothing of it is in the log, so whether it was committed cannot be told")


def after_salvage(decided: Decided, copies: Iterable[tuple[Copy, Prepared]]) -> Decided:
    """The decision with each copy in the place of what it was made from."""
    replacing = {}
    for plan, copy in copies:
        if _contents(plan.source.ranges) != _contents(copy.ranges):
            raise _gone(decided, plan.source, "it was aborted, and some of its records are not in the log any more")
        assert copy.transaction.transactional_id == plan.transactional_id
        replacing[plan.source.transaction] = copy
    attempts = tuple(replacing.get(one.transaction, one) for one in decided.attempts)
    return replace(decided, attempts=attempts)


def to_fence(
    prefix: str, found_open: Iterable[PreparedTransaction], decided: Iterable[Decided]
) -> tuple[PreparedTransaction, ...]:
    """Of the open transactions of this prefix, those that no decision names: of attempts that lost, of slots that are
    no more, of copies that were not journaled. Readers would wait for them until they time out."""
    named = {one.transaction for decision in decided for one in decision.attempts}
    return tuple(one for one in found_open if holds_output(prefix, one.transactional_id) and one not in named)


def _contents(ranges: Iterable[Range]) -> dict[tuple[str, int], int]:
    return {one.partition: one.records for one in ranges}


def _gone(decided: Decided, attempt: Prepared, why: str) -> RecordsGone:
    where = ", ".join(f"{one.partition} {one.first_offset}..{one.last_offset}" for one in attempt.ranges)
    return RecordsGone(
        f"{_name(decided, attempt)} cannot be completed: {why} ({where}). The query stops here, so that nothing is "
        "lost silently; raise retention.ms of the output topics above the longest outage"
    )


def _name(decided: Decided, attempt: Prepared) -> str:
    transactional_id, producer_id, epoch = attempt.transaction
    return (
        f"batch {decided.batch_id} of query {decided.query_id}: the decided transaction of {transactional_id!r} "
        f"(producer {producer_id}, epoch {epoch})"
    )
