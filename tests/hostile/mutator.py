"""Seeded damage to good requests: the same seed and captures give the same requests, byte for byte."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from tests.hostile.captures import Capture
from tests.support.raw import API_KEYS

HEADER_BYTES = 8  # API key, version, correlation id
RESEALED_SHARE = 0.5
LARGEST_INSERTION_BYTES = 40
MOST_FLIPS = 3

COUNTS_32 = (-1, -2, 0, 1, 127, 128, 32767, 65536, 2**24, 2**30, 2**31 - 1, -(2**31))
COUNTS_16 = (-1, -2, 0, 1, 255, 32767, -32768)
VARINTS = (b"\x00", b"\x01", b"\x7f", b"\xff\x7f", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\xff" * 10)
BYTES = b"\x00\x01\x7f\x80\xff"

# Some make topics (a flipped bit is a thousand partitions) or take them away: enough to matter, few enough to afford.
WEIGHTS = {
    API_KEYS["produce"]: 8.0,
    API_KEYS["fetch"]: 6.0,
    API_KEYS["create_topics"]: 0.05,
    API_KEYS["create_partitions"]: 0.05,
    API_KEYS["delete_topics"]: 0.05,
    # These wait for members that never come.
    API_KEYS["join_group"]: 0.3,
    API_KEYS["sync_group"]: 0.3,
}


class Mutated(NamedTuple):
    """A damaged frame; `ends_stream` if its size prefix lies, so that nothing sensible can follow it."""

    payload: bytes
    claimed_size: int
    ends_stream: bool

    def frame(self, correlation_id: int) -> bytes:
        """On the wire, with a correlation id by which its answer is recognised."""
        payload = self.payload
        if len(payload) >= HEADER_BYTES:
            payload = payload[:4] + struct.pack(">i", correlation_id) + payload[8:]
        return struct.pack(">i", self.claimed_size) + payload


class Mutator:
    def __init__(self, captures: list[Capture], seed: int) -> None:
        self._captures = captures
        self._random = random.Random(seed)
        self._weights = [WEIGHTS.get(capture.api_key, 1.0) for capture in captures]
        self._kinds: list[Callable[[bytearray], bytearray]] = [
            # Small damage is the most telling: much of it still decodes and reaches the handlers.
            *[self._flip_bits] * 12,
            *[self._overwrite_bytes] * 3,
            self._overwrite_count,
            self._overwrite_count,
            self._overwrite_varint,
            self._truncate,
            self._splice,
            self._insert,
            self._remove,
            self._repeat,
            self._change_version,
        ]

    def mutations(self, count: int) -> Iterator[Mutated]:
        for capture in self._random.choices(self._captures, self._weights, k=count):
            payload = bytearray(capture.payload)
            for _ in range(self._random.choice((1, 1, 1, 1, 2))):
                payload = self._random.choice(self._kinds)(payload)
            if capture.api_key == API_KEYS["produce"] and self._random.random() < RESEALED_SHARE:
                _reseal(payload)
            lies = self._random.random() < 0.02
            size = self._wrong_size(len(payload)) if lies else len(payload)
            yield Mutated(bytes(payload), size, ends_stream=lies)

    def _place(self, payload: bytearray, room: int = 1) -> int:
        """Somewhere in the payload, in the body nine times in ten."""
        last = max(len(payload) - room, 0)
        first = min(HEADER_BYTES, last) if self._random.random() < 0.9 else 0
        return self._random.randint(first, last)

    def _flip_bits(self, payload: bytearray) -> bytearray:
        for _ in range(self._random.randint(1, MOST_FLIPS)):
            if payload:
                payload[self._place(payload)] ^= 1 << self._random.randrange(8)
        return payload

    def _overwrite_bytes(self, payload: bytearray) -> bytearray:
        at = self._place(payload)
        size = self._random.randint(1, 4)
        payload[at : at + size] = bytes(self._random.choice(BYTES) for _ in range(size))
        return payload

    def _overwrite_count(self, payload: bytearray) -> bytearray:
        if self._random.random() < 0.5:
            packed = struct.pack(">i", self._random.choice(COUNTS_32))
        else:
            packed = struct.pack(">h", self._random.choice(COUNTS_16))
        at = self._place(payload, len(packed))
        payload[at : at + len(packed)] = packed
        return payload

    def _overwrite_varint(self, payload: bytearray) -> bytearray:
        at = self._place(payload)
        payload[at : at + 1] = self._random.choice(VARINTS)
        return payload

    def _truncate(self, payload: bytearray) -> bytearray:
        return payload[: self._place(payload)]

    def _splice(self, payload: bytearray) -> bytearray:
        other = self._random.choice(self._captures).payload
        return payload[: self._place(payload)] + other[self._random.randint(0, len(other)) :]

    def _insert(self, payload: bytearray) -> bytearray:
        at = self._place(payload)
        payload[at:at] = self._random.randbytes(self._random.randint(1, LARGEST_INSERTION_BYTES))
        return payload

    def _remove(self, payload: bytearray) -> bytearray:
        at = self._place(payload)
        del payload[at : at + self._random.randint(1, LARGEST_INSERTION_BYTES)]
        return payload

    def _repeat(self, payload: bytearray) -> bytearray:
        at = self._place(payload)
        piece = payload[at : at + self._random.randint(1, LARGEST_INSERTION_BYTES)]
        payload[at:at] = piece * self._random.randint(1, 4)
        return payload

    def _change_version(self, payload: bytearray) -> bytearray:
        if len(payload) >= 4:
            payload[3] = (payload[3] + self._random.randint(-3, 3)) % 256
        return payload

    def _wrong_size(self, size: int) -> int:
        changes = (size + self._random.randint(-20, 20), *COUNTS_32, 100 * 2**20, 100 * 2**20 + 1)
        return self._random.choice(changes)


def _reseal(payload: bytearray) -> None:
    """Give a damaged batch the right CRC again, so that the checks behind it are reached."""
    magic_at = payload.find(b"\x02", HEADER_BYTES)
    while magic_at != -1:
        start = magic_at - 16
        if start >= HEADER_BYTES and payload[start : start + 8] == bytes(8):
            (length,) = struct.unpack_from(">i", payload, start + 8)
            end = start + 12 + length
            if length >= 49 and end <= len(payload):
                struct.pack_into(">I", payload, magic_at + 1, crc32c(bytes(payload[magic_at + 5 : end])))
                return
        magic_at = payload.find(b"\x02", magic_at + 1)
