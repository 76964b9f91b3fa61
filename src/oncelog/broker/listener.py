"""Where connections come in: a few at a time, and only while there are descriptors for them.

A shell. It accepts by itself instead of leaving that to the loop, which would take whatever waits in one go, and find
out only then that there is no descriptor left. Who is refused is accepted and closed: a client that hears so tries
again, one that hears nothing waits for its timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

logger = logging.getLogger(__name__)

LISTEN_BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 32
"""Connections taken in one turn of the loop; fewer than the descriptors that are reserved, also where these are few."""
PAUSE_S: Final = 1.0
"""How long nothing is accepted after the system could not: it would only say so again, as fast as it is asked."""
PORT_ATTEMPTS: Final = 5
"""A port that the system chooses for one address may be taken on another."""
NOT_HERE: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""A machine without IPv6 may still name its addresses."""
REASONS: Final = {
    errno.EADDRINUSE: "another process listens there",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "permission denied (ports below 1024 are often for root alone)",
}
"""In words, where the system's own do not say what to do."""

Address = tuple[Any, ...]


class Listener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        new_protocol: Callable[[], asyncio.BaseProtocol],
        *,
        may_keep: Callable[[int], bool],
        refused: Callable[[object], None],
    ) -> None:
        """`may_keep` judges the descriptor of a new connection; `refused` hears whose was closed."""
        self._loop = loop
        self._new_protocol = new_protocol
        self._may_keep = may_keep
        self._refused = refused
        self._sockets: list[socket.socket] = []
        self._arriving: set[asyncio.Task[object]] = set()
        self._pauses: set[asyncio.TimerHandle] = set()

    async def listen(self, host: str | None, port: int, *, send_buffer_bytes: int | None = None) -> int:
        """Begin, on all addresses of the host (or of this machine); the port, which is the one asked for unless that
        was 0. Raises OSError."""
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror:
            raise OSError(f"cannot listen on {host}:{port}: unknown host") from None
        addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._sockets = _listening_on(addresses, port, may_lack=host is None)
                break
            except OSError as error:
                if port or error.errno != errno.EADDRINUSE or attempt == PORT_ATTEMPTS:
                    raise
        if send_buffer_bytes is not None:
            for listening in self._sockets:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)  # is inherited
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        for pause in self._pauses:
            pause.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()

    async def settle(self) -> None:
        """Wait until those who were accepted have their protocols."""
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._pause(listening, error)
                return
            if self._may_keep(accepted.fileno()):
                self._take_in(accepted)
            else:
                accepted.close()
                self._refused(peer)

    def _take_in(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # it may be gone again
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        arriving = self._loop.create_task(self._connect(accepted))
        self._arriving.add(arriving)
        arriving.add_done_callback(self._arriving.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._new_protocol, accepted)
        except OSError as error:
            logger.warning("a connection could not be taken in: %s", error)
            accepted.close()

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        logger.error("no connection is accepted for %g s: %s", PAUSE_S, error)
        self._loop.remove_reader(listening)

        def over() -> None:
            self._pauses.discard(pause)
            self._loop.add_reader(listening, self._accept, listening)

        pause = self._loop.call_later(PAUSE_S, over)
        self._pauses.add(pause)


def check_free(host: str | None, port: int) -> None:
    """Whether a listener could begin there now; nobody can connect meanwhile. Raises OSError, as `Listener.listen`."""
    if port == 0:
        return
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror:
        raise OSError(f"cannot listen on {host}:{port}: unknown host") from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    for bound in _listening_on(addresses, port, may_lack=host is None, make=_bound):
        bound.close()


def _listening_on(
    addresses: Sequence[tuple[int, Address]],
    port: int,
    *,
    may_lack: bool,
    make: Callable[[int, Address], socket.socket] | None = None,
) -> list[socket.socket]:
    """All of them on one port, or none. Without a port the system chooses it for the first, and others may have it."""
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, address in addresses:
        try:
            sockets.append((make or _listening)(family, (address[0], port, *address[2:])))
        except OSError as error:
            problem = error
            if may_lack and error.errno in NOT_HERE:
                continue
            for listening in sockets:
                listening.close()
            raise
        port = sockets[0].getsockname()[1]
    if problem is not None and not sockets:
        raise problem
    return sockets


def _listening(family: int, address: Address) -> socket.socket:
    listening = _bound(family, address)
    try:
        listening.listen(LISTEN_BACKLOG)
    except OSError as error:
        listening.close()
        raise _cannot_listen(address, error) from None
    return listening


def _bound(family: int, address: Address) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # the other family has its own socket
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _cannot_listen(address, error) from None
    return bound


def _cannot_listen(address: Address, error: OSError) -> OSError:
    reason = REASONS.get(error.errno or 0, error.strerror)
    return OSError(error.errno, f"cannot listen on {address[0]}:{address[1]}: {reason}")


class _Buffered(asyncio.BufferedProtocol):
    """Stands for a protocol that has the methods of a BufferedProtocol without being one."""

    def __init__(self, inner: Any) -> None:
        for name in ("connection_made", "connection_lost", "get_buffer", "buffer_updated", "eof_received"):
            setattr(self, name, getattr(inner, name))


def protocol_for(loop: asyncio.AbstractEventLoop, buffered: object) -> asyncio.BaseProtocol:
    """What the loop takes for such a protocol. uvloop asks for its methods, asyncio's own loop for its class."""
    return _Buffered(buffered) if isinstance(loop, asyncio.BaseEventLoop) else cast(asyncio.BaseProtocol, buffered)
