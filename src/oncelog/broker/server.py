"""The broker's shell: sockets, signals, timers and threads around `BrokerState`. No rule of Kafka's is decided here.

One thread runs the loop and everything that changes state. A small pool runs what may take long and touches nothing
that changes: flushes, compaction, recovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import uuid4

from oncelog.broker.connection import AnswerLine, Place
from oncelog.broker.config import BrokerConfig, Endpoint
from oncelog.broker.dispatch import Dispatcher
from oncelog.broker.group_commit import GroupCommit
from oncelog.broker.housekeeping import Housekeeping
from oncelog.broker.metrics_endpoint import serve_metrics
from oncelog.broker.request import CLOSE, NO_REPLY, Chunk, Chunks, Pending
from oncelog.broker.state import BrokerState
from oncelog.clock import now_ms
from oncelog.errors import KafkaStorageError, OncelogError
from oncelog.log.storage import FileStorage
from oncelog.wire.codec import MalformedMessage
from oncelog.wire.frame import FrameAssembler, RequestHeader

logger = logging.getLogger(__name__)

T = TypeVar("T")

WRITE_HIGH_WATER_BYTES = 1 << 20
"""Above this, a connection's answers wait in their files, and its requests in the socket."""

SEND_CHUNK_BYTES = 512 * 1024
COALESCE_BYTES = 64 * 1024
BACKGROUND_THREADS = 2
LISTEN_BACKLOG = 1024
LOCK_FILE = ".lock"
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class DataFolderInUse(OncelogError):  # noqa: N818 - it is what the operator is told
    """Another process has the data folder open."""


class KafkaConnection(asyncio.BufferedProtocol):
    """Bytes in, frames to the dispatcher, answers out in order. Stops reading while its client does not."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._frames = FrameAssembler(server.config.socket_request_max_bytes)
        self._line = AnswerLine()
        self._held: deque[memoryview] = deque()
        self._outgoing: deque[Chunk | Iterator[bytes]] = deque()
        self._timers: dict[Pending, asyncio.TimerHandle | None] = {}
        self._transport: asyncio.Transport | None = None
        self._write_paused = False
        self._reading_paused = False
        self.last_active_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self.last_active_s = self._server.loop.time()
        if not self._server.admit(self):
            self.hang_up("max.connections reached")
            return
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)  # type: ignore[union-attr]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server.forget(self)
        for pending, timer in self._timers.items():
            if timer is not None:
                timer.cancel()
            if pending.abandon is not None:
                pending.abandon()
        self._timers.clear()
        self._outgoing.clear()
        self._held.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, count: int) -> None:
        self.last_active_s = self._server.loop.time()
        try:
            for frame in self._frames.received(count):
                if self._held or self._is_saturated:
                    self._held.append(frame)
                else:
                    self._serve(frame)
        except MalformedMessage as error:
            self._server.metrics.malformed_requests += 1
            self.hang_up(str(error))
        self._balance_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._pump()
        self._serve_held()

    def hang_up(self, reason: str) -> None:
        if self._transport is not None:
            logger.info("closing the connection of %s: %s", self._transport.get_extra_info("peername"), reason)
            self._transport.close()

    @property
    def _is_saturated(self) -> bool:
        return self._line.is_full or self._write_paused

    def _serve(self, frame: memoryview) -> None:
        began_s = time.perf_counter()
        header, answer = self._server.dispatcher.dispatch(frame, now_ms())
        if answer is NO_REPLY:
            self._server.answered(header, began_s)
        elif answer is CLOSE:
            self.hang_up("a request with acks=0 failed")
        elif isinstance(answer, Pending):
            self._await(header, answer, self._line.reserve(), began_s)
        else:
            self._server.answered(header, began_s)
            chunks = self._server.dispatcher.frame(header, answer)
            if len(self._line):
                self._line.reserve().chunks = chunks
            else:
                self._send(chunks)

    def _await(self, header: RequestHeader, pending: Pending, place: Place, began_s: float) -> None:
        def completed(chunks: Chunks) -> None:
            timer = self._timers.pop(pending, None)
            if timer is not None:
                timer.cancel()
            self._server.answered(header, began_s)
            place.chunks = self._server.dispatcher.frame(header, chunks)
            for ready in self._line.take_ready():
                self._send(ready)
            self._serve_held()

        pending.on_complete = completed
        timer = None
        if pending.deadline_ms is not None and pending.expire is not None:
            delay_s = max(0.0, (pending.deadline_ms - now_ms()) / 1000)
            timer = self._server.loop.call_later(delay_s, pending.expire)
        self._timers[pending] = timer

    def _serve_held(self) -> None:
        try:
            while self._held and not self._is_saturated and self._transport is not None:
                self._serve(self._held.popleft())
        except MalformedMessage as error:
            self._server.metrics.malformed_requests += 1
            self.hang_up(str(error))
        self._balance_reading()

    def _balance_reading(self) -> None:
        """Read while there is room for what arrives; otherwise let the client's own socket fill up."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wanted = not (self._held or self._is_saturated)
        if wanted and self._reading_paused:
            transport.resume_reading()
        elif not wanted and not self._reading_paused:
            transport.pause_reading()
        self._reading_paused = not wanted

    def _send(self, chunks: Chunks) -> None:
        if self._transport is None:
            return
        self._outgoing.extend(chunks)
        self._pump()

    def _pump(self) -> None:
        """Hand over to the transport until it has enough; small pieces are joined, large ones read as they leave."""
        transport = self._transport
        small: list[bytes] = []
        small_bytes = 0
        try:
            while self._outgoing and transport is not None and not self._write_paused:
                piece = self._next_piece()
                if piece is None:
                    continue
                small.append(piece)
                small_bytes += len(piece)
                if small_bytes >= COALESCE_BYTES:
                    transport.write(b"".join(small) if len(small) > 1 else piece)
                    small, small_bytes = [], 0
        except KafkaStorageError as error:
            logger.error("reading records for an answer failed: %s", error)
            self.hang_up("its records cannot be read")
            return
        if small and transport is not None:
            transport.write(b"".join(small))

    def _next_piece(self) -> bytes | None:
        head = self._outgoing[0]
        if isinstance(head, bytes):
            self._outgoing.popleft()
            return head
        if not isinstance(head, Iterator):
            head = self._outgoing[0] = iter(head.chunks(SEND_CHUNK_BYTES))
        piece = next(head, None)
        if piece is None:
            self._outgoing.popleft()
        return piece


