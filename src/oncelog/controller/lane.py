"""The lane of the metadata's writes: one at a time, in the order in which they were asked for.

Owns who writes next, and how much may wait. A write has two halves. Its work runs in a thread: it plans, appends and
syncs, and meanwhile nothing else changes the metadata, so it may look at all of it. Its effect runs on the loop, in
steps: between two of them everybody else is served. Only then is it done, and the next one begins. Never knows what is
written.

A broker without a server, and so without threads and a loop, runs both halves at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from oncelog.errors import KafkaError, RequestTimedOut, UnknownServerError
from oncelog.named_tuple import NamedTuple

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_WAITING_WRITES: Final = 256
"""Writes that wait for their turn. Each holds what its client asked for. Who comes when there are more is asked to try
again."""

Work = Callable[[], Any]
RunInThread = Callable[[Work, Callable[[Any, Exception | None, int], None]], None]
Steps = Iterator[None]
InSlices = Callable[[Steps, Callable[[], None]], None]
"""Take the steps, a few milliseconds of them at a time, then call back."""


def run_here(work: Work, done: Callable[[Any, Exception | None, int], None]) -> None:
    """For a broker without a server, and so without threads."""
    try:
        result, error = work(), None
    except Exception as raised:
        result, error = None, raised
    done(result, error, 0)


def all_at_once(steps: Steps, done: Callable[[], None]) -> None:
    for _ in steps:
        pass
    done()


def guarded(steps: Steps) -> Steps:
    """What follows a change that is true already: if it fails, that is a bug to be told of, and no reason to leave out
    what else follows."""
    try:
        yield from steps
    except Exception:
        logger.exception("bug: a change of the metadata is in force, and what follows from it failed")


def tell_all(waiting: Iterable[Callable[[T], None]], word: T) -> None:
    """Each of them hears, whatever another one does with it."""
    for tell in waiting:
        try:
            tell(word)
        except Exception:
            logger.exception("bug: one of those who waited for the metadata failed")


class _Write(NamedTuple):
    work: Work
    effect: Callable[[Any], Steps]
    done: Callable[[Any, KafkaError | None], None]


class Lane:
    def __init__(self) -> None:
        self._run_in_thread: RunInThread = run_here
        self._in_slices: InSlices = all_at_once
        self._waiting: deque[_Write] = deque()
        self._is_busy = False
        self._on_idle: Callable[[], None] | None = None

    def serve_by(self, run_in_thread: RunInThread, in_slices: InSlices) -> None:
        self._run_in_thread = run_in_thread
        self._in_slices = in_slices

    @property
    def is_idle(self) -> bool:
        return not self._is_busy and not self._waiting

    def enter(self, work: Work, effect: Callable[[Any], Steps], done: Callable[[Any, KafkaError | None], None]) -> None:
        """`done` hears what `work` returned, once its effect is there, or the error of either. With RequestTimedOut,
        which clients retry, nothing was tried."""
        if self._on_idle is not None:
            done(None, RequestTimedOut("the broker stops; try again"))
        elif len(self._waiting) >= MAX_WAITING_WRITES:
            done(None, RequestTimedOut(f"{len(self._waiting)} changes of the metadata wait already; try again"))
        else:
            self._waiting.append(_Write(work, effect, done))
            self._go_on()

    def insist(self, work: Work, done: Callable[[Any, KafkaError | None], None]) -> None:
        """What the broker has to do before the next write."""
        self._waiting.appendleft(_Write(work, lambda _: iter(()), done))
        self._go_on()

    def stop(self, on_idle: Callable[[], None]) -> None:
        """Refuse what waits and whatever comes, and call back when the one under way is done."""
        self._on_idle = on_idle
        waiting, self._waiting = self._waiting, deque()
        tell_all([partial(write.done, None) for write in waiting], RequestTimedOut("the broker stops; try again"))
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy:
            return
        if not self._waiting:
            if self._on_idle is not None:
                on_idle, self._on_idle = self._on_idle, _no_one_waits
                on_idle()
            return
        self._is_busy = True
        write = self._waiting.popleft()
        self._run_in_thread(write.work, lambda result, error, _: self._worked(write, result, error))

    def _worked(self, write: _Write, result: Any, error: Exception | None) -> None:
        if error is not None:
            self._end(write, None, _coded(error))
            return
        failures: list[Exception] = []

        def steps() -> Steps:
            try:
                yield from write.effect(result)
            except Exception as failure:
                logger.exception("bug: a change of the metadata is durable, and its effect failed")
                failures.append(failure)

        self._in_slices(steps(), lambda: self._end(write, result, _coded(failures[0]) if failures else None))

    def _end(self, write: _Write, result: Any, error: KafkaError | None) -> None:
        self._is_busy = False
        try:
            write.done(result, error)
        finally:
            self._go_on()


def _no_one_waits() -> None:
    """The lane has stopped."""


def _coded(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    logger.error("bug: the metadata could not be changed", exc_info=error)
    return UnknownServerError("the broker failed; its log says why")
