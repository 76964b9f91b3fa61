"""One client's socket: bytes in, frames to the dispatcher, answers out in order and at the client's pace.

A shell: it decides nothing of Kafka's. Its bounds keep one client from costing the broker more than its share:
requests beyond `MAX_PENDING_ANSWERS` or `MAX_HELD_BYTES`, or behind answers that it does not take, stay in the socket;
who holds most gives way when all of them hold too much. Whatever fails while a client is served ends its connection
alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from oncelog.broker.answer_line import AnswerLine, Place
from oncelog.broker.outbox import Outbox
from oncelog.broker.quota.meter import Meter
from oncelog.broker.request import (
    NO_REPLY,
    Answer,
    Chunks,
    CloseConnection,
    Late,
    NoReply,
    Peer,
    Pending,
    Piecewise,
    Silent,
    Stepwise,
    Wait,
)
from oncelog.broker.unfinished_frames import MIN_COUNTED_BYTES
from oncelog.broker.workbench import SLICE_S
from oncelog.errors import KafkaStorageError
from oncelog.log.storage import is_out_of_descriptors
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import MalformedMessage, Message
from oncelog.wire.encoder import EncodedTooLarge
from oncelog.wire.frame import FrameAssembler, RequestHeader

if TYPE_CHECKING:
    from oncelog.broker.dispatch import Making
    from oncelog.broker.server import Server

logger = logging.getLogger(__name__)


LARGE_REQUEST_BYTES = 8 * 1024
"""A request that names more than fits in this takes its turn with all others of its kind, one in each round of the
loop: a hundred clients that send such requests together keep everybody waiting for one of them. Produce is as long as
its records, and never large in this sense."""
LARGE_FETCH_BYTES = 64 * 1024
"""The same of a Fetch: more than a thousand partitions, named one by one. A session names only what changed."""

LONG_S = 0.05
"""A request that has kept everybody waiting for longer is followed by a pause as long, for its client alone: the next
one comes when others have been served."""
MAX_PAUSE_S = 1.0


class KafkaConnection:
    """Bytes in, frames to the dispatcher, answers out in order. Stops reading while its client does not.

    An `asyncio.BufferedProtocol` in all but name, which uvloop does not ask for: a compiled class whose attributes have
    types cannot have a base that has none."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._frames = FrameAssembler(server.config.socket_request_max_bytes, server.buffers)
        self._line = AnswerLine()
        self._held: deque[memoryview] = deque()
        self._outbox: Outbox
        self._timers: dict[Pending, asyncio.TimerHandle | None] = {}
        self._transport: asyncio.Transport | None = None
        self._write_blocked = False
        self._is_leaving = False
        self._reading_paused = False
        self._muting: asyncio.TimerHandle | None = None
        self._holding: Pending | None = None
        self._peer = Peer()
        self._noted_bytes = 0
        self._is_unfinished = False
        self._began_s = 0.0
        """When the last request began to be served."""
        self._on_workbench = False
        """A request of its waits for its turn there."""
        self._in_work: dict[Making | Stepwise, None] = {}
        """Answers that are being made there."""
        self._waiting_bytes = 0
        """Of the request that waits for its turn, or that holds the connection while it is worked on."""
        self._goes_on = False
        self.last_active_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._outbox = Outbox(transport.get_extra_info("socket").fileno())
        self._peer.host = f"/{(self._address or ('unknown',))[0]}"
        self.last_active_s = self._server.loop.time()
        if not self._server.admit(self):
            self.hang_up("max.connections reached")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server.forget(self)
        for pending, timer in self._timers.items():
            if timer is not None:
                timer.cancel()
            if pending.abandon is not None:
                pending.abandon()
        self._timers.clear()
        for work in self._in_work:
            work.abandon()
        self._in_work.clear()
        if self._peer.view is not None:
            self._server.dispatcher.left(self._peer)
        if self._muting is not None:
            self._muting.cancel()
        self._held.clear()
        self._watch(False)
        self._outbox.close()
        self._note_held()
        self._note_unfinished(0)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, count: int) -> None:
        self.last_active_s = self._server.loop.time()
        began_s = 0.0
        try:
            for frame in self._frames.received(count):
                if self._held or self._is_saturated() or (began_s and time.perf_counter() - began_s > SLICE_S):
                    self._held.append(frame)
                elif self._is_open():
                    self._serve(frame)
                    began_s = began_s or self._began_s
        except Exception as error:
            self._fail(error)
        self._note_unfinished(self._frames.pending_bytes())
        self._go_on_later()
        self._balance_reading()
        self._server.expect_more()

    def eof_received(self) -> bool:
        return False

    def hang_up(self, reason: str, *, is_news: bool = True) -> None:
        """Serve nothing more, and close once the client has taken what was answered before."""
        if not self._is_open():
            return
        assert self._transport is not None
        self._server.tell("closing", self._address, reason, is_news=is_news)
        self._is_leaving = True
        if self._outbox:
            self._transport.pause_reading()
        else:
            self._transport.close()

    def cut_off(self, reason: str, *, is_news: bool = True) -> None:
        """Close now, whatever the client has not taken yet."""
        if self._transport is not None:
            self._server.tell("cutting off", self._address, reason, is_news=is_news)
            self._transport.abort()

    def _lose(self, error: OSError) -> None:
        """Its client is gone, with answers on their way to it. Clients do that: it is no news."""
        if self._transport is not None:
            logger.debug("the connection of %s is lost: %s", self._address, error)
            self._transport.abort()

    def mute(self, throttle_ms: int) -> None:
        """Its client is above a quota: read nothing more from it for this long. What it has sent stays, in order."""
        until_s = self._server.loop.time() + throttle_ms / 1000
        if self._muting is not None:
            if self._muting.when() >= until_s:
                return
            self._muting.cancel()
        self._muting = self._server.loop.call_at(until_s, self._unmute)
        self._balance_reading()

    def _unmute(self) -> None:
        self._muting = None
        self.last_active_s = self._server.loop.time()
        self._serve_held()

    @property
    def is_muted(self) -> bool:
        return self._muting is not None

    @property
    def _address(self) -> tuple[object, ...] | None:
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    def _is_open(self) -> bool:
        return self._transport is not None and not self._is_leaving and not self._transport.is_closing()

    def _is_saturated(self) -> bool:
        is_busy = self._on_workbench or len(self._in_work) > 0 or self._holding is not None
        return is_busy or self._line.is_full() or self._write_blocked or self._muting is not None

    def _fail(self, error: Exception) -> None:
        """A request could not be served: what comes after it is not looked at."""
        if isinstance(error, MalformedMessage):
            self._server.metrics.malformed_requests += 1
            self.hang_up(str(error))
            return
        if is_out_of_descriptors(error):  # what the request needs is loaded when it is first used
            self.hang_up("no descriptor was left to serve it with")
            return
        logger.exception("bug: a request or its answer could not be dealt with")
        self.hang_up("the broker failed; its log says why")

    def _serve(self, frame: memoryview) -> None:
        if len(frame) > LARGE_REQUEST_BYTES and names_much(frame):
            self._await_turn(frame)
        else:
            self._serve_now(frame)

    def _await_turn(self, frame: memoryview) -> None:
        self._on_workbench = True
        self._waiting_bytes = len(frame)

        def turn() -> bool:
            self._on_workbench = False
            self._waiting_bytes = 0
            if self._is_open():
                self._take_turn(frame)
            return False

        self._server.workbench.add(turn)

    def _take_turn(self, frame: memoryview) -> None:
        try:
            self._serve_now(frame)
        except Exception as error:
            self._fail(error)
        self._note_unfinished(self._frames.pending_bytes())
        self._go_on_later()
        self._balance_reading()

    def _serve_now(self, frame: memoryview) -> None:
        server = self._server
        began_s = self._began_s = time.perf_counter()
        meter = Meter(server.quotas, len(frame), self.mute) if server.quotas.active else None
        header, answer = server.dispatcher.dispatch(frame, server.now_ms(), meter, self._peer, server.wall_ms())
        is_answered = isinstance(answer, list) or self._is_at_once(header, answer, frame)
        if is_answered and answer is not NO_REPLY:
            self._answer(header, answer)  # type: ignore[arg-type]  # what is at once is one of these
        if meter is not None:
            meter.left_thread()
        busy_s = time.perf_counter() - began_s
        if is_answered:
            server.answered(header, busy_s)
        if busy_s > LONG_S:
            self.mute(int(min(busy_s, MAX_PAUSE_S) * 1000))

    def _is_at_once(self, header: RequestHeader, answer: Answer, frame: memoryview) -> bool:
        """Whether it can leave now, or nothing is to leave. Otherwise what is to be done for it is begun."""
        if isinstance(answer, CloseConnection):
            self.hang_up(answer.value)
        elif isinstance(answer, Pending):
            if answer.holds_connection:
                self._waiting_bytes = len(frame)
            self._await(header, answer, self._line.reserve(), self._began_s)
        elif isinstance(answer, Piecewise | Stepwise):
            self._make(header, answer, self._line.reserve(), self._began_s)
        else:
            return True
        return False

    def _answer(self, header: RequestHeader, answer: Message | Chunks) -> None:
        chunks = self._framed(header, answer)
        if chunks is None:
            return
        if len(self._line):
            self._line.fill(self._line.reserve(), chunks)
            self._note_held()
        else:
            self._send(chunks)

    def _await(self, header: RequestHeader, pending: Pending, place: Place, began_s: float) -> None:
        def completed(answer: Late) -> None:
            timer = self._timers.pop(pending, None)
            if timer is not None:
                timer.cancel()
            if self._holding is pending:
                self._holding = None
                self._waiting_bytes = 0
                self._note_unfinished(self._frames.pending_bytes())
            if isinstance(answer, CloseConnection):
                self.hang_up(answer.value)
                return
            if isinstance(answer, Piecewise | Stepwise):
                self._make(header, answer, place, began_s)
                return
            self._server.answered(header, time.perf_counter() - began_s)
            self._fill(place, header, answer)

        pending.on_complete = completed
        if pending.holds_connection:
            self._holding = pending
        timer = None
        if pending.deadline_ms is not None and pending.expire is not None:
            delay_s = max(0.0, (pending.deadline_ms - self._server.now_ms()) / 1000)
            timer = self._server.loop.call_later(delay_s, pending.expire)
        self._timers[pending] = timer

    def _make(self, header: RequestHeader, answer: Piecewise | Stepwise, place: Place, began_s: float) -> None:
        """One at a time: what is still to be made takes memory as well."""
        server = self._server
        work = answer if isinstance(answer, Stepwise) else server.dispatcher.make(header, answer)
        self._in_work[work] = None

        def step() -> bool:
            if not self._is_open():
                return False
            until_s = time.perf_counter() + SLICE_S
            try:
                made = work.step()
                while made is None and time.perf_counter() < until_s:
                    made = work.step()
                if isinstance(made, Wait):
                    made.when_over(again)
                elif made is not None:
                    self._in_work.pop(work, None)
                    self._made(header, made, place, began_s)
            except EncodedTooLarge as error:
                self.hang_up(str(error))
                return False
            except Exception as error:
                self._fail(error)
                return False
            return made is None

        def again() -> None:
            server.workbench.add(step)

        server.workbench.add(step, goes_on=True)

    def _made(self, header: RequestHeader, answer: Answer, place: Place, began_s: float) -> None:
        """What the steps have come to, which may take more of them, or time."""
        if isinstance(answer, Piecewise | Stepwise):
            self._make(header, answer, place, began_s)
            return
        if isinstance(answer, Pending):
            self._await(header, answer, place, began_s)
            if self._reading_paused:
                self._server.loop.call_soon(self._serve_held)
            return
        self._server.answered(header, time.perf_counter() - began_s)
        self._fill(place, header, answer)

    def _fill(self, place: Place, header: RequestHeader, answer: Message | Chunks | Silent) -> None:
        chunks: Chunks | None = [] if isinstance(answer, NoReply | CloseConnection) else self._framed(header, answer)
        if chunks is None:
            return
        self._line.fill(place, chunks)
        for ready in self._line.take_ready():
            if ready:
                self._send(ready)
        self._note_held()
        if self._reading_paused:
            # Not at once: whoever completed this is in the middle of serving somebody else's request.
            self._server.loop.call_soon(self._serve_held)

    def _framed(self, header: RequestHeader, answer: Message | Chunks) -> Chunks | None:
        """None if it cannot be sent: then nothing that follows can be, and the connection ends."""
        try:
            return self._server.dispatcher.frame(header, answer)
        except EncodedTooLarge as error:
            self.hang_up(str(error))
        except Exception as error:
            self._fail(error)
        return None

    def _note_held(self) -> None:
        """Answers that the client does not take are counted over all connections; who holds most may have to go."""
        is_going = self._transport is None or self._transport.is_closing()
        held_bytes = 0 if is_going else self._outbox.held_bytes + self._line.held_bytes
        if held_bytes == self._noted_bytes:
            return
        self._noted_bytes = held_bytes
        holds_most = self._server.held_answers.note(self, held_bytes)
        if holds_most is not None:
            holds_most.cut_off("too many answers wait for clients to read, and most of them for this one")

    def _note_unfinished(self, arriving_bytes: int) -> None:
        """Requests that have not arrived in full, or wait for their turn, are counted over all connections; some may
        have to go. Of one that is gone nothing counts, whoever still calls."""
        pending_bytes = 0 if self._transport is None else arriving_bytes + self._waiting_bytes
        if pending_bytes >= MIN_COUNTED_BYTES or self._is_unfinished:
            self._is_unfinished = pending_bytes > 0
            is_waiting = self._waiting_bytes > 0
            for given_up in self._server.unfinished_frames.note(self, pending_bytes, is_waiting=is_waiting):
                given_up.give_way()

    def give_way(self) -> None:
        """Its request is one too many."""
        if self._waiting_bytes:
            self.cut_off("too many requests wait for their turn, and this one came last")
        else:
            self.cut_off("too many requests have not arrived in full, and this one has not grown for longest")

    def _go_on_later(self) -> None:
        """Others have their turn before the rest of what this client has sent at once."""
        if self._held and not self._goes_on and not self._is_saturated():
            self._goes_on = True
            self._server.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self._serve_held()

    def _serve_held(self) -> None:
        until_s = time.perf_counter() + SLICE_S
        try:
            while self._held and not self._is_saturated() and self._is_open():
                self._serve(self._held.popleft())
                if time.perf_counter() > until_s:
                    break
        except Exception as error:
            self._fail(error)
        self._note_unfinished(self._frames.pending_bytes())
        self._go_on_later()
        self._balance_reading()

    def _balance_reading(self) -> None:
        """Read while there is room for what arrives; otherwise let the client's own socket fill up."""
        wanted = not (self._held or self._is_saturated())
        if wanted != self._reading_paused or not self._is_open():
            return  # it is so already
        assert self._transport is not None
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
        self._reading_paused = not wanted

    def _send(self, chunks: Chunks) -> None:
        if not self._is_open():
            return
        try:
            if self._write_blocked:
                self._outbox.add(chunks)
                self._note_held()
            elif not self._outbox.post(chunks):
                self._watch(True)
                self._note_held()
        except KafkaStorageError as error:
            self._give_up(error)
        except OSError as error:
            self._lose(error)

    def _empty_outbox(self) -> None:
        """Send what the socket takes; for the rest, come back when it takes more."""
        try:
            is_done = self._outbox.send()
        except KafkaStorageError as error:
            self._give_up(error)
        except OSError as error:
            self._lose(error)
        else:
            self._watch(not is_done)
            self._note_held()
            if is_done and self._is_leaving and self._transport is not None:
                self._transport.close()

    def _give_up(self, error: KafkaStorageError) -> None:
        """What comes next would be taken for the missing records."""
        logger.error("reading records for an answer failed: %s", error)
        self.cut_off("its records cannot be read")

    def _watch(self, is_blocked: bool) -> None:
        if is_blocked is self._write_blocked:
            return
        if is_blocked:
            self._server.loop.add_writer(self._outbox.client, self._writable)
        else:
            self._server.loop.remove_writer(self._outbox.client)
        self._write_blocked = is_blocked

    def _writable(self) -> None:
        if self._transport is None or self._transport.is_closing():
            self._watch(False)  # the descriptor may be another connection's by now
            return
        self.last_active_s = self._server.loop.time()
        self._empty_outbox()
        if not self._write_blocked:
            self._serve_held()


def names_much(frame: memoryview) -> bool:
    """Whether a request of more than `LARGE_REQUEST_BYTES` is long because of what it names, not of what it brings."""
    api_key = int.from_bytes(frame[:2], "big")
    if api_key == ApiKey.FETCH:
        return len(frame) > LARGE_FETCH_BYTES
    return api_key != ApiKey.PRODUCE
