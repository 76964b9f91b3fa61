"""The broker's shell: listener, signals, timers and threads around `BrokerState`. No rule of Kafka's is decided here.

One thread runs the loop and everything that changes what clients see. A small pool runs what may take long: flushes,
compaction, recovery, decompressing much at once, on what does not change meanwhile; and the lane of the metadata, which
plans and writes the metadata log, one proposal at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from oncelog.broker.collector import LOOKS_PER_SECOND, Collector
from oncelog.broker.config import BrokerConfig, Endpoint
from oncelog.broker.connection import KafkaConnection
from oncelog.broker.descriptors import for_logs, is_for_clients
from oncelog.broker.dispatch import Dispatcher, api_name
from oncelog.broker.group_commit import GroupCommit
from oncelog.broker.held_answers import HeldAnswers
from oncelog.broker.housekeeping import Housekeeping
from oncelog.broker.listener import Listener, check_free, protocol_for
from oncelog.broker.lookout import Lookout
from oncelog.broker.off_loop import OffLoop
from oncelog.broker.state import BrokerState
from oncelog.broker.steady_time import SteadyTime
from oncelog.broker.unfinished_frames import UnfinishedFrames
from oncelog.broker.workbench import SLICE_S, Workbench
from oncelog.client.occasional import OccasionalWarning
from oncelog.clock import wall_ms
from oncelog.errors import OncelogError
from oncelog.log.folder_lock import FolderInUse, FolderLock
from oncelog.log.open_files import OpenFiles
from oncelog.log.storage import FileStorage
from oncelog.printable import printable
from oncelog.wire.buffer_shelf import BufferShelf
from oncelog.wire.frame import RequestHeader

if TYPE_CHECKING:
    from oncelog.broker.metrics_endpoint import MetricsEndpoint

logger = logging.getLogger(__name__)

T = TypeVar("T")

BACKGROUND_THREADS = 4
"""One compacts, one decompresses what is too much for the loop, one writes metadata, and a flush need not wait for any
of them."""
STOP_THREADS = 16
"""Closing a log waits for the disk; disks take many waiters at once."""
OUT_OF_DESCRIPTORS = "the descriptors left are reserved for the broker's own work; allow more (ulimit -n)"
SEND_BUFFER_BYTES = 512 * 1024
"""What the system takes of an answer at once. Left to itself it takes megabytes before the client has woken up; so the
client copies one part while the next is being sent."""
TELLING_PERIOD_S = 10.0
MAX_TOLD_PER_PERIOD = 50
"""Closed connections that are logged one by one in a period; the others are only counted."""
REFUSED_PERIOD_MS = 60_000
"""One line in it tells of connections that found no descriptor, with their number: who connects in vain tries again."""
LOCK_CHECK_INTERVAL_MS = 10_000
COLLECTOR_INTERVAL_MS = 1_000 // LOOKS_PER_SECOND
SWITCH_INTERVAL_S = 0.0005
"""How long a compacting thread may keep the interpreter from the loop; Python's own 5 ms would show in every p99."""
STOP_TELLING_S = 1.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogLines(logging.Formatter):
    """One line per message: what clients call themselves must not look like another, nor move a terminal's cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        return printable(super().formatMessage(record))


class CannotListen(OncelogError):
    """The address is taken, or is not one of this machine."""


class DataFolderInUse(OncelogError):
    """Another process has the data folder open."""


class Server:
    """Listens, keeps the connections, and does the housekeeping when it is due."""

    def __init__(
        self,
        broker: BrokerState,
        loop: asyncio.AbstractEventLoop,
        pool: ThreadPoolExecutor,
        steady_time: SteadyTime,
    ) -> None:
        self.loop = loop
        self.now_ms = steady_time.now_ms
        """For deadlines, and for whatever goes after a while; nobody turns it."""
        self.wall_ms = steady_time.wall_ms
        """The time of day."""
        self.metrics = broker.metrics
        self.quotas = broker.quotas
        self.dispatcher = Dispatcher(broker)
        self.buffers = BufferShelf()
        self.workbench = Workbench(loop.call_soon)
        self.held_answers: HeldAnswers[KafkaConnection] = HeldAnswers()
        self.unfinished_frames: UnfinishedFrames[KafkaConnection] = UnfinishedFrames()
        self._broker = broker
        self._pool = pool
        self._connections: set[KafkaConnection] = set()
        self._listener = Listener(
            loop,
            lambda: protocol_for(loop, KafkaConnection(self)),
            may_keep=is_for_clients,
            refused=self._out_of_descriptors,
        )
        self._endpoint: MetricsEndpoint | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._in_threads: set[asyncio.Future[Any]] = set()
        self._telling_until_s = 0.0
        self._told = self._untold = 0
        self._lookout = Lookout()
        self._refusals = OccasionalWarning(logger, REFUSED_PERIOD_MS)

    @property
    def config(self) -> BrokerConfig:
        """Asked for anew each time: some keys change while the broker runs."""
        return self._broker.config

    async def listen(self) -> Endpoint:
        host = self.config.listen_host
        port = await self._listener.listen(host or None, self.config.listen_port, send_buffer_bytes=SEND_BUFFER_BYTES)
        return Endpoint(host, port)

    async def serve_metrics(self, host: str, port: int) -> None:
        from oncelog.broker.metrics_endpoint import serve_metrics  # few ask for it, and everybody waits for the start

        self._endpoint = await serve_metrics(self._broker, self.loop, host, port)

    def admit(self, connection: KafkaConnection) -> bool:
        if len(self._connections) >= self.config.max_connections:
            self.metrics.connections_refused += 1
            return False
        self._connections.add(connection)
        self.metrics.connections = len(self._connections)
        return True

    def _out_of_descriptors(self, peer: object) -> None:
        self.metrics.connections_refused += 1
        self._refusals.give(self.now_ms(), "refusing the connection of %s: %s", peer, OUT_OF_DESCRIPTORS)

    def forget(self, connection: KafkaConnection) -> None:
        self._connections.discard(connection)
        self.metrics.connections = len(self._connections)

    def tell(self, what: str, peer: object, reason: str, *, is_news: bool = True) -> None:
        """Log what happens to a connection, in bounds: who opens them by the thousand must not fill the disk. News is
        what an operator can do something about; that clients come, rest and go is not."""
        if not is_news:
            logger.debug("%s the connection of %s: %s", what, peer, reason)
            return
        now_s = self.loop.time()
        if now_s >= self._telling_until_s:
            if self._untold:
                logger.info("%d more connections were closed", self._untold)
            self._telling_until_s = now_s + TELLING_PERIOD_S
            self._told = self._untold = 0
        if self._told < MAX_TOLD_PER_PERIOD:
            self._told += 1
            logger.info("%s the connection of %s: %s", what, peer, reason)
        else:
            self._untold += 1

    def answered(self, header: RequestHeader, elapsed_s: float) -> None:
        self.metrics.answered(api_name(header.api_key), elapsed_s * 1000)

    def expect_more(self) -> None:
        """Requests were served, so more may come at once: do not sleep yet, if that has been of use lately."""
        if self._lookout.served(time.perf_counter()):
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        # Whatever is due to be called makes the loop only glance at its sockets instead of sleeping over them.
        if self._lookout.looks_on(time.perf_counter()):
            os.sched_yield()  # the client may need this very core to send what is looked for
            self.loop.call_soon(self._look)

    def run_in_thread(self, work: Callable[[], T], done: Callable[[T | None, Exception | None, int], None]) -> None:
        def finished(future: asyncio.Future[T]) -> None:
            self._in_threads.discard(future)
            error = future.exception()
            assert error is None or isinstance(error, Exception)
            done(None if error else future.result(), error, self.now_ms())

        future = self.loop.run_in_executor(self._pool, work)
        self._in_threads.add(future)
        future.add_done_callback(finished)

    def run_to_end(self, steps: Iterator[None], done: Callable[[], None]) -> None:
        """Take steps, `SLICE_S` of them in each round of the loop, and then be done, also when the broker stops."""
        until_s = time.perf_counter() + SLICE_S
        for _ in steps:
            if time.perf_counter() > until_s:
                self.loop.call_soon(self.run_to_end, steps, done)
                return
        done()

    def every(self, interval_ms: int | Callable[[], int], step: Callable[[int], None]) -> None:
        """Do a step again and again; one that fails is logged and comes again."""

        def due() -> None:
            self._timers.discard(timer)
            try:
                step(self.now_ms())
            except Exception:
                logger.exception("bug: a housekeeping step failed")
            self.every(interval_ms, step)

        wait_ms = interval_ms() if callable(interval_ms) else interval_ms
        timer = self.loop.call_later(wait_ms / 1000, due)
        self._timers.add(timer)

    def later(self, delay_ms: int, step: Callable[[], None]) -> Callable[[], None]:
        """Do a step once, unless what is returned is called before."""

        def due() -> None:
            self._timers.discard(timer)
            try:
                step()
            except Exception:
                logger.exception("bug: a step that was due failed")

        def cancel() -> None:
            timer.cancel()
            self._timers.discard(timer)

        timer = self.loop.call_later(delay_ms / 1000, due)
        self._timers.add(timer)
        return cancel

    def in_slices(self, work: Iterator[None], done: Callable[[], None]) -> None:
        """Go through `work` for `SLICE_S` at a time, with a pause of the same length for everybody else."""

        def step() -> None:
            end_s = time.perf_counter() + SLICE_S
            try:
                for _ in work:
                    if time.perf_counter() >= end_s:
                        self.later(int(SLICE_S * 1000), step)
                        return
            except Exception:
                logger.exception("bug: a housekeeping step failed")
            done()

        step()

    def close_idle(self, _: int) -> None:
        oldest_s = self.loop.time() - self.config.connections_max_idle_ms / 1000
        idle = [one for one in self._connections if one.last_active_s < oldest_s and not one.is_muted]
        for connection in idle:
            connection.cut_off("idle for longer than connections.max.idle.ms", is_news=False)

    async def close(self) -> None:
        """Take no more requests, and wait for what runs in threads: a flush that fails even now takes its log offline,
        which must then not be closed as if it were whole."""
        for timer in self._timers:
            timer.cancel()
        self._listener.close()
        if self._endpoint is not None:
            self._endpoint.close()
        await self._listener.settle()
        for connection in list(self._connections):
            connection.hang_up("the broker stops", is_news=False)
        metadata_rests = asyncio.Event()
        self._broker.controller.stop(metadata_rests.set)
        await metadata_rests.wait()
        while self._in_threads:
            await asyncio.wait(self._in_threads)


@contextlib.contextmanager
def data_folder_lock(directory: str) -> Iterator[FolderLock]:
    """One broker per data folder: two would overwrite each other's records."""
    try:
        lock = FolderLock(directory)
    except FolderInUse as error:
        raise DataFolderInUse(
            f"the data folder {directory} is in use by another broker (process {error.owner}); "
            "stop that one, or choose another folder with --data"
        ) from None
    try:
        yield lock
    finally:
        lock.release()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, which serves more, where it is installed: there is none for every Python."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(config: BrokerConfig) -> int:
    """Serve until SIGTERM or SIGINT; the process's exit code."""
    with contextlib.suppress(ImportError):  # not compiled: then threads keep memory each for itself
        from oncelog.broker._allocator import use_one_arena

        use_one_arena()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(LogLines(LOG_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[to_stderr])
    _let_ctrl_c_kill()  # what is opened can be opened again
    steady_time = SteadyTime(wall_ms, time.monotonic_ns)
    threads = max(BACKGROUND_THREADS, config.num_recovery_threads_per_data_dir)
    check_addresses(config)  # first: a broker that cannot serve leaves no folder behind
    with (
        data_folder_lock(config.log_dir) as lock,
        contextlib.ExitStack() as at_the_end,
        # Leaving the pool waits for what runs in it: only then may the logs be closed.
        ThreadPoolExecutor(threads) as pool,
        contextlib.closing(new_event_loop()) as loop,
    ):
        now_ms = steady_time.now_ms()
        broker = BrokerState.open(
            config,
            FileStorage(config.log_dir),
            now_ms=now_ms,
            new_id=uuid4,
            parallel_map=pool.map,
            open_files=OpenFiles(for_logs()),
        )
        # Also if it cannot serve because its port is taken: the next start should be a quick one.
        at_the_end.callback(_stop, broker, steady_time)
        loop.run_until_complete(_serve(broker, lock, loop, pool, steady_time))
    return 0


def check_addresses(config: BrokerConfig) -> None:
    """Raises CannotListen, which names what to change."""
    host = config.listen_host or None
    with _naming("--listen HOST:PORT (port 0 picks a free one)"):
        check_free(host, config.listen_port)
    if config.metrics_port is not None:
        with _naming("-o metrics.port=PORT"):
            check_free(host, config.metrics_port)


@contextlib.contextmanager
def _naming(remedy: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotListen(f"{error.strerror or error}; choose another address with {remedy}") from None


def _stop(broker: BrokerState, steady_time: SteadyTime) -> None:
    _let_ctrl_c_kill()  # the loop has given it back to Python, which would stop half way
    progress = StopProgress(time.monotonic())
    with ThreadPoolExecutor(STOP_THREADS) as pool:
        broker.stop(
            steady_time.now_ms(), pool.map, lambda closed, total: progress.closed(time.monotonic(), closed, total)
        )


class StopProgress:
    """Tells an operator who waits for the end how far it is: making thousands of partitions durable takes seconds."""

    def __init__(self, began_s: float) -> None:
        self._told_s = began_s

    def closed(self, now_s: float, closed: int, total: int) -> None:
        if closed < total and now_s - self._told_s >= STOP_TELLING_S:
            self._told_s = now_s
            logger.info("stopping: %d of %d partitions are closed", closed, total)


def keep_lock(lock: FolderLock, _: int) -> None:
    """Put the file of the lock back if somebody deleted it: it is all that Apache Kafka looks at. Say so if the folder
    has lost its name."""
    if lock.was_moved:
        logger.error(
            "the data folder was renamed, or another one put in its place; this broker goes on in the one that it "
            "opened. Stop it, and start it with the folder's new name"
        )
    try:
        if lock.renew():
            logger.warning("`.lock` in the data folder was deleted by someone; recreated and locked")
    except FolderInUse as error:
        logger.error("two brokers write to one folder, stop one of them at once: %s", error)
    except OSError as error:
        logger.error("`.lock` in the data folder was deleted by someone, and cannot be recreated: %s", error)


def _interrupted(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """The first Ctrl-C stops the broker in order. Another one is for whoever cannot wait, and as a crash."""
    stopped.set()
    loop.remove_signal_handler(signal.SIGINT)
    _let_ctrl_c_kill()


def _let_ctrl_c_kill() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def _serve(
    broker: BrokerState,
    lock: FolderLock,
    loop: asyncio.AbstractEventLoop,
    pool: ThreadPoolExecutor,
    steady_time: SteadyTime,
) -> None:
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_signal_handler(signal.SIGINT, _interrupted, loop, stopped)
    server = Server(broker, loop, pool, steady_time)
    broker.group_commit = GroupCommit(server.run_in_thread)
    broker.off_loop = OffLoop(server.run_in_thread)
    broker.controller.serve_by(server.run_in_thread, server.run_to_end)
    broker.timers = server
    with _naming("--listen HOST:PORT (port 0 picks a free one)"):
        endpoint = await server.listen()
    broker.endpoint = broker.config.advertised or endpoint
    if broker.config.metrics_port is not None:
        with _naming("-o metrics.port=PORT"):
            await server.serve_metrics(endpoint.host, broker.config.metrics_port)
    Housekeeping(broker, server).start()
    server.every(LOCK_CHECK_INTERVAL_MS, partial(keep_lock, lock))
    collector = Collector(gc, sys.getallocatedblocks)
    collector.begin()
    server.every(COLLECTOR_INTERVAL_MS, lambda _: collector.look(broker.metrics.answered_count))
    print(f"ready {endpoint}", flush=True)
    broker.resume_groups()
    broker.resume_transactions()
    await stopped.wait()
    was_interrupted = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    hint = "; press Ctrl-C again to stop at once, and recover at the next start" if was_interrupted else ""
    logger.info("stopping: making %d partitions durable%s", len(broker.logs.logs), hint)
    broker.logs.begin_stop()
    await server.close()
