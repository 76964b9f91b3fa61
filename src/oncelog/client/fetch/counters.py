"""How much was fetched, and how long it took: sums from which rates and averages are made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class FetchCounters:
    answers: int = 0
    bytes_fetched: int = 0
    latency_ms: int = 0
    """Of all answers together."""
    latency_max_ms: int = 0
    throttle_ms: int = 0
    """That brokers asked for, all together."""
    throttle_max_ms: int = 0

    def answered(self, latency_ms: int, size_bytes: int, throttle_ms: int) -> None:
        self.answers += 1
        self.bytes_fetched += size_bytes
        self.latency_ms += latency_ms
        self.latency_max_ms = max(self.latency_max_ms, latency_ms)
        self.throttle_ms += throttle_ms
        self.throttle_max_ms = max(self.throttle_max_ms, throttle_ms)
