"""A load of numbered records, sent with confluent-kafka, with a ledger of what the broker confirmed.

The client is not ours on purpose: a test of the broker whose sender shares code with it proves less.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka

from oncelog.audit.account import Ledger
from oncelog.audit.ids import RecordId
from oncelog.types import NO_OFFSET, TopicPartition

PATIENT_AND_IDEMPOTENT: Mapping[str, object] = {
    "enable.idempotence": True,
    "message.timeout.ms": 300_000,
    "socket.timeout.ms": 10_000,
    "retry.backoff.ms": 5,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
    # The broker comes back under its old address. By default librdkafka forgets a broker that is gone and starts all
    # over from the bootstrap servers, which takes it a second or two each time.
    "metadata.recovery.strategy": "none",
    # Every broken connection would be a line on stderr, in a load whose connections are broken on purpose.
    "log_level": 0,
}
"""Keeps trying through broken connections and dead brokers, and never gives the same record two numbers."""

POLL_EVERY_RECORDS = 100
QUEUE_POLL_S = 0.01
MAX_POLL_S = 0.1
FLUSH_TIMEOUT_S = 120.0


class ConfluentLoad:
    """Sends records to the partitions of a topic in turn, numbered per partition, from the thread that calls `run`."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        partitions: int,
        name: str = "load",
        record_bytes: int = 100,
        records_per_second: float | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, **PATIENT_AND_IDEMPOTENT, **(config or {})}
        self._producer = confluent_kafka.Producer(settings)
        self._partitions = [TopicPartition(topic, index) for index in range(partitions)]
        self._streams = [f"{name}/{partition}" for partition in self._partitions]
        self._next_numbers = [0] * partitions
        self._record_bytes = record_bytes
        self._records_per_second = records_per_second
        self._stopping = threading.Event()
        self.ledger = Ledger()
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[str] = []

    def run(self, count: int | None = None) -> None:
        """Send `count` records, or go on until `stop` is called."""
        begun = time.monotonic()
        while not self._stopping.is_set() and (count is None or self.sent < count):
            self._send_one(self.sent % len(self._partitions))
            if self.sent % POLL_EVERY_RECORDS == 0:
                self._producer.poll(0)
                self._wait_for_pace(begun)

    def stop(self) -> None:
        """Make `run` return. May be called from any thread."""
        self._stopping.set()

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> int:
        """Wait for the fate of every record; returns how many are still unknown."""
        return int(self._producer.flush(timeout_s))

    def abandon(self) -> None:
        """Forget what has not been sent, so that the producer can be dropped without waiting."""
        self._producer.purge()
        self._producer.poll(0)

    def _wait_for_pace(self, begun: float) -> None:
        """Take answers in until it is time for the next records."""
        if self._records_per_second is None:
            return
        due = begun + self.sent / self._records_per_second
        while not self._stopping.is_set() and (ahead_s := due - time.monotonic()) > 0:
            self._producer.poll(min(ahead_s, MAX_POLL_S))

    def _send_one(self, index: int) -> None:
        record_id = RecordId(self._streams[index], self._next_numbers[index])
        value = (record_id.to_bytes() + b" ").ljust(self._record_bytes, b".")
        partition = self._partitions[index]

        def settled(error: Any, message: Any) -> None:
            if error is not None:
                self.failures.append(f"{record_id}: {error}")
                return
            self.acknowledged += 1
            offset = message.offset()
            self.ledger.acknowledged(record_id, partition, NO_OFFSET if offset is None else max(offset, NO_OFFSET))

        while not self._stopping.is_set():
            try:
                self._producer.produce(partition.topic, value, partition=partition.partition, on_delivery=settled)
            except BufferError:
                self._producer.poll(QUEUE_POLL_S)
                continue
            self.ledger.sent(record_id, partition)
            self._next_numbers[index] += 1
            self.sent += 1
            return
