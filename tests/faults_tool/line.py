"""A link between a client and a broker that exist as bytes only, under a clock that the test turns."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from oncelog.faults.core import Cut, Effect, End, Link, Pass
from oncelog.faults.rewrite import Address, Advertise
from oncelog.faults.rules import Direction, Draw, Rule, Script
from oncelog.faults.tally import Counts, Report, Tally
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import RequestHeader, encode_request, encode_response

REQUEST, RESPONSE = Direction.REQUEST, Direction.RESPONSE
SEED = 7


def always(value: float = 0.0) -> Draw:
    return lambda: value


def produce(correlation_id: int, payload: bytes = b"records", *, acks: int = -1, version: int = 9) -> bytes:
    """A Produce request as far as the proxy reads it."""
    return encode_request(ApiKey.PRODUCE, version, correlation_id, "test", _no_id(version) + acks_bytes(acks) + payload)


def _no_id(version: int) -> bytes:
    if version < 3:
        return b""
    return b"\x00" if version >= 9 else b"\xff\xff"


def acks_bytes(acks: int) -> bytes:
    return struct.pack(">h", acks)


def request(correlation_id: int, api_key: int = ApiKey.HEARTBEAT, version: int = 0, body: bytes = b"body") -> bytes:
    """Any request; also of an API that nobody knows."""
    payload = struct.pack(">hhih", api_key, version, correlation_id, -1) + body
    return struct.pack(">i", len(payload)) + payload


def answer(correlation_id: int, body: bytes = b"answer") -> bytes:
    payload = struct.pack(">i", correlation_id) + body
    return struct.pack(">i", len(payload)) + payload


def correlation_id_of_request(frame: bytes) -> int:
    return int(struct.unpack_from(">i", frame, 8)[0])


def correlation_id_of_answer(frame: bytes) -> int:
    return int(struct.unpack_from(">i", frame, 4)[0])


def split_frames(stream: bytes) -> tuple[list[bytes], bytes]:
    """Whole frames, and what is left behind them."""
    frames = []
    while len(stream) >= 4 and len(stream) >= (size := 4 + int(struct.unpack_from(">i", stream)[0])):
        frames.append(stream[:size])
        stream = stream[size:]
    return frames, stream


def metadata_answer(correlation_id: int, nodes: Sequence[Address], version: int = 12) -> bytes:
    brokers = [{"node_id": index, "host": host, "port": port} for index, (host, port) in enumerate(nodes)]
    header = RequestHeader(ApiKey.METADATA, version, correlation_id, None)
    return encode_response(header, codec.encode("MetadataResponse", version, {"brokers": brokers}))


class Line:
    """Feeds a link and keeps what leaves it."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        draws: Sequence[Draw] | None = None,
        *,
        advertise: Advertise = lambda address: address,
        max_frame_bytes: int = 1 << 20,
    ) -> None:
        self.script = Script(rules)
        self.tally = Tally()
        chances = draws or [always()] * len(self.script.rules)
        self.link = Link(self.script.connection(chances), self.tally, advertise, max_frame_bytes)
        self.now_ms = 1_000
        self.out = {REQUEST: b"", RESPONSE: b""}
        self.ended: list[Direction] = []
        self.cut: Cut | None = None

    def send(self, direction: Direction, *frames: bytes, step: int = 1 << 20) -> None:
        """Let bytes arrive in reads of at most `step`."""
        stream = memoryview(b"".join(frames))
        while stream and self.cut is None:
            buffer = self.link.get_buffer(direction)
            count = min(len(buffer), step, len(stream))
            buffer[:count] = stream[:count]
            stream = stream[count:]
            self._perform(self.link.received(direction, count, self.now_ms))

    def ask(self, *frames: bytes) -> None:
        self.send(REQUEST, *frames)

    def reply(self, *frames: bytes) -> None:
        self.send(RESPONSE, *frames)

    def end(self, direction: Direction) -> None:
        self._perform(self.link.ended(direction, self.now_ms))

    def wait(self, ms: int) -> None:
        """Let time pass, waking the link when it asked for it."""
        until_ms = self.now_ms + ms
        while (wake_at_ms := self.link.wake_at_ms) is not None and wake_at_ms <= until_ms:
            self.now_ms = max(self.now_ms, wake_at_ms)
            self._perform(self.link.tick(self.now_ms))
        self.now_ms = until_ms

    @property
    def asked(self) -> list[int]:
        """The correlation ids of the requests that the broker got."""
        return [correlation_id_of_request(frame) for frame in split_frames(self.out[REQUEST])[0]]

    @property
    def answered(self) -> list[int]:
        """The correlation ids of the answers that the client got."""
        return [correlation_id_of_answer(frame) for frame in split_frames(self.out[RESPONSE])[0]]

    @property
    def report(self) -> Report:
        return self.tally.report(SEED, self.script.rules)

    @property
    def total(self) -> Counts:
        return self.report.total

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert self.cut is None, f"{effect} after {self.cut}"
            match effect:
                case Pass(direction, data):
                    assert direction not in self.ended
                    self.out[direction] += data
                case End(direction):
                    assert direction not in self.ended
                    self.ended.append(direction)
                case Cut():
                    self.cut = effect
