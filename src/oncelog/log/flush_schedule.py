"""Which logs are due for a sync: because their settings say so, or to keep recovery after a crash short.

Owns the bounds on what is unsynced, and the books about it. A flush is a value: run it in any thread, then tell `ended`
or `failed`. Waiting for a sync before acknowledging (`flush.messages=1`) is not decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.errors import KafkaStorageError
from oncelog.log.flush import FlushRequest
from oncelog.log.partition_log import PartitionLog
from oncelog.named_tuple import NamedTuple

logger = logging.getLogger(__name__)

MAX_UNFLUSHED_BYTES: Final = 512 * 1024 * 1024
"""Bytes of one log that recovery may have to read again; beyond it a sync is due."""

MAX_UNFLUSHED_MS: Final = 60_000
"""How long appended bytes may stay unsynced, so that many quiet logs do not add up."""

MAX_FLUSHES_AT_ONCE: Final = 32
"""Flushes that are under way together; the others wait."""


class _Mark(NamedTuple):
    """A place in a log: so many bytes of the segment that begins at `base_offset`."""

    base_offset: int
    size_bytes: int

    @classmethod
    def at_end_of(cls, log: PartitionLog) -> _Mark:
        return cls(log.active_segment.base_offset, log.active_segment.size_bytes)


@dataclass(frozen=True, slots=True)
class LogFlush:
    """A flush that is due."""

    log: PartitionLog
    request: FlushRequest
    reaches: _Mark

    def run(self) -> None:
        self.request.run()


class FlushSchedule:
    def __init__(
        self, max_unflushed_bytes: int = MAX_UNFLUSHED_BYTES, max_unflushed_ms: int = MAX_UNFLUSHED_MS
    ) -> None:
        self._max_unflushed_bytes = max_unflushed_bytes
        self._max_unflushed_ms = max_unflushed_ms
        self._durable: dict[PartitionLog, _Mark] = {}
        self._unflushed_since_ms: dict[PartitionLog, int] = {}
        self._running: set[PartitionLog] = set()

    def due(self, logs: Iterable[PartitionLog], now_ms: int) -> list[LogFlush]:
        """The flushes to run now, none of them for a log that is being flushed already."""
        flushes = (self.look(log, now_ms) for log in list(logs) if not self.is_full)
        return [flush for flush in flushes if flush is not None]

    @property
    def is_full(self) -> bool:
        """No more can be begun for now."""
        return len(self._running) >= MAX_FLUSHES_AT_ONCE

    def look(self, log: PartitionLog, now_ms: int) -> LogFlush | None:
        """The flush of one log, if it is due. A log that is durable is settled: its next change brings it back."""
        if log in self._running or self._is_settled(log):
            return None
        request = self._request(log, now_ms)
        if request is None:
            return None
        self._running.add(log)
        return LogFlush(log, request, _Mark.at_end_of(log))

    def _is_settled(self, log: PartitionLog) -> bool:
        if log.offline:
            log.settled()
            return True
        if log.recovery_point < log.log_end_offset or not log.is_start_durable:
            return False
        self._durable[log] = _Mark.at_end_of(log)
        self._unflushed_since_ms.pop(log, None)
        log.settled()
        return True

    def _request(self, log: PartitionLog, now_ms: int) -> FlushRequest | None:
        since_ms = self._unflushed_since_ms.setdefault(log, now_ms)
        try:
            request = log.flush_due(now_ms)
            is_too_much = self.unflushed_bytes(log) > self._max_unflushed_bytes
            if request is None and (is_too_much or now_ms - since_ms >= self._max_unflushed_ms):
                request = log.flush_request()
        except KafkaStorageError as error:
            logger.warning("a flush is due but cannot be prepared: %s", error)
            return None
        return request

    def unflushed_bytes(self, log: PartitionLog) -> int:
        """Of the active segment: sealed ones are always due."""
        end, durable = _Mark.at_end_of(log), self._durable.get(log)
        is_partly_durable = durable is not None and durable.base_offset == end.base_offset
        return end.size_bytes - (durable.size_bytes if durable is not None and is_partly_durable else 0)

    def ended(self, flush: LogFlush, now_ms: int) -> None:
        if not self._is_known(flush.log):
            return
        flush.log.flushed(flush.request, now_ms)
        self._unflushed_since_ms.pop(flush.log, None)
        if flush.request.offset > flush.reaches.base_offset:
            self._durable[flush.log] = flush.reaches

    def failed(self, flush: LogFlush, error: Exception) -> None:
        if self._is_known(flush.log):
            flush.log.flush_failed(error)

    def _is_known(self, log: PartitionLog) -> bool:
        """Whether the log still exists. Of a deleted one neither success nor failure matters."""
        is_known = log in self._running
        self._running.discard(log)
        return is_known

    def forget(self, log: PartitionLog) -> None:
        self._durable.pop(log, None)
        self._unflushed_since_ms.pop(log, None)
        self._running.discard(log)
