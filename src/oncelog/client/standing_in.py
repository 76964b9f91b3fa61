"""A user's thread that waits for one record does the sender's work for it: writes the request, and reads the answer.

Handing a record to the sender's thread and its result back costs more than everything else that is done for it, and who
waits has nothing else to do. So while the sender's thread sleeps, `send` takes its turn for one request, and `attend`
for one answer.

The law: **what is done here cannot be interrupted half way.** In the main thread a signal's handler may raise between
any two steps of Python code, and would leave a core that nobody could go on with. Compiled code has no such steps. So
only what is plain is done here, by compiled code alone: a lone batch without callbacks, a request that the socket takes
whole, an answer that says nothing but where the batch is stored. Everything else is left to the sender's thread, as it
was found. Nor does a user's callback ever run here.
"""

from __future__ import annotations

import time
from _thread import allocate_lock
from sys import modules
from typing import Any

from oncelog.client.accumulator import Accumulator, PartitionQueue
from oncelog.client.batch import ProducerBatch
from oncelog.client.connection import Connection
from oncelog.client.delivery import Delivery, OnDelivery, RecordFuture
from oncelog.client.dispatch import Dispatch
from oncelog.client.fates import Fates
from oncelog.client.idempotence import Idempotence
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.client.network_events import Write
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.selecting import SelectingDriver, Unread
from oncelog.client.sender import SenderCore
from oncelog.client.sockets import unsent
from oncelog.client.turn import READABLE, GatedWatch
from oncelog.client.verdict import verdict_of
from oncelog.records import kernel
from oncelog.records.model import Buffer, HeadersInput
from oncelog.types import advance_sequence
from oncelog.wire.frame import decode_response_header
from oncelog.wire.frame_receiver import FrameReceiver

SPIN_NS = 200_000
"""How long an answer is looked for, at most, before the thread sleeps: to fall asleep and to be woken takes about as
long as a broker nearby does."""
NEAR_NS = 300_000
"""A broker that usually answers within this time is looked for that way. With one far away it would be a waste."""

_USUAL_WEIGHT = 8  # how slowly a broker's usual time changes
_SHUT = 0
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
_new: Any = tuple.__new__  # of a NamedTuple, without the call of its Python constructor


