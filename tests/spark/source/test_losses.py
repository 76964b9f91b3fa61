from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.spark.source.losses import (
    DataLoss,
    LogBounds,
    OffsetsBeyondLog,
    SkipTo,
    Wait,
    outside,
    planned,
    recreated,
    stalled,
    unread_starts,
)
from oncelog.spark.source.ranges import OffsetRange
from oncelog.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_query_reads_on_where_it_was() -> None:
    plan = planned({A: 3, B: 5}, {A: 7, B: 5}, {})
    assert plan.ranges == (OffsetRange(A, 3, 7), OffsetRange(B, 5, 5))
    assert plan.losses == ()


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert unread_starts({A: 3}, {A: 7, B: 9}) == {B}
    plan = planned({A: 3}, {A: 7, B: 9}, {B: 0})
    assert plan.ranges == (OffsetRange(A, 3, 7), OffsetRange(B, 0, 9))
    assert plan.losses == ()


def test_a_new_partition_that_was_truncated_is_a_loss() -> None:
    plan = planned({}, {B: 9}, {B: 4})
    assert plan.ranges == (OffsetRange(B, 4, 9),)
    assert "t-1 is new to this query, and its log begins at 4" in plan.losses[0].what


def test_a_partition_that_is_gone_is_a_loss() -> None:
    plan = planned({A: 3, B: 5}, {A: 7}, {})
    assert plan.ranges == (OffsetRange(A, 3, 7),)
    assert "t-1 is not there any more, offset 5 was next" in plan.losses[0].what
    assert "failOnDataLoss=false" in str(plan.losses[0].error())


def test_a_log_that_went_backwards_is_another_one_and_is_read_from_its_beginning() -> None:
    assert unread_starts({A: 30}, {A: 7}) == {A}
    plan = planned({A: 30}, {A: 7}, {A: 2})
    assert plan.ranges == (OffsetRange(A, 2, 7),)
    assert "t-0 ends at offset 7, before offset 30" in plan.losses[0].what


def test_a_topic_with_another_id_was_created_again() -> None:
    first, second = UUID(int=1), UUID(int=2)
    assert recreated({"a": first}, {"a": first, "b": second}) == []
    assert [loss.what for loss in recreated({"a": first}, {"a": second})] == ["topic 'a' was deleted and created again"]


def test_offsets_that_a_user_gives_must_exist() -> None:
    assert outside({A: 4, B: 9}, {A: 4, B: 4}, {A: 9, B: 9}) == []
    gone, beyond = outside({A: 3, B: 10}, {A: 4, B: 4}, {A: 9, B: 9})
    assert isinstance(gone.error(), DataLoss)
    assert str(gone.error()).startswith(
        "partition t-0 was to be read from offset 3 on, but its log has 4 to 9: records"
    )
    assert isinstance(beyond.error(), OffsetsBeyondLog)
    assert "gone" not in str(beyond.error())
    assert str(beyond).startswith(
        "partition t-1 was to be read from offset 10 on, but its log ends at 9: no record was"
    )


def test_an_end_that_the_log_does_not_have_is_called_one() -> None:
    (beyond,) = outside({A: 100}, {A: 4}, {A: 9}, is_end=True)
    assert (
        str(beyond)
        == "partition t-0 was to be read up to offset 100, but its log ends at 9: no record was written there yet"
    )


READING = OffsetRange(A, 10, 20)


@pytest.mark.parametrize("is_patient", [True, False])
def test_what_was_removed_is_skipped(is_patient: bool) -> None:
    for log_start, skipped in ((15, 15), (40, 20)):
        verdict = stalled(READING, 12, LogBounds(log_start, 50), is_patient=is_patient)
        assert isinstance(verdict, SkipTo)
        assert verdict.offset == skipped
        assert f"offsets 12 to {skipped} of partition t-0 were removed" in verdict.loss.what


def test_a_deleted_partition_has_nothing_to_read() -> None:
    verdict = stalled(READING, 12, None, is_patient=True)
    assert isinstance(verdict, SkipTo)
    assert verdict.offset == 20


def test_a_log_that_ends_too_early_gets_time_to_catch_up() -> None:
    for position in (15, 17):
        assert stalled(READING, position, LogBounds(0, 15), is_patient=True) == Wait()
        verdict = stalled(READING, position, LogBounds(0, 15), is_patient=False)
        assert isinstance(verdict, SkipTo)
        assert verdict.offset == 20
        assert "ends at offset 15" in verdict.loss.what


def test_a_silent_broker_is_no_loss() -> None:
    assert stalled(READING, 12, LogBounds(0, 50), is_patient=False) == Wait()


@pytest.mark.parametrize("is_patient", [True, False])
def test_records_of_a_log_that_ends_too_early_are_not_skipped(is_patient: bool) -> None:
    assert stalled(READING, 12, LogBounds(0, 15), is_patient=is_patient) == Wait()
