"""What a consumer raises, besides Kafka's own coded errors. Each says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.errors import OffsetOutOfRange, OncelogError
from oncelog.records.model import RecordDeserializationError
from oncelog.types import TopicPartition

__all__ = [
    "CommitFailed",
    "ConsumerClosed",
    "ConsumerInUse",
    "ConsumerTimedOut",
    "InvalidOffset",
    "LogTruncated",
    "MaxPollExceeded",
    "NoOffsetForPartition",
    "NotAssigned",
    "PositionOutOfRange",
    "RecordDeserializationError",
    "SubscriptionConflict",
    "WokenUp",
]


class CommitFailed(OncelogError):
    """An offset commit came too late: the group has given the partitions to another member.

    The records since the last offset commit may be processed again there. The consumer itself rejoins with the next
    `poll()`."""


class MaxPollExceeded(CommitFailed):
    """More than `max.poll.interval.ms` passed between two `poll()` calls, so the consumer left its group."""

    def __init__(self, max_poll_interval_ms: int) -> None:
        super().__init__(
            f"more than max.poll.interval.ms ({max_poll_interval_ms}) passed since the last poll(), so this consumer"
            " left its group and its partitions went to others: process fewer records a time (max.poll.records), or"
            " raise max.poll.interval.ms; the next poll() joins again"
        )
        self.max_poll_interval_ms = max_poll_interval_ms


class InvalidOffset(OncelogError):
    """Reading cannot go on by itself: `auto.offset.reset` is `none`, and `partitions` have no valid position."""

    def __init__(self, message: str, partitions: Iterable[TopicPartition]) -> None:
        super().__init__(message)
        self.partitions: frozenset[TopicPartition] = frozenset(partitions)


class NoOffsetForPartition(InvalidOffset):
    """The group has committed no offset for these partitions, and `auto.offset.reset` is `none`."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = sorted(partitions)
        super().__init__(
            f"no offset is committed for {_named(wanted)}, and auto.offset.reset is none: seek() to where reading is to"
            " begin, or set auto.offset.reset to earliest or latest",
            wanted,
        )


class PositionOutOfRange(InvalidOffset, OffsetOutOfRange):
    """A position lies outside its partition's log, and `auto.offset.reset` is `none`."""

    def __init__(self, positions: Mapping[TopicPartition, int]) -> None:
        what = ", ".join(f"{partition} at {offset}" for partition, offset in sorted(positions.items()))
        InvalidOffset.__init__(
            self,
            f"outside the log (retention took the records, or the log was cut): {what}; and auto.offset.reset is none:"
            " seek() to an offset that exists, or set auto.offset.reset to earliest or latest",
            positions,
        )
        self.positions: dict[TopicPartition, int] = dict(positions)


class LogTruncated(PositionOutOfRange):
    """A log was cut below a position (a leader was lost with records that no other replica had): what was read from
    there on is no longer in the log."""

    def __init__(
        self, positions: Mapping[TopicPartition, int], divergent: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> None:
        """`divergent` is the first offset at which the log differs from what was read, None where nobody knows."""
        what = ", ".join(
            f"{partition} at {offset}, the log agrees up to {_known(divergent.get(partition))}"
            for partition, offset in sorted(positions.items())
        )
        InvalidOffset.__init__(
            self,
            f"the log was truncated below the position of {what}: records that were read are gone. seek() to the offset"
            " of `divergent` to go on with what replaced them, or set auto.offset.reset",
            positions,
        )
        self.positions: dict[TopicPartition, int] = dict(positions)
        self.divergent: dict[TopicPartition, OffsetAndMetadata | None] = dict(divergent)


class ConsumerClosed(OncelogError, RuntimeError):
    """The consumer was closed, forked away from its thread, or gave up; make a new one."""


class ConsumerInUse(OncelogError, RuntimeError):
    """Two threads (or tasks) use one consumer at once. Give each its own; only `wakeup()` may come from another."""


class ConsumerTimedOut(OncelogError, TimeoutError):
    """The brokers did not answer in the time that the call was given (`default.api.timeout.ms` unless it said
    otherwise)."""


class WokenUp(OncelogError):
    """`wakeup()` was called while this consumer waited, or before. Nothing was lost: call again, or `close()`."""


class SubscriptionConflict(OncelogError, RuntimeError):
    """`subscribe()` leaves the choice of partitions to the group, `assign()` makes it; `unsubscribe()` between them."""


class NotAssigned(OncelogError, RuntimeError):
    """A partition that this consumer does not own at the moment."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = sorted(partitions)
        super().__init__(
            f"{_named(wanted)} is not assigned to this consumer: assign() it, or wait for on_assigned after subscribe()"
        )
        self.partitions: frozenset[TopicPartition] = frozenset(wanted)


def _named(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))


def _known(divergent: OffsetAndMetadata | None) -> str:
    return "an unknown offset" if divergent is None else f"offset {divergent.offset}"
