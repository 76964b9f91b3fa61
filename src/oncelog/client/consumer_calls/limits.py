"""How long a call may take: as it says, else `default.api.timeout.ms`; in a callback of `close()` no longer than it."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.client.consumer_config import ConsumerConfig


class Limits:
    def __init__(self, config: ConsumerConfig, clock: Callable[[], int]) -> None:
        self.closes_by_ms: int | None = None
        """While the consumer is being closed."""
        self._default_ms = config.default_api_timeout_ms
        self._clock = clock

    def of(self, timeout_ms: int | None) -> int:
        """In milliseconds from now on."""
        wanted_ms = self._default_ms if timeout_ms is None else timeout_ms
        if self.closes_by_ms is None:
            return wanted_ms
        return max(0, min(wanted_ms, self.closes_by_ms - self._clock()))
