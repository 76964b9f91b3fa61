"""Some dead letters on their way: given to a producer by a thread of their own, and heard of by whoever asks.

`send()` of a producer waits, for up to `max.block.ms` a letter, while the topic is not known or its memory is full. A
runner that waited along would neither poll nor end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oncelog.client.accumulator import RecordTooLarge
from oncelog.client.delivery import NotDeliveredYet
from oncelog.errors import OncelogError
from oncelog.once.database import Row

logger = logging.getLogger(__name__)

Start = Callable[[Callable[[], None]], object]


def in_thread(work: Callable[[], None]) -> None:
    """One that does not keep the process from ending: what it has not sent waits in the database."""
    threading.Thread(target=work, name="oncelog-dead-letters", daemon=True).start()


class Shipment:
    """Letters are called by their number. Each is unsettled until it is known to be stored, or known not to be."""

    def __init__(self, letters: Sequence[Row], send: Callable[[Row], Any], name: str, start: Start = in_thread) -> None:
        self.size = len(letters)
        self._send = send
        self._name = name
        self._waiting = deque(letters)
        """Not given to the producer. Shared with the thread, as are the next two: it only adds to them."""
        self._on_their_way: deque[tuple[int, Any]] = deque()
        """With their futures."""
        self._refused: deque[tuple[int, Exception]] = deque()
        self._is_given_over = threading.Event()
        self.unsettled: set[int] = {letter[0] for letter in letters}
        self.stored: set[int] = set()
        self.unsent: set[int] = set()
        start(self._give_over)

    def _give_over(self) -> None:
        """In the thread."""
        try:
            while self._waiting:
                letter = self._waiting.popleft()
                try:
                    self._on_their_way.append((letter[0], self._send(letter)))
                except Exception as error:
                    self._refused.append((letter[0], error))
                    if not isinstance(error, RecordTooLarge):  # which says nothing of those behind it
                        return
        except IndexError:
            """`give_up` was quicker."""
        finally:
            self._is_given_over.set()

    def look(self, patience_s: float) -> None:
        """Sort out what has become of them; wait so long for those that nobody knows of."""
        deadline = time.monotonic() + patience_s
        if self._is_given_over.is_set() or (patience_s > 0 and self._is_given_over.wait(patience_s)):
            self.give_up()  # the thread has ended: it takes no more
        self._hear_refusals()
        patience_s = max(0.0, deadline - time.monotonic())
        for _ in range(len(self._on_their_way)):
            number, future = self._on_their_way.popleft()
            try:
                future.result(timeout=patience_s)
                self._settle(number, self.stored)
            except NotDeliveredYet:
                self._on_their_way.append((number, future))
                patience_s = 0.0  # the others were waited for as well
            except OncelogError as error:
                logger.warning("a dead letter of %s waits in the database: %s", self._name, error)
                self._settle(number, self.unsent)
            except BaseException:  # a signal, or a producer that is none of ours
                self._on_their_way.append((number, future))
                raise
            patience_s = min(patience_s, max(0.0, deadline - time.monotonic()))

    def give_up(self) -> None:
        """What the producer has not got is not given to it any more."""
        while self._waiting:
            try:
                self._settle(self._waiting.popleft()[0], self.unsent)
            except IndexError:
                return  # the thread was quicker

    def _hear_refusals(self) -> None:
        while self._refused:
            number, error = self._refused.popleft()
            self._settle(number, self.unsent)
            if not isinstance(error, OncelogError):
                raise error
            logger.warning("dead letters of %s wait in the database: %s", self._name, error)

    def _settle(self, number: int, fate: set[int]) -> None:
        self.unsettled.discard(number)
        fate.add(number)

    def noted(self, numbers: Iterable[int]) -> None:
        """The database knows of these."""
        self.stored.difference_update(numbers)
        self.unsent.difference_update(numbers)
