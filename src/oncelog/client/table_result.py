"""What became of a table that was sent: one result for all its rows, put together from the fates of many batches.

A `TableFuture` is told by the thread that sends which rows joined which batch, and by the deliveries of these batches
what became of them. It knows nothing of columns, and never decides a fate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from oncelog.client import arguments as checked
from oncelog.client import standard_futures
from oncelog.client.delivery import Delivery, NotDeliveredYet, Waiter
from oncelog.client.partitioner import NO_PARTITION
from oncelog.client.producer_errors import DeliveryFailed
from oncelog.printable import counted
from oncelog.records.model import Buffer

MAX_FAILURES_TOLD = 3  # in an error's message; all of them are in its `failures`
MAX_RUNS_TOLD = 4

logger = logging.getLogger(__name__)


class PartitionOffsets(NamedTuple):
    """Where a partition holds rows of the table."""

    partition: int
    row_count: int
    ranges: tuple[tuple[int, int], ...]
    """First and last offset of each run of rows, in order. What lies between two runs was sent by others. Empty where
    no broker tells offsets, as with `acks=0`."""


class TableMetadata(NamedTuple):
    """Where the rows of a table were stored."""

    topic: str
    row_count: int
    partitions: tuple[PartitionOffsets, ...]


class RowsFailed(NamedTuple):
    """Rows that were not stored, or of which it is not known."""

    partition: int
    """-1 for rows that were given up before they had a partition."""
    rows: tuple[range, ...]
    error: Exception


class TableFailed(DeliveryFailed):
    """Not all rows of a table were delivered. `failures` tells which ones and why, `delivered` where the others are."""

    def __init__(self, delivered: TableMetadata, failures: tuple[RowsFailed, ...]) -> None:
        failed = sum(len(rows) for failure in failures for rows in failure.rows)
        told = [_told(delivered.topic, failure) for failure in failures[:MAX_FAILURES_TOLD]]
        more = f"; and {len(failures) - len(told)} more" if len(failures) > len(told) else ""
        may_be_written = any(getattr(failure.error, "may_be_written", False) for failure in failures)
        super().__init__(
            f"{failed:,} of {counted(failed + delivered.row_count, 'row')} were not delivered: {'; '.join(told)}{more}",
            may_be_written=may_be_written,
        )
        self.delivered = delivered
        self.failures = failures


OnTableDelivery = Callable[[TableMetadata | None, Exception | None], Any]


class RowNumbers(NamedTuple):
    """Rows of a table: `start` up to `stop` of a piece whose first row is `first`, or what `order` (int32) names at
    these places."""

    first: int
    start: int
    stop: int
    order: Buffer | None

    def ranges(self) -> tuple[range, ...]:
        if self.order is None:
            return (range(self.first + self.start, self.first + self.stop),)
        order = memoryview(self.order).cast("B").cast("i")
        return tuple(_runs(self.first + row for row in order[self.start : self.stop]))

    def part(self, start: int, stop: int) -> RowNumbers:
        return self._replace(start=self.start + start, stop=self.start + stop)


class _Share:
    """Rows that one batch took, from its record `first_index` on."""

    __slots__ = ("delivery", "error", "first_index", "first_offset", "partition", "row_count", "rows", "undecided")

    def __init__(self, delivery: Delivery, first_index: int, rows: RowNumbers) -> None:
        self.delivery = delivery
        self.partition = delivery.partition
        self.first_index = first_index
        self.rows: RowNumbers | None = rows
        """Until it is known that they are stored."""
        self.row_count = rows.stop - rows.start
        self.first_offset = -1
        self.error: Exception | None = None
        self.undecided = [self]
        """Whoever takes the share out decides; news may come twice, and in two threads."""

    def decide(self) -> None:
        delivery = self.delivery
        self.error = delivery.error
        if self.error is None:
            self.rows = None
        if delivery.base_offset >= 0:
            self.first_offset = delivery.base_offset + self.first_index - delivery.first_index

    def failures(self) -> Iterator[RowsFailed]:
        """Rows that are told the same, together: of a batch that was refused for some of its records, only those hear
        what is wrong with them."""
        assert self.rows is not None
        told: dict[Exception, list[range]] = {}
        for start, stop, error in self.delivery.errors_within(self.first_index, self.first_index + self.row_count):
            assert error is not None
            rows = self.rows.part(start - self.first_index, stop - self.first_index)
            told.setdefault(error, []).extend(rows.ranges())
        for error, ranges in told.items():
            yield RowsFailed(self.partition, tuple(ranges), error)

    def within(self, delivery: Delivery, end_index: int) -> _Share | None:
        """What of it lies in a part of the split batch, which ends before `end_index`."""
        start = max(self.first_index, delivery.first_index)
        stop = min(self.first_index + self.row_count, end_index)
        if start >= stop:
            return None
        assert self.rows is not None
        return _Share(delivery, start, self.rows.part(start - self.first_index, stop - self.first_index))


class TableFuture:
    """The result of one `send_table()`, in the manner of `concurrent.futures.Future`."""

    def __init__(
        self, topic: str, new_waiter: Callable[[], Waiter], on_delivery: OnTableDelivery | None = None
    ) -> None:
        self._topic = topic
        self._new_waiter = new_waiter
        self._on_delivery = on_delivery
        # Lists, because the thread that sends and the one that hears from brokers both use them, and appending to one,
        # or taking the last out, happens at once.
        self._shares: list[_Share] = []
        self._decided: list[_Share] = []
        self._unsent: list[RowsFailed] = []
        self._are_all_sent = False
        self._unfinished = [self]
        self._watchers: list[Callable[[], Any]] = []
        self._metadata = TableMetadata(topic, 0, ())
        self._error: Exception | None = None
        self._is_done = False

    # --- for users --------------------------------------------------------------------------------------------

    def done(self) -> bool:
        return self._is_done

    def running(self) -> bool:
        return not self._is_done

    def cancel(self) -> bool:
        """Rows that were accepted cannot be called back."""
        return False

    def cancelled(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> TableMetadata:
        """Where the rows are stored. Raises `TableFailed` if not all are, `NotDeliveredYet` after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(None)
        return self._metadata

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Why not all rows were stored; None if they were."""
        if not self._is_done:
            waiter = self._new_waiter()
            self._watch(waiter.set)
            if not waiter.wait(None if timeout is None else checked.seconds(timeout)):
                raise NotDeliveredYet(
                    f"no answer about all rows for {self._topic} within {timeout} s; they are still on their way"
                )
        return self._error

    def add_done_callback(self, function: Callable[[TableFuture], Any]) -> None:
        """Call `function(self)` once, when the fate of all rows is known; at once if it is."""
        pending = [function]  # whoever takes it out calls it: the news may come twice, and in two threads

        def tell() -> None:
            try:
                call = pending.pop()
            except IndexError:
                return
            self._tell_user(call, self)

        self._watch(tell)

    def _watch(self, watcher: Callable[[], Any]) -> None:
        self._watchers.append(watcher)
        if self._is_done:
            watcher()

    # --- what the standard library looks for ------------------------------------------------------------------

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # asyncio asks whether it is a concurrent.futures.Future
        return standard_futures.future_class()

    @property
    def _condition(self) -> standard_futures.Condition:
        return standard_futures.Condition(self)

    @property
    def _waiters(self) -> standard_futures.Waiters:
        return standard_futures.Waiters(self)

    @property
    def _state(self) -> str:
        return standard_futures.state_of(self)

    def _get_snapshot(self) -> tuple[bool, bool, Any, Any]:
        """Done, cancelled, result, error: what asyncio asks for since Python 3.14."""
        if not self.done():
            return False, False, None, None
        error = self.exception(0)
        return True, False, None if error is not None else self.result(0), error

    def __await__(self) -> Generator[Any, None, TableMetadata]:
        return standard_futures.awaiting(self)

    # --- for who sends ----------------------------------------------------------------------------------------

    def took(self, delivery: Delivery, first_index: int, rows: RowNumbers) -> None:
        """A batch took rows, from its record `first_index` on."""
        self._follow(_Share(delivery, first_index, rows))

    def gave_up(self, partition: int, rows: tuple[range, ...], error: Exception) -> None:
        """No batch will take these rows."""
        self._unsent.append(RowsFailed(partition, rows, error))

    def all_sent(self) -> None:
        """No more rows will come."""
        self._are_all_sent = True
        self._finish_if_decided()

    # --- for deliveries ---------------------------------------------------------------------------------------

    def _follow(self, share: _Share) -> None:
        self._shares.append(share)
        share.delivery.watch(lambda: self._heard_of(share))

    def _heard_of(self, share: _Share) -> None:
        try:
            share.undecided.pop()
        except IndexError:
            return
        parts = share.delivery.parts
        if parts is None:
            share.decide()
        else:
            ends = [part.first_index for part in parts[1:]] + [share.first_index + share.row_count]
            for part, end in zip(parts, ends, strict=True):
                within = share.within(part, end)
                if within is not None:
                    self._follow(within)
            share.row_count = 0  # its parts count instead
        self._decided.append(share)
        self._finish_if_decided()

    def _finish_if_decided(self) -> None:
        if not self._are_all_sent or len(self._decided) < len(self._shares):
            return
        try:
            self._unfinished.pop()
        except IndexError:
            return
        self._conclude()
        if self._on_delivery is not None:
            self._tell_user(self._on_delivery, None if self._error is not None else self._metadata, self._error)
        self._is_done = True
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def _tell_user(self, function: Callable[..., Any], *news: Any) -> None:
        """A callback that raises breaks nothing."""
        try:
            function(*news)
        except BaseException:  # even an exit: it would end the sender's thread, and not the program
            logger.exception("a callback of send_table raised; the rows' fate is not changed by that")

    def _conclude(self) -> None:
        shares = sorted((share for share in self._decided if share.row_count), key=attrgetter("partition"))
        partitions = []
        failures = list(self._unsent)
        for partition, of_partition in groupby(shares, attrgetter("partition")):
            stored = []
            for share in of_partition:
                if share.error is None:
                    stored.append(share)
                else:
                    failures += share.failures()
            if stored:
                count = sum(share.row_count for share in stored)
                partitions.append(PartitionOffsets(partition, count, _offset_ranges(stored)))
        row_count = sum(partition.row_count for partition in partitions)
        self._metadata = TableMetadata(self._topic, row_count, tuple(partitions))
        if failures:
            self._error = TableFailed(self._metadata, tuple(failures))
        self._shares = []
        self._decided = []


def _offset_ranges(shares: Iterable[_Share]) -> tuple[tuple[int, int], ...]:
    offsets = sorted((share.first_offset, share.row_count) for share in shares if share.first_offset >= 0)
    ranges: list[tuple[int, int]] = []
    for first, count in offsets:
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], first + count - 1)
        else:
            ranges.append((first, first + count - 1))
    return tuple(ranges)


def _runs(rows: Iterable[int]) -> Iterator[range]:
    """Rows that follow each other, together."""
    run = range(0)
    for row in rows:
        if run and row == run.stop:
            run = range(run.start, row + 1)
            continue
        if run:
            yield run
        run = range(row, row + 1)
    if run:
        yield run


def _spoken(rows: tuple[range, ...]) -> str:
    told = [str(run.start) if len(run) == 1 else f"{run.start}-{run.stop - 1}" for run in rows[:MAX_RUNS_TOLD]]
    return ", ".join(told) + (", ..." if len(rows) > len(told) else "")


def _told(topic: str, failure: RowsFailed) -> str:
    place = topic if failure.partition == NO_PARTITION else f"{topic}-{failure.partition}"
    return f"rows {_spoken(failure.rows)} for {place}: {failure.error}"
