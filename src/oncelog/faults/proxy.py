"""The proxy itself: listeners, one for every node that clients are told of, in a thread of their own. A shell.

    with FaultProxy("127.0.0.1:9092", rules=[Rule.drop_response("Produce", probability=0.02)], seed=7) as proxy:
        Producer(bootstrap_servers=proxy.bootstrap_servers)

An exception that leaves the `with` block carries a note with the seed and the rules, so that a failed test tells how
to run it again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import TypeVar

from oncelog.client.config import parse_servers
from oncelog.errors import OncelogError
from oncelog.faults.connection import Connection
from oncelog.faults.core import Link
from oncelog.faults.rewrite import Address
from oncelog.faults.rules import Rule, Script
from oncelog.faults.tally import Report, Tally, describe_rules

logger = logging.getLogger(__name__)

MAX_NODES = 1_000
"""Addresses that one proxy stands in for."""
MAX_CONNECTIONS = 10_000
SEED_BITS = 32

T = TypeVar("T")


class ProxyFailed(OncelogError):
    """The proxy could not listen."""


class _Listener:
    """A local port that stands for one broker."""

    def __init__(self, number: int, upstream: Address, host: str, port: int) -> None:
        self.number = number
        self.upstream = upstream
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server((host, port), family=family)
        self.socket.setblocking(False)
        self.address = Address(host, self.socket.getsockname()[1])
        self.connections = 0
        self.server: asyncio.AbstractServer | None = None


class _TurnedAway(asyncio.Protocol):
    """A client that finds the proxy full."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "abort")
        transport.abort()


class FaultProxy:
    """Stands between Kafka clients and the brokers at `upstream`, and breaks what passes as the rules say.

    `host` is where it listens and what it tells clients; `port` is that of the first bootstrap server (0: a free one).
    Without a `seed` one is chosen; it is part of every report and error. TLS cannot be looked into.
    """

    def __init__(
        self,
        upstream: str | Iterable[str],
        rules: Iterable[Rule] = (),
        *,
        seed: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.seed = random.getrandbits(SEED_BITS) if seed is None else seed
        self.rules = tuple(rules)
        self._upstreams = [Address(*server) for server in parse_servers(upstream)]
        self._host = host
        self._port = port
        self._script = Script(self.rules)
        self._tally = Tally()
        self._listeners: dict[Address, _Listener] = {}
        self._connections: set[Connection] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="oncelog-fault-proxy", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._is_open = False

    @property
    def bootstrap_servers(self) -> str:
        """What to give to clients instead of the brokers' own addresses."""
        if not self._listeners:
            raise ProxyFailed("the proxy has no address yet: call start() first, or use it in a `with` statement")
        return ",".join(str(self._listeners[upstream].address) for upstream in self._upstreams)

    @property
    def open_connections(self) -> int:
        """Those that still pass something on, also for clients that have hung up."""
        return self._in_loop(lambda: len(self._connections))

    def start(self) -> None:
        """Listen; clients can connect when it returns. Raises ProxyFailed."""
        try:
            for upstream in self._upstreams:
                self._listen(upstream, 0 if self._listeners else self._port)
        except OSError as error:
            for listener in self._listeners.values():
                listener.socket.close()
            raise ProxyFailed(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}; choose another port, or 0 ({self})"
            ) from error
        # Not uvloop's: that one reads from a new connection even where `connection_made` has paused it.
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        self._is_open = True

    def close(self) -> None:
        """Break all connections and stop listening. Counters stay."""
        if self._is_open:
            self._is_open = False
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def cut(self) -> int:
        """Break every open connection now; returns how many there were."""
        return self._in_loop(self._cut)

    def heal(self) -> None:
        """From now on no rule applies; the connections stay."""
        self._in_loop(self._script.heal)

    def report(self) -> Report:
        """What was done so far."""
        return self._in_loop(lambda: self._tally.report(self.seed, self.rules))

    def __enter__(self) -> FaultProxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if error is not None:
            error.add_note(f"behind a {self}")

    def __str__(self) -> str:
        upstreams = ",".join(map(str, self._upstreams))
        return f"fault proxy for {upstreams} with seed={self.seed}, rules: {describe_rules(self.rules)}"

    def _in_loop(self, function: Callable[[], T]) -> T:
        """All state belongs to the loop's thread while that runs."""
        if not self._is_open:
            return function()
        outcome: Future[T] = Future()

        def call() -> None:
            try:
                outcome.set_result(function())
            except Exception as error:
                outcome.set_exception(error)

        self._loop.call_soon_threadsafe(call)
        return outcome.result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for listener in self._listeners.values():
            self._serve(listener)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._shut())
            self._loop.close()

    async def _shut(self) -> None:
        for listener in self._listeners.values():
            if listener.server is not None:
                listener.server.close()
            listener.socket.close()
        self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _cut(self) -> int:
        connections = list(self._connections)
        for connection in connections:
            connection.close()
        return len(connections)

    def _listen(self, upstream: Address, port: int = 0) -> _Listener:
        listener = self._listeners.get(upstream)
        if listener is None:
            listener = self._listeners[upstream] = _Listener(len(self._listeners), upstream, self._host, port)
        return listener

    def _serve(self, listener: _Listener) -> None:
        async def serve() -> None:
            listener.server = await self._loop.create_server(lambda: self._accept(listener), sock=listener.socket)

        self._serving.add(self._loop.create_task(serve()))

    def _accept(self, listener: _Listener) -> asyncio.BaseProtocol:
        if len(self._connections) >= MAX_CONNECTIONS:
            return _TurnedAway()
        number = listener.connections
        listener.connections += 1
        self._tally.connections += 1
        draws = [
            random.Random(f"{self.seed}/{listener.number}/{number}/{index}").random for index in range(len(self.rules))
        ]
        link = Link(self._script.connection(draws), self._tally, self._advertise)
        connection = Connection(self._loop, listener.upstream, link, self._connections.discard)
        self._connections.add(connection)
        return connection.protocol

    def _advertise(self, upstream: Address) -> Address:
        """The local address that stands for a broker's; a new node gets a port of its own on first sight."""
        known = self._listeners.get(upstream)
        if known is not None:
            return known.address
        if any(listener.address == upstream for listener in self._listeners.values()):
            return upstream  # the broker was told to advertise the proxy itself
        if len(self._listeners) >= MAX_NODES:
            raise ProxyFailed(f"more than {MAX_NODES} addresses of brokers ({self})")
        try:
            listener = self._listen(upstream)
        except OSError as error:
            raise ProxyFailed(f"no port for the broker at {upstream}: {error} ({self})") from error
        self._serve(listener)
        return listener.address
