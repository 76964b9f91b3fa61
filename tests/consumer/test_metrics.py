from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from prometheus_client import CollectorRegistry, generate_latest

from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.fetch.counters import FetchCounters
from oncelog.client.membership.membership import MembershipCounters
from oncelog.client.producer_counters import WINDOW_MS
from oncelog.consumer.metrics import ABOUT, ConsumerMetrics, prometheus_collector
from oncelog.types import TopicPartition

NOW_MS = 2 * WINDOW_MS
GAUGES: Mapping[str, Callable[[], float]] = {"connection-count": lambda: 3, "fetch-queue-bytes": lambda: 1_024}
LAGS = {TopicPartition("orders", 0): 5, TopicPartition("late-orders", 12): 70, TopicPartition("new", 0): None}


def busy() -> ConsumerMetrics:
    """A minute's work: two windows of 30 seconds."""
    user, fetch, group = ConsumerCounters(), FetchCounters(), MembershipCounters()
    metrics = ConsumerMetrics(0, user, fetch, group)
    user.poll_began(0)
    user.poll_ended(100)
    user.poll_began(400)
    user.took(60, 6_000)
    fetch.answered(latency_ms=40, size_bytes=500, throttle_ms=0)
    group.count_join(30)
    metrics.tick(WINDOW_MS)
    user.took(60, 6_000)
    user.offsets_committed(10)
    user.offsets_committed(30)
    user.commit_sync_ns += 7
    user.poll_ended(700)
    user.poll_began(1_000)
    fetch.answered(latency_ms=20, size_bytes=1_500, throttle_ms=50)
    group.count_sync(12)
    group.count_rebalance(900, NOW_MS - 2_000)
    group.count_heartbeat(4, NOW_MS - 500)
    return metrics


def found() -> dict[str, float]:
    return busy().snapshot(NOW_MS, LAGS, GAUGES)


def test_the_names_that_kafkas_users_know() -> None:
    expected = {
        "records-consumed-rate": 2.0,
        "records-consumed-total": 120.0,
        "bytes-consumed-rate": 200.0,
        "bytes-consumed-total": 12_000.0,
        "fetch-rate": 2 / 60,
        "fetch-total": 2.0,
        "fetch-latency-avg": 30.0,
        "fetch-latency-max": 40.0,
        "fetch-size-avg": 1_000.0,
        "fetch-throttle-time-avg": 25.0,
        "fetch-throttle-time-max": 50.0,
        "records-per-request-avg": 60.0,
        "records-lag-max": 70.0,
        "records-lag{orders-0}": 5.0,
        "records-lag{late-orders-12}": 70.0,
        "assigned-partitions": 3.0,
        "commit-rate": 2 / 60,
        "commit-total": 2.0,
        "commit-latency-avg": 20.0,
        "commit-latency-max": 30.0,
        "commit-sync-time-ns-total": 7.0,
        "join-rate": 1 / 60,
        "join-time-avg": 30.0,
        "sync-time-max": 12.0,
        "rebalance-total": 1.0,
        "rebalance-rate-per-hour": 60.0,
        "rebalance-latency-avg": 900.0,
        "rebalance-latency-total": 900.0,
        "failed-rebalance-total": 0.0,
        "heartbeat-rate": 1 / 60,
        "heartbeat-response-time-max": 4.0,
        "last-heartbeat-seconds-ago": 0.5,
        "last-rebalance-seconds-ago": 2.0,
        "last-poll-seconds-ago": 59.0,
        "time-between-poll-avg": 500.0,
        "time-between-poll-max": 600.0,
        "poll-idle-ratio-avg": 0.4,
        "connection-count": 3.0,
        "fetch-queue-bytes": 1_024.0,
    }
    metrics = found()
    assert {name: metrics[name] for name in expected} == expected


def test_an_idle_consumer_has_every_metric_at_zero_and_never_did_anything() -> None:
    idle = ConsumerMetrics(0, ConsumerCounters(), FetchCounters()).snapshot(0, {}, {})
    assert {name for name, value in idle.items() if value} == {
        "last-poll-seconds-ago",
        "last-heartbeat-seconds-ago",
        "last-rebalance-seconds-ago",
    }


def test_every_metric_is_explained() -> None:
    assert {name.partition("{")[0] for name in found()} <= set(ABOUT)


def test_every_counter_is_shown_somewhere() -> None:
    """Each field that grows changes a metric."""
    for place, kind in enumerate((ConsumerCounters, FetchCounters, MembershipCounters)):
        for field in fields(kind):
            if field.name.startswith("_"):
                continue
            counters = [ConsumerCounters(), FetchCounters(), MembershipCounters()]
            metrics = ConsumerMetrics(0, *counters)  # type: ignore[arg-type]
            for divisor in ("answers", "polls", "between_polls_ms", "commits", "joins", "syncs", "rebalances"):
                if hasattr(counters[place], divisor) and divisor != field.name:
                    setattr(counters[place], divisor, 2)
            before = metrics.snapshot(60_000, {}, {})
            setattr(counters[place], field.name, 7)
            assert metrics.snapshot(60_000, {}, {}) != before, field.name


def test_what_is_long_ago_counts_in_totals_only() -> None:
    metrics = busy()
    for window in (2, 3, 4):
        metrics.tick(window * WINDOW_MS)
    later = metrics.snapshot(5 * WINDOW_MS, {}, {})
    assert later["records-consumed-total"] == 120
    recent = ("records-consumed-rate", "fetch-latency-avg", "fetch-latency-max", "commit-latency-max", "join-rate")
    assert [later[name] for name in recent] == [0.0] * len(recent)


def test_a_maximum_lasts_as_long_as_its_window() -> None:
    metrics = busy()
    metrics.tick(2 * WINDOW_MS)
    last_minute = metrics.snapshot(2 * WINDOW_MS, {}, {})
    assert last_minute["fetch-latency-max"] == 20
    assert last_minute["commit-latency-max"] == 30


@dataclass(frozen=True)
class Consumer:
    client_id: str

    def metrics(self) -> Mapping[str, float]:
        return found()


def test_prometheus_reads_several_consumers_from_one_collector() -> None:
    registry = CollectorRegistry()
    registry.register(prometheus_collector(Consumer("a"), Consumer("b")))
    text = generate_latest(registry).decode()
    assert 'kafka_consumer_records_consumed_total{client_id="a"} 120.0' in text
    assert 'kafka_consumer_records_consumed_total{client_id="b"} 120.0' in text
    assert 'kafka_consumer_records_lag{client_id="a",partition="12",topic="late-orders"} 70.0' in text
    assert 'kafka_consumer_connection_count{client_id="b"} 3.0' in text
    assert text.count("# TYPE kafka_consumer_records_lag gauge") == 1
