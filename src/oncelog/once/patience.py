"""How long a run with a limit waits for brokers and for its group."""

from __future__ import annotations

from typing import Any

from oncelog.client.consumer_errors import ConsumerTimedOut

DEFAULT_JOIN_S = 300.0
"""How long a group may take to assign partitions, where the consumer does not say `max.poll.interval.ms`."""


class Patience:
    def __init__(self, consumer: Any, limit_s: float, now: float) -> None:
        self._consumer = consumer
        self._limit_s = limit_s
        interval_ms = getattr(getattr(consumer, "config", None), "max_poll_interval_ms", None)
        self._join_s = limit_s + (DEFAULT_JOIN_S if interval_ms is None else interval_ms / 1000)
        self._began = now
        self._connected_at = now

    def check(self, now: float, *, is_assigned: bool) -> None:
        """Raises ConsumerTimedOut."""
        if getattr(self._consumer, "is_connected", True):
            self._connected_at = now
        elif now - self._connected_at >= self._limit_s:
            self.check_connected()
        if not is_assigned and now - self._began >= self._join_s:
            raise ConsumerTimedOut(
                f"the group has assigned no partitions (not even none) within {self._join_s:g} s: another member may"
                " hold the rebalance up. Nothing is lost: run again later"
            )

    def check_connected(self) -> None:
        """What looks like the end of the topics is none while no broker can be asked."""
        if not getattr(self._consumer, "is_connected", True):
            raise ConsumerTimedOut(
                f"no broker can be reached for {self._limit_s:g} s: {self._consumer!r}. Its log says why. Nothing is"
                " lost: run again later"
            )
