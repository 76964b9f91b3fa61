"""How fast something goes, over a sliding window of samples: Kafka's arithmetic of quotas.

A sample takes what happens in `sample_ms` from its first event on; it counts while its last event is younger than the
whole window. Owns the rate of one client and how long it must pause; never knows what is counted, or for whom.
"""

from __future__ import annotations

from collections import deque

from oncelog.named_tuple import NamedTuple


class Window(NamedTuple):
    samples: int
    """`quota.window.num`: those that are full, and the one that fills."""
    sample_ms: int

    @property
    def span_ms(self) -> int:
        return self.samples * self.sample_ms

    @property
    def full_s(self) -> float:
        """The full samples alone: what a client may use at once that was silent before."""
        return (self.samples - 1) * self.sample_ms / 1000


class _Sample:
    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, amount: float, now_ms: int) -> None:
        self.amount = amount
        self.start_ms = self.last_ms = now_ms


class WindowedRate:
    """At most `samples + 1` samples: they begin at least `sample_ms` apart, and older ones are let go."""

    __slots__ = ("_samples", "_window", "last_ms")

    def __init__(self, window: Window, now_ms: int) -> None:
        self._window = window
        self._samples: deque[_Sample] = deque()
        self.last_ms = now_ms

    def record(self, amount: float, now_ms: int) -> None:
        self._forget_old(now_ms)
        self.last_ms = now_ms
        if self._samples and now_ms - self._samples[-1].start_ms < self._window.sample_ms:
            current = self._samples[-1]
            current.amount += amount
            current.last_ms = now_ms
        else:
            self._samples.append(_Sample(amount, now_ms))

    def is_empty(self, now_ms: int) -> bool:
        """Whether nothing was used lately."""
        self._forget_old(now_ms)
        return not any(sample.amount for sample in self._samples)

    def per_second(self, now_ms: int) -> float:
        self._forget_old(now_ms)
        return sum(sample.amount for sample in self._samples) * 1000 / self._measured_ms(now_ms)

    def throttle_ms(self, limit_per_second: float, now_ms: int, more: float = 0.0) -> int:
        """The pause that spreads what was used over as much time as the limit wants; 0 if the rate is not above it.
        With `more`: if that came on top. A whole window at most: after that, nothing of this counts any more."""
        self._forget_old(now_ms)
        measured_ms = self._measured_ms(now_ms)
        used = sum(sample.amount for sample in self._samples) + more
        if used * 1000 / measured_ms <= limit_per_second:
            return 0
        # The time over which this much is just allowed, less the time that it is spread over already.
        return min(round(used * 1000 / limit_per_second - measured_ms), self._window.span_ms)

    def _measured_ms(self, now_ms: int) -> int:
        """The time that the samples stand for. What came before the first counts as silence, as far as full samples
        are missing: a burst after silence is no offence."""
        window = self._window
        elapsed_ms = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = window.samples - 1 - elapsed_ms // window.sample_ms
        return max(elapsed_ms + max(missing, 0) * window.sample_ms, 1)

    def _forget_old(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= self._window.span_ms:
            samples.popleft()
