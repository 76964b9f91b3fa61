"""`atomic=batch`: all slots write into one transaction, so that readers see a batch at once or not at all.

The planner gets the producer id and epoch of `{prefix}-batch`, the tasks write with them, each to partitions that no
other task writes to, with sequence numbers of its own from 0. What a task that failed had written stays in the
transaction: it cannot be taken back alone. So a task may be tried once only, and before anything is decided, the
partitions' own count of what they stored must be what the tasks report; else the batch is aborted and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncelog.spark.sink.attempts import Place, Prepared, TaskResult
from oncelog.spark.sink.errors import Disagreement, NotWhole
from oncelog.spark.sink.identity import WHOLE_BATCH
from oncelog.types import TopicPartition


def check_attempt(attempt_number: int) -> None:
    """Before a task writes anything."""
    if attempt_number:
        raise NotWhole(
            f"atomic=batch cannot try a task again (attempt {attempt_number}): the first one's records are in the "
            "batch's transaction. The batch will be aborted and replayed; switch spark.speculation off"
        )


def merge(results: Sequence[TaskResult], marker: Place, stored: Mapping[TopicPartition, int]) -> list[TaskResult]:
    """As if one task had written all: the results to commit with. `stored` is, for every partition of the transaction
    but the marker's, how many records of it are there (DescribeProducers: the last sequence number, plus one)."""
    writing = [one for one in results if isinstance(one.outcome, Prepared)]
    prepared = [one.outcome for one in writing if isinstance(one.outcome, Prepared)]
    if not prepared:
        return list(results)
    if len({one.transaction for one in prepared}) != 1:
        raise Disagreement("the tasks of an atomic batch wrote into different transactions: nothing was decided")
    ranges = sorted(one for attempt in prepared for one in attempt.ranges)
    reported = {one.partition: one.records for one in ranges}
    if len(reported) != len(ranges):
        raise Disagreement("two tasks of an atomic batch wrote to one partition: nothing was decided")
    if reported != dict(stored):
        differing = sorted(str(one) for one in reported.keys() | stored if reported.get(one) != stored.get(one))
        raise NotWhole(
            f"the transaction of an atomic batch holds other records than its tasks report, in {', '.join(differing)}: "
            "a task was tried more than once. Nothing was decided, the batch can be replayed"
        )
    decide_by_ms = min(one.decide_by_ms for one in prepared)
    whole = Prepared(WHOLE_BATCH, prepared[0].transaction, tuple(ranges), marker, decide_by_ms)
    others = [one for one in results if not isinstance(one.outcome, Prepared)]
    first = writing[0]
    return [TaskResult(first.query_id, first.batch_id, first.slot, first.term, whole), *others]
