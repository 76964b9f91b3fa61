from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.spark.sink.atomic import check_attempt, merge
from oncelog.spark.sink.attempts import Nothing, Prepared
from oncelog.spark.sink.deciding import Decide, decide
from oncelog.spark.sink.errors import Disagreement, NotWhole
from oncelog.spark.sink.identity import WHOLE_BATCH
from oncelog.types import TopicPartition
from tests.spark.sink.support import MARKER, prepared, result

SHARED = prepared(WHOLE_BATCH, partition=0).transaction
P0, P1, P2 = (TopicPartition("paid", index) for index in range(3))


def _share(slot: int, partition: int, records: int = 3) -> Prepared:
    return replace(prepared(slot, partition=partition, records=records), transaction=SHARED)


RESULTS = [result(0, _share(0, 1)), result(1, Nothing.EMPTY), result(2, _share(2, 0))]


def test_all_slots_become_one_transaction() -> None:
    merged = merge(RESULTS, MARKER, {P0: 3, P1: 3})
    decision = decide({}, 5, merged, None, 0)
    assert isinstance(decision, Decide)
    (whole,) = decision.decided.attempts
    assert (whole.slot, whole.transaction, whole.marker) == (WHOLE_BATCH, SHARED, MARKER)
    assert [one.partition for one in whole.ranges] == [P0, P1]


@pytest.mark.parametrize("stored", [{P0: 3, P1: 5}, {P0: 3, P1: 3, P2: 1}, {P0: 3}])
def test_records_of_another_attempt_stop_the_batch(stored: dict[TopicPartition, int]) -> None:
    with pytest.raises(NotWhole):
        merge(RESULTS, MARKER, stored)


def test_tasks_must_share_the_transaction_and_no_partition() -> None:
    with pytest.raises(Disagreement, match="different transactions"):
        merge([RESULTS[0], result(2, prepared(2))], MARKER, {})
    with pytest.raises(Disagreement, match="one partition"):
        merge([RESULTS[0], result(2, _share(2, 1))], MARKER, {P1: 6})


def test_without_rows_there_is_nothing_to_merge() -> None:
    assert merge(RESULTS[1:2], MARKER, {}) == RESULTS[1:2]


def test_a_task_is_tried_once() -> None:
    check_attempt(0)
    with pytest.raises(NotWhole):
        check_attempt(1)
