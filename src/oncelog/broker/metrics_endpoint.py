"""The Prometheus endpoint: an HTTP thread of `prometheus_client` that reads the broker's counters at each scrape."""

from __future__ import annotations

import logging

from oncelog.broker.metrics import Described, PrometheusCollector
from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)


def serve_metrics(broker: BrokerState, host: str, port: int) -> int:
    """Serve `/metrics`; the port, which is the one asked for unless that was 0."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(PrometheusCollector(broker.metrics, lambda: gauges(broker), broker.groups_by_state))
    server, _ = start_http_server(port, addr=host, registry=registry)
    logger.info("metrics at http://%s:%d/metrics", host, server.server_port)
    return int(server.server_port)


def gauges(broker: BrokerState) -> Described:
    logs = list(broker.logs.logs.values())
    return {
        "kafka_server_replicamanager_partitioncount": ("Partitions on this broker", len(logs)),
        "kafka_server_replicamanager_offlinereplicacount": (
            "Partitions that a disk error took offline",
            sum(log.offline for log in logs),
        ),
        "kafka_server_replicamanager_producerid_count": (
            "Producer ids remembered, over all partitions",
            sum(len(log.producers) for log in logs),
        ),
        "kafka_log_log_size": ("Bytes in all logs", sum(log.size_bytes for log in logs)),
        "kafka_server_socketservermetrics_connection_count": ("Open connections", broker.metrics.connections),
        "kafka_server_fetchsessioncache_numincrementalfetchsessions": (
            "Cached fetch sessions",
            len(broker.fetch_sessions),
        ),
        "oncelog_quota_rates": ("Clients whose rate is measured, over all quotas", broker.quotas.tracked_rates),
        "kafka_server_delayedoperationpurgatory_size": ("Fetches that wait for data", len(broker.purgatory)),
        "oncelog_transactions_open": ("Transactions that have begun and are not complete", broker.open_transactions),
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize": (
            "Markers of ended transactions that could not be written so far",
            broker.unwritten_markers,
        ),
    }
