"""One connection through the proxy, without I/O: bytes and the time in, what to do out.

A `Link` cuts both byte streams into frames, has each frame judged once, and keeps what is delayed, held or stalled
until it is due. It owns the order of things: frames of a direction leave in the order of their arrival unless a rule
swaps them, and answers reach the client in the order of its requests, whatever order the broker got them in. It never
changes a byte except the addresses of nodes (`rewrite`) and what a truncation cuts off; a request that a rule refuses
is answered here (`refusals`).

A stream of bytes cannot lose a piece out of its middle, and clients rely on it. So behind a dropped frame nothing more
passes in its direction, and the connection is cut shortly after.

The caller reads into `get_buffer`, says how much arrived (`received`) or that a side has closed (`ended`), calls `tick`
at `wake_at_ms`, does the effects in their order, and reads from a side only while `wants` says so.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.errors import OncelogError
from oncelog.faults.frames import (
    MAX_FRAME_BYTES,
    RequestHead,
    read_correlation_id,
    read_request_head,
    with_size,
    without_size,
)
from oncelog.faults.refusals import refused_response
from oncelog.faults.rewrite import Advertise, rewrite_response
from oncelog.faults.rules import ConnectionScript, Direction, Fault, Verdict
from oncelog.faults.tally import Counts, Tally
from oncelog.wire.frame import FrameAssembler
from oncelog.wire.primitives import MalformedMessage

MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""What one direction may hold back before its sender is no longer read; a single frame may be larger."""

MAX_QUEUED_FRAMES = 1_000
MAX_IN_FLIGHT = 1_000
"""Requests of one connection that may wait for their answers; more stay unread in the socket."""

BROKEN_BY_RULE = ""
"""The reason of a cut that was meant; any other is a reason to look at the client, the broker or the proxy."""


class Pass(NamedTuple):
    """Send these bytes on in their direction."""

    direction: Direction
    data: bytes


class End(NamedTuple):
    """The sender of this direction has closed, and everything it sent has been passed on."""

    direction: Direction


class Cut(NamedTuple):
    """Break the connection on both sides. With `flush`, what was passed before is sent first."""

    reason: str
    flush: bool = False


Effect = Pass | End | Cut


@dataclass(slots=True, eq=False)
class _Exchange:
    """A request that the broker answers, and the answer once it is there."""

    head: RequestHead
    answer: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Frame:
    api_key: int
    data: bytes
    exchange: _Exchange | None = None
    """Of a request: where its answer goes. None if there will be none, or if this is the answer."""


class _Departure(NamedTuple):
    """Bytes that leave at their time. After those of a dropped (none) or truncated frame, the connection ends."""

    due_ms: int
    data: bytes
    counts: Counts
    cut_after_ms: int | None


class _Held(NamedTuple):
    """A frame that waits to be overtaken."""

    frame: _Frame
    delay_ms: int
    until_ms: int


@dataclass(slots=True)
class _Lane:
    """One direction: what came in and has not left yet."""

    direction: Direction
    assembler: FrameAssembler
    queue: deque[_Departure] = field(default_factory=deque)
    queued_bytes: int = 0
    held: _Held | None = None
    not_before_ms: int = 0
    """Nothing leaves earlier: the lane is stalled."""
    swallows: bool = False
    """A frame was dropped or truncated here: nothing that comes behind it may pass."""
    has_ended: bool = False
    end_passed: bool = False

    def put(self, data: bytes, due_ms: int, counts: Counts, *, cut_after_ms: int | None = None) -> None:
        self.queue.append(_Departure(due_ms, data, counts, cut_after_ms))
        self.queued_bytes += len(data)

    def take_due(self, now_ms: int) -> _Departure | None:
        due_ms = self.next_due_ms
        if due_ms is None or due_ms > now_ms:
            return None
        departure = self.queue.popleft()
        self.queued_bytes -= len(departure.data)
        return departure

    @property
    def next_due_ms(self) -> int | None:
        """When the first one may leave; what is behind it waits for it, however early its own time is."""
        return max(self.queue[0].due_ms, self.not_before_ms) if self.queue else None

    @property
    def is_full(self) -> bool:
        return self.queued_bytes >= MAX_QUEUED_BYTES or len(self.queue) >= MAX_QUEUED_FRAMES


