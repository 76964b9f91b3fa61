"""The consumers that are measured. Each runs in a process of its own: `job.measured("confluent consume")`.

Everybody reads the same topic from its beginning, by assignment, with the same fetch sizes where both have them. The
clock starts with the first record and stops with the last.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import percentile
from bench.worker import Result, measured, resident_mb, serve

TIMEOUT_S = 300.0
POLL_RECORDS = 10_000
"""What one `consume()` of confluent-kafka and one `poll()` of ours may return."""
SETTLE_S = 0.2
QUIET_ROUNDS = 25
WARM_UP_RECORDS = 5
SCATTER = 7_919
"""A prime, so that records in a row go to partitions far apart."""


@dataclass(frozen=True)
class Job:
    bootstrap: str
    topic: str
    partitions: int
    count: int
    group: str = ""
    queue_bytes: int = 64 * 1024 * 1024
    broker_pid: int = 0

    def measured(self, program: str, source: Path | None = None) -> Result:
        return measured("bench.consumers", program, self, source)


# --- confluent-kafka ----------------------------------------------------------------------------------------------


def confluent_consumer(job: Job) -> Any:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": job.bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0}
    )
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(job.topic, index, begin) for index in range(job.partitions)])
    first = consumer.poll(TIMEOUT_S)
    assert first is not None
    assert first.error() is None, first.error()
    return consumer


def confluent_consume(job: Job) -> Result:
    consumer, received = confluent_consumer(job), 1
    begun = time.perf_counter()
    while received < job.count:
        messages = consumer.consume(POLL_RECORDS, TIMEOUT_S if received + POLL_RECORDS < job.count else 1.0)
        received += sum(1 for message in messages if message.error() is None and message.value() is not None)
    rate = (received - 1) / (time.perf_counter() - begun)
    consumer.close()
    return {"rate": rate}


def confluent_poll(job: Job) -> Result:
    consumer, received = confluent_consumer(job), 1
    poll = consumer.poll
    begun = time.perf_counter()
    while received < job.count:
        message = poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None and message.value() is not None:
            received += 1
    rate = (received - 1) / (time.perf_counter() - begun)
    consumer.close()
    return {"rate": rate}


# --- oncelog ------------------------------------------------------------------------------------------------------


def oncelog_consumer(job: Job, **settings: Any) -> Any:
    import oncelog

    consumer = oncelog.Consumer(job.bootstrap, auto_offset_reset="earliest", **settings)
    consumer.assign([(job.topic, index) for index in range(job.partitions)])
    return consumer


def oncelog_poll(job: Job) -> Result:
    with oncelog_consumer(job, max_poll_records=POLL_RECORDS) as consumer:
        received = first = len(consumer.poll(TIMEOUT_S, max_records=1))
        begun = time.perf_counter()
        while received < job.count:
            records = consumer.poll(TIMEOUT_S)
            assert records
            received += sum(1 for record in records if record.value is not None)
        return {"rate": (received - first) / (time.perf_counter() - begun)}


def oncelog_iterate(job: Job) -> Result:
    with oncelog_consumer(job) as consumer:
        received = first = len(consumer.poll(TIMEOUT_S, max_records=1))
        begun = time.perf_counter()
        for record in consumer:
            if record.value is not None:
                received += 1
            if received == job.count:
                break
        return {"rate": (received - first) / (time.perf_counter() - begun)}


def oncelog_table(job: Job) -> Result:
    import pyarrow  # noqa: F401  # a second of loading that no table costs again

    with oncelog_consumer(job) as consumer:
        received = first = consumer.read_table(TIMEOUT_S, max_records=1).num_rows
        begun = time.perf_counter()
        while received < job.count:
            table = consumer.read_table(TIMEOUT_S)
            assert table.num_rows
            received += table.num_rows
        return {"rate": (received - first) / (time.perf_counter() - begun)}


def oncelog_behind(job: Job) -> Result:
    """Memory of a consumer that reads one record and then nothing, while everything else waits to be fetched."""
    with oncelog_consumer(job, fetch_queue_max_bytes=job.queue_bytes) as consumer:
        before = resident_mb()
        assert consumer.poll(TIMEOUT_S, max_records=1)
        most = settled = 0.0
        quiet = 0
        while quiet < QUIET_ROUNDS:  # until it has fetched all that it will
            time.sleep(SETTLE_S)
            now = resident_mb()
            quiet = quiet + 1 if now <= settled else 0
            settled, most = max(settled, now), max(most, now)
        received = 1
        while received < job.count:
            received += len(consumer.poll(TIMEOUT_S, max_records=100))
            most = max(most, resident_mb()) if received % 10_000 < 100 else most
    return {"growth_mb": most - before}


# --- asyncio ------------------------------------------------------------------------------------------------------


def aiokafka_iterate(job: Job) -> Result:
    return asyncio.run(_aiokafka_iterate(job))


async def _aiokafka_iterate(job: Job) -> Result:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(job.topic, index) for index in range(job.partitions)])
        await consumer.seek_to_beginning()
        await consumer.getone()
        received = 1
        begun = time.perf_counter()
        async for record in consumer:
            if record.value is not None:
                received += 1
            if received == job.count:
                break
        return {"rate": (received - 1) / (time.perf_counter() - begun)}
    finally:
        await consumer.stop()


def oncelog_async_iterate(job: Job) -> Result:
    return asyncio.run(_oncelog_async_iterate(job))


async def _oncelog_async_iterate(job: Job) -> Result:
    import oncelog

    async with oncelog.AsyncConsumer(job.bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(job.topic, index) for index in range(job.partitions)])
        received = first = len(await consumer.poll(TIMEOUT_S, max_records=1))
        begun = time.perf_counter()
        async for record in consumer:
            if record.value is not None:
                received += 1
            if received == job.count:
                break
        return {"rate": (received - first) / (time.perf_counter() - begun)}


# --- many partitions ----------------------------------------------------------------------------------------------


def confluent_first_of_each(job: Job) -> Result:
    """Processor time of the process, without its imports, until it has a record of every partition."""
    import confluent_kafka

    begun, begun_cpu = time.perf_counter(), time.process_time()
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": job.bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0}
    )
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(job.topic, index, begin) for index in range(job.partitions)])
    seen: set[int] = set()
    while len(seen) < job.partitions:
        assert time.perf_counter() < begun + TIMEOUT_S, f"records of {len(seen)} partitions"
        messages = consumer.consume(POLL_RECORDS, 0.05)
        seen.update(message.partition() for message in messages if message.error() is None)
    return {"cpu_s": time.process_time() - begun_cpu, "elapsed_s": time.perf_counter() - begun}


def oncelog_first_of_each(job: Job) -> Result:
    from oncelog import Consumer  # noqa: F401  # which is loaded when it is asked for: not what is measured

    begun, begun_cpu = time.perf_counter(), time.process_time()
    with oncelog_consumer(job, max_poll_records=POLL_RECORDS) as consumer:
        seen: set[int] = set()
        while len(seen) < job.partitions:
            assert time.perf_counter() < begun + TIMEOUT_S, f"records of {len(seen)} partitions"
            seen.update(record.partition for record in consumer.poll(1.0))
        return {"cpu_s": time.process_time() - begun_cpu, "elapsed_s": time.perf_counter() - begun}


def oncelog_tail(job: Job) -> Result:
    """How long records take, one after the other, each to another partition, to a consumer at the end of all."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": job.bootstrap, "linger.ms": 0, "log_level": 0})
    durations_ms = []
    with oncelog_consumer(job, max_poll_records=POLL_RECORDS) as consumer:
        consumer.seek_to_end()
        for index in range(job.partitions):
            consumer.position((job.topic, index))  # returns when the end is known
        for number in range(WARM_UP_RECORDS + job.count):
            value = str(number).encode()
            begun = time.perf_counter()
            producer.produce(job.topic, value, partition=number * SCATTER % job.partitions)
            producer.flush(TIMEOUT_S)
            while all(record.value != value for record in consumer.poll(TIMEOUT_S)):
                assert time.perf_counter() < begun + TIMEOUT_S, f"record {number} did not come"
            durations_ms.append((time.perf_counter() - begun) * 1_000)
    return {"p50_ms": percentile(durations_ms[WARM_UP_RECORDS:], 0.5)}


