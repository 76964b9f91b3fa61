"""A producer's metrics under Kafka's names, as a dictionary and for Prometheus.

Rates, averages and maxima cover the last half to full minute: two windows of 30 seconds, Kafka's default. An average
over nothing is 0. Counting itself is the core's (`client/producer_counters.py`); what is read at the moment of asking,
such as the memory in use, comes from the gauges that the producer hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oncelog.client.producer_counters import ProducerCounters, Recent, Totals
from oncelog.client.prometheus import Measured, PrometheusCollector

PROMETHEUS_PREFIX = "kafka_producer_"

# Each becomes `...-rate` (per second) and `...-total`.
_COUNTED = {
    "record-send": ("records_sent", "Records sent, retries included"),
    "record-retry": ("records_retried", "Records sent again"),
    "record-error": ("records_failed", "Records that could not be delivered"),
    "records-dropped": ("records_dropped", "Records dropped because memory was full and buffer_full is drop"),
    "batch-split": ("batch_splits", "Batches that a broker found too large and that were split"),
    "duplicates-acknowledged": (
        "duplicates_acknowledged",
        "Retries that a broker refused as duplicates; most it answers with the original offset, which looks like any"
        " other success",
    ),
    "epoch-bump": ("epoch_bumps", "Times that the producer began a new epoch"),
    "buffer-exhausted": ("buffer_exhausted", "Sends that found no memory in time"),
    "produce-request": ("requests_sent", "Produce requests sent"),
    "txn-commit": ("transactions_committed", "Transactions committed"),
    "txn-abort": ("transactions_aborted", "Transactions aborted"),
}
# What is summed, by what it is divided.
_AVERAGES = {
    "batch-size-avg": ("batch_bytes_sent", "batches_sent", "Bytes of a batch as it was sent"),
    "compression-rate-avg": (
        "batch_bytes_sent",
        "batch_raw_bytes_sent",
        "Size of batches over that before compression",
    ),
    "record-queue-time-avg": (
        "queue_time_ms",
        "batches_sent",
        "Milliseconds from a batch's first record to its sending",
    ),
    "records-per-request-avg": ("records_sent", "requests_sent", "Records in a Produce request"),
    "request-latency-avg": (
        "request_latency_ms",
        "requests_answered",
        "Milliseconds to the answer of a Produce request",
    ),
    "produce-throttle-time-avg": (
        "throttle_ms",
        "requests_answered",
        "Milliseconds of throttling that brokers asked for",
    ),
}
_PEAKS = {
    "batch-size-max": ("batch_bytes", "Bytes of the largest batch"),
    "record-queue-time-max": (
        "queue_time_ms",
        "Milliseconds from the first record to the sending of the slowest batch",
    ),
    "request-latency-max": ("request_latency_ms", "Milliseconds to the slowest answer of a Produce request"),
    "produce-throttle-time-max": ("throttle_ms", "Milliseconds of the longest throttling"),
}
_GAUGES = {
    "requests-in-flight": "Requests that are not answered yet",
    "buffer-total-bytes": "buffer.memory",
    "buffer-available-bytes": "Memory that no record holds",
    "waiting-threads": "Threads that wait in send() for memory",
    "metadata-age": "Seconds since the last metadata answer",
    "connection-count": "Open connections",
    "connection-creation-total": "Connections made",
    "connection-close-total": "Connections lost or closed",
    "outgoing-byte-total": "Bytes sent to brokers",
    "incoming-byte-total": "Bytes received from brokers",
    "request-total": "Requests of all kinds sent",
    "spool-bytes": "Bytes of the spool on disk",
}
_WAITED = {
    "bufferpool-wait-time-ns-total": ("buffer_wait_ns", "Nanoseconds that sends waited for memory"),
    "txn-init-time-ns-total": ("txn_init_ns", "Nanoseconds that init_transactions() took"),
    "txn-send-offsets-time-ns-total": ("txn_offsets_ns", "Nanoseconds that send_offsets_to_transaction() took"),
    "txn-commit-time-ns-total": ("txn_commit_ns", "Nanoseconds that commit() took"),
    "txn-abort-time-ns-total": ("txn_abort_ns", "Nanoseconds that abort() took"),
}
ABOUT: Mapping[str, str] = {
    **{f"{name}-rate": f"{text}, per second" for name, (_, text) in _COUNTED.items()},
    **{f"{name}-total": text for name, (_, text) in _COUNTED.items()},
    **{name: f"{text}, on average" for name, (_, _, text) in _AVERAGES.items()},
    **{name: text for name, (_, text) in _PEAKS.items()},
    **_GAUGES,
    "bufferpool-wait-ratio": "Share of the time that sends waited for memory",
    **{name: text for name, (_, text) in _WAITED.items()},
}
"""What each metric means."""


def snapshot(counters: ProducerCounters, gauges: Mapping[str, Callable[[], float]], now_ms: int) -> dict[str, float]:
    """All metrics by name. `gauges` are called in the thread that asks; their names should be those of `ABOUT`."""
    recent = counters.recent(now_ms)
    return {
        **_rates(recent),
        **{f"{name}-total": float(getattr(counters, field)) for name, (field, _) in _COUNTED.items()},
        **{name: _average(recent.totals, *fields[:2]) for name, fields in _AVERAGES.items()},
        **{name: float(getattr(recent.peaks, field)) for name, (field, _) in _PEAKS.items()},
        **{name: float(getattr(counters, field)) for name, (field, _) in _WAITED.items()},
        **{name: float(read()) for name, read in gauges.items()},
    }


def _rates(recent: Recent) -> dict[str, float]:
    """Per second; the ratio of waiting compares nanoseconds with nanoseconds."""
    happened = recent.totals
    rates = {
        f"{name}-rate": getattr(happened, field) * 1e3 / recent.elapsed_ms for name, (field, _) in _COUNTED.items()
    }
    return {**rates, "bufferpool-wait-ratio": happened.buffer_wait_ns / (recent.elapsed_ms * 1e6)}


def _average(happened: Totals, total: str, count: str) -> float:
    divisor: int = getattr(happened, count)
    return float(getattr(happened, total) / divisor) if divisor else 0.0


def prometheus_collector(*producers: Measured) -> PrometheusCollector:
    """`prometheus_client.REGISTRY.register(prometheus_collector(producer))`; several producers share one collector."""
    return PrometheusCollector(PROMETHEUS_PREFIX, ABOUT, producers)
