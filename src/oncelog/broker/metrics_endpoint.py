"""The Prometheus endpoint: HTTP on the broker's own loop, and the page from a thread of its own.

A shell, with bounds for all that its clients could hold: `MAX_SCRAPERS` connections, of which the oldest makes way, a
deadline for each, the size of a request (`metrics_http`), and one page at a time. Whoever asks while a page is made
gets the next one, together with all others who wait: how many ask does not change what the pages cost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from oncelog.broker.listener import Listener
from oncelog.broker.metrics import Described, PrometheusCollector
from oncelog.broker.metrics_http import Refusal, answer_head, read_request, refuse
from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

MAX_SCRAPERS: Final = 32
"""Connections at once. One more, and the one that has kept us waiting longest is cut off: a scraper sends its request
at once, so those who hold on to their connections lose them, not those who ask."""

SCRAPE_DEADLINE_S: Final = 10.0
"""For sending the request and taking the answer: Prometheus gives up by then as well."""

REST_PER_PAGE: Final = 4
"""How much longer than making a page the pause after it is: at most a fifth of one core makes pages."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    """Owns who is connected, who waits for a page, and when one is made."""

    def __init__(self, loop: asyncio.AbstractEventLoop, render: Callable[[], bytes]) -> None:
        self.loop = loop
        self._render = render
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._connections: dict[MetricsConnection, None] = {}
        self._waiting: list[MetricsConnection] = []
        self._is_busy = False
        self._listener = Listener(
            loop, lambda: MetricsConnection(self), may_keep=lambda _: True, refused=lambda _: None
        )

    async def listen(self, host: str, port: int) -> int:
        port = await self._listener.listen(host or None, port)
        logger.info("metrics at http://%s:%d/metrics", host, port)
        return port

    def close(self) -> None:
        self._listener.close()
        for connection in list(self._connections):
            connection.cut_off()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def admit(self, connection: MetricsConnection) -> None:
        self._connections[connection] = None
        if len(self._connections) > MAX_SCRAPERS:
            silent = (each for each in self._connections if not each.has_asked)
            next(silent, next(iter(self._connections))).cut_off()

    def forget(self, connection: MetricsConnection) -> None:
        self._connections.pop(connection, None)

    def ask(self, connection: MetricsConnection) -> None:
        self._waiting.append(connection)
        if not self._is_busy:
            self._make_page()

    def _make_page(self) -> None:
        self._is_busy = bool(self._waiting)
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        began_s = self.loop.time()

        def made(page: asyncio.Future[bytes]) -> None:
            if page.cancelled():
                return
            error = page.exception()
            if error is not None:
                logger.error("bug: the metrics could not be read", exc_info=error)
            for connection in waiting:
                connection.answer(None if error is not None else page.result())
            self.loop.call_later(REST_PER_PAGE * (self.loop.time() - began_s), self._make_page)

        self.loop.run_in_executor(self._thread, self._render).add_done_callback(made)


class MetricsConnection(asyncio.Protocol):
    """One request, one answer."""

    def __init__(self, endpoint: MetricsEndpoint) -> None:
        self._endpoint = endpoint
        self._received = bytearray()
        self._has_body = True
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle
        self.has_asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._deadline = self._endpoint.loop.call_later(SCRAPE_DEADLINE_S, self.cut_off)
        self._endpoint.admit(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._endpoint.forget(self)

    def data_received(self, data: bytes) -> None:
        if self.has_asked:
            return  # one answer is all there is
        self._received += data
        request = read_request(self._received)
        if request is None:
            return
        self.has_asked = True
        if isinstance(request, Refusal):
            self._finish(refuse(request))
        else:
            self._has_body = request.has_body
            self._endpoint.ask(self)

    def eof_received(self) -> bool:
        return self.has_asked  # it may say that it has said everything, and wait for the answer

    def answer(self, page: bytes | None) -> None:
        if page is None:
            self._finish(refuse(Refusal(500, "the broker failed; its log says why", self._has_body)))
        else:
            self._finish(answer_head(200, CONTENT_TYPE, len(page)), page if self._has_body else b"")

    def _finish(self, *parts: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(parts)
            self._transport.close()

    def cut_off(self) -> None:
        self._endpoint.forget(self)
        self._transport.abort()


async def serve_metrics(broker: BrokerState, loop: asyncio.AbstractEventLoop, host: str, port: int) -> MetricsEndpoint:
    """Serve `/metrics`."""
    endpoint = MetricsEndpoint(loop, page_of(broker))
    await endpoint.listen(host, port)
    return endpoint


def page_of(broker: BrokerState) -> Callable[[], bytes]:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(PrometheusCollector(broker.metrics, lambda: gauges(broker), broker.groups_by_state))
    return lambda: generate_latest(registry)


def _offline_partitions(broker: BrokerState) -> int:
    """With those whose log could not be opened. Looks at copies: this is the thread of the page, and topics come and go
    meanwhile."""
    return len(broker.logs.report.failed) + sum(log.offline for log in list(broker.logs.logs.values()))


def _partitions(broker: BrokerState) -> int:
    return sum(len(topic.partitions) for topic in list(broker.controller.state.topics.values()))


def gauges(broker: BrokerState) -> Described:
    logs = list(broker.logs.logs.values())
    return {
        "kafka_server_replicamanager_partitioncount": ("Partitions on this broker", _partitions(broker)),
        "kafka_server_replicamanager_offlinereplicacount": (
            "Partitions whose log cannot be used: damaged, lost, or after a disk error",
            _offline_partitions(broker),
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
