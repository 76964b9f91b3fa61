"""How the standard library sees the result of a record: in `concurrent.futures.wait` and `as_completed`, in
`asyncio.wrap_future`, and after `await`.

They look into what a `concurrent.futures.Future` has inside: a condition, a state, and a list of waiters. A result has
none of them, since there may be a million of it; here they are made up when somebody looks. While the condition is held
the state stands still, as those who look expect it: whoever was done is not announced to a waiter that came later, and
whoever was not is, even if it is by now.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Generator
from types import TracebackType
from typing import Any, Final, Protocol

PENDING: Final = "PENDING"
FINISHED: Final = "FINISHED"


class Waited(Protocol):
    """What is needed of a result."""

    def done(self) -> bool: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def add_done_callback(self, function: Any) -> None: ...


_lookers = threading.RLock()
_held: dict[int, bool] = {}
"""Of those that are held, by the one who has the lock: whether they were done when that began."""


def future_class() -> type[concurrent.futures.Future[Any]]:
    return concurrent.futures.Future


class Condition:
    __slots__ = ("_future",)

    def __init__(self, future: Waited) -> None:
        self._future = future

    def acquire(self) -> bool:
        _lookers.acquire()
        _held[id(self._future)] = self._future.done()
        return True

    def release(self) -> None:
        del _held[id(self._future)]
        _lookers.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class Waiters:
    """The list to which a waiter is appended, and from which it is removed in the end."""

    __slots__ = ("_future",)

    def __init__(self, future: Waited) -> None:
        self._future = future

    def append(self, waiter: Any) -> None:
        if not _held.get(id(self._future), False):
            self._future.add_done_callback(lambda future: announce(future, waiter))

    def remove(self, waiter: Any) -> None:
        """Whoever is announced to it later disturbs nobody."""


def announce(future: Waited, waiter: Any) -> None:
    if future.exception(0) is None:
        waiter.add_result(future)
    else:
        waiter.add_exception(future)


def state_of(future: Waited) -> str:
    is_done = _held.get(id(future))
    return FINISHED if (future.done() if is_done is None else is_done) else PENDING


def awaiting(future: Any) -> Generator[Any, None, Any]:
    import asyncio  # only those who await need it

    return asyncio.wrap_future(future).__await__()
