"""The law of the ledger: what is published once stays published, and nothing else is.

    oncelog_sinks     one row for each sink: its epoch, which every plan raises, and the table it fills. The table is
                      the sink's from the first batch that is published; until then a plan may name another
    oncelog_batches   one row for each batch that was published, and how many rows it had

A batch's rows and its line in the ledger are one database transaction, which begins by locking the sink's row. So

1. *A batch of a query is published once.* Whoever publishes has read the ledger under the lock.
2. *Only the last plan publishes.* A plan raises the epoch; a committer with an older one is refused, however late it
   wakes. Two drivers on one sink stop each other instead of writing in turns.
3. *Only what tasks report is published*, all of it or nothing: rows carry the number of the attempt that staged them,
   and each attempt's rows are counted against its report. Attempts that nobody names are dropped with their area.
4. *Rows are never skipped by slot.* A replay is known by query and batch, however its rows are spread this time.
5. *The staging area is never the only copy.* Until the ledger has the batch, Spark replays it from the source. So to
   drop an area is always safe, and a database may lose one in a crash.

Spark replays the last batch alone. An earlier one, or the last with other source offsets, means that the checkpoint was
rolled back, and stops the query. A batch without rows has no line: its replay has nothing to repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from oncelog.spark.table.errors import Disagreement, RolledBack, SinkTaken, StagingLost, UnknownQuery

KEPT_BATCHES: Final = 1000
"""Lines of a query that stay in the ledger, for people to look at; one would do."""

RUNS: Final = "run:"
"""What stands for the query of a batch write; its `run.id` follows, if it has one. The id of a stream's query is one of
its kind in the world; a run is named by its sink and its `run.id` together."""


@dataclass(frozen=True, slots=True)
class Line:
    """The last line that a query has in the ledger."""

    query: str
    batch: int
    digest: str | None


@dataclass(frozen=True, slots=True)
class Staged:
    """What one task has put into the staging area, all under the number of its attempt."""

    slot: int
    attempt: int
    rows: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a task tells the committer. `staged` is None for a slot without rows."""

    query: str
    batch: int
    epoch: int
    slot: int
    staged: Staged | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What the reports add up to."""

    query: str
    batch: int
    epoch: int
    staged: tuple[Staged, ...]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.staged)

    @property
    def attempts(self) -> list[int]:
        return [one.attempt for one in self.staged]


def is_run(query: str) -> bool:
    return query.startswith(RUNS)


class Verdict(Enum):
    PUBLISH = "the ledger does not have the batch"
    REPLAYED = "the batch is published already"


def add_up(reports: Sequence[Report]) -> Batch | None:
    """None if no slot had rows."""
    staged = tuple(one.staged for one in reports if one.staged is not None)
    if len({(one.query, one.batch, one.epoch) for one in reports}) > 1:
        found = sorted({f"query {one.query}, batch {one.batch}, plan {one.epoch}" for one in reports})
        raise Disagreement(f"tasks of different batches are committed as one: {'; '.join(found)}")
    slots = [one.slot for one in reports]
    if len(set(slots)) != len(slots):
        raise Disagreement(f"two tasks report for one slot: {sorted(slots)}")
    return Batch(reports[0].query, reports[0].batch, reports[0].epoch, staged) if staged else None


def check_epoch(sink: str, found: int | None, planned: int) -> None:
    if found != planned:
        raise SinkTaken(
            f"the sink {sink!r} was taken over since this batch was planned (epoch {planned}, now {found}): two "
            "queries run with one sink.name, or this one was started again elsewhere. Nothing of the batch was "
            "published; give each running query a sink.name of its own"
        )


def check_target(sink: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise SinkTaken(
            f"the sink {sink!r} fills the table {found}, and this query writes to {wanted}: give it a sink.name of "
            "its own"
        )


def judge(last: Line | None, query: str, batch: int, digest: str | None) -> Verdict:
    if last is None or batch > last.batch:
        return Verdict.PUBLISH
    if batch < last.batch:
        raise RolledBack(
            f"batch {batch} of query {query} comes again, but batch {last.batch} is published already: the checkpoint "
            "was rolled back. Restore the newest checkpoint; or, to write everything again, start with an empty one"
        )
    if digest is not None and last.digest is not None and digest != last.digest:
        raise RolledBack(
            f"batch {batch} of query {query} was published from other source offsets than it has now ({last.digest}, "
            f"not {digest}): the checkpoint was rolled back. Restore the newest checkpoint; or, to write everything "
            "again, start with an empty one"
        )
    return Verdict.REPLAYED


def check_newcomer(sink: str, query: str, earlier: Sequence[str]) -> None:
    """Of plain inserts, where no key and no message id would recognise rows that come again."""
    if not is_run(query) and earlier and query not in earlier:
        raise UnknownQuery(
            f"query {query} is new to the sink {sink!r}, which query {earlier[-1]} has filled: with another checkpoint "
            "its rows may come a second time. Restore the checkpoint; or give the option message.id, so that repeats "
            "are recognised; or new.query=accept if these are other rows"
        )


def check_renamed(sink: str, query: str, other: str | None) -> None:
    if other is not None:
        raise SinkTaken(
            f"query {query} has filled this table as the sink {other!r}, and is now named {sink!r}: a batch that comes "
            f"again would not be recognised. Set sink.name to {other!r} again, or start with an empty checkpoint"
        )


def check_counts(batch: Batch, found: Mapping[int, int]) -> None:
    for one in batch.staged:
        if (rows := found.get(one.attempt, 0)) != one.rows:
            raise StagingLost(
                f"slot {one.slot} of batch {batch.batch} staged {one.rows} rows, of which {rows} are there: the "
                "database was restarted meanwhile, or another driver has swept them. Nothing was published; start the "
                "query again and the batch is written anew"
            )
