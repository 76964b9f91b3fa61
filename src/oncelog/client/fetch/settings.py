"""What a fetcher must know of its consumer's configuration, in the fetcher's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.fetch.partitions import EARLIEST, LATEST
from oncelog.types import IsolationLevel

MAX_DOUBLINGS = 16
"""Where a growing pause is certain to have reached its bound."""

_NAMED_RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}


class Ago(NamedTuple):
    """`auto.offset.reset=by_duration:...`: the first record that is not older."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class FetchSettings:
    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    max_partition_bytes: int
    isolation_level: IsolationLevel
    rack: str
    reset: int | Ago | None
    """EARLIEST, LATEST, a while ago, or None: the user decides each time."""
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    read_replica_ms: int
    """How long a follower is read from before the leader is asked again whether it should be."""

    @classmethod
    def of(cls, config: ConsumerConfig) -> FetchSettings:
        duration_ms = config.reset_duration_ms
        return cls(
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            max_bytes=config.fetch_max_bytes,
            max_partition_bytes=config.max_partition_fetch_bytes,
            isolation_level=config.isolation_level,
            rack=config.client_rack,
            reset=_NAMED_RESETS[config.auto_offset_reset] if duration_ms is None else Ago(duration_ms),
            request_timeout_ms=config.request_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            read_replica_ms=config.metadata_max_age_ms,
        )


class Backoff:
    """The pause after a number of failures in a row: doubling up to a bound, and never the same for two clients."""

    def __init__(self, settings: FetchSettings, jitter: Callable[[], float]) -> None:
        self._first_ms = settings.retry_backoff_ms
        self._most_ms = settings.retry_backoff_max_ms
        self._jitter = jitter

    def after(self, failures: int) -> int:
        pause_ms = min(self._first_ms << min(max(failures - 1, 0), MAX_DOUBLINGS), self._most_ms)
        return int(pause_ms * (0.8 + 0.4 * self._jitter()))
