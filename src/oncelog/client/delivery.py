"""The fate of a batch, and the future of each of its records.

A `Delivery` is settled once, by the sender: with the offset of its first record, or with an error. A `RecordFuture` is
a view of it: which record of the batch, sent when. So a batch of a thousand records costs one settlement.

Waiting needs a thread's primitive, which a core does not know: whoever makes deliveries says how to make a waiter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

from oncelog.client import arguments as checked
from oncelog.client import standard_futures
from oncelog.client.records import RecordMetadata, new_metadata, recycle, show_to_collector
from oncelog.errors import OncelogError
from oncelog.types import NO_OFFSET, NO_TIMESTAMP

logger = logging.getLogger(__name__)

MAX_KEPT_FUTURES = 256
"""Of those that are let go of, as many as there is memory kept for."""

OnDelivery = Callable[[RecordMetadata | None, Exception | None], Any]


class Waiter(Protocol):
    """What `threading.Event` offers; but for a thread that waits again, the time since it began counts as well."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class NotDeliveredYet(OncelogError, TimeoutError):
    """The record's fate is not known yet: `result()` was called with a timeout that passed. The record is still on its
    way; ask again, or wait for `delivery.timeout.ms`."""


class RecordErrors(NamedTuple):
    """Of a batch that was refused for some of its records: why, by their index; and what the others are told."""

    at_fault: Mapping[int, Exception]
    others: Exception

    def of(self, index: int) -> Exception:
        return self.at_fault.get(index, self.others)


