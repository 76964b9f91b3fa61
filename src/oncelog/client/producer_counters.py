"""What a producer counts: plain integers that its core adds to, and windows over them for rates and averages.

Totals are attributes that only grow. Two windows of 30 seconds, as Kafka's metrics keep by default, remember what the
totals were when they began; what happened lately is the difference. `tick` moves the windows and belongs to the thread
that runs the core; `recent` only reads, from any thread. Names and units that users see are in `producer/metrics.py`.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

WINDOW_MS = 30_000
WINDOWS = 2


@dataclass(slots=True)
class Totals:
    """Since the producer was made."""

    records_sent: int = 0
    """Records in batches that left, retries included."""
    records_retried: int = 0
    records_failed: int = 0
    records_dropped: int = 0
    """By `buffer_full="drop"`."""
    batches_sent: int = 0
    batch_bytes_sent: int = 0
    batch_raw_bytes_sent: int = 0
    """The same before compression."""
    batch_splits: int = 0
    queue_time_ms: int = 0
    """From the first record of a batch until it left, summed over batches."""
    requests_sent: int = 0
    """Produce requests."""
    requests_answered: int = 0
    request_latency_ms: int = 0
    throttle_ms: int = 0
    duplicates_acknowledged: int = 0
    """Batches that the broker called duplicates. Those it remembers it answers with their offsets, as if stored now."""
    epoch_bumps: int = 0
    buffer_exhausted: int = 0
    """Sends that found no memory in time."""
    buffer_wait_ns: int = 0
    """Time that sends waited for memory."""
    transactions_committed: int = 0
    transactions_aborted: int = 0
    txn_init_ns: int = 0
    """Time that callers waited for `init_transactions()`, and so on."""
    txn_offsets_ns: int = 0
    txn_commit_ns: int = 0
    txn_abort_ns: int = 0


@dataclass(slots=True)
class Peaks:
    """The largest within a window."""

    batch_bytes: int = 0
    queue_time_ms: int = 0
    request_latency_ms: int = 0
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    start_ms: int
    before: Totals
    peaks: Peaks


@dataclass(frozen=True, slots=True)
class Recent:
    """What happened within the windows."""

    elapsed_ms: int
    totals: Totals
    peaks: Peaks


class ProducerCounters(Totals):
    """Each total is written by one thread at a time: the core's, or a sender of records that holds the core's lock."""

    __slots__ = ("_windows",)

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._windows: tuple[Window, ...] = (Window(now_ms, Totals(), Peaks()),)

    def batches_left(self, count: int, records: int, size_bytes: int, raw_bytes: int, queue_time_ms: int) -> None:
        """In one request; all of them are sums. `raw_bytes` is the size before compression."""
        self.records_sent += records
        self.batches_sent += count
        self.batch_bytes_sent += size_bytes
        self.batch_raw_bytes_sent += raw_bytes
        self.queue_time_ms += queue_time_ms

    def at_most(self, batch_bytes: int, queue_time_ms: int) -> None:
        """The largest batch of a request, and the longest that one of them has waited."""
        peaks = self._windows[-1].peaks
        peaks.batch_bytes = max(peaks.batch_bytes, batch_bytes)
        peaks.queue_time_ms = max(peaks.queue_time_ms, queue_time_ms)

    def request_answered(self, latency_ms: int, throttle_ms: int) -> None:
        """For each answer to a Produce request; it counts as throttled by 0 ms if the broker did not throttle."""
        self.requests_answered += 1
        self.request_latency_ms += latency_ms
        self.throttle_ms += throttle_ms
        peaks = self._windows[-1].peaks
        peaks.request_latency_ms = max(peaks.request_latency_ms, latency_ms)
        peaks.throttle_ms = max(peaks.throttle_ms, throttle_ms)

    def tick(self, now_ms: int) -> None:
        """Begins a new window when the current one is over; cheap enough for every poll."""
        if now_ms - self._windows[-1].start_ms >= WINDOW_MS:
            self._windows = (*self._windows, Window(now_ms, self._now(), Peaks()))[-WINDOWS:]

    def recent(self, now_ms: int) -> Recent:
        windows = self._windows
        oldest = windows[0]
        happened = (now - then for now, then in zip(astuple(self._now()), astuple(oldest.before), strict=True))
        highest = (max(peaks) for peaks in zip(*(astuple(each.peaks) for each in windows), strict=True))
        return Recent(spanned_ms(now_ms - oldest.start_ms), Totals(*happened), Peaks(*highest))

    def _now(self) -> Totals:
        return Totals(*(getattr(self, name) for name in Totals.__slots__))


def spanned_ms(elapsed_ms: int) -> int:
    """As Kafka reckons: all windows but the last count as full, so that a young producer's rates do not jump."""
    missing = max(0, WINDOWS - 1 - elapsed_ms // WINDOW_MS)
    return elapsed_ms + missing * WINDOW_MS
