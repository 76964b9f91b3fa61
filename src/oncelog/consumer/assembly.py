"""Puts a consumer together from its parts; both shells use it. Brings in chance, ids and the wall clock."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from oncelog.client.consumer_calls.calls import ConsumerCalls
from oncelog.client.consumer_calls.steps import Ask
from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_core import ConsumerCore
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.consumer_reader import Reader
from oncelog.client.fetch.inbox import Inbox
from oncelog.client.network import Network
from oncelog.client.network_settings import NetworkSettings
from oncelog.client.sockets import SocketOptions, monotonic_ms
from oncelog.consumer.deserializers import deserializer_for
from oncelog.consumer.interceptors import InterceptorChain
from oncelog.consumer.metrics import ConsumerMetrics

MAX_IN_FLIGHT = 100
"""Requests to one broker at once: a fetch, and the questions beside it."""
ANSWER_OVERHEAD_BYTES = 16 * 1024 * 1024
"""What an answer may be larger than `fetch.max.bytes`: a first batch that is larger than that, and metadata."""


class Driver(Protocol):
    def wake(self) -> None: ...


class Waker:
    """Rouses a driver that is made later than those who wake it. Keeps no consumer alive."""

    def __init__(self) -> None:
        self.driver: Driver | None = None

    def wake(self) -> None:
        if self.driver is not None:
            self.driver.wake()


@dataclass(frozen=True, slots=True)
class Parts:
    config: ConsumerConfig
    core: ConsumerCore
    calls: ConsumerCalls
    socket_options: SocketOptions
    clock: Callable[[], int]
    windows: ConsumerMetrics
    gauges: Mapping[str, Callable[[], float]]

    def why_silent(self, ask: Ask) -> str:
        """What is known about brokers that do not answer."""
        network = self.core.network
        found: list[str] = []
        for why in (ask.why_silent(), network.why_unreachable(), network.why_silent(self.clock())):
            if why and not any(why in one for one in found):
                found.append(why)
        return "; ".join(found) or "the brokers are slow; give the call more time"

    def metrics(self) -> dict[str, float]:
        now_ms = self.clock()
        self.windows.tick(now_ms)
        return self.windows.snapshot(now_ms, self.calls.positions.lags(), self.gauges)


def wall_clock_ms() -> int:
    return int(time.time() * 1000)


def assemble(config: ConsumerConfig, owner: Any, on_news: Callable[[], None], wake: Callable[[], None]) -> Parts:
    max_answer_bytes = config.fetch_max_bytes + ANSWER_OVERHEAD_BYTES
    settings = NetworkSettings.of(config, max_in_flight=MAX_IN_FLIGHT, max_answer_bytes=max_answer_bytes)
    network = Network(settings, random.random)
    inbox = Inbox(config.fetch_queue_max_bytes, wake)
    core = ConsumerCore(
        config,
        network,
        inbox,
        jitter=random.random,
        new_id=lambda: str(uuid4()),
        wall_ms=wall_clock_ms,
        on_news=on_news,
    )
    read_key = deserializer_for(config.key_deserializer, "key")
    read_value = deserializer_for(config.value_deserializer, "value")
    counters = ConsumerCounters()
    reader = Reader(inbox, config, read_key, read_value, counters)
    group = core.membership.counters if core.membership is not None else None
    windows = ConsumerMetrics(monotonic_ms(), counters, core.fetcher.counters, group)
    interceptors = InterceptorChain(config.interceptors)
    calls = ConsumerCalls(config, core, reader, interceptors, counters, windows.tick, monotonic_ms, wake, owner)
    gauges: dict[str, Callable[[], float]] = {**network.gauges(), "fetch-queue-bytes": lambda: inbox.buffered_bytes}
    options = SocketOptions(config.send_buffer_bytes, config.receive_buffer_bytes)
    return Parts(config, core, calls, options, monotonic_ms, windows, gauges)
