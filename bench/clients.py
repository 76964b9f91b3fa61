"""The clients that drive both brokers: confluent-kafka in this process, Kafka's own tools in a JVM."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support import parts
from tests.support.kafka import java_command
from tests.support.raw import RawClient

JAVA_SOURCES = Path(__file__).parent / "java"
CLIENT_JVM = ("-Xmx1G", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
TOOL_TIMEOUT_S = 600
CLIENT_TIMEOUT_S = 300.0
BATCH_BYTES = 128 * 1024
EVEN_BATCH = 1_000
ANY_PARTITION = -1  # as librdkafka calls it
COORDINATOR_TRIES, COORDINATOR_RETRY_S = 10, 0.3
MOST_CREATED_AT_ONCE = 5_000
"""Apache Kafka refuses a request that makes 10,000 metadata records or more."""


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    first = min(partitions, MOST_CREATED_AT_ONCE)
    admin.create_topics([NewTopic(name, first, 1)], request_timeout=60)[name].result(60)
    for count in (*range(first + MOST_CREATED_AT_ONCE, partitions, MOST_CREATED_AT_ONCE), partitions):
        if count > first:
            admin.create_partitions([NewPartitions(name, count)], request_timeout=60)[name].result(60)


def await_partitions(bootstrap: str, topic: str, partitions: int) -> int:
    """Return the topic's total number of records once every partition answers."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    total = 0
    try:
        for index in range(partitions):
            low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, index), timeout=60)
            total += high - low
    finally:
        consumer.close()
    return total


def produce_small(bootstrap: str, topic: str, count: int, value: bytes) -> float:
    """Records per second of an idempotent confluent-kafka producer with a delivery callback for every record."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
    )
    delivered = 0

    def on_delivery(error: object, message: object) -> None:
        nonlocal delivered
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        delivered += 1

    # Connecting and getting a producer id takes librdkafka up to a second, whatever the broker.
    producer.produce(topic, value, on_delivery=on_delivery)
    producer.flush(CLIENT_TIMEOUT_S)
    produce, poll = producer.produce, producer.poll
    begun = time.perf_counter()
    for index in range(count):
        while True:
            try:
                produce(topic, value, on_delivery=on_delivery)
                break
            except BufferError:
                poll(0.1)
        if index % 1_000 == 0:
            poll(0)
    producer.flush(CLIENT_TIMEOUT_S)
    elapsed = time.perf_counter() - begun
    assert delivered == count + 1, f"{delivered} of {count + 1} records delivered"
    return count / elapsed


def write_evenly(bootstrap: str, topic: str, partitions: int, count: int, value: bytes) -> None:
    """The same batches on every broker, of EVEN_BATCH records each, one partition after the other."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "batch.num.messages": EVEN_BATCH,
            "linger.ms": 1_000,
        }
    )
    for index in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=index // EVEN_BATCH % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def consume_small(bootstrap: str, topic: str, partitions: int, count: int, **settings: Any) -> float:
    """Records per second of a confluent-kafka consumer that reads all partitions from the beginning."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0, **settings}
    )
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, index, begin) for index in range(partitions)])
    # As with the producer, the clock starts once the client has found its broker.
    first = consumer.poll(CLIENT_TIMEOUT_S)
    assert first is not None
    assert first.error() is None, first.error()
    received, deadline = 0, time.monotonic() + CLIENT_TIMEOUT_S
    begun = time.perf_counter()
    while received < count - 1:
        assert time.monotonic() < deadline, f"{received} of {count} records received"
        wanted = min(10_000, count - 1 - received)  # for more it would wait until the timeout
        received += sum(1 for message in consumer.consume(wanted, 1.0) if message.error() is None)
    elapsed = time.perf_counter() - begun
    consumer.close()
    return received / elapsed


def synchronous_sends_ms(
    bootstrap: str, topic: str, count: int, value: bytes, *, partition: int = ANY_PARTITION
) -> list[float]:
    """How long each of `count` sends took when every one is awaited before the next."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    durations = []
    for _ in range(count):
        begun = time.perf_counter()
        producer.produce(topic, value, partition=partition)
        left = producer.flush(CLIENT_TIMEOUT_S)
        durations.append((time.perf_counter() - begun) * 1_000)
        assert left == 0
    return durations


def producer_performance(bootstrap: str, topic: str, count: int, record_bytes: int, *, warm_up: int = 0) -> float:
    """Records per second as Kafka's own ProducerPerformance reports them (acks=all, 128 KiB batches), after so many
    more while its code is compiled."""
    all_records = ("--num-records", str(warm_up + count), *(("--warmup-records", str(warm_up)) if warm_up else ()))
    said = _run_java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, *all_records, "--record-size", str(record_bytes), "--throughput", "-1"),
        *("--command-property", f"bootstrap.servers={bootstrap}", "acks=all", f"batch.size={BATCH_BYTES}"),
    )
    what = "steady state records" if warm_up else "records"
    reported = re.findall(rf"^(\d+) {what} sent, ([\d.]+) records/sec", said, re.MULTILINE)
    assert reported, f"ProducerPerformance said:\n{said}"
    assert int(reported[-1][0]) == count, f"ProducerPerformance said:\n{said}"
    return float(reported[-1][1])


def java_consumer(bootstrap: str, topic: str, count: int, *, groups: bool) -> float:
    """Records per second of the Java consumer, reading from the beginning.

    With groups this is Kafka's ConsumerPerformance. It cannot run without them, so until then the same poll loop with
    the same settings runs on assigned partitions (`java/AssignedConsumer.java`), on both brokers.
    """
    if not groups:
        source = str(JAVA_SOURCES / "AssignedConsumer.java")
        return float(json.loads(_run_java(source, bootstrap, topic, str(count)))["records_per_second"])
    said = _run_java(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(count), "--hide-header"),
    )
    columns = said.strip().splitlines()[-1].split(",")
    assert int(columns[4]) >= count, f"ConsumerPerformance said:\n{said}"
    # Column 9 is the rate without the time that joining the group took.
    return float(columns[9])


def has_groups(address: tuple[str, int]) -> bool:
    """Whether the broker offers a group coordinator, if need be after a moment to create the offsets topic."""
    with RawClient(address) as client:
        for _ in range(COORDINATOR_TRIES):
            answer = client.request("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["bench"]})
            if answer["coordinators"][0]["error_code"] == 0:
                return True
            time.sleep(COORDINATOR_RETRY_S)
    return False


def _run_java(main_class: str, *arguments: str) -> str:
    command = java_command(main_class, *arguments, jvm=CLIENT_JVM)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    if done.returncode != 0 and "jdk.compiler" in done.stderr:
        raise parts.PartMissingError(
            "the Java consumer is compiled when it runs, which needs a JDK: default-jdk-headless"
        )
    assert done.returncode == 0, f"{main_class} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
