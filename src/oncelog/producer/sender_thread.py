"""The thread that sends, and what happens to it when nobody closes the producer.

A producer that is forgotten still delivers what it accepted: its thread ends by itself afterwards. At the end of the
program all threads are given that time. In a forked child there are no threads, and whoever had one is told.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Protocol

from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.selecting import SelectingDriver
from oncelog.client.sockets import monotonic_ms
from oncelog.printable import counted
from oncelog.producer.spooling import Spooling

QUIET_EXIT_S = 1.0  # how long the end of the program is held up before that is explained
SPOOL_EXIT_S = 2.0  # how long it is held up for records that are safe on disk
JOIN_GRACE_S = 5.0  # how long the thread may take to end after it was told to give up

FORKED = "this producer was made before a fork and belongs to the parent process; make a new one in the child"

logger = logging.getLogger(__name__)


class Core(Protocol):
    close_at_ms: int | None
    """When to give up what could not be sent; None while the producer is open."""


class Owner(Protocol):
    def disown(self, reason: ProducerClosed) -> None:
        """In a forked child: there is no thread here."""


class SenderThread:
    """Belongs to a producer, and does not keep it alive."""

    def __init__(
        self,
        owner: Owner,
        driver: SelectingDriver,
        core: Core,
        spooling: Spooling | None,
        name: str,
        patience_s: float,
        waiting: Callable[[], tuple[int, str]],
    ) -> None:
        """`patience_s`: how long those records may take that nobody waits for any more. `waiting`: how many records
        have no result yet, and what for."""
        self.owner = weakref.ref(owner)
        self.core = core
        self.spooling = spooling
        self.patience_s = patience_s
        self.waiting = waiting
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
        """Send what was accepted, and give up on the rest after the timeout, which is returned: how long is left if it
        was to end sooner already. Who gave up on what waits is not to wait for it after all in the next `__exit__`."""
        timeout_s = self.patience_s if timeout_s is None else timeout_s
        now_ms = monotonic_ms()
        close_at_ms = now_ms + int(timeout_s * 1000)
        if self.core.close_at_ms is not None and self.core.close_at_ms < close_at_ms:
            close_at_ms = self.core.close_at_ms
            timeout_s = max(0, close_at_ms - now_ms) / 1000
        self.core.close_at_ms = close_at_ms
        self._driver.wake()
        return timeout_s

    def begin_to_exit(self) -> None:
        """As `begin_to_end`, if that was not said before; what is safe on disk does not hold up an exit."""
        if self.spooling is not None:
            exit_ms = monotonic_ms() + int(SPOOL_EXIT_S * 1000)
            if self.core.close_at_ms is None or self.core.close_at_ms > exit_ms:
                self.begin_to_end(SPOOL_EXIT_S)
        elif self.core.close_at_ms is None:
            self.begin_to_end()

    def end(self, timeout_s: float | None, *, is_interrupted: bool = False) -> None:
        """`is_interrupted`: by Ctrl-C or an exit, so that somebody may wonder what the program still waits for."""
        if is_interrupted and self.spooling is not None:
            timeout_s = SPOOL_EXIT_S
        timeout_s = self.begin_to_end(timeout_s)
        if threading.current_thread() is self.thread:  # a callback may close too, and need not wait for itself
            return
        try:
            if is_interrupted:
                _join([self], QUIET_EXIT_S)
                _explain([self])
            self.thread.join(timeout_s + JOIN_GRACE_S)
        except BaseException:  # Ctrl-C: whoever closes does not want to wait any more, nor at the end of the program
            self.begin_to_end(0)
            raise


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
        sender.begin_to_exit()
    try:
        _join(running, QUIET_EXIT_S)
        _explain(running)
        _join(running, max((sender.patience_s for sender in running), default=0.0) + JOIN_GRACE_S)
    except KeyboardInterrupt:  # the program ends already, so there is nobody to tell but the futures and callbacks
        for sender in running:
            sender.begin_to_end(0)
        _join(running, JOIN_GRACE_S)


def _join(senders: Iterable[SenderThread], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for sender in senders:
        sender.thread.join(max(0.0, deadline - time.monotonic()))


def _explain(senders: Iterable[SenderThread]) -> None:
    for sender in senders:
        count, awaited = sender.waiting() if sender.thread.is_alive() else (0, "")
        if count:
            left_ms = (sender.core.close_at_ms or 0) - monotonic_ms()
            logger.warning(
                "%s: still closing: %s for %s, for %.0f s at most; %s",
                sender.thread.name,
                f"{counted(count, 'record')} {'waits' if count == 1 else 'wait'}",
                awaited,
                max(0, left_ms) / 1000,
                "what is not sent by then stays in the spool" if sender.spooling else "Ctrl-C gives up on what waits",
            )


if hasattr(os, "register_at_fork"):  # not on Windows, where nobody forks
    os.register_at_fork(after_in_child=_disown_in_child)
atexit.register(_end_all)
