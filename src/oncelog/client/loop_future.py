"""The result of one `AsyncProducer.send()`, in the manner of `asyncio.Future`.

A view of its batch's `Delivery`, as `RecordFuture` is for threads: a batch of a thousand records is settled once, and
only futures that somebody waits for are told. asyncio's own would have to be made, resolved and given a result one by
one, which costs more than everything else that is done for a record. What asyncio asks of a future is here:
`asyncio.isfuture` says yes, and `await`, `gather`, `wait`, `wait_for`, `shield` and tasks take it.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, InvalidStateError
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import Any
from weakref import WeakMethod

from oncelog.client.delivery import Delivery, Futures
from oncelog.client.records import RecordMetadata, hide_from_collector, recycle, settled, show_to_collector

MAX_KEPT_FUTURES = 1024
"""Of those that are let go of, as many as there is memory kept for."""


class LoopFuture:
    """Belongs to one event loop, and to its thread."""

    __slots__ = (
        "__weakref__", "_asyncio_future_blocking", "_callbacks", "_cancel_message", "_delivery", "_index",
        "_is_cancelled", "_maker", "_timestamp_ms",
    )  # fmt: skip

    def __init__(self, maker: LoopFutures, delivery: Delivery, index: int, timestamp_ms: int) -> None:
        self._maker = maker
        self._delivery = delivery
        self._index = index
        self._timestamp_ms = timestamp_ms
        self._callbacks: list[tuple[Callable[[Any], object], Context]] | None = None
        """Whoever is to be told; None until somebody wants to be."""
        self._cancel_message: Any = None  # `gather` looks at it
        self._is_cancelled = False
        self._asyncio_future_blocking = False
        """How a task knows that it was given a future, and that it is awaited."""

    def get_loop(self) -> AbstractEventLoop:
        return self._maker.loop

    def done(self) -> bool:
        return self._is_cancelled or self._delivery.deciding(self._index).is_done

    def cancelled(self) -> bool:
        return self._is_cancelled

    def result(self) -> RecordMetadata:
        """Where the record is stored. Raises why it is not; CancelledError if the wait was cancelled."""
        delivery = self._settled()
        if delivery.error is not None:
            error: Any = delivery.error_of(self._index)
            raise error.with_traceback(None)  # the same error may be raised for every record of the batch
        return delivery.metadata(self._index, self._timestamp_ms)

    def exception(self) -> Exception | None:
        """Why the record was not stored; None if it was."""
        return self._settled().error_of(self._index)

    def cancel(self, msg: Any = None) -> bool:
        """End the wait. A record that was accepted cannot be called back: it is sent all the same."""
        if self.done():
            return False
        self._is_cancelled = True
        self._cancel_message = msg
        self._tell()
        return True

    def add_done_callback(self, function: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """Have the loop call `function(self)` soon after the fate is known."""
        if context is None:
            context = copy_context()
        if self.done():
            self._maker.call_soon(function, self, context)
            return
        if self._callbacks is None:
            self._callbacks = []
            show_to_collector(self)  # whoever waits for it may well be what it is part of
            self._delivery.deciding(self._index).watch(self._decided)
        self._callbacks.append((function, context))

    def remove_done_callback(self, function: Callable[[Any], object], /) -> int:
        """Returns how many times it was there."""
        callbacks = self._callbacks or []
        kept = [one for one in callbacks if one[0] != function]
        removed = len(callbacks) - len(kept)
        callbacks[:] = kept
        return removed

    def set_result(self, result: object, /) -> None:
        raise RuntimeError("the broker decides about a record")

    def set_exception(self, exception: object, /) -> None:
        raise RuntimeError("the broker decides about a record")

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        delivery = self._delivery
        if delivery.is_done and delivery.parts is None and delivery.error is None and not self._is_cancelled:
            return settled(delivery.metadata(self._index, self._timestamp_ms))  # as for nearly all of them
        return settled(self.result()) if self.done() else self._wait()

    def _wait(self) -> Generator[Any, None, RecordMetadata]:
        self._maker.tell_of_wait()
        self._asyncio_future_blocking = True
        yield self
        if not self.done():
            raise RuntimeError("await wasn't used with future")
        return self.result()

    def __iter__(self) -> Generator[Any, None, RecordMetadata]:
        return self.__await__()

    def _make_cancelled_error(self) -> CancelledError:
        """What `gather` raises for a future that was cancelled."""
        return CancelledError() if self._cancel_message is None else CancelledError(self._cancel_message)

    def _settled(self) -> Delivery:
        if self._is_cancelled:
            raise self._make_cancelled_error()
        delivery = self._delivery.deciding(self._index)
        if not delivery.is_done:
            raise InvalidStateError("Result is not set.")
        return delivery

    def _decided(self) -> None:
        if self.done():
            self._tell()
        else:  # the batch was split; its parts go on
            self._delivery.deciding(self._index).watch(self._decided)

    def _tell(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for function, context in callbacks or ():
            self._maker.call_soon(function, self, context)

    def __repr__(self) -> str:
        delivery = self._delivery.deciding(self._index)
        state = "pending" if not delivery.is_done else "failed" if delivery.error else "delivered"
        if self._is_cancelled:
            state = "cancelled"
        return f"<LoopFuture {delivery.topic}-{delivery.partition} {state}>"


_IS_RECYCLED = recycle(LoopFuture, MAX_KEPT_FUTURES)


class LoopFutures(Futures):
    """Makes them, for one loop."""

    __slots__ = ("_before_wait", "_calls", "loop")

    def __init__(self, loop: AbstractEventLoop, before_wait: Callable[[], None]) -> None:
        """`before_wait`, a method, is called whenever somebody is about to wait for one of them. They do not keep its
        object, which may well keep some of them: nobody would find that cycle."""
        self.loop = loop
        self._before_wait = WeakMethod(before_wait)
        self._calls: list[tuple[Callable[[Any], object], LoopFuture, Context]] = []
        """What the loop is asked to do with its next turn."""

    def call_soon(self, function: Callable[[Any], object], future: LoopFuture, context: Context) -> None:
        """As the loop's own, which would take longer for each of a thousand records than all else that is done for it:
        what comes together is one request to the loop."""
        if not self._calls:
            self.loop.call_soon(self._call)
        self._calls.append((function, future, context))

    def _call(self) -> None:
        calls, self._calls = self._calls, []
        calls.reverse()
        try:
            while calls:
                function, future, context = calls.pop()
                try:
                    context.run(function, future)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.loop.call_exception_handler(
                        {"message": f"{function!r}, called with a record's result, raised", "exception": error}
                    )
        finally:  # an exit ends this turn of the loop; if there is another one, the others are told in it
            for function, future, context in reversed(calls):
                self.call_soon(function, future, context)

    def tell_of_wait(self) -> None:
        before_wait = self._before_wait()
        if before_wait is not None:
            before_wait()

    def new(self, delivery: Delivery, index: int, timestamp_ms: int) -> LoopFuture:
        """As the constructor, which costs more where it is called for every record."""
        future = LoopFuture.__new__(LoopFuture)
        future._maker = self
        future._delivery = delivery
        future._index = index
        future._timestamp_ms = timestamp_ms
        future._callbacks = None
        future._cancel_message = None
        future._is_cancelled = False
        future._asyncio_future_blocking = False
        if not _IS_RECYCLED:
            hide_from_collector(future)  # until somebody waits for it, it leads to its batch and its loop alone
        return future
