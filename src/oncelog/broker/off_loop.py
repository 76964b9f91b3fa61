"""Work that would stop the loop, such as decompressing megabytes: in a thread, one piece at a time, in turn.

Owns the line of such work and its bounds. Whoever needs several pieces hands in one after the other, and so waits
behind everybody else's next one. One at a time bounds the memory too: a single batch is unfolded at any moment.
Work touches nothing that changes; what comes of it is looked at by `done`, back on the loop's thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from oncelog.controller.lane import RunInThread, run_here
from oncelog.errors import KafkaError, RequestTimedOut, UnknownServerError

logger = logging.getLogger(__name__)

INLINE_BYTES: Final = 4 * 1024 * 1024
"""What one request may have decompressed on the loop: some milliseconds, ten with gzip. Nearly all need less."""

MAX_OFF_LOOP_BYTES: Final = 64 * 1024 * 1024
"""Bytes of requests that stand in line. Who comes when there are more is asked to try again."""

Work = Callable[[], Any]
Done = Callable[[Any, KafkaError | None], None]


class OffLoop:
    def __init__(self, run_in_thread: RunInThread = run_here) -> None:
        self._run_in_thread = run_in_thread
        self._waiting: deque[tuple[Work, Done]] = deque()
        self._is_busy = False
        self._held_bytes = 0

    def enter(self, held_bytes: int) -> None:
        """For a request that will need this, and holds so many bytes until `leave`. Raises RequestTimedOut, which
        clients retry, if too much is held already."""
        if self._held_bytes and self._held_bytes + held_bytes > MAX_OFF_LOOP_BYTES:
            raise RequestTimedOut(
                f"requests of {self._held_bytes} bytes wait for what must be decompressed for them; try again"
            )
        self._held_bytes += held_bytes

    def leave(self, held_bytes: int) -> None:
        self._held_bytes -= held_bytes

    def run(self, work: Work, done: Done) -> None:
        """Call `work` in a thread, in turn, then `done` with its result, or its error, here."""
        self._waiting.append((work, done))
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        work, done = self._waiting.popleft()
        has_ended = False

        def ended(result: Any, error: Exception | None, _: int) -> None:
            nonlocal has_ended
            has_ended = True
            self._is_busy = False
            try:
                done(result, None if error is None else _coded(error))
            finally:
                self._go_on()

        try:
            self._run_in_thread(work, ended)
        except Exception as error:
            if has_ended:  # it ran here, and `done` raised
                raise
            ended(None, error, 0)


def _coded(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    logger.error("bug: what a request asked for failed in a thread", exc_info=error)
    return UnknownServerError("the broker failed; its log says why")
