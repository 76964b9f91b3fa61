"""A consumer's metrics under Kafka's names, as a dictionary and for Prometheus.

Rates, averages and maxima cover the last half to full minute: two windows of 30 seconds, Kafka's default. An average
over nothing is 0. Counting itself is done where things happen: by the fetcher, by the member of a group, and in the
user's thread; here sums are remembered at the start of each window. What is read at the moment of asking, such as the
number of connections or the lag, comes from what the consumer hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from oncelog.client.consumer_counters import NEVER, ConsumerCounters
from oncelog.client.fetch.counters import FetchCounters
from oncelog.client.membership.membership import MembershipCounters
from oncelog.client.producer_counters import WINDOW_MS, WINDOWS, spanned_ms
from oncelog.client.prometheus import Measured, PrometheusCollector
from oncelog.types import TopicPartition

PROMETHEUS_PREFIX = "kafka_consumer_"
MS_PER_SECOND = 1_000
MS_PER_HOUR = 3_600_000

USER, FETCH, GROUP = range(3)
"""Whose counters."""


class Count(NamedTuple):
    whose: int
    field: str


# Each becomes `...-rate` (per second) and `...-total`.
_COUNTED = {
    "records-consumed": (Count(USER, "records_consumed"), "Records handed out"),
    "bytes-consumed": (Count(USER, "bytes_consumed"), "Bytes of records handed out, uncompressed"),
    "fetch": (Count(FETCH, "answers"), "Fetch requests answered"),
    "commit": (Count(USER, "commits"), "Offset commits"),
    "join": (Count(GROUP, "joins"), "JoinGroup requests answered"),
    "sync": (Count(GROUP, "syncs"), "SyncGroup requests answered"),
    "heartbeat": (Count(GROUP, "heartbeats"), "Heartbeats answered"),
}
# Each becomes `...-rate-per-hour` and `...-total`.
_COUNTED_BY_HOUR = {
    "rebalance": (Count(GROUP, "rebalances"), "Rebalances that ended well"),
    "failed-rebalance": (Count(GROUP, "failed_rebalances"), "Rebalances that failed"),
}
# What is summed, by what it is divided.
_AVERAGES = {
    "fetch-latency-avg": (Count(FETCH, "latency_ms"), Count(FETCH, "answers"), "Milliseconds to the answer of a fetch"),
    "fetch-size-avg": (Count(FETCH, "bytes_fetched"), Count(FETCH, "answers"), "Bytes of a fetch"),
    "fetch-throttle-time-avg": (
        Count(FETCH, "throttle_ms"),
        Count(FETCH, "answers"),
        "Milliseconds of throttling that brokers asked for",
    ),
    "records-per-request-avg": (
        Count(USER, "records_consumed"),
        Count(FETCH, "answers"),
        "Records handed out by fetch",
    ),
    "commit-latency-avg": (Count(USER, "commit_ms"), Count(USER, "commits"), "Milliseconds of an offset commit"),
    "join-time-avg": (Count(GROUP, "join_ms"), Count(GROUP, "joins"), "Milliseconds to join the group"),
    "sync-time-avg": (Count(GROUP, "sync_ms"), Count(GROUP, "syncs"), "Milliseconds to get the assignment"),
    "rebalance-latency-avg": (Count(GROUP, "rebalance_ms"), Count(GROUP, "rebalances"), "Milliseconds of a rebalance"),
    "time-between-poll-avg": (
        Count(USER, "between_polls_ms"),
        Count(USER, "polls"),
        "Milliseconds from one poll() to the next",
    ),
    "poll-idle-ratio-avg": (
        Count(USER, "in_poll_ms"),
        Count(USER, "between_polls_ms"),
        "Share of the time that was spent in poll(), not with the records",
    ),
}
_PEAKS = {
    "fetch-latency-max": (Count(FETCH, "latency_max_ms"), "Milliseconds to the slowest answer of a fetch"),
    "fetch-throttle-time-max": (Count(FETCH, "throttle_max_ms"), "Milliseconds of the longest throttling"),
    "commit-latency-max": (Count(USER, "commit_ms_max"), "Milliseconds of the slowest offset commit"),
    "join-time-max": (Count(GROUP, "join_ms_max"), "Milliseconds of the slowest join"),
    "sync-time-max": (Count(GROUP, "sync_ms_max"), "Milliseconds to the slowest assignment"),
    "rebalance-latency-max": (Count(GROUP, "rebalance_ms_max"), "Milliseconds of the slowest rebalance"),
    "heartbeat-response-time-max": (Count(GROUP, "heartbeat_ms_max"), "Milliseconds to the slowest heartbeat answer"),
    "time-between-poll-max": (Count(USER, "between_polls_ms_max"), "Milliseconds of the longest time without a poll()"),
}
# Sums of milliseconds or nanoseconds, as they are.
_SUMS = {
    "rebalance-latency-total": (Count(GROUP, "rebalance_ms"), "Milliseconds of all rebalances"),
    "commit-sync-time-ns-total": (Count(USER, "commit_sync_ns"), "Nanoseconds spent in commit()"),
    "committed-time-ns-total": (Count(USER, "committed_ns"), "Nanoseconds spent in committed()"),
}
# Moments; -1 as long as there was none, as in Kafka.
_SECONDS_AGO = {
    "last-poll-seconds-ago": (Count(USER, "last_poll_ms"), "Seconds since the last poll()"),
    "last-heartbeat-seconds-ago": (Count(GROUP, "last_heartbeat_ms"), "Seconds since the last heartbeat's answer"),
    "last-rebalance-seconds-ago": (Count(GROUP, "last_rebalance_ms"), "Seconds since the last rebalance"),
}
_GAUGES = {
    "records-lag": "Records left to read: those that were fetched, and every offset behind them",
    "records-lag-max": "The largest of these",
    "assigned-partitions": "Partitions of this consumer",
    "requests-in-flight": "Requests that are not answered yet",
    "fetch-queue-bytes": "Fetched bytes that wait for poll()",
    "connection-count": "Open connections",
    "connection-creation-total": "Connections made",
    "connection-close-total": "Connections lost or closed",
    "outgoing-byte-total": "Bytes sent to brokers",
    "incoming-byte-total": "Bytes received from brokers",
    "request-total": "Requests of all kinds sent",
}
ABOUT: Mapping[str, str] = {
    **{f"{name}-rate": f"{text}, per second" for name, (_, text) in _COUNTED.items()},
    **{f"{name}-total": text for name, (_, text) in _COUNTED.items()},
    **{f"{name}-rate-per-hour": f"{text}, per hour" for name, (_, text) in _COUNTED_BY_HOUR.items()},
    **{f"{name}-total": text for name, (_, text) in _COUNTED_BY_HOUR.items()},
    **{name: f"{text}, on average" for name, (_, _, text) in _AVERAGES.items()},
    **{name: text for name, (_, text) in {**_PEAKS, **_SUMS, **_SECONDS_AGO}.items()},
    **_GAUGES,
}
"""What each metric means."""

_SUMMED = list(
    dict.fromkeys(
        [count for count, _ in {**_COUNTED, **_COUNTED_BY_HOUR}.values()]
        + [count for total, divisor, _ in _AVERAGES.values() for count in (total, divisor)]
    )
)


class _Window(NamedTuple):
    start_ms: int
    before: dict[Count, int]
    """The sums when it began."""
    peaks: dict[Count, int]
    """The maxima of the time before it, as far as that is still remembered."""


class ConsumerMetrics:
    """`tick` belongs to the user's thread, `snapshot` may come from any."""

    def __init__(
        self,
        now_ms: int,
        counters: ConsumerCounters,
        fetch: FetchCounters,
        group: MembershipCounters | None = None,
    ) -> None:
        self._counters: tuple[Any, ...] = (counters, fetch, group or MembershipCounters())
        self._windows: tuple[_Window, ...] = (_Window(now_ms, self._sums(), {}),)

    def tick(self, now_ms: int) -> None:
        """Begins a new window when the current one is over; cheap enough for every poll."""
        if now_ms - self._windows[-1].start_ms >= WINDOW_MS:
            window = _Window(now_ms, self._sums(), self._take_peaks())
            self._windows = (*self._windows, window)[-WINDOWS:]

    def snapshot(
        self,
        now_ms: int,
        lags: Mapping[TopicPartition, int | None],
        gauges: Mapping[str, Callable[[], float]],
    ) -> dict[str, float]:
        """All metrics by name, the lag of a partition as `records-lag{orders-0}`. `gauges` are called in the thread
        that asks; their names should be those of `ABOUT`."""
        known = {partition: lag for partition, lag in lags.items() if lag is not None}
        return {
            **self._of_windows(now_ms),
            **{f"{name}-total": float(self._now(count)) for name, (count, _) in _COUNTED.items()},
            **{f"{name}-total": float(self._now(count)) for name, (count, _) in _COUNTED_BY_HOUR.items()},
            **{name: float(self._now(count)) for name, (count, _) in _SUMS.items()},
            **{name: _seconds_ago(self._now(count), now_ms) for name, (count, _) in _SECONDS_AGO.items()},
            "records-lag-max": float(max(known.values(), default=0)),
            **{f"records-lag{{{partition}}}": float(lag) for partition, lag in known.items()},
            "assigned-partitions": float(len(lags)),
            **{name: float(read()) for name, read in gauges.items()},
        }

    def _of_windows(self, now_ms: int) -> dict[str, float]:
        windows = self._windows
        elapsed_ms = spanned_ms(now_ms - windows[0].start_ms)
        happened = {count: self._now(count) - before for count, before in windows[0].before.items()}
        remembered = [window.peaks for window in windows[1:]]
        return {
            **{f"{name}-rate": happened[it] * MS_PER_SECOND / elapsed_ms for name, (it, _) in _COUNTED.items()},
            **{
                f"{name}-rate-per-hour": happened[it] * MS_PER_HOUR / elapsed_ms
                for name, (it, _) in _COUNTED_BY_HOUR.items()
            },
            **{name: _average(happened[total], happened[by]) for name, (total, by, _) in _AVERAGES.items()},
            **{
                name: float(max(self._now(it), *(peaks[it] for peaks in remembered), 0))
                for name, (it, _) in _PEAKS.items()
            },
        }

    def _now(self, count: Count) -> Any:
        return getattr(self._counters[count.whose], count.field)

    def _sums(self) -> dict[Count, int]:
        return {count: self._now(count) for count in _SUMMED}

    def _take_peaks(self) -> dict[Count, int]:
        """The maxima since this was last done. A thread that raises one at this very moment may carry the old one on,
        and then it is seen for a window longer."""
        peaks = {}
        for count, _ in _PEAKS.values():
            peaks[count] = self._now(count)
            setattr(self._counters[count.whose], count.field, 0)
        return peaks


def _average(total: int, divisor: int) -> float:
    return total / divisor if divisor else 0.0


def _seconds_ago(then_ms: int | None, now_ms: int) -> float:
    return -1.0 if then_ms is None or then_ms == NEVER else (now_ms - then_ms) / MS_PER_SECOND


def prometheus_collector(*consumers: Measured) -> PrometheusCollector:
    """`prometheus_client.REGISTRY.register(prometheus_collector(consumer))`; several consumers share one collector."""
    return PrometheusCollector(PROMETHEUS_PREFIX, ABOUT, consumers)