class Link:
    """A client's connection and its continuation to the broker."""

    def __init__(
        self, script: ConnectionScript, tally: Tally, advertise: Advertise, max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self._script = script
        self._tally = tally
        self._advertise = advertise
        self._lanes = {way: _Lane(way, FrameAssembler(max_frame_bytes)) for way in Direction}
        self._unanswered: deque[_Exchange] = deque()
        """In the order in which the client asked, which is the order in which it expects the answers."""
        self._asked: deque[_Exchange] = deque()
        """In the order in which the broker was or will be asked, which is the order in which it answers."""
        self._cut_at_ms: int | None = None
        self._is_cut = False
        self._effects: list[Effect] = []

    def get_buffer(self, direction: Direction) -> memoryview:
        return self._lanes[direction].assembler.get_buffer()

    def received(self, direction: Direction, count: int, now_ms: int) -> list[Effect]:
        """So many bytes have come into the buffer of this direction."""
        take = self._take_request if direction is Direction.REQUEST else self._take_response
        if not self._is_cut:
            try:
                for frame in self._lanes[direction].assembler.received(count):
                    take(frame, now_ms)
                    # Frame by frame: what happens must not depend on how many of them one read brought.
                    self._advance(now_ms)
                    if self._is_cut:
                        break
            except OncelogError as error:
                self._cut(f"a {direction.value} that the proxy cannot pass on: {error}")
        return self.tick(now_ms)

    def ended(self, direction: Direction, now_ms: int) -> list[Effect]:
        """The sender of this direction will send no more. An unfinished frame is worth nothing to anyone."""
        self._lanes[direction].has_ended = True
        return self.tick(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """What is due by now."""
        self._advance(now_ms)
        effects, self._effects = self._effects, []
        return effects

    @property
    def wake_at_ms(self) -> int | None:
        """When `tick` must be called at the latest; None while nothing waits for a time."""
        if self._is_cut:
            return None
        times = [self._cut_at_ms]
        for lane in self._lanes.values():
            times += [lane.next_due_ms, lane.held.until_ms if lane.held else None]
        return min((time for time in times if time is not None), default=None)

    def wants(self, direction: Direction) -> bool:
        """Whether to read from the sender of this direction."""
        lane = self._lanes[direction]
        if self._is_cut or lane.has_ended or lane.is_full:
            return False
        return direction is Direction.RESPONSE or len(self._unanswered) < MAX_IN_FLIGHT

    def _take_request(self, frame: memoryview, now_ms: int) -> None:
        lane = self._lanes[Direction.REQUEST]
        head = read_request_head(frame)
        if lane.swallows:
            self._tally.of(Direction.REQUEST, head.api_key).swallowed += 1
            return
        exchange = _Exchange(head) if head.is_answered else None
        if exchange is not None:
            self._unanswered.append(exchange)
        self._meet_fate(lane, _Frame(head.api_key, with_size(frame), exchange), now_ms)

    def _take_response(self, frame: memoryview, now_ms: int) -> None:
        correlation_id = read_correlation_id(frame)
        if not self._asked or self._asked[0].head.correlation_id != correlation_id:
            raise MalformedMessage(f"correlation id {correlation_id}, which is not the next to be answered")
        exchange = self._asked.popleft()
        head = exchange.head
        exchange.answer = with_size(rewrite_response(head.api_key, head.version, frame, self._advertise))
        # The answer to a request's copy waits here for nobody: its exchange stands in no line.
        self._answer_in_order(now_ms)

    def _answer_in_order(self, now_ms: int) -> None:
        while self._unanswered and (answer := self._unanswered[0].answer) is not None:
            head = self._unanswered.popleft().head
            self._answer(_Frame(head.api_key, answer), now_ms)

    def _answer(self, frame: _Frame, now_ms: int) -> None:
        lane = self._lanes[Direction.RESPONSE]
        if lane.swallows:
            self._tally.of(Direction.RESPONSE, frame.api_key).swallowed += 1
        elif not self._is_cut:
            self._meet_fate(lane, frame, now_ms)

    def _meet_fate(self, lane: _Lane, frame: _Frame, now_ms: int) -> None:
        verdict = self._script.judge(lane.direction, frame.api_key)
        counts = self._tally.of(lane.direction, frame.api_key)
        if verdict.delay_ms:
            counts.delayed += 1
        match verdict.fault:
            case Fault.CUT:
                counts.cut += 1
                self._cut(BROKEN_BY_RULE)
            case Fault.DROP:
                counts.dropped += 1
                self._end_lane(lane, b"", verdict, counts, now_ms)
            case Fault.TRUNCATE:
                counts.truncated += 1
                self._end_lane(lane, _beginning(frame.data, verdict.share), verdict, counts, now_ms)
            case Fault.REFUSE:
                counts.refused += 1
                self._refuse(frame, verdict.error_code, now_ms)
            case Fault.REORDER if lane.held is None:
                lane.held = _Held(frame, verdict.delay_ms, now_ms + verdict.ms)
            case _:
                self._pass_on(lane, frame, verdict, counts, now_ms)

    def _refuse(self, frame: _Frame, code: int, now_ms: int) -> None:
        if frame.exchange is not None:
            frame.exchange.answer = refused_response(without_size(frame.data), code)
            self._answer_in_order(now_ms)

    def _pass_on(self, lane: _Lane, frame: _Frame, verdict: Verdict, counts: Counts, now_ms: int) -> None:
        """The faults that let the frame through, and the frame that waited for this one to overtake it."""
        self._depart(lane, frame, verdict.delay_ms, now_ms)
        if verdict.fault is Fault.DUPLICATE:
            counts.duplicated += 1
            self._depart(lane, _copy(frame), verdict.delay_ms, now_ms)
        elif verdict.fault is Fault.STALL:
            counts.stalled += 1
            for each in self._lanes.values():
                each.not_before_ms = max(each.not_before_ms, now_ms + verdict.ms)
        if lane.held is not None:
            held, lane.held = lane.held, None
            self._tally.of(lane.direction, held.frame.api_key).reordered += 1
            self._depart(lane, held.frame, held.delay_ms, now_ms)

    def _depart(self, lane: _Lane, frame: _Frame, delay_ms: int, now_ms: int) -> None:
        if frame.exchange is not None:
            self._asked.append(frame.exchange)
        lane.put(frame.data, now_ms + delay_ms, self._tally.of(lane.direction, frame.api_key))

    def _end_lane(self, lane: _Lane, last_bytes: bytes, verdict: Verdict, counts: Counts, now_ms: int) -> None:
        """After what is on its way and these bytes, nothing more passes here."""
        lane.put(last_bytes, now_ms + verdict.delay_ms, counts, cut_after_ms=verdict.ms)
        lane.swallows = True
        if lane.held is not None:
            self._tally.of(lane.direction, lane.held.frame.api_key).swallowed += 1
            lane.held = None

    def _advance(self, now_ms: int) -> None:
        for lane in self._lanes.values():
            self._release(lane, now_ms)
        if self._cut_at_ms is not None and now_ms >= self._cut_at_ms:
            self._cut(BROKEN_BY_RULE, flush=True)

    def _release(self, lane: _Lane, now_ms: int) -> None:
        if lane.held is not None and (lane.has_ended or now_ms >= lane.held.until_ms):
            held, lane.held = lane.held, None
            self._depart(lane, held.frame, held.delay_ms, now_ms)
        while not self._is_cut and (departure := lane.take_due(now_ms)) is not None:
            if departure.data:
                self._effects.append(Pass(lane.direction, departure.data))
            if departure.cut_after_ms is None:
                departure.counts.forwarded += 1
            else:
                self._cut_by(now_ms + departure.cut_after_ms)
        if lane.has_ended and not lane.end_passed and not lane.queue and not self._is_cut:
            lane.end_passed = True
            self._effects.append(End(lane.direction))

    def _cut_by(self, time_ms: int) -> None:
        self._cut_at_ms = time_ms if self._cut_at_ms is None else min(self._cut_at_ms, time_ms)

    def _cut(self, reason: str, *, flush: bool = False) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._effects.append(Cut(reason, flush))


def _beginning(data: bytes, share: float) -> bytes:
    """At least the first byte, never all of them."""
    return data[: max(1, min(int(share * len(data)), len(data) - 1))]


def _copy(frame: _Frame) -> _Frame:
    """The same request again; what the broker answers to it is for nobody."""
    return _Frame(frame.api_key, frame.data, _Exchange(frame.exchange.head) if frame.exchange else None)
