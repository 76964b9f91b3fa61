"""How fast to answer a client that stops asking when its own queue is full.

librdkafka, and with it confluent-kafka and kcat, fetches ahead of the application. Whenever it finds 100,000 records in
its queue it asks for nothing for a whole second (`fetch.queue.backoff.ms`), in which a quick application has long read
them all: the faster it is answered, the more of its time it stands still. So once such a client has paused, it is
answered as fast as its application reads, and the queue neither fills nor runs dry.

Owns the estimate of both, queue and speed, for one connection: records that the client was sent are those by which its
fetch offsets advance; how fast they are read shows between two pauses. While a client is held back its speed is taken
to grow, ever more, until its next pause corrects that. One that never pauses is never held back, nor is one that has
read everything, nor, for a while, one whose application turns out to be no faster than what it gets with its pauses:
they do not matter where answers are large and the application slow. Knows no clock, and never delays an answer by more
than `MAX_HOLD_MS`. No speed below `MIN_PER_MS` is assumed, about that which clients reach with their pauses.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.broker.fetch_view import PartitionKey
from oncelog.wire.fetch import FetchPartition

FETCHES_AHEAD = "rdkafka"
"""Occurs in what every client built on librdkafka says of itself: in its name or, as confluent-kafka, its version."""

FULL_QUEUE = 100_000
"""Records at which the client pauses, unless it was configured otherwise (`queued.min.messages`)."""

AMPLE_QUEUE = FULL_QUEUE // 2
"""Records in its queue above which the client can wait for more."""

MAX_ANSWERED = 2 * FULL_QUEUE // 5
"""Records in an answer that do not fill an ample queue."""

PAUSE_MS = 500
"""A client that is behind asks for more at once. If it takes as long as this, its queue is full."""

MAX_HOLD_MS = 250
MIN_PER_MS = 150.0
FIRST_PER_MS = (500.0, 1_000.0)
"""Records read in a millisecond, after the first pause: what came before it is too short to tell more exactly."""

MAX_PER_MS = 10_000.0

WORTHWHILE = 1.2
"""How much faster than what it gets with its pauses the application must be for a client to be held back."""

FUTILE_MS = 300_000
"""How long other clients are left alone: their applications may become faster, and to find out costs them seconds."""

FIRST_GROWTH, GROWTH = 0.3, 0.01
"""Of the speed, in a second: before and after a pause has corrected it. Every second without a pause adds the latter to
it, up to the former."""

MAX_QUEUE = 2 * FULL_QUEUE
"""No queue is longer, whatever offsets say: they also advance when a client skips records."""

UNLIMITED = 2**31 - 1

MAX_PARTITIONS = 10_000
"""Of which a connection's positions are remembered."""


class FetchPace:
    def __init__(self) -> None:
        self._positions: dict[PartitionKey, int] = {}
        self._per_ms: float | None = None  # records that the application reads; None until the client has paused
        self._growth = FIRST_GROWTH
        self._queued = 0.0  # in the client's queue when it was last answered
        self._answered_ms = 0
        self._answered_bytes = 0
        self._held_ms = 0
        self._bytes_per_record = 0.0
        self._sent = 0  # records since the client's last pause, or since it had read everything
        self._since_ms = 0
        self._unpaced_per_ms = 0.0  # records that it gets with its pauses
        self._futile_until_ms = 0

    def asked(self, partitions: Mapping[PartitionKey, FetchPartition], now_ms: int) -> None:
        """`partitions` are those that the client names; those with the same offset as the last time may be left out."""
        sent = self._advance(partitions)
        if not self._answered_bytes:
            self._sent = 0
            self._since_ms = now_ms
        self._sent += sent
        self._queued = min(self._queued + sent, MAX_QUEUE)
        if sent:
            self._bytes_per_record = self._answered_bytes / sent
        waited_ms = max(0, now_ms - self._answered_ms)
        if self._answered_bytes and waited_ms >= PAUSE_MS and self._sent >= FULL_QUEUE:
            self._has_paused(sent, now_ms)
        elif self._per_ms is not None:
            self._queued = max(0.0, self._queued - self._per_ms * waited_ms)
            self._grow(self._held_ms / 1000)
        self._answered_ms = now_ms
        self._answered_bytes = 0
        self._held_ms = 0

    @property
    def max_bytes(self) -> int:
        """Of the next answer."""
        if self._per_ms is None or not self._bytes_per_record:
            return UNLIMITED
        return int(MAX_ANSWERED * self._bytes_per_record)

    def answers(self, size_bytes: int) -> int:
        """There are records for the client: for how many milliseconds to hold them back."""
        self._answered_bytes = size_bytes
        if self._per_ms is None or self._queued <= AMPLE_QUEUE:
            return 0
        self._held_ms = min(MAX_HOLD_MS, int((self._queued - AMPLE_QUEUE) / self._per_ms))
        self._queued -= self._per_ms * self._held_ms
        self._answered_ms += self._held_ms
        return self._held_ms

    def _advance(self, partitions: Mapping[PartitionKey, FetchPartition]) -> int:
        if len(partitions) > MAX_PARTITIONS:
            self._positions.clear()
            return 0
        sent = 0
        for key, partition in partitions.items():
            offset = partition.fetch_offset
            sent += max(0, offset - self._positions.get(key, offset))
            self._positions[key] = offset
        if len(self._positions) > MAX_PARTITIONS:
            self._positions = {key: partition.fetch_offset for key, partition in partitions.items()}
        return sent

    def _grow(self, seconds: float) -> None:
        assert self._per_ms is not None
        self._per_ms = min(self._per_ms * (1 + self._growth * seconds), MAX_PER_MS)
        self._growth = min(FIRST_GROWTH, self._growth + GROWTH * seconds)

    def _has_paused(self, sent_last: int, now_ms: int) -> None:
        """Its queue was full, by up to one answer more, when it was last answered; by now it is as good as empty."""
        read_per_ms = (self._sent - FULL_QUEUE - sent_last / 2) / max(1, self._answered_ms - self._since_ms)
        if self._per_ms is None:
            self._unpaced_per_ms = self._sent / max(1, now_ms - self._since_ms)
            if now_ms >= self._futile_until_ms:
                lowest, highest = FIRST_PER_MS
                self._per_ms = min(max(lowest, read_per_ms), highest)
        else:
            lowest, highest = max(MIN_PER_MS, self._per_ms / 2), self._per_ms
            self._growth = GROWTH
            self._per_ms = min(max(lowest, read_per_ms), highest)
            if self._per_ms < WORTHWHILE * self._unpaced_per_ms:
                self._per_ms = None
                self._futile_until_ms = now_ms + FUTILE_MS
        self._queued = 0.0
        self._sent = 0
        self._since_ms = now_ms
