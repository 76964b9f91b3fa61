"""What the broker counts: plain integers that the hot paths add to, and their export for Prometheus.

Names follow what Kafka's JMX beans become in the usual Prometheus exporters (`kafka_server_brokertopicmetrics_...`),
so that dashboards carry over. `prometheus_client` is imported only when an endpoint is asked for: it costs more than
the rest of the start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from oncelog.errors import ERRORS_BY_CODE, KafkaError
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Described = dict[str, tuple[str, float]]
"""Metrics by name: what each means, and its value."""

LATENCY_BUCKETS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


class Latency:
    """A histogram with fixed buckets: constant memory, one bisect per observation."""

    __slots__ = ("buckets", "count", "total_ms")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BUCKETS_MS) + 1)
        self.count = 0
        self.total_ms = 0.0

    def observe(self, elapsed_ms: float) -> None:
        self.buckets[bisect_left(LATENCY_BUCKETS_MS, elapsed_ms)] += 1
        self.count += 1
        self.total_ms += elapsed_ms

    def cumulative(self) -> list[tuple[str, float]]:
        running, rows = 0, []
        for bound, count in zip((*LATENCY_BUCKETS_MS, float("inf")), self.buckets, strict=True):
            running += count
            rows.append(("+Inf" if bound == float("inf") else str(bound), float(running)))
        return rows


class TopicTraffic:
    __slots__ = ("bytes_in", "messages_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.messages_in = 0


class BrokerMetrics:
    def __init__(self) -> None:
        self.duplicates_recognised = 0
        self.bytes_out = 0
        self.connections = 0
        self.connections_refused = 0
        self.malformed_requests = 0
        self.fetches_held = 0
        self.errors: Counter[tuple[str, str]] = Counter()
        self.throttles: Counter[str] = Counter()
        self.throttled_ms: Counter[str] = Counter()
        self.topics: dict[str, TopicTraffic] = {}
        self.latency: dict[str, Latency] = {}
        self.group_records: Counter[tuple[int, bool]] = Counter()
        """What coordinators have written: by the type of the record, and whether it took something back."""
        self.transactions_ended: Counter[str] = Counter()
        """By outcome: `commit` or `abort`."""

    def appended(self, topic: str, size_bytes: int, records: int) -> None:
        traffic = self.topics.get(topic)
        if traffic is None:
            traffic = self.topics[topic] = TopicTraffic()
        traffic.bytes_in += size_bytes
        traffic.messages_in += records

    def duplicate_recognised(self) -> None:
        self.duplicates_recognised += 1

    def append_failed(self, error: KafkaError) -> None:
        self.errors["Produce", error.name] += 1

    def fetch_failed(self, error: KafkaError) -> None:
        self.errors["Fetch", error.name] += 1

    def fetched(self, size_bytes: int) -> None:
        self.bytes_out += size_bytes

    def answered(self, api: str, elapsed_ms: float) -> None:
        latency = self.latency.get(api)
        if latency is None:
            latency = self.latency[api] = Latency()
        latency.observe(elapsed_ms)

    @property
    def answered_count(self) -> int:
        return sum(latency.count for latency in self.latency.values())

    def throttled(self, quota: str, throttle_ms: int) -> None:
        self.throttles[quota] += 1
        self.throttled_ms[quota] += throttle_ms

    def count_errors(self, api: str, response: Message, times: int = 1) -> None:
        """Every error code of a response, at whatever depth, as Kafka's ErrorsPerSec counts them."""
        for code in _error_codes(response):
            error = ERRORS_BY_CODE.get(code)
            self.errors[api, error.name if error else str(code)] += times

    def forget_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)


ERROR_FIELDS = frozenset({"error_code", "partition_error_code"})


def _error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name in ERROR_FIELDS and item:
                yield item
            elif isinstance(item, (dict, list)):
                yield from _error_codes(item)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, (dict, list)):
                yield from _error_codes(item)


OFFSET_COMMIT, GROUP_METADATA, CONSUMER_GROUP_METADATA = 1, 2, 3
GROUP_COUNTERS = {
    (OFFSET_COMMIT, False): ("offset_commit_count", "Offsets committed"),
    (OFFSET_COMMIT, True): ("offset_deletion_count", "Committed offsets that expired or were deleted"),
    (GROUP_METADATA, False): ("group_completed_rebalance_count", "Generations of classic groups"),
    (CONSUMER_GROUP_METADATA, False): ("consumer_group_rebalance_count", "Epochs of consumer groups"),
}
"""Records of coordinators that mean something to those who watch. The numbers are those of `coordinator.records`, which
a broker without groups need not load."""


