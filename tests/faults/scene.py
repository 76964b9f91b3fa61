"""A broker's process under the load of idempotent producers, and the audit of what it holds in the end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from oncelog.audit.account import Audit, AuditReport
from oncelog.audit.ids import id_of_record
from oncelog.broker.process import Broker, BrokerFailed
from oncelog.faults import FaultProxy, Rule
from oncelog.types import TopicPartition
from tests.support.confluent_load import ConfluentLoad
from tests.support.ports import unused_port

TOPIC = "faults"
PARTITIONS = 4
SEGMENT_BYTES = 1024 * 1024
PROGRESS_TIMEOUT_S = 120.0
FLUSH_TIMEOUT_S = 120.0

# Small segments, so that a short test has many of them, with indexes and snapshots.
CONFIG: Mapping[str, object] = {"log.segment.bytes": SEGMENT_BYTES, "log.retention.ms": -1}


class Scene:
    """`with Scene(directory) as scene`: the load runs from the start until `finish`, through a fault proxy if there are
    `rules`."""

    def __init__(
        self,
        directory: Path,
        *,
        config: Mapping[str, object] | None = None,
        rules: Sequence[Rule] = (),
        seed: int = 0,
        records_per_second: float = 4_000,
        record_bytes: int = 500,
        client: Mapping[str, object] | None = None,
    ) -> None:
        self.data_dir = directory / "data"
        self.broker = Broker(self.data_dir, port=unused_port(), config={**CONFIG, **(config or {})})
        self.proxy = FaultProxy(self.broker.bootstrap_servers, rules, seed=seed)
        self._sends_to = self.proxy if rules else self.broker
        self._load_options = {
            "partitions": PARTITIONS,
            "records_per_second": records_per_second,
            "record_bytes": record_bytes,
            "config": client,
        }
        self.load: ConfluentLoad
        self._sender: threading.Thread

    def __enter__(self) -> Scene:
        self.broker.start()
        create_topic(self.broker.bootstrap_servers, TOPIC, PARTITIONS)
        self.proxy.start()
        self.load = ConfluentLoad(self._sends_to.bootstrap_servers, TOPIC, **self._load_options)
        self._sender = threading.Thread(target=self.load.run, daemon=True)
        self._sender.start()
        self.await_progress()
        return self

    def __exit__(self, *exception: object) -> None:
        self.load.stop()
        self._sender.join()
        self.load.abandon()
        self.proxy.close()
        self.broker.close()

    def await_progress(self, records: int = 1) -> None:
        """Wait until that many more records have been acknowledged."""
        goal = self.load.acknowledged + records
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while self.load.acknowledged < goal:
            assert not self.load.failures, self.load.failures[:3]
            assert self.broker.running, f"the broker died:\n{self.broker.log_tail()}"
            assert time.monotonic() < deadline, f"nothing acknowledged for too long:\n{self.broker.log_tail()}"
            time.sleep(0.005)

    def crash(self) -> None:
        self.broker.kill()

    def start_and_crash_within(self, seconds: float) -> None:
        """Start the broker and kill it that much later, in the middle of its recovery or just after it."""

        def strike() -> None:
            if (pid := self.broker.pid) is not None:
                os.kill(pid, signal.SIGKILL)

        killer = threading.Timer(seconds, strike)
        killer.start()
        with contextlib.suppress(BrokerFailed):
            self.broker.start()
        killer.join()
        self.broker.kill()

    def finish(self) -> AuditReport:
        """End the load, wait for every answer, and audit."""
        self.load.stop()
        self._sender.join()
        unanswered = self.load.flush(FLUSH_TIMEOUT_S)
        assert unanswered == 0, f"{unanswered} records were never answered:\n{self.broker.log_tail()}"
        return audit_with_confluent(self.broker.bootstrap_servers, self.load)


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(PROGRESS_TIMEOUT_S)


def audit_with_confluent(bootstrap_servers: str, load: ConfluentLoad) -> AuditReport:
    """The audit over what confluent-kafka reads: a witness that shares no code with the broker."""
    audit = Audit(load.ledger)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    ended: set[int] = set()
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only partitions {sorted(ended)} could be read to the end"
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                where = TopicPartition(TOPIC, message.partition())
                audit.observe(where, message.offset(), id_of_record(message.value(), message.headers() or ()))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise AssertionError(f"the topic cannot be read: {message.error()}")
    consumer.close()
    return audit.report()


def no_acknowledged_record_is_lost_doubled_or_misplaced(scene: Scene) -> None:
    report = scene.finish()
    findings = [f"{entry.partition}: {example}" for entry in report.partitions for example in entry.examples]
    assert report.clean, f"{report.total}\n" + "\n".join(findings) + f"\nbroker:\n{scene.broker.log_tail()}"
    assert not scene.load.failures, scene.load.failures[:3]
    assert report.total.stored == scene.load.sent
