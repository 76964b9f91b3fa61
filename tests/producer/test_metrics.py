from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from oncelog.client.producer_counters import WINDOW_MS, ProducerCounters, Totals
from oncelog.producer.metrics import ABOUT, prometheus_collector, snapshot

NOW_MS = 2 * WINDOW_MS
GAUGES: Mapping[str, Callable[[], float]] = {"requests-in-flight": lambda: 3, "buffer-available-bytes": lambda: 1_024}


def busy() -> ProducerCounters:
    """A minute's work: two windows of 30 seconds."""
    counters = ProducerCounters(0)
    counters.batches_left(1, records=60, size_bytes=500, raw_bytes=1_000, queue_time_ms=10)
    counters.at_most(batch_bytes=500, queue_time_ms=10)
    counters.tick(WINDOW_MS)
    counters.batches_left(1, records=60, size_bytes=1_000, raw_bytes=2_000, queue_time_ms=20)
    counters.at_most(batch_bytes=1_000, queue_time_ms=20)
    counters.records_retried += 30
    counters.records_failed += 6
    counters.requests_sent += 2
    counters.request_answered(latency_ms=10, throttle_ms=0)
    counters.request_answered(latency_ms=30, throttle_ms=50)
    counters.buffer_wait_ns += 15 * 10**9
    return counters


def test_the_names_that_kafkas_users_know() -> None:
    found = snapshot(busy(), GAUGES, NOW_MS)
    expected = {
        "record-send-rate": 2.0,
        "record-send-total": 120.0,
        "record-retry-rate": 0.5,
        "record-retry-total": 30.0,
        "record-error-rate": 0.1,
        "record-error-total": 6.0,
        "batch-size-avg": 750.0,
        "batch-size-max": 1_000.0,
        "compression-rate-avg": 0.5,
        "record-queue-time-avg": 15.0,
        "record-queue-time-max": 20.0,
        "records-per-request-avg": 60.0,
        "request-latency-avg": 20.0,
        "request-latency-max": 30.0,
        "produce-throttle-time-avg": 25.0,
        "produce-throttle-time-max": 50.0,
        "bufferpool-wait-ratio": 0.25,
        "bufferpool-wait-time-ns-total": 15e9,
        "requests-in-flight": 3.0,
        "buffer-available-bytes": 1_024.0,
        "duplicates-acknowledged-total": 0.0,
        "records-dropped-total": 0.0,
        "batch-split-total": 0.0,
    }
    assert {name: found[name] for name in expected} == expected


def test_an_idle_producer_has_every_metric_at_zero() -> None:
    found = snapshot(ProducerCounters(0), {}, 0)
    assert set(found.values()) == {0.0}


def test_every_metric_is_explained() -> None:
    assert set(snapshot(busy(), GAUGES, NOW_MS)) <= set(ABOUT)


@pytest.mark.parametrize("field", [each.name for each in fields(Totals)])
def test_every_counter_shows_up_in_some_metric(field: str) -> None:
    counters = busy()
    before = snapshot(counters, {}, NOW_MS)
    setattr(counters, field, getattr(counters, field) + 1)
    assert snapshot(counters, {}, NOW_MS) != before


class Named:
    def __init__(self, client_id: str, counters: ProducerCounters) -> None:
        self.client_id = client_id
        self._counters = counters

    def metrics(self) -> dict[str, float]:
        return snapshot(self._counters, GAUGES, NOW_MS)


def test_prometheus_reads_several_producers_at_each_scrape() -> None:
    registry = CollectorRegistry(auto_describe=True)
    counters = busy()
    registry.register(prometheus_collector(Named("a", counters), Named("b", ProducerCounters(0))))
    counters.records_sent += 1
    assert registry.get_sample_value("kafka_producer_record_send_total", {"client_id": "a"}) == 121
    assert registry.get_sample_value("kafka_producer_record_send_total", {"client_id": "b"}) == 0
    assert registry.get_sample_value("kafka_producer_requests_in_flight", {"client_id": "a"}) == 3
    page = generate_latest(registry).decode()
    assert page.count("# TYPE kafka_producer_record_send_total counter") == 1
    assert "# TYPE kafka_producer_record_send_rate gauge" in page
    assert "# HELP kafka_producer_batch_size_avg Bytes of a batch as it was sent, on average" in page