class PrometheusCollector:
    """Turns the counters, and gauges that are asked for at each scrape, into Prometheus metrics.

    A scrape comes from another thread, so it copies each dictionary (one step under the interpreter's lock) first."""

    def __init__(
        self,
        metrics: BrokerMetrics,
        gauges: Callable[[], Described],
        groups: Callable[[], Counter[tuple[str, str]]],
    ) -> None:
        """`groups` counts the groups by type and state."""
        self._metrics = metrics
        self._gauges = gauges
        self._groups = groups

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, (text, value) in self._counters().items():
            yield CounterMetricFamily(name, text, value=value)
        yield from self._per_topic()
        yield from self._per_request()
        yield from self._per_quota()
        yield from self._groups_per_state()
        yield from self._transactions_per_outcome()
        for name, (text, value) in self._gauges().items():
            yield GaugeMetricFamily(name, text, value=value)

    def _counters(self) -> Described:
        metrics = self._metrics
        return {
            **{
                f"kafka_server_group_coordinator_metrics_{name}": (text, metrics.group_records[kind])
                for kind, (name, text) in GROUP_COUNTERS.items()
            },
            "oncelog_duplicates_recognised": (
                "Batches answered from memory of an earlier append",
                metrics.duplicates_recognised,
            ),
            "oncelog_malformed_requests": (
                "Connections closed because what arrived was not a request",
                metrics.malformed_requests,
            ),
            "oncelog_fetches_held": (
                "Answers held back from clients that would have stopped asking",
                metrics.fetches_held,
            ),
            "kafka_server_brokertopicmetrics_bytesout": ("Bytes of records sent to readers", metrics.bytes_out),
            "kafka_server_socketservermetrics_connections_refused": (
                "Connections above max.connections",
                metrics.connections_refused,
            ),
        }

    def _per_topic(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        bytes_in = CounterMetricFamily("kafka_server_brokertopicmetrics_bytesin", "Bytes appended", labels=["topic"])
        messages_in = CounterMetricFamily(
            "kafka_server_brokertopicmetrics_messagesin", "Records appended", labels=["topic"]
        )
        for topic, traffic in list(self._metrics.topics.items()):
            bytes_in.add_metric([topic], traffic.bytes_in)
            messages_in.add_metric([topic], traffic.messages_in)
        yield bytes_in
        yield messages_in

    def _per_request(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        errors = CounterMetricFamily(
            "kafka_network_requestmetrics_errors", "Errors answered, per request and error", labels=["request", "error"]
        )
        for (api, error), count in list(self._metrics.errors.items()):
            errors.add_metric([api, error], count)
        yield errors
        latency = HistogramMetricFamily(
            "kafka_network_requestmetrics_totaltimems",
            "From the last byte of a request to its answer",
            labels=["request"],
        )
        for api, histogram in list(self._metrics.latency.items()):
            latency.add_metric([api], buckets=histogram.cumulative(), sum_value=histogram.total_ms)
        yield latency

    def _groups_per_state(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        count = GaugeMetricFamily(
            "kafka_server_group_coordinator_metrics_group_count",
            "Groups, per protocol and state",
            labels=["protocol", "state"],
        )
        for (protocol, state), groups in self._groups().items():
            count.add_metric([protocol, state], groups)
        yield count

    def _transactions_per_outcome(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        ended = CounterMetricFamily(
            "oncelog_transactions_ended", "Transactions complete in all of their partitions", labels=["outcome"]
        )
        for outcome, count in list(self._metrics.transactions_ended.items()):
            ended.add_metric([outcome], count)
        yield ended

    def _per_quota(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        throttles = CounterMetricFamily(
            "oncelog_throttles", "Answers that told a client to pause, per quota that it was above", labels=["quota"]
        )
        for quota, count in list(self._metrics.throttles.items()):
            throttles.add_metric([quota], count)
        yield throttles
        pauses = CounterMetricFamily("oncelog_throttle_time_ms", "The length of these pauses", labels=["quota"])
        for quota, throttled_ms in list(self._metrics.throttled_ms.items()):
            pauses.add_metric([quota], throttled_ms)
        yield pauses
