"""The producers that are measured. Each runs in a process of its own: `job.measured("confluent callbacks")`.

Everybody gets the same work and the same settings where both have them: acks=all, idempotent, the same linger, batches
of the same bytes. librdkafka keeps its own, larger, limit of what may wait. The clock starts once the client knows its
broker and its producer id, and stops when the last record is acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import percentile
from bench.worker import Result, measured, resident_mb, serve

BATCH_BYTES = 128 * 1024
BUFFER_MEMORY_BYTES = 32 * 1024 * 1024
FLUSH_TIMEOUT_S = 300.0
POLL_EVERY = 1_000
GROUP = 1_000
TABLE_ROWS = 100_000
DISTINCT = 10_000
BLOCKED_MS = 1_000
"""How long a full buffer is waited for before the backlog counts as full."""


@dataclass(frozen=True)
class Job:
    bootstrap: str
    topic: str
    count: int
    values: str = "plain"
    keyed: bool = False
    linger_ms: int = 5
    codec: str = "none"
    broker_pid: int = 0
    """For the backlog: whom to stop meanwhile."""

    def measured(self, program: str, source: Path | None = None) -> Result:
        return measured("bench.producers", program, self, source)

    def records(self, count: int | None = None) -> Iterator[tuple[bytes | None, bytes]]:
        """Keys and values, made before they are asked for."""
        keys = [b"key-%d" % number for number in range(DISTINCT)] if self.keyed else [None]
        values = [b"v" * 100] if self.values == "plain" else json_values()
        return itertools.islice(zip(itertools.cycle(keys), itertools.cycle(values), strict=False), count or self.count)


def json_values() -> list[bytes]:
    """Orders as a web shop would log them: much alike, no two the same."""
    chance = random.Random(4)
    orders = []
    for number in range(DISTINCT):
        items = [
            {"sku": f"SKU-{chance.randrange(5_000):05d}", "quantity": chance.randint(1, 5), "price": chance.random()}
            for _ in range(chance.randint(1, 3))
        ]
        order = {
            "order_id": f"order-{chance.getrandbits(48):012x}",
            "customer": {"id": chance.randrange(100_000), "country": chance.choice(["DE", "FR", "IT", "PL", "SE"])},
            "items": items,
            "status": chance.choice(["created", "paid", "packed", "shipped"]),
            "created_at": 1_700_000_000_000 + number * 37,
        }
        orders.append(json.dumps(order).encode())
    return orders


# --- confluent-kafka ----------------------------------------------------------------------------------------------


class Counter:
    """A delivery callback of either client: the error is the first argument of one and the second of the other."""

    def __init__(self) -> None:
        self.delivered = 0

    def of_confluent(self, error: object, message: object) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        self.delivered += 1

    def of_oncelog(self, metadata: object, error: object) -> None:
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        self.delivered += 1


def confluent_producer(job: Job) -> Any:
    import confluent_kafka

    return confluent_kafka.Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "enable.idempotence": True,
            "linger.ms": job.linger_ms,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": job.codec,
            "partitioner": "murmur2_random",
        }
    )


def confluent_callbacks(job: Job) -> Result:
    producer, counter = confluent_producer(job), Counter()
    rate = _confluent_rate(producer, job, {"on_delivery": counter.of_confluent})
    assert counter.delivered == job.count + 1, f"{counter.delivered} of {job.count + 1} records delivered"
    return {"rate": rate}


def confluent_plain(job: Job) -> Result:
    return {"rate": _confluent_rate(confluent_producer(job), job, {})}


def _confluent_rate(producer: Any, job: Job, options: dict[str, Any]) -> float:
    topic, produce, poll = job.topic, producer.produce, producer.poll
    produce(topic, b"first", **options)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    records = job.records()
    begun = time.perf_counter()
    for index, (key, value) in enumerate(records):
        while True:
            try:
                produce(topic, value, key, **options)
                break
            except BufferError:
                poll(0.1)
        if index % POLL_EVERY == 0:
            poll(0)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    return job.count / (time.perf_counter() - begun)


def confluent_synchronous(job: Job) -> Result:
    producer = confluent_producer(job)

    def send(value: bytes) -> None:
        producer.produce(job.topic, value)
        assert producer.flush(FLUSH_TIMEOUT_S) == 0

    return _latencies(send, job)


# --- oncelog ------------------------------------------------------------------------------------------------------


def oncelog_settings(job: Job) -> dict[str, Any]:
    return {
        "linger_ms": job.linger_ms,
        "batch_size": BATCH_BYTES,
        "buffer_memory": BUFFER_MEMORY_BYTES,
        "compression_type": job.codec,
    }


def oncelog_producer(job: Job, **settings: Any) -> Any:
    import oncelog

    return oncelog.Producer(job.bootstrap, **oncelog_settings(job), **settings)


def oncelog_callbacks(job: Job) -> Result:
    counter = Counter()
    rate = _oncelog_rate(job, {"on_delivery": counter.of_oncelog})
    assert counter.delivered == job.count + 1, f"{counter.delivered} of {job.count + 1} records delivered"
    return {"rate": rate}


def oncelog_plain(job: Job) -> Result:
    return {"rate": _oncelog_rate(job, {})}


def _oncelog_rate(job: Job, options: dict[str, Any]) -> float:
    with oncelog_producer(job) as producer:
        topic, send = job.topic, producer.send
        send(topic, b"first", **options).result(FLUSH_TIMEOUT_S)
        records = job.records()
        begun = time.perf_counter()
        for key, value in records:
            send(topic, value, key, **options)
        producer.flush()
        return job.count / (time.perf_counter() - begun)


def oncelog_table(job: Job) -> Result:
    import pyarrow

    rows = min(TABLE_ROWS, job.count)
    table = pyarrow.table({"value": pyarrow.array([value for _, value in job.records(rows)], pyarrow.binary())})
    with oncelog_producer(job) as producer:
        producer.send_table(job.topic, table.slice(0, 1), value="value").result(FLUSH_TIMEOUT_S)
        begun = time.perf_counter()
        results = [producer.send_table(job.topic, table, value="value") for _ in range(job.count // rows)]
        producer.flush()
        rate = job.count // rows * rows / (time.perf_counter() - begun)
        for result in results:
            result.result(0)
        return {"rate": rate}


def oncelog_synchronous(job: Job) -> Result:
    with oncelog_producer(job) as producer:
        return _latencies(lambda value: producer.send(job.topic, value).result(FLUSH_TIMEOUT_S), job)


def oncelog_backlog(job: Job) -> Result:
    """Memory that sending takes while the broker is stopped, until there is no room for another record."""
    counter, accepted = Counter(), 1
    with oncelog_producer(job, max_block_ms=BLOCKED_MS) as producer:
        producer.send(job.topic, b"first", on_delivery=counter.of_oncelog).result(FLUSH_TIMEOUT_S)
        before = resident_mb()
        os.kill(job.broker_pid, signal.SIGSTOP)
        try:
            accepted += _fill(producer, job, counter)
            growth = resident_mb() - before
        finally:
            os.kill(job.broker_pid, signal.SIGCONT)
        producer.flush()
    assert counter.delivered == accepted, f"{counter.delivered} of {accepted} records delivered"
    return {"growth_mb": growth, "accepted": accepted}


def _fill(producer: Any, job: Job, counter: Counter) -> int:
    from oncelog import BufferExhausted

    for accepted, (key, value) in enumerate(job.records()):
        try:
            producer.send(job.topic, value, key, on_delivery=counter.of_oncelog)
        except BufferExhausted:
            return accepted
    raise AssertionError(f"the buffer took all of {job.count} records")


# --- asyncio ------------------------------------------------------------------------------------------------------


def aiokafka_groups(job: Job) -> Result:
    return asyncio.run(_aiokafka_groups(job))


async def _aiokafka_groups(job: Job) -> Result:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=job.linger_ms,
        max_batch_size=BATCH_BYTES,
    )
    await producer.start()
    try:
        await producer.send_and_wait(job.topic, b"first")
        records = job.records()
        begun = time.perf_counter()
        while group := [await producer.send(job.topic, value, key) for key, value in itertools.islice(records, GROUP)]:
            for acknowledged in group:
                await acknowledged
        return {"rate": job.count / (time.perf_counter() - begun)}
    finally:
        await producer.stop()


def oncelog_groups(job: Job) -> Result:
    return asyncio.run(_oncelog_groups(job))


async def _oncelog_groups(job: Job) -> Result:
    import oncelog

    async with oncelog.AsyncProducer(job.bootstrap, **oncelog_settings(job)) as producer:
        await producer.send(job.topic, b"first")
        records = job.records()
        begun = time.perf_counter()
        while group := [producer.send(job.topic, value, key) for key, value in itertools.islice(records, GROUP)]:
            for acknowledged in group:
                await acknowledged
        return {"rate": job.count / (time.perf_counter() - begun)}


# --- the process --------------------------------------------------------------------------------------------------


JOBS: dict[str, Callable[[Job], Result]] = {
    "confluent callbacks": confluent_callbacks,
    "confluent plain": confluent_plain,
    "confluent synchronous": confluent_synchronous,
    "oncelog callbacks": oncelog_callbacks,
    "oncelog plain": oncelog_plain,
    "oncelog table": oncelog_table,
    "oncelog synchronous": oncelog_synchronous,
    "oncelog backlog": oncelog_backlog,
    "oncelog groups": oncelog_groups,
    "aiokafka groups": aiokafka_groups,
}


def _latencies(send: Callable[[bytes], object], job: Job) -> Result:
    durations = []
    for _, value in job.records():
        begun = time.perf_counter()
        send(value)
        durations.append((time.perf_counter() - begun) * 1_000)
    steady = durations[len(durations) // 20 :]  # the first send also fetches metadata and a producer id
    return {"p50": percentile(steady, 0.5), "p99": percentile(steady, 0.99)}


if __name__ == "__main__":
    serve(JOBS, Job)
