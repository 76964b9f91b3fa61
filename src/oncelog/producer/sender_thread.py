"""The thread that sends, and what happens to it when nobody closes the producer.

A producer that is forgotten still delivers what it accepted: its thread ends by itself afterwards. At the end of the
program all threads are given that time. In a forked child there are no threads, and whoever had one is told.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Protocol

from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.selecting import SelectingDriver
from oncelog.client.sockets import monotonic_ms
from oncelog.producer.spooling import Spooling

JOIN_GRACE_S = 5.0  # how long the thread may take to end after it was told to give up

FORKED = "this producer was made before a fork and belongs to the parent process; make a new one in the child"


class Core(Protocol):
    close_at_ms: int | None
    """When to give up what could not be sent; None while the producer is open."""


class Owner(Protocol):
    def disown(self, reason: ProducerClosed) -> None:
        """In a forked child: there is no thread here."""


class SenderThread:
    """Belongs to a producer, and does not keep it alive."""

    def __init__(
        self, owner: Owner, driver: SelectingDriver, core: Core, spooling: Spooling | None, name: str, patience_s: float
    ) -> None:
        """`patience_s`: how long those records may take that nobody waits for any more."""
        self.owner = weakref.ref(owner)
        self.core = core
        self.spooling = spooling
        self.patience_s = patience_s
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._driver = driver

    def start(self) -> None:
        _running.add(self)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._driver.run()
        finally:
            if self.spooling is not None:
                self.spooling.close()
            _running.discard(self)

    def begin_to_end(self, timeout_s: float | None = None) -> float:
        """Send what was accepted, and give up on the rest after the timeout, which is returned."""
        timeout_s = self.patience_s if timeout_s is None else timeout_s
        self.core.close_at_ms = monotonic_ms() + int(timeout_s * 1000)
        self._driver.wake()
        return timeout_s

    def end(self, timeout_s: float | None) -> None:
        timeout_s = self.begin_to_end(timeout_s)
        if threading.current_thread() is not self.thread:  # a callback may close too, and need not wait for itself
            self.thread.join(timeout_s + JOIN_GRACE_S)


_running: set[SenderThread] = set()


def _disown_in_child() -> None:
    """A fork copies the producer but not its thread, and both processes would use the same connections."""
    for sender in _running:
        owner = sender.owner()
        if owner is not None:
            owner.disown(ProducerClosed(FORKED))
        if sender.spooling is not None:
            sender.spooling.disown()
    _running.clear()


def _end_all() -> None:
    running = list(_running)
    for sender in running:
        if sender.core.close_at_ms is None:
            sender.begin_to_end()
    for sender in running:
        sender.thread.join(sender.patience_s + JOIN_GRACE_S)


if hasattr(os, "register_at_fork"):  # not on Windows, where nobody forks
    os.register_at_fork(after_in_child=_disown_in_child)
atexit.register(_end_all)
