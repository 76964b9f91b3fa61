"""One client's socket: bytes in, frames to the dispatcher, answers out in order and at the client's pace.

A shell: it decides nothing of Kafka's. Its bounds keep one client from costing the broker more than its share:
requests beyond `MAX_PENDING_ANSWERS` stay in the socket, answers beyond `WRITE_HIGH_WATER_BYTES` in their files.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oncelog.broker.answer_line import AnswerLine, Place
from oncelog.broker.request import CLOSE, NO_REPLY, Chunk, Chunks, Pending
from oncelog.clock import now_ms
from oncelog.errors import KafkaStorageError
from oncelog.wire.codec import MalformedMessage
from oncelog.wire.frame import FrameAssembler, RequestHeader

if TYPE_CHECKING:
    from oncelog.broker.server import Server

logger = logging.getLogger(__name__)

WRITE_HIGH_WATER_BYTES = 1 << 20
"""Above this, a connection's answers wait in their files, and its requests in the socket."""

SEND_CHUNK_BYTES = 512 * 1024
COALESCE_BYTES = 64 * 1024


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
                elif self._is_open:
                    self._serve(frame)
        except MalformedMessage as error:
            self._refuse(error)
        self._balance_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self.last_active_s = self._server.loop.time()
        self._write_paused = False
        self._pump()
        self._serve_held()

    def hang_up(self, reason: str) -> None:
        """Serve nothing more, and close once the client has taken what was answered before."""
        if self._is_open:
            assert self._transport is not None
            self._server.tell("closing", self._peer, reason)
            self._transport.close()

    def cut_off(self, reason: str) -> None:
        """Close now, whatever the client has not taken yet."""
        if self._transport is not None:
            self._server.tell("cutting off", self._peer, reason)
            self._transport.abort()

    @property
    def _peer(self) -> object:
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def _is_saturated(self) -> bool:
        return self._line.is_full or self._write_paused

    def _refuse(self, error: MalformedMessage) -> None:
        self._server.metrics.malformed_requests += 1
        self.hang_up(str(error))

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
            if self._reading_paused:
                # Not at once: whoever completed this is in the middle of serving somebody else's request.
                self._server.loop.call_soon(self._serve_held)

        pending.on_complete = completed
        timer = None
        if pending.deadline_ms is not None and pending.expire is not None:
            delay_s = max(0.0, (pending.deadline_ms - now_ms()) / 1000)
            timer = self._server.loop.call_later(delay_s, pending.expire)
        self._timers[pending] = timer

    def _serve_held(self) -> None:
        try:
            while self._held and not self._is_saturated and self._is_open:
                self._serve(self._held.popleft())
        except MalformedMessage as error:
            self._refuse(error)
        self._balance_reading()

    def _balance_reading(self) -> None:
        """Read while there is room for what arrives; otherwise let the client's own socket fill up."""
        transport = self._transport
        if transport is None or not self._is_open:
            return
        wanted = not (self._held or self._is_saturated)
        if wanted and self._reading_paused:
            transport.resume_reading()
        elif not wanted and not self._reading_paused:
            transport.pause_reading()
        self._reading_paused = not wanted

    def _send(self, chunks: Chunks) -> None:
        if self._is_open:
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
            self._outgoing.clear()  # what came next would be taken for the missing records
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