# --- groups -------------------------------------------------------------------------------------------------------


def confluent_commits(job: Job) -> Result:
    """Synchronous offset commits of one librdkafka consumer, one after the other."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": job.bootstrap, "group.id": job.group, "enable.auto.commit": False, "log_level": 0}
    )
    partition = confluent_kafka.TopicPartition(job.topic, 0, 0)
    consumer.assign([partition])
    consumer.commit(offsets=[partition], asynchronous=False)
    begun = time.perf_counter()
    for offset in range(job.count):
        partition.offset = offset
        consumer.commit(offsets=[partition], asynchronous=False)
    rate = job.count / (time.perf_counter() - begun)
    consumer.close()
    return {"rate": rate}


def confluent_rebalance(job: Job) -> Result:
    """Ten librdkafka members that share all partitions: one leaves, one joins, again and again; how long until every
    partition has its reader."""
    from bench.group_of_ten import rebalances_s

    durations = rebalances_s(job.bootstrap, job.topic, job.partitions, job.group, job.count)
    return {"median_ms": sorted(durations)[len(durations) // 2] * 1_000}


JOBS = {
    "confluent consume": confluent_consume,
    "confluent poll": confluent_poll,
    "oncelog poll": oncelog_poll,
    "oncelog iterate": oncelog_iterate,
    "oncelog table": oncelog_table,
    "oncelog behind": oncelog_behind,
    "aiokafka iterate": aiokafka_iterate,
    "oncelog async iterate": oncelog_async_iterate,
    "confluent first of each": confluent_first_of_each,
    "oncelog first of each": oncelog_first_of_each,
    "oncelog tail": oncelog_tail,
    "confluent commits": confluent_commits,
    "confluent rebalance": confluent_rebalance,
}


if __name__ == "__main__":
    serve(JOBS, Job)
