"""What users hold of records that are not decided yet, without a cost for each of them.

Undecided records of a partition share a `Delivery`. When the first of them are decided, it is split: into one part for
each batch, which is settled, and one for the rest, which goes on. Futures find their part by their number. Records that
come later share another one: a future that is held for long keeps nothing alive but its own neighbours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
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


class Shared(NamedTuple):
    """A delivery that undecided entries share."""

    first: int
    end: int
    delivery: Delivery
    rest: Delivery | None = None
    """For the entries behind `end`, if it was split there."""


class Promises:
    """Of one partition, from its first entry in this process on. `give` and `split` are called with a lock held."""

    def __init__(self, place: TopicPartition, first: int, new_waiter: Callable[[], Waiter]) -> None:
        self._place = place
        self._zero = first
        self._new_waiter = new_waiter
        self._closed: list[Shared] = []
        self._open: Delivery | None = None
        """Of the entries from `_open_first` on."""
        self._open_first = self._next = first
        self._callbacks: dict[int, tuple[OnDelivery, int]] = {}
        """By entry, with the time of the record."""

    def give(self, entry: int, timestamp_ms: int, on_delivery: OnDelivery | None) -> RecordFuture:
        delivery = self._open
        if delivery is None:
            delivery = self._open = self._delivery_from(entry)
            self._open_first = entry
        self._next = entry + 1
        if on_delivery is not None:
            self._callbacks[entry] = (on_delivery, timestamp_ms)
        return new_future(delivery, entry - self._zero, timestamp_ms)

    def split(self, end: int) -> list[Shared]:
        """What entries below `end` share, cut off there; those behind go on."""
        if self._open is not None and self._open_first < end:
            self._closed.append(Shared(self._open_first, self._next, self._open))
            self._open = None
        decided, undecided = [], []
        for shared in self._closed:
            if shared.first >= end:
                undecided.append(shared)
            elif shared.end <= end:
                decided.append(shared)
            else:
                rest = self._delivery_from(end)
                decided.append(shared._replace(end=end, rest=rest))
                undecided.append(Shared(end, shared.end, rest))
        self._closed = undecided
        return decided

    def _delivery_from(self, entry: int) -> Delivery:
        return Delivery(*self._place, self._new_waiter, entry - self._zero)

    def keep(self, decided: list[Shared], outcomes: list[Outcome]) -> None:
        """Tell users, in order: callbacks first, so that `result()` returns after they ran."""
        for shared in decided:
            parts = [self._part(*one) for one in _within(shared.first, shared.end, outcomes)]
            shared.delivery.split_into(parts if shared.rest is None else [*parts, shared.rest])

    def _part(self, first: int, end: int, outcome: Outcome) -> Delivery:
        part = self._delivery_from(first)
        if outcome.error is not None:
            part.fail(outcome.error)
        elif outcome.base_offset != NO_OFFSET:
            part.settle(outcome.base_offset + first - outcome.first, outcome.append_time_ms)
        self._call_back(part, first, end)
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
        deliveries = [shared.delivery for shared in self._closed]
        for delivery in deliveries if self._open is None else [*deliveries, self._open]:
            delivery.fail(error)
            delivery.announce()


def _within(first: int, end: int, outcomes: list[Outcome]) -> Iterator[tuple[int, int, Outcome]]:
    """What became of the entries from `first` to `end`, each range once. What no outcome speaks of is settled, and
    nobody knows where it is stored."""
    for outcome in outcomes:
        if first < min(outcome.first, end):
            yield first, min(outcome.first, end), Outcome(first, end)
            first = min(outcome.first, end)
        if first < min(outcome.end, end):
            yield first, min(outcome.end, end), outcome
            first = min(outcome.end, end)
    if first < end:
        yield first, end, Outcome(first, end)


def _call(on_delivery: OnDelivery, *arguments: object) -> None:
    try:
        on_delivery(*arguments)  # type: ignore[arg-type]
    except BaseException:  # even an exit: it would end the sender's thread, and not the program
        logger.exception("a delivery callback raised; the record's fate is not changed by that")