class StandIn:
    """Of one driver that runs a `SenderCore`."""

    __slots__ = (
        "_accumulator", "_core", "_driver", "_modify_gate", "_network", "_now_ns", "_poll_sockets", "_sockets_fd",
        "_turn", "_usual_ns",
    )  # fmt: skip

    def __init__(self, core: SenderCore, accumulator: Accumulator, driver: SelectingDriver, watch: GatedWatch) -> None:
        self._core = core
        self._accumulator = accumulator
        self._network = core.network
        self._driver = driver
        self._turn = driver.turn
        self._poll_sockets = watch.sockets.poll
        self._modify_gate = watch.gate.modify
        self._sockets_fd = watch.sockets.fileno()
        self._now_ns = time.monotonic_ns
        self._usual_ns = NEAR_NS

    def begin_batch(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
    ) -> RecordFuture | None:
        """Begin a batch with this record, and send it if it is alone; else the driver will. None if there is no memory
        for another batch, or nothing can be sent any more."""
        if self._core.fatal is not None:
            return None
        now_ms = self._now_ns() // _NS_PER_MS
        future: RecordFuture | None = self._accumulator.append_anew(
            queue, timestamp_ms, key, value, headers, on_delivery, now_ms
        )
        if future is None or not self.send(queue):
            self._driver.wake_by(self._core.batch_due_ms(queue, now_ms))
        return future

    def send(self, queue: PartitionQueue) -> bool:
        """Send the batch that was just begun in this queue, if it is the only one there is. False if the driver must be
        woken for it: it need not be if its broker can take no more, for it looks at its queues with every answer."""
        turn = self._turn
        if not turn.lock.acquire(False):
            return False
        try:
            if not turn.can_be_lent or turn.is_wanted:
                return False
            if not self._core.send_alone(queue, self._now_ns() // _NS_PER_MS, turn.wakes_at_ms):
                return self._network.is_occupied(queue.leader)
            return self._write()
        finally:
            turn.lock.release()

    def attend(self, waiter: LoneWaiter, timeout_s: float | None) -> None:
        """Read the answer to the one batch that is under way, if it is one. Returns when `waiter` is set; without that
        where the driver's thread is needed, or is about to wake by itself."""
        turn = self._turn
        if not turn.lock.acquire(False):
            return
        try:
            if turn.can_be_lent and not turn.is_wanted and self._core.awaits_one_answer():
                self._modify_gate(self._sockets_fd, _SHUT)
                try:
                    self._read_until(waiter, timeout_s)
                finally:
                    self._modify_gate(self._sockets_fd, READABLE)
        finally:
            turn.lock.release()
        if self._driver.left_over:
            self._driver.wake()

    def _write(self) -> bool:
        """The request that was just made. False if the socket did not take all of it."""
        driver = self._driver
        is_done = True
        for effect in self._network.take_effects():
            assert isinstance(effect, Write)
            channel = driver.channels_by_link.get(effect.link)
            buffers = effect.buffers
            sent = 0
            if channel is not None and channel.socket is not None and not channel.backlog:
                try:
                    sent = channel.socket.sendmsg(buffers)
                except OSError:
                    sent = 0  # the driver meets it again, and knows what it means
            size = 0
            for buffer in buffers:
                size += len(buffer)
            if sent < size:
                driver.left_over.append(_new(Write, (effect.link, unsent(buffers, sent))))
                self._turn.can_be_lent = is_done = False
        return is_done

    def _read_until(self, waiter: LoneWaiter, timeout_s: float | None) -> None:
        end_ms = self._turn.wakes_at_ms
        now_ms = self._now_ns() // _NS_PER_MS
        if timeout_s is not None:
            end_ms = min(end_ms, now_ms + int(timeout_s * 1000))
        while not waiter.is_set and now_ms < end_ms:
            ready = self._ready((end_ms - now_ms) / 1000)
            now_ms = self._now_ns() // _NS_PER_MS
            if len(ready) != 1 or not self._read(ready[0], now_ms):
                return

    def _ready(self, timeout_s: float) -> list[tuple[int, int]]:
        """The sockets that become ready, as `epoll` tells."""
        began_ns = now_ns = self._now_ns()
        ready: list[tuple[int, int]] = []
        if self._usual_ns <= NEAR_NS:
            while not ready and now_ns - began_ns < SPIN_NS:
                ready = self._poll_sockets(0)
                now_ns = self._now_ns()
        if not ready:
            ready = self._poll_sockets(timeout_s)
            now_ns = self._now_ns()
        self._usual_ns += (now_ns - began_ns - self._usual_ns) // _USUAL_WEIGHT
        return ready

    def _read(self, ready: tuple[int, int], now_ms: int) -> bool:
        """The answer, if it is one and plain; otherwise it is left to the driver."""
        fd, mask = ready
        channel = self._driver.channels_by_fd.get(fd)
        if channel is None or mask != READABLE or not channel.is_open or channel.socket is None:
            return False
        link = channel.link
        try:
            count = channel.socket.recv_into(self._network.get_buffer(link))
        except OSError:
            return False
        if not count:
            return False  # the end, which the driver finds as well
        answered = self._network.plain_answer(link, count, now_ms) if self._core.awaits_one_answer() else None
        if answered is None:
            self._driver.left_over.append(_new(Unread, (link, count)))
            self._turn.can_be_lent = False
            return False
        self._core.handle(answered, now_ms)
        return True


class LoneWaiter:
    """What `threading.Event` is to others: for a thread that waits for one result, and stands in for the driver."""

    __slots__ = ("_end_ns", "_lock", "_stand_in", "is_set")

    def __init__(self, stand_in: StandIn) -> None:
        self._stand_in = stand_in
        self._lock: Any = None
        self._end_ns = 0  # of the waiting; 0 before it begins
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        if self._lock is not None and self._lock.locked():
            self._lock.release()

    def clear(self) -> None:
        """To wait on, for what is left of the time."""
        self._lock = None
        self.is_set = False

    def wait(self, timeout_s: float | None = None) -> bool:
        if self.is_set:
            return True
        if timeout_s is not None and not self._end_ns:
            self._end_ns = self._stand_in._now_ns() + int(timeout_s * _NS_PER_S)
        self._stand_in.attend(self, self._left_s())
        if not self.is_set:
            self._sleep(self._left_s())
        return self.is_set

    def _left_s(self) -> float | None:
        return None if not self._end_ns else max(0.0, (self._end_ns - self._stand_in._now_ns()) / _NS_PER_S)

    def _sleep(self, timeout_s: float | None) -> None:
        lock = allocate_lock()
        lock.acquire()
        self._lock = lock
        if not self.is_set:  # else it was, before there was a lock to release
            lock.acquire(True, -1 if timeout_s is None else timeout_s)


_ON_THE_WAY: tuple[Any, ...] = (
    StandIn, SenderCore, Dispatch, Fates, Idempotence, MetadataCache, Network, Connection, FrameReceiver,
    ProducerCounters, ProducerBatch, Accumulator, Delivery, advance_sequence, decode_response_header, unsent,
    verdict_of,
)  # fmt: skip


def new_stand_in(core: SenderCore, accumulator: Accumulator, driver: SelectingDriver) -> StandIn | None:
    """None where nobody can stand in: without a gate, or where something on the way is not compiled."""
    if not isinstance(driver.watch, GatedWatch) or not kernel.NATIVE or any(_is_python(one) for one in _ON_THE_WAY):
        return None
    return StandIn(core, accumulator, driver, driver.watch)


def _is_python(one: Any) -> bool:
    return str(modules[one.__module__].__file__).endswith(".py")
