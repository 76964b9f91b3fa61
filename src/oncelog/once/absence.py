"""What is said of a server that effects need and that is away: one WARNING with its address, the reason and what
happens next, another now and then while it lasts, and one when it is back."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.client.occasional import OccasionalWarning
from oncelog.printable import printable

logger = logging.getLogger(__name__)

SLOW_S = 3.0
"""How long a server is waited for before that is told."""
SAY_AGAIN_MS = 30_000
PROBE_S = 1.0
"""How long it may take to find out why a server does not answer."""


class Absence:
    def __init__(self, what: str) -> None:
        """`what` names the server, with its address."""
        self._what = what
        self._warning = OccasionalWarning(logger, every_ms=SAY_AGAIN_MS)
        self._is_told = False

    def begins(self, reason: object, what_next: str) -> None:
        self._is_told = True
        self._warning.give(int(time.monotonic() * 1000), "%s", printable(f"{self._what}: {reason}; {what_next}"))

    def ends(self) -> None:
        if self._is_told:
            self._is_told = False
            logger.warning("%s", printable(f"{self._what} answers again"))

    @contextmanager
    def told_if_slow(self, reason: str, what_next: str) -> Iterator[None]:
        """For what is rarely done: it costs a thread."""
        timer = threading.Timer(SLOW_S, self.begins, (reason, what_next))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def why_silent(address: tuple[str, int] | str | None) -> str:
    """The reason that a new connection to it gives, if that gives any."""
    if isinstance(address, tuple):
        try:
            socket.create_connection(address, PROBE_S).close()
        except TimeoutError:
            return f"does not accept connections, and has not answered for {SLOW_S:.0f} s"
        except OSError as error:
            return error.strerror or str(error)
    return f"has not answered for {SLOW_S:.0f} s"
