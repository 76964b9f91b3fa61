"""Whose turn it is to run a core: its driver's thread, or a user's thread that stands in for it for a moment.

The driver's thread has the turn while it works, and gives it back while it sleeps. It sleeps at a gate: sockets that
become ready wake it only while the gate is open. Who stands in shuts the gate and waits for the sockets itself, so that
an answer wakes one thread, and the right one.

Where the system has no epoll there is no gate, and nobody can stand in. Windows has neither `poll` nor pipes that can
be watched: there it is `select`, and a pair of sockets for a bell.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from typing import Final

READABLE: Final = getattr(select, "POLLIN", 1)
WRITABLE: Final = getattr(select, "POLLOUT", 4)
HAS_POLL: Final = hasattr(select, "poll")
MAX_RINGS: Final = 4096
"""How many are taken note of at once; they all mean the same."""


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


class SelectWatch:
    """The same where the system has nothing but `select`."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}
        self._ready: list[tuple[int, int]] = []
        self.modify = self.register

    def register(self, watched: int | socket.socket, mask: int) -> None:
        self._wanted[_descriptor(watched)] = mask

    def unregister(self, watched: int | socket.socket) -> None:
        del self._wanted[_descriptor(watched)]

    def sleep(self, wait_ms: int) -> None:
        readers = [one for one, mask in self._wanted.items() if mask & READABLE]
        writers = [one for one, mask in self._wanted.items() if mask & WRITABLE]
        # Windows tells of a connection that could not be made in the third list alone.
        readable, writable, failed = select.select(readers, writers, writers, wait_ms / 1000)
        ready = dict.fromkeys(readable, READABLE)
        for one in (*writable, *failed):
            ready[one] = ready.get(one, 0) | WRITABLE
        self._ready = list(ready.items())

    def ready(self) -> list[tuple[int, int]]:
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


def _descriptor(watched: int | socket.socket) -> int:
    return watched if isinstance(watched, int) else watched.fileno()


def new_watch() -> PollWatch | SelectWatch | GatedWatch:
    if hasattr(select, "epoll"):
        return GatedWatch()
    return PollWatch() if HAS_POLL else SelectWatch()


class PipeBell:
    """Wakes whoever sleeps at a watch that knows its `reader`. One that nobody hears in time raises BlockingIOError."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)

    def ring(self) -> None:
        os.write(self._writer, b"\0")

    def hush(self) -> None:
        os.read(self.reader, MAX_RINGS)

    def close(self) -> None:
        os.close(self.reader)
        os.close(self._writer)


class SocketBell:
    """The same where pipes cannot be watched."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        self.reader = self._reading.fileno()

    def ring(self) -> None:
        self._writing.send(b"\0")

    def hush(self) -> None:
        self._reading.recv(MAX_RINGS)

    def close(self) -> None:
        self._reading.close()
        self._writing.close()


def new_bell() -> PipeBell | SocketBell:
    return PipeBell() if HAS_POLL else SocketBell()
