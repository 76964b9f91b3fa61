"""Two sockets and the link between them: reads bytes, feeds the core, does what it says. Decides nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from oncelog.faults.core import BROKEN_BY_RULE, Cut, Effect, End, Link, Pass
from oncelog.faults.rewrite import Address
from oncelog.faults.rules import Direction

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
WRITE_HIGH_WATER_BYTES = 1 << 20
"""Above this, what waits for a slow reader waits in its sender's socket."""


class _Socket(asyncio.BufferedProtocol):
    """One of the two; what it receives travels in `direction`."""

    def __init__(self, connection: Connection, direction: Direction) -> None:
        self._connection = connection
        self._direction = direction
        self.transport: asyncio.Transport | None = None
        self.is_write_paused = False
        self.is_read_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)  # type: ignore[union-attr]
        self._connection.opened(self._direction)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.link.get_buffer(self._direction)

    def buffer_updated(self, count: int) -> None:
        self._connection.received(self._direction, count)

    def eof_received(self) -> bool:
        self._connection.ended(self._direction)
        return True  # the other direction may still be needed

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._connection.close()

    def pause_writing(self) -> None:
        self.is_write_paused = True
        self._connection.balance_reading()

    def resume_writing(self) -> None:
        self.is_write_paused = False
        self._connection.balance_reading()

    def read_while(self, wanted: bool) -> None:
        if self.transport is None or self.transport.is_closing() or wanted is not self.is_read_paused:
            return
        self.is_read_paused = not wanted
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()


class Connection:
    """A client's connection; the one to the broker is made as soon as the client is there."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        upstream: Address,
        link: Link,
        on_close: Callable[[Connection], None],
    ) -> None:
        self.link = link
        self._loop = loop
        self._upstream = upstream
        self._on_close = on_close
        self._client = _Socket(self, Direction.REQUEST)
        self._broker = _Socket(self, Direction.RESPONSE)
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def protocol(self) -> asyncio.BufferedProtocol:
        """The client's end, for the listener."""
        return self._client

    def opened(self, direction: Direction) -> None:
        if direction is Direction.REQUEST:
            self._connecting = self._loop.create_task(self._connect())
        self.balance_reading()

    def received(self, direction: Direction, count: int) -> None:
        self._perform(self.link.received(direction, count, self._now_ms()))

    def ended(self, direction: Direction) -> None:
        self._perform(self.link.ended(direction, self._now_ms()))

    def close(self, *, flush: bool = False) -> None:
        """Break both connections; with `flush`, let what was already passed on leave first. The first call decides."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        for socket in (self._client, self._broker):
            if socket.transport is not None and flush:
                socket.transport.close()
            elif socket.transport is not None:
                socket.transport.abort()
        self._on_close(self)

    def balance_reading(self) -> None:
        """Read from a side only while there is somewhere to put what it sends."""
        is_connected = self._broker.transport is not None
        for direction, source, sink in self._routes():
            source.read_while(is_connected and self.link.wants(direction) and not sink.is_write_paused)

    def _routes(self) -> tuple[tuple[Direction, _Socket, _Socket], ...]:
        return (
            (Direction.REQUEST, self._client, self._broker),
            (Direction.RESPONSE, self._broker, self._client),
        )

    async def _connect(self) -> None:
        host, port = self._upstream
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, _ = await self._loop.create_connection(lambda: self._broker, host, port)
        except OSError:  # nobody there, or too slow: the client is told in the same way
            self.close()
            return
        if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
            # A port that nobody listens on may be given to the very socket that connects to it, which then holds a
            # broker's port against its return.
            self.close()

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Pass(direction, data):
                    self._send(direction, data)
                case End(Direction.REQUEST):
                    self._end_requests()
                case End(Direction.RESPONSE):
                    self.close(flush=True)
                case Cut(reason, flush):
                    if reason != BROKEN_BY_RULE:
                        logger.warning("closing a connection to %s: %s", self._upstream, reason)
                    self.close(flush=flush)
        self._arm_timer()
        self.balance_reading()

    def _send(self, direction: Direction, data: bytes) -> None:
        sink = self._broker if direction is Direction.REQUEST else self._client
        if sink.transport is not None:
            sink.transport.write(data)

    def _end_requests(self) -> None:
        if self._broker.transport is not None:
            with contextlib.suppress(OSError):  # it has gone as well
                self._broker.transport.write_eof()

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at_ms = self.link.wake_at_ms
        if wake_at_ms is not None:
            self._timer = self._loop.call_at(wake_at_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._perform(self.link.tick(self._now_ms()))

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
