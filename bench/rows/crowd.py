"""1,000 partitions and 1,000 idle connections: that it works, and the memory each of them costs."""

from __future__ import annotations

import contextlib
import resource
import time

import confluent_kafka

from bench.clients import CLIENT_TIMEOUT_S, await_partitions, create_topic
from bench.figures import KINDS, Figure, Progress, Recorder
from bench.peers import resident_mb, running
from bench.scale import Scale
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

PER_PARTITION, PER_CONNECTION = "memory per partition", "memory per idle connection"
TOPIC = "crowd"


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    allow_open_files(4 * (scale.partitions + scale.connections) + 1_000)
    recorder = Recorder()
    for kind in KINDS:
        with running(kind) as broker:
            time.sleep(scale.settle_s)
            idle = resident_mb(broker)
            create_topic(broker.bootstrap, TOPIC, scale.partitions)
            send_one_to_each(broker, scale.partitions)
            assert await_partitions(broker.bootstrap, TOPIC, scale.partitions) == scale.partitions
            time.sleep(scale.settle_s)
            with_partitions = resident_mb(broker)
            recorder.add(PER_PARTITION, kind, (with_partitions - idle) * 1_000 / scale.partitions)
            with contextlib.ExitStack() as stack:
                for _ in range(scale.connections):
                    client = stack.enter_context(RawClient(broker.address))
                    assert client.request("api_versions", 0)["error_code"] == 0
                time.sleep(scale.settle_s)
                with_connections = resident_mb(broker)
                send_one_to_each(broker, scale.partitions)
            recorder.add(PER_CONNECTION, kind, (with_connections - with_partitions) * 1_000 / scale.connections)
        progress(
            f"crowd: {kind} {idle:.0f} MB idle, {with_partitions:.0f} MB with partitions, {with_connections:.0f} MB"
        )
    note = (
        f"{scale.partitions:,} partitions and {scale.connections:,} connections at once, one record to each partition"
    )
    return [recorder.figure(PER_PARTITION, "kB", None, note), recorder.figure(PER_CONNECTION, "kB", None, note)]


def send_one_to_each(broker: BrokerProcess, partitions: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    failures: list[object] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    for index in range(partitions):
        producer.produce(TOPIC, b"one", partition=index, on_delivery=on_delivery)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    assert not failures, failures[:3]


def allow_open_files(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
