"""What one request costs its client: bytes, records, and time of the broker's one thread.

A shell: it reads the clocks, asks `ClientQuotas`, and mutes the connection for what they say. There is one for every
request while quotas are set, and none otherwise. The clock is the monotonic one: a rate must survive a correction of
the time of day.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from oncelog.broker.quota.client_quotas import Client, ClientQuotas, FetchVerdict

ANONYMOUS = "ANONYMOUS"
"""Kafka's user of a connection without authentication."""


class Meter:
    __slots__ = ("_began_s", "_busy_s", "_charged_s", "_client", "_mute", "_quotas", "_size_bytes")

    def __init__(self, quotas: ClientQuotas, size_bytes: int, mute: Callable[[int], None]) -> None:
        self._quotas = quotas
        self._size_bytes = size_bytes
        self._mute = mute
        self._began_s = time.perf_counter()
        self._busy_s: float | None = None
        self._charged_s: float | None = None
        self._client = Client(ANONYMOUS, "")

    def meet(self, client_id: str | None) -> None:
        self._client = Client(ANONYMOUS, client_id or "")

    @property
    def max_fetch_bytes(self) -> int:
        return self._quotas.max_fetch_bytes(self._client)

    def produced(self, *, is_answered: bool) -> int:
        """The records are appended. The pause to tell, which has begun; time is free where none can be told."""
        now_ms = _now_ms()
        throttle_ms = self._quotas.produced(self._client, self._size_bytes, now_ms)
        return self._pause(max(throttle_ms, self._worked(now_ms)) if is_answered else throttle_ms)

    def fetched(self, size_bytes: int) -> FetchVerdict:
        """Records of this size are ready to be sent, perhaps long after the request came."""
        now_ms = _now_ms()
        verdict = self._quotas.fetched(self._client, size_bytes, now_ms)
        throttle_ms = self._pause(max(verdict.throttle_ms, self._worked(now_ms)))
        return FetchVerdict(throttle_ms, verdict.is_withheld)

    def served(self) -> int:
        """Any other request is answered."""
        return self._pause(self._worked(_now_ms()))

    def left_thread(self) -> None:
        """The thread turns to others. What it did after the answer's pause was told counts for the next one; an answer
        that is still to come has cost what it has cost by now, however long it waits."""
        busy_s = time.perf_counter() - self._began_s
        if self._charged_s is not None:
            self._quotas.worked(self._client, (busy_s - self._charged_s) * 1000, _now_ms())
        self._busy_s = busy_s

    def _worked(self, now_ms: int) -> int:
        self._charged_s = time.perf_counter() - self._began_s if self._busy_s is None else self._busy_s
        return self._quotas.worked(self._client, self._charged_s * 1000, now_ms)

    def _pause(self, throttle_ms: int) -> int:
        if throttle_ms:
            self._mute(throttle_ms)
        return throttle_ms


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
