"""What the errors of a consumer tell: the partitions, and what to do."""

from __future__ import annotations

import pytest

from oncelog.client.consumer_errors import (
    CommitFailed,
    ConsumerTimedOut,
    InvalidOffset,
    LogTruncated,
    MaxPollExceeded,
    NoOffsetForPartition,
    NotAssigned,
    PositionOutOfRange,
    RecordDeserializationError,
)
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.errors import OffsetOutOfRange, OncelogError
from oncelog.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
CAUSE = ValueError("no number")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NoOffsetForPartition([A1, A0]), ("a-0, a-1", "auto.offset.reset is none", "seek()", "earliest or latest")),
        (PositionOutOfRange({A0: 17}), ("a-0 at 17", "seek()", "earliest or latest")),
        (
            LogTruncated({A0: 17, A1: 3}, {A0: OffsetAndMetadata(12, leader_epoch=4), A1: None}),
            ("a-0 at 17, the log agrees up to offset 12", "a-1 at 3, the log agrees up to an unknown offset", "seek()"),
        ),
        (
            MaxPollExceeded(300_000),
            ("max.poll.interval.ms (300000)", "max.poll.records", "the next poll() joins again"),
        ),
        (NotAssigned([A0]), ("a-0", "assign()", "on_assigned")),
        (
            RecordDeserializationError(A1, 9, "value", CAUSE),
            ("value of a-1 at offset 9", "no number", "seek() to offset 10", "value_deserializer"),
        ),
    ],
)
def test_each_says_what_was_found_and_what_to_do(error: OncelogError, words: tuple[str, ...]) -> None:
    for word in words:
        assert word in str(error)


def test_they_carry_what_a_program_needs() -> None:
    truncated = LogTruncated({A0: 17}, {A0: OffsetAndMetadata(12)})
    assert (truncated.partitions, truncated.positions) == (frozenset([A0]), {A0: 17})
    assert truncated.divergent == {A0: OffsetAndMetadata(12)}
    assert truncated.code == OffsetOutOfRange.code
    assert NoOffsetForPartition([A0, A1]).partitions == {A0, A1}
    failed = RecordDeserializationError(A1, 9, "key", CAUSE)
    assert (failed.partition, failed.offset, failed.field, failed.cause) == (A1, 9, "key", CAUSE)


def test_they_can_be_caught_by_what_they_are() -> None:
    assert issubclass(MaxPollExceeded, CommitFailed)
    assert issubclass(LogTruncated, PositionOutOfRange)
    assert issubclass(PositionOutOfRange, InvalidOffset)
    assert issubclass(PositionOutOfRange, OffsetOutOfRange)
    assert issubclass(ConsumerTimedOut, TimeoutError)
