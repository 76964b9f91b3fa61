"""What both shells have in common: the parts of a producer, put together, and the words for what went wrong."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncelog.client.accumulator import Accumulator, Lock
from oncelog.client.batch import ProducerBatch
from oncelog.client.cluster import connection_text
from oncelog.client.delivery import Waiter
from oncelog.client.network import Network
from oncelog.client.network_settings import NetworkSettings
from oncelog.client.placement import Placement
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.producer_errors import BufferExhausted, ProducerClosed, TopicUnavailable
from oncelog.client.record_checks import check_topic, checked_headers, checked_partition_number, checked_timestamp
from oncelog.client.records import Header, ProducerRecord
from oncelog.client.sender import SenderCore
from oncelog.client.sockets import SocketOptions, monotonic_ms
from oncelog.client.transaction_errors import TransactionFailed
from oncelog.errors import UnknownTopicOrPartition, error_for_code
from oncelog.producer.interceptors import InterceptorChain
from oncelog.producer.metrics import snapshot
from oncelog.producer.serializers import serializer_for
from oncelog.records.model import Buffer

MAX_ANSWER_BYTES = 100 * 1024 * 1024  # metadata of very many partitions; answers to Produce are far smaller


def wall_clock_ms() -> int:
    return int(time.time() * 1000)


class Serialized(NamedTuple):
    """A record that nothing is wrong with, as it will be sent."""

    topic: str
    partition: int | None
    key: Buffer | None
    value: Buffer | None
    headers: tuple[Header, ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Parts:
    config: ProducerConfig
    accumulator: Accumulator
    placement: Placement
    interceptors: InterceptorChain
    serialize_key: Callable[[str, Any], Buffer | None]
    serialize_value: Callable[[str, Any], Buffer | None]
    counters: ProducerCounters
    core: SenderCore
    gauges: Mapping[str, Callable[[], float]]
    socket_options: SocketOptions

    def check_usable(self) -> None:
        fatal = self.core.fatal
        if isinstance(fatal, TransactionFailed):
            raise fatal.with_traceback(None)
        if fatal is not None:
            raise ProducerClosed(f"the producer gave up: {fatal}") from fatal

    def not_accepted(self, error: Exception) -> None:
        """A record was refused after `send()` had returned: a transaction cannot be committed without it."""
        if self.core.transaction is not None:
            self.core.transaction.record_failed(error)

    def await_topic(self, topic: str) -> None:
        """The sender is to learn about it, until everybody who asked has called `await_topic_no_more`."""
        awaited = self.core.awaited_topics
        awaited[topic] = awaited.get(topic, 0) + 1

    def await_topic_no_more(self, topic: str) -> None:
        awaited = self.core.awaited_topics
        awaited[topic] -= 1
        if not awaited[topic]:
            del awaited[topic]

    def serialize(self, record: ProducerRecord) -> Serialized:
        """Raises what is wrong with the record itself, as far as that is known without its topic."""
        if type(record.topic) is not str or record.topic not in self.accumulator.topics:
            check_topic(record.topic)
        timestamp_ms = checked_timestamp(record.timestamp_ms)
        return Serialized(
            record.topic,
            checked_partition_number(record.partition),
            self.serialize_key(record.topic, record.key),
            self.serialize_value(record.topic, record.value),
            checked_headers(record.headers),
            wall_clock_ms() if timestamp_ms is None else timestamp_ms,
        )

    def topic_error(self, topic: str) -> Exception | None:
        """What the brokers said against the topic, if waiting does not help."""
        code = self.core.metadata.topic_errors.get(topic)
        if code is None or error_for_code(code).retriable:
            return None
        return error_for_code(code, f"topic {topic!r}: {error_for_code(code).message}")

    def unavailable(self, topic: str) -> Exception:
        """Why nothing was learned about the topic in time."""
        waited = f"within max.block.ms ({self.config.max_block_ms})"
        if self.core.metadata.topic_errors.get(topic) == UnknownTopicOrPartition.code:
            return UnknownTopicOrPartition(
                f"topic {topic!r} does not exist, and no broker created it {waited}; create it first, such as with"
                f" `oncelog topics create {topic}`"
            )
        why = self.core.network.why_unreachable() or "no broker answered"
        servers = [f"{host}:{port}" for host, port in self.config.bootstrap_servers]
        others = ", ".join(server for server in servers if server not in why)
        return TopicUnavailable(
            f"nothing was learned about topic {topic!r} {waited}: {why}; check bootstrap.servers"
            f"{f' ({others})' if others else ''} and the brokers"
        )

    def exhausted(self) -> BufferExhausted:
        return BufferExhausted(
            f"buffer.memory ({self.config.buffer_memory} bytes) is full of records that no broker has acknowledged yet"
            f" (buffer_full={self.config.buffer_full}): wait for earlier results before sending more, raise it, or see"
            " why the brokers are slow"
        )

    def described(self, owner: object) -> str:
        """The `repr` of the producer that these are the parts of."""
        config, core = self.config, self.core
        transactional = "" if config.transactional_id is None else f" transactional id {config.transactional_id!r}"
        where = connection_text(core.connected_to, config.bootstrap_servers)
        state = "closed" if core.is_finished else where
        return f"<{type(owner).__name__} {config.client_id!r}{transactional} {state}>"

    def metrics(self) -> dict[str, float]:
        return snapshot(self.counters, self.gauges, monotonic_ms())


def assemble(
    config: ProducerConfig,
    lock: Lock | None,
    new_waiter: Callable[[], Waiter],
    on_settled: Callable[[ProducerBatch], None],
    on_news: Callable[[], None],
) -> Parts:
    accumulator = Accumulator(
        batch_size=config.batch_size,
        buffer_memory=config.buffer_memory,
        max_request_size=config.max_request_size,
        lock=lock,
        new_waiter=new_waiter,
    )
    counters = ProducerCounters(monotonic_ms())
    max_in_flight = config.max_in_flight_requests_per_connection
    settings = NetworkSettings.of(config, max_in_flight=max_in_flight, max_answer_bytes=MAX_ANSWER_BYTES)
    network = Network(settings, random.random)
    core = SenderCore(
        config,
        accumulator,
        network,
        counters,
        jitter=random.random,
        on_settled=on_settled,
        on_news=on_news,
    )
    gauges: dict[str, Callable[[], float]] = {
        **network.gauges(),
        "buffer-total-bytes": lambda: config.buffer_memory,
        "buffer-available-bytes": lambda: accumulator.available_bytes,
        "waiting-threads": lambda: accumulator.are_waiting_for_memory,
    }
    return Parts(
        config=config,
        accumulator=accumulator,
        placement=Placement(config, random.randrange),
        interceptors=InterceptorChain(config.interceptors),
        serialize_key=serializer_for(config.key_serializer, "key"),
        serialize_value=serializer_for(config.value_serializer, "value"),
        counters=counters,
        core=core,
        gauges=gauges,
        socket_options=SocketOptions(config.send_buffer_bytes, config.receive_buffer_bytes),
    )
