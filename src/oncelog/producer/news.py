"""Where users' threads wait for something that the sender brings about: memory, a topic's partitions, a result.

Who would wait for ever is refused instead: the sender's own thread, in a callback, and a forked child, whose sender is
in the parent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from oncelog.client.delivery import Waiter
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.standing_in import LoneWaiter, StandIn

Found = TypeVar("Found")


class TimedEvent(threading.Event):
    """Whoever waits for it again has what is left of the time."""

    _deadline: float | None = None

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return super().wait()
        if self._deadline is None:
            self._deadline = time.monotonic() + timeout
        return super().wait(max(0.0, self._deadline - time.monotonic()))


class News:
    def __init__(self) -> None:
        self._entry = threading.RLock()
        """Of the condition. Entered as itself: a signal between a condition's own steps would leave it locked."""
        self._condition = threading.Condition(self._entry)
        self._waiting = 0
        self.thread: threading.Thread | None = None
        """The sender's."""
        self.stand_in: StandIn | None = None
        """How a thread that waits for one result does the sender's work."""
        self.disowned: ProducerClosed | None = None
        """Why this process has no sender."""

    @property
    def is_own_thread(self) -> bool:
        """Whether the sender itself is asking, in a callback."""
        return threading.current_thread() is self.thread

    def tell(self) -> None:
        if self._waiting:
            with self._entry:
                self._condition.notify_all()

    def wait_for(self, attempt: Callable[[], Found | None], timeout_s: float) -> Found | None:
        """What `attempt` returns, once that is not None; None after the timeout."""
        deadline = time.monotonic() + timeout_s
        with self._entry:
            self._waiting += 1
            try:
                while True:
                    result = attempt()
                    left = deadline - time.monotonic()
                    if result is not None or left <= 0:
                        return result
                    self._condition.wait(left)
            finally:
                self._waiting -= 1

    def new_waiter(self) -> Waiter:
        """For whoever waits for a result."""
        self.check_wait("waiting for a result")
        return TimedEvent() if self.stand_in is None else LoneWaiter(self.stand_in)

    def check_wait(self, what: str) -> None:
        if self.disowned is not None:
            raise self.disowned.with_traceback(None)
        if self.is_own_thread:
            raise RuntimeError(f"{what} in a delivery callback would wait for itself: callbacks run in the sender")
