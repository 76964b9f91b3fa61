"""Which rows of a batch become visible: the choices of a task before it writes, of a commit, and of an abort.

Owns the rules; what they are applied to has been read from a journal that nobody else can write any more. A batch is
decided once. Whoever comes later, with other attempts of the same batch, finds it decided and withdraws its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from oncelog.spark.sink.attempts import Nothing, Prepared, TaskResult
from oncelog.spark.sink.errors import Disagreement, NearExpiry, PrefixInUse, RolledBack
from oncelog.spark.sink.identity import Term
from oncelog.spark.sink.journal import Decided, Done, Ledger


class Choice(Enum):
    WRITE = "write the rows"
    SKIP = "drain the rows: they are visible already"


@dataclass(frozen=True, slots=True)
class Decide:
    """Append it to the journal, then finish it."""

    decided: Decided


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The batch is visible. These attempts of it are not part of that."""

    withdraw: tuple[Prepared, ...]


@dataclass(frozen=True, slots=True)
class NothingToDecide:
    """No slot had any rows. Not journaled: a replay has nothing to repeat."""


Decision = Decide | AlreadyDone | NothingToDecide


def choose(last_done: Mapping[str, Done], query_id: str, batch_id: int) -> Choice:
    """What a task does with its rows. All of a batch choose the same, whatever rows they got this time."""
    done = last_done.get(query_id)
    if done is None or batch_id > done.batch_id:
        return Choice.WRITE
    _check_replay(done, batch_id, None)
    return Choice.SKIP


def decide(ledger: Ledger, batch_id: int, results: Sequence[TaskResult], digest: str | None, now_ms: int) -> Decision:
    """All that the journal had as decided is done by now."""
    if not results:
        return NothingToDecide()
    query_id = _agreed_query(batch_id, results)
    prepared = tuple(one.outcome for one in results if isinstance(one.outcome, Prepared))
    standing = ledger.get(query_id)
    assert not isinstance(standing, Decided), "finish what is decided before anything else is"
    if standing is not None and batch_id <= standing.batch_id:
        _check_replay(standing, batch_id, digest)
        return AlreadyDone(prepared)
    if any(one.outcome is Nothing.SKIPPED for one in results):
        raise Disagreement(
            f"tasks skipped batch {batch_id} of query {query_id}, which the journal does not have as done: was the "
            "journal's topic deleted while the query ran? Nothing was decided; start the query again"
        )
    if not prepared:
        return NothingToDecide()
    _check_time(batch_id, prepared, now_ms)
    return Decide(Decided(query_id, batch_id, digest, prepared))


def withdraw(ledger: Ledger, results: Sequence[TaskResult]) -> tuple[Prepared, ...]:
    """Spark gives a batch up: the attempts to abort. A batch that is decided is never given up, whatever Spark thinks:
    it calls abort() after a commit() that raised, too."""
    return tuple(
        one.outcome
        for one in results
        if isinstance(one.outcome, Prepared) and not _is_decided(ledger, one.query_id, one.batch_id)
    )


def check_term(found: Term | None, results: Sequence[TaskResult]) -> None:
    """Before the journal is taken over for a commit: nobody else has done so since the batch was planned."""
    for one in results:
        if one.term != found:
            raise PrefixInUse(
                f"another driver has taken over the journal since batch {one.batch_id} of query {one.query_id} was "
                "planned: two queries run with one transactional.id.prefix, or this one was started again elsewhere. "
                "Nothing was decided; give each running query a prefix of its own"
            )


def _is_decided(ledger: Ledger, query_id: str, batch_id: int) -> bool:
    standing = ledger.get(query_id)
    return standing is not None and batch_id <= standing.batch_id


def _check_replay(done: Done, batch_id: int, digest: str | None) -> None:
    """Spark replays only the last batch, and that with the same source offsets."""
    if batch_id < done.batch_id:
        raise RolledBack(
            f"batch {batch_id} of query {done.query_id} comes again, but batch {done.batch_id} is written already: the "
            "checkpoint was rolled back. Restore the newest checkpoint; or, to write everything again, start with an "
            "empty one"
        )
    if digest is not None and done.digest is not None and digest != done.digest:
        raise RolledBack(
            f"batch {batch_id} of query {done.query_id} was written from other source offsets than it has now "
            f"({done.digest}, not {digest}): the checkpoint was rolled back. Restore the newest checkpoint; or, to "
            "write everything again, start with an empty one"
        )


def _agreed_query(batch_id: int, results: Sequence[TaskResult]) -> str:
    query_ids = {one.query_id for one in results}
    batch_ids = {one.batch_id for one in results} | {batch_id}
    if len(query_ids) != 1 or len(batch_ids) != 1:
        raise Disagreement(
            f"batch {batch_id} is committed with results of queries {sorted(query_ids)}, batches {sorted(batch_ids)}"
        )
    slots = [one.slot for one in results]
    if len(set(slots)) != len(slots):
        raise Disagreement(f"batch {batch_id} is committed with two results of one slot: {sorted(slots)}")
    skipped = {one.outcome is Nothing.SKIPPED for one in results}
    if len(skipped) != 1:
        raise Disagreement(f"some tasks skipped batch {batch_id} and others did not: they had different plans")
    return query_ids.pop()


def _check_time(batch_id: int, prepared: Sequence[Prepared], now_ms: int) -> None:
    late = [one.transaction.transactional_id for one in prepared if now_ms > one.decide_by_ms]
    if late:
        raise NearExpiry(
            f"batch {batch_id} took so long that the transactions of {', '.join(late)} are about to time out; it will "
            "be written again. Make batches smaller (maxOffsetsPerTrigger), or raise kafka.transaction.timeout.ms and "
            "the broker's transaction.max.timeout.ms"
        )