class Delivery:
    """The fate of one batch."""

    __slots__ = (
        "_has_listeners", "_last_ms", "_last_timestamp_ms", "_watchers", "append_time_ms", "base_offset", "error",
        "first_index", "is_done", "is_told", "new_waiter", "partition", "parts", "record_errors", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, new_waiter: Callable[[], Waiter], first_index: int = 0) -> None:
        self.topic: str = topic
        self.partition: int = partition
        self.new_waiter: Callable[[], Waiter] = new_waiter
        self.first_index: int = first_index
        """Of a part of a split batch: which record of the whole comes first."""
        self.base_offset: int = NO_OFFSET
        self.append_time_ms: int = NO_TIMESTAMP
        self.error: Exception | None = None
        self.record_errors: RecordErrors | None = None
        """Where only some records are at fault: what each one is told instead of `error`."""
        self.is_done: bool = False
        self.is_told: bool = False
        """Everybody was told who wanted to be when the fate became known."""
        self.parts: list[Delivery] | None = None
        """Where the batch was split: its parts in order, each with a fate of its own."""
        self._watchers: list[Callable[[], Any]] = []
        self._has_listeners = False
        self._last_ms = self._last_timestamp_ms = NO_TIMESTAMP

    def settle(self, base_offset: int, append_time_ms: int) -> None:
        """The batch is stored. Its callbacks may run; `announce` follows them."""
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms

    def fail(self, error: Exception, record_errors: RecordErrors | None = None) -> None:
        """`record_errors` count from the batch's first record."""
        self.error = error
        self.record_errors = record_errors

    def error_of(self, index: int) -> Exception | None:
        """What a record of the decided batch is told; None if it is stored."""
        errors = self.record_errors
        return self.error if errors is None else errors.of(index - self.first_index)

    def errors_within(self, start: int, stop: int) -> Iterator[tuple[int, int, Exception | None]]:
        """What the records from `start` up to `stop` are told: each run of those with the same error."""
        while start < stop:
            error, end = self.error_of(start), start + 1
            while end < stop and (self.record_errors is None or self.error_of(end) is error):
                end = stop if self.record_errors is None else end + 1
            yield start, end, error
            start = end

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Where a record of the settled batch is. The offset is -1 where no broker tells it."""
        offset = self.base_offset
        if offset >= 0:
            offset += index - self.first_index
        if self.append_time_ms >= 0:
            timestamp_ms = self.append_time_ms
        if timestamp_ms != self._last_ms:  # a thousand records of one millisecond share one number
            self._last_ms = self._last_timestamp_ms = timestamp_ms
        moment_ms = self._last_timestamp_ms
        metadata: RecordMetadata = new_metadata(RecordMetadata, self.topic, self.partition, offset, moment_ms)
        return metadata

    def deciding(self, index: int) -> Delivery:
        """The delivery that decides about a record, after every split of the batch."""
        delivery = self
        while delivery.parts is not None:
            for part in delivery.parts:
                if part.first_index <= index:
                    delivery = part
        return delivery

    def announce(self) -> None:
        """The fate is final: wake whoever waits. After the callbacks, so that `result()` returns after they ran."""
        self.is_done = True
        watchers = self._watchers
        count = _call(watchers, 0)
        self.is_told = True
        _call(watchers, count)  # who came meanwhile, to hear that the others were told
        self._watchers = []

    def split_into(self, parts: list[Delivery]) -> None:
        """From now on this delivery only leads to its parts."""
        self.parts = parts
        self.announce()

    @property
    def awaits_one_thread(self) -> bool:
        """Nobody is to be told but one thread that waits, so that no code runs when the fate is announced."""
        return len(self._watchers) == 1 and not self._has_listeners

    def watch(self, watcher: Callable[[], Any]) -> None:
        """Call `watcher` once the fate is known, at once if it is. It may be called twice if both happen together."""
        self._has_listeners = True
        self._watchers.append(watcher)
        if self.is_done:
            watcher()

    def wake(self, waiter: Waiter) -> None:
        """Set `waiter` once the fate is known, or the batch was split; at once if it is."""
        self._watchers.append(waiter.set)
        if self.is_done:
            waiter.set()

    def wait_until_told(self, timeout_s: float | None) -> bool:
        """Until the fate is known, or the batch was split (its parts are to be waited for then), and everybody was told
        of it who had asked for that before."""
        if self.is_told:
            return True
        waiter = self.new_waiter()
        self._watchers.append(waiter.set)
        if self.is_told:
            waiter.set()
        return waiter.wait(timeout_s)


def _call(watchers: list[Callable[[], Any]], start: int) -> int:
    """From `start` on, also those that are added on the way. Returns how many there are."""
    while start < len(watchers):
        watchers[start]()
        start += 1
    return start


class RecordFuture:
    """The result of one `send()`: a `concurrent.futures.Future` to whoever waits for it, in `concurrent.futures.wait`
    and `as_completed`, in `asyncio.wrap_future`, or by `await`."""

    __slots__ = ("_delivery", "_index", "_timestamp_ms")

    def __init__(self, delivery: Delivery, index: int, timestamp_ms: int) -> None:
        self._delivery = delivery
        self._index = index
        self._timestamp_ms = timestamp_ms

    @property
    def delivery(self) -> Delivery:
        """Of the batch that the record was put into."""
        return self._delivery

    @property
    def index(self) -> int:
        """Which record of that batch it is."""
        return self._index

    def follow(self, other: RecordFuture) -> None:
        """Become the result of the same record as `other`; whoever waited for this one goes on waiting for that."""
        followed = self._delivery
        self._index = other._index
        self._delivery = other._delivery
        followed.announce()

    def done(self) -> bool:
        return self._deciding().is_done

    def running(self) -> bool:
        return not self.done()

    def cancel(self) -> bool:
        """A record that was accepted cannot be called back."""
        return False

    def cancelled(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is stored. Raises why it is not, or `NotDeliveredYet` after `timeout` seconds."""
        delivery = self._settled(timeout)
        if delivery.error is not None:
            error: Any = delivery.error_of(self._index)
            raise error.with_traceback(None)  # the same error may be raised for every record of the batch
        return delivery.metadata(self._index, self._timestamp_ms)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Why the record was not stored; None if it was."""
        return self._settled(timeout).error_of(self._index)

    @property
    def get(self) -> NoReturn:
        """kafka-python's; as the rest, for `hasattr` it is not there."""
        raise AttributeError("RecordFuture has no get(): use result(timeout), with seconds")

    @property
    def add_callback(self) -> NoReturn:
        raise AttributeError("RecordFuture has no add_callback(): use send(..., on_delivery=...)")

    @property
    def add_errback(self) -> NoReturn:
        raise AttributeError("RecordFuture has no add_errback(): use send(..., on_delivery=...)")

    @property
    def succeeded(self) -> NoReturn:
        raise AttributeError("RecordFuture has no succeeded(): use exception(timeout), which is None then")

    @property
    def failed(self) -> NoReturn:
        raise AttributeError("RecordFuture has no failed(): use exception(timeout), which is not None then")

    def add_done_callback(self, function: Callable[[RecordFuture], Any]) -> None:
        """Call `function(self)` once, when the fate is known; at once if it is. What it raises is logged."""
        show_to_collector(self)  # whoever waits for it may well be what it is part of
        pending = [function]  # whoever takes it out calls it: the news may come twice, and in two threads

        def decided() -> None:
            if not self.done():  # the batch was split; its parts go on
                self._deciding().watch(decided)
                return
            try:
                call = pending.pop()
            except IndexError:
                return
            try:
                call(self)
            except BaseException:  # even an exit: it would end the sender's thread, and not the program
                logger.exception("%r, called with a record's result, raised; nothing else is harmed", call)

        self._deciding().watch(decided)

    def _deciding(self) -> Delivery:
        return self._delivery.deciding(self._index)

    def _settled(self, timeout_s: float | None) -> Delivery:
        delivery = self._deciding()
        if delivery.is_done:
            return delivery
        limit_s = None if timeout_s is None else checked.seconds(timeout_s)
        waiter = delivery.new_waiter()
        while True:
            delivery.wake(waiter)
            if not waiter.wait(limit_s):
                raise NotDeliveredYet(
                    f"no answer about the record for {delivery.topic}-{delivery.partition} within {timeout_s} s;"
                    " it is still on its way"
                )
            delivery = self._deciding()
            if delivery.is_done:
                return delivery
            waiter.clear()  # the batch was split: its part is waited for, for what is left of the time

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

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return standard_futures.awaiting(self)

    def __repr__(self) -> str:
        delivery = self._deciding()
        state = "pending" if not delivery.is_done else "failed" if delivery.error else "delivered"
        return f"<RecordFuture {delivery.topic}-{delivery.partition} {state}>"


recycle(RecordFuture, MAX_KEPT_FUTURES)


def new_future(delivery: Delivery, index: int, timestamp_ms: int) -> RecordFuture:
    """As the constructor, which costs more where it is called for every record."""
    future = RecordFuture.__new__(RecordFuture)
    future._delivery = delivery
    future._index = index
    future._timestamp_ms = timestamp_ms
    return future


class Futures:
    """Makes the results of records: for threads, those above."""

    __slots__ = ()

    def new(self, delivery: Delivery, index: int, timestamp_ms: int) -> Any:
        return new_future(delivery, index, timestamp_ms)
