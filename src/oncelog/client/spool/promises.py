"""What users hold of records that are not decided yet, without a cost for each of them.

All undecided records of a partition share one `Delivery`. When the first of them are decided, it is split: into one
part for each batch, which is settled, and one for the rest, which goes on. Futures find their part by their number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from oncelog.client.delivery import Delivery, OnDelivery, RecordFuture, Waiter, new_future
from oncelog.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition

logger = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """What became of consecutive entries."""

    first: int
    end: int
    base_offset: int = NO_OFFSET
    append_time_ms: int = NO_TIMESTAMP
    error: Exception | None = None


class Promises:
    """Of one partition, from its first entry in this process on."""

    def __init__(self, place: TopicPartition, first: int, new_waiter: Callable[[], Waiter]) -> None:
        self._place = place
        self._zero = first
        self._new_waiter = new_waiter
        self._undecided = Delivery(*place, new_waiter)
        self._callbacks: dict[int, tuple[OnDelivery, int]] = {}
        """By entry, with the time of the record."""

    def give(self, entry: int, timestamp_ms: int, on_delivery: OnDelivery | None) -> RecordFuture:
        """To be called with the lock held."""
        if on_delivery is not None:
            self._callbacks[entry] = (on_delivery, timestamp_ms)
        return new_future(self._undecided, entry - self._zero, timestamp_ms)

    def split(self, end: int) -> tuple[Delivery, Delivery] | None:
        """With the lock held: entries from `end` on become the rest. What is to be kept, and the rest; None if that
        would be everything."""
        if end - self._zero <= self._undecided.first_index:
            return None
        split, self._undecided = self._undecided, Delivery(*self._place, self._new_waiter, end - self._zero)
        return split, self._undecided

    def keep(self, promised: Delivery, rest: Delivery, outcomes: list[Outcome]) -> None:
        """Tell users, in order: callbacks first, so that `result()` returns after they ran."""
        parts = []
        at = self._zero + promised.first_index
        for outcome in [*outcomes, Outcome(self._zero + rest.first_index, self._zero + rest.first_index)]:
            if at < outcome.first:  # settled, and nobody knows where it is stored
                parts.append(self._part(Outcome(at, outcome.first), at))
            at = max(at, outcome.first)
            if at < outcome.end:
                parts.append(self._part(outcome, at))
                at = outcome.end
        promised.split_into([*parts, rest])

    def _part(self, outcome: Outcome, first: int) -> Delivery:
        part = Delivery(*self._place, self._new_waiter, first - self._zero)
        if outcome.error is not None:
            part.fail(outcome.error)
        elif outcome.base_offset != NO_OFFSET:
            part.settle(outcome.base_offset + first - outcome.first, outcome.append_time_ms)
        self._call_back(part, first, outcome.end)
        part.announce()
        return part

    def _call_back(self, part: Delivery, first: int, end: int) -> None:
        if not self._callbacks:
            return
        for entry in range(first, end):
            on_delivery, timestamp_ms = self._callbacks.pop(entry, (None, 0))
            if on_delivery is not None and part.error is not None:
                _call(on_delivery, None, part.error)
            elif on_delivery is not None:
                _call(on_delivery, part.metadata(entry - self._zero, timestamp_ms), None)

    def break_all(self, error: Exception) -> None:
        """Nothing more is decided in this process."""
        callbacks, self._callbacks = self._callbacks, {}
        for on_delivery, _ in callbacks.values():
            _call(on_delivery, None, error)
        self._undecided.fail(error)
        self._undecided.announce()


def _call(on_delivery: OnDelivery, *arguments: object) -> None:
    try:
        on_delivery(*arguments)  # type: ignore[arg-type]
    except BaseException:  # even an exit: it would end the sender's thread, and not the program
        logger.exception("a delivery callback raised; the record's fate is not changed by that")
