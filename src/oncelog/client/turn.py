"""Whose turn it is to run a core: its driver's thread, or a user's thread that stands in for it for a moment.

The driver's thread has the turn while it works, and gives it back while it sleeps. It sleeps at a gate: sockets that
become ready wake it only while the gate is open. Who stands in shuts the gate and waits for the sockets itself, so that
an answer wakes one thread, and the right one.

Where the system has no epoll there is no gate, and nobody can stand in.
"""

from __future__ import annotations

import select
import threading

READABLE = select.POLLIN
WRITABLE = select.POLLOUT


class Turn:
    __slots__ = ("can_be_lent", "is_asleep", "is_wanted", "lock", "wakes_at_ms")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Who holds it has the turn. What follows is for it to read and to write, but for `is_wanted`."""
        self.can_be_lent = False
        """The driver's thread sleeps, at a gate, and has left nothing undone."""
        self.is_wanted = False
        """Somebody wants the driver's thread to look at its core."""
        self.is_asleep = False
        """Whoever has the turn, or had it last, sleeps or is about to: nothing but the pipe wakes it."""
        self.wakes_at_ms = 0
        """When the driver's thread looks by itself again."""


class PollWatch:
    """Which sockets are ready, for one thread."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._ready: list[tuple[int, int]] = []
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister

    def sleep(self, wait_ms: int) -> None:
        """Until a socket is ready, or the time is over."""
        self._ready = self._poll.poll(wait_ms)

    def ready(self) -> list[tuple[int, int]]:
        """Sockets, and what they are ready for."""
        return self._ready

    def close(self) -> None: ...


class GatedWatch:
    """The same, where another thread may look as well: `sockets` are watched by whoever has the turn, and the driver's
    thread sleeps at a `gate` before them."""

    def __init__(self) -> None:
        self.sockets = select.epoll()
        self.gate = select.epoll()
        self.gate.register(self.sockets, READABLE)
        self.register = self.sockets.register
        self.modify = self.sockets.modify
        self.unregister = self.sockets.unregister

    def sleep(self, wait_ms: int) -> None:
        self.gate.poll(wait_ms / 1000)

    def ready(self) -> list[tuple[int, int]]:
        return self.sockets.poll(0)

    def close(self) -> None:
        self.gate.close()
        self.sockets.close()


def new_watch() -> PollWatch | GatedWatch:
    return GatedWatch() if hasattr(select, "epoll") else PollWatch()
