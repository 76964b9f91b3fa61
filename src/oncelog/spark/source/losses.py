"""When records are gone that a query has not read, and what that means for the ranges it reads.

Missing offsets alone are no loss: markers, aborted records and compaction leave gaps. A loss is a range that begins
before the first offset of its log, a log that ends before where the query was, or a partition that is not there any
more. Every function here returns what it found; whether that fails the query or is only said is `failOnDataLoss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from oncelog.errors import OncelogError
from oncelog.spark.source.offsets import Offsets
from oncelog.spark.source.ranges import OffsetRange
from oncelog.types import TopicPartition

_REMEDY = "set failOnDataLoss=false to go on without them, or start a new query with a new checkpoint"


class DataLoss(OncelogError):
    """Records that the query has not read are gone."""


class OffsetsBeyondLog(OncelogError):
    """A query names offsets that its topics do not have, or do not have yet. Nothing is gone."""


@dataclass(frozen=True, slots=True)
class Loss:
    what: str

    def error(self) -> OncelogError:
        return DataLoss(f"{self}; {_REMEDY}")

    def __str__(self) -> str:
        return f"{self.what}: records that this query has not read are gone"


@dataclass(frozen=True, slots=True)
class BeyondLog(Loss):
    """No loss, but like one it fails the query or is only said, and what is there is read."""

    def error(self) -> OncelogError:
        return OffsetsBeyondLog(f"{self}. Give offsets up to its end, or latest; or set failOnDataLoss=false")

    def __str__(self) -> str:
        return f"{self.what}: no record was written there yet"


@dataclass(frozen=True, slots=True)
class Plan:
    ranges: tuple[OffsetRange, ...]
    losses: tuple[Loss, ...]


def unread_starts(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """The partitions that are read from the beginning of their log: new ones, and those whose log ends before where the
    query was, so that it must be another log."""
    return {partition for partition, offset in end.items() if partition not in start or offset < start[partition]}


def planned(start: Offsets, end: Offsets, log_starts: Mapping[TopicPartition, int]) -> Plan:
    """The ranges between two offsets of the query. `log_starts` has the first offset of each of `unread_starts`."""
    losses = [
        Loss(f"partition {gone} is not there any more, offset {start[gone]} was next")
        for gone in sorted(start.keys() - end.keys())
    ]
    ranges = []
    for partition, last in sorted(end.items()):
        first = start.get(partition)
        if first is None:
            first = log_starts[partition]
            if first > 0:
                losses.append(
                    Loss(f"partition {partition} is new to this query, and its log begins at {first}, not at 0")
                )
        elif last < first:
            losses.append(Loss(f"partition {partition} ends at offset {last}, before offset {first}, which was next"))
            first = min(log_starts[partition], last)
        ranges.append(OffsetRange(partition, first, last))
    return Plan(tuple(ranges), tuple(losses))


def recreated(known: Mapping[str, UUID], found: Mapping[str, UUID]) -> list[Loss]:
    """Topics that were deleted, and are others under the same names."""
    return [
        Loss(f"topic {topic!r} was deleted and created again")
        for topic, topic_id in sorted(found.items())
        if known.get(topic, topic_id) != topic_id
    ]


def outside(offsets: Offsets, log_starts: Offsets, log_ends: Offsets, *, is_end: bool = False) -> list[Loss]:
    """Offsets that a user gave, and that the log does not have: for the beginning of what is read, or for its end."""
    found: list[Loss] = []
    for partition, offset in sorted(offsets.items()):
        first, last = log_starts[partition], log_ends[partition]
        wanted = f"up to offset {offset}" if is_end else f"from offset {offset} on"
        if offset < first:
            found.append(Loss(f"partition {partition} was to be read {wanted}, but its log has {first} to {last}"))
        elif offset > last:
            found.append(BeyondLog(f"partition {partition} was to be read {wanted}, but its log ends at {last}"))
    return found


# --- while a task reads -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogBounds:
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Wait:
    """What is missing may still come."""


@dataclass(frozen=True, slots=True)
class SkipTo:
    """Nothing before this offset is left to read; the end of the range if nothing is at all."""

    offset: int
    loss: Loss


def stalled(reading: OffsetRange, position: int, log: LogBounds | None, *, is_patient: bool) -> Wait | SkipTo:
    """Why a task has no next record at `position`. A log that ends too early may belong to a new leader that has not
    caught up yet: as long as the reader is patient, it waits. What the log still has is never skipped, however long
    its broker takes."""
    partition, end = reading.partition, reading.end
    if log is None:
        return SkipTo(end, Loss(f"partition {partition} was deleted while it was read from {position} to {end}"))
    if position < log.start:
        skipped = min(log.start, end)
        return SkipTo(
            skipped,
            Loss(
                f"offsets {position} to {skipped} of partition {partition} were removed (its log begins at {log.start})"
            ),
        )
    if log.end <= position and log.end < end and not is_patient:
        return SkipTo(
            end, Loss(f"partition {partition} ends at offset {log.end}, but was to be read from {position} to {end}")
        )
    return Wait()