class Server:
    """Listens, keeps the connections, and does the housekeeping when it is due."""

    def __init__(self, broker: BrokerState, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor) -> None:
        self.loop = loop
        self.metrics = broker.metrics
        self.dispatcher = Dispatcher(broker)
        self._broker = broker
        self._pool = pool
        self._connections: set[KafkaConnection] = set()
        self._listener: asyncio.Server | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    @property
    def config(self) -> BrokerConfig:
        """Asked for anew each time: some keys change while the broker runs."""
        return self._broker.config

    async def listen(self) -> Endpoint:
        config = self.config
        self._listener = await self.loop.create_server(
            lambda: KafkaConnection(self), config.listen_host or None, config.listen_port, backlog=LISTEN_BACKLOG
        )
        return Endpoint(config.listen_host, int(self._listener.sockets[0].getsockname()[1]))

    def admit(self, connection: KafkaConnection) -> bool:
        if len(self._connections) >= self.config.max_connections:
            self.metrics.connections_refused += 1
            return False
        self._connections.add(connection)
        self.metrics.connections = len(self._connections)
        return True

    def forget(self, connection: KafkaConnection) -> None:
        self._connections.discard(connection)
        self.metrics.connections = len(self._connections)

    def answered(self, header: RequestHeader, began_s: float) -> None:
        self.metrics.answered(header.api_key, (time.perf_counter() - began_s) * 1000)

    def run_in_thread(self, work: Callable[[], T], done: Callable[[T | None, Exception | None, int], None]) -> None:
        def finished(future: asyncio.Future[T]) -> None:
            error = future.exception()
            assert error is None or isinstance(error, Exception)
            done(None if error else future.result(), error, now_ms())

        self.loop.run_in_executor(self._pool, work).add_done_callback(finished)

    def every(self, interval_ms: int, step: Callable[[int], None]) -> None:
        """Do a step again and again; one that fails is logged and comes again."""

        def due() -> None:
            self._timers.discard(timer)
            try:
                step(now_ms())
            except Exception:
                logger.exception("bug: a housekeeping step failed")
            self.every(interval_ms, step)

        timer = self.loop.call_later(interval_ms / 1000, due)
        self._timers.add(timer)

    def close_idle(self, _: int) -> None:
        oldest_s = self.loop.time() - self.config.connections_max_idle_ms / 1000
        for connection in [one for one in self._connections if one.last_active_s < oldest_s]:
            connection.hang_up("idle for longer than connections.max.idle.ms")

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.hang_up("the broker stops")


@contextlib.contextmanager
def data_folder_lock(directory: str) -> Iterator[None]:
    """One broker per data folder: two would overwrite each other's records."""
    os.makedirs(directory, exist_ok=True)
    descriptor = os.open(os.path.join(directory, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise DataFolderInUse(
                f"the data folder {directory} is in use by another broker (process {owner}); "
                "stop that one, or choose another folder with --data"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


def run(config: BrokerConfig) -> int:
    """Serve until SIGTERM or SIGINT; the process's exit code."""
    import uvloop

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    with data_folder_lock(config.log_dir):
        # Leaving the pool waits for what runs in it: only then may the logs be closed.
        with ThreadPoolExecutor(BACKGROUND_THREADS) as pool:
            broker = BrokerState.open(config, FileStorage(), now_ms=now_ms(), new_id=uuid4, parallel_map=pool.map)
            with contextlib.closing(uvloop.new_event_loop()) as loop:
                loop.run_until_complete(_serve(broker, loop, pool))
        broker.stop(now_ms())
    return 0


async def _serve(broker: BrokerState, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = Server(broker, loop, pool)
    broker.group_commit = GroupCommit(server.run_in_thread)
    endpoint = await server.listen()
    broker.endpoint = broker.config.advertised or endpoint
    if broker.config.metrics_port is not None:
        serve_metrics(broker, endpoint.host, broker.config.metrics_port)
    Housekeeping(broker, server).start()
    # What lives now lives until the end: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    print(f"ready {endpoint}", flush=True)
    await stopped.wait()
    logger.info("stopping")
    broker.logs.begin_stop()
    server.close()
