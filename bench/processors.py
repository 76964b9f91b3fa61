"""The loops from topic to topic that are measured, in transactions of the same size. Each runs in a process of its own.

The clock starts when the first batch is committed and stops with the last: joining the group is not in it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.worker import Result, measured, serve

TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Job:
    bootstrap: str
    source: str
    target: str
    count: int
    transaction_records: int
    workers: int = 1
    broker_pid: int = 0

    def measured(self, program: str, source: Path | None = None) -> Result:
        return measured("bench.processors", program, self, source)

    @property
    def name(self) -> str:
        """Of a group and of a producer that nobody had before."""
        return f"bench-{time.time_ns()}"


class Clock:
    """Counts the records of committed batches, by whatever thread."""

    def __init__(self, count: int) -> None:
        self.is_over = threading.Event()
        self._count = count
        self._done = self._first = 0
        self._begun = self._ended = 0.0
        self._counting = threading.Lock()

    def committed(self, records: int) -> None:
        with self._counting:
            now = time.perf_counter()
            if not self._done:
                self._begun, self._first = now, records
            self._done += records
            if self._done >= self._count and not self.is_over.is_set():
                self._ended = now
                self._count = self._done
                self.is_over.set()

    @property
    def rate(self) -> float:
        return (self._count - self._first) / (self._ended - self._begun)


def confluent_loop(job: Job) -> Result:
    import confluent_kafka

    name, clock = job.name, Clock(job.count)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": job.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([job.source])
    produce = producer.produce
    while not clock.is_over.is_set():
        messages = [one for one in consumer.consume(job.transaction_records, 1.0) if one.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            produce(job.target, message.value(), message.key())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        clock.committed(len(messages))
    consumer.close()
    return {"rate": clock.rate}


def _oncelog(job: Job, function: Any, **options: Any) -> Result:
    import oncelog

    name, clock = job.name, Clock(job.count)
    oncelog.process(
        job.source,
        function,
        job.target,
        bootstrap_servers=job.bootstrap,
        group=name,
        transactional_id=name,
        batch_records=job.transaction_records,
        batch_ms=1_000,  # full ones, as confluent-kafka's
        workers=job.workers,
        stop=clock.is_over,
        on_batch=lambda batch: clock.committed(batch.records),
        **options,
    )
    return {"rate": clock.rate}


def oncelog_process(job: Job) -> Result:
    return _oncelog(job, lambda records: [(record.key, record.value) for record in records])


def oncelog_tables(job: Job) -> Result:
    import pyarrow  # noqa: F401  # a second of loading that no table costs again

    return _oncelog(job, lambda table: table.select(["key", "value"]), tables=True)


JOBS = {
    "confluent loop": confluent_loop,
    "oncelog process": oncelog_process,
    "oncelog tables": oncelog_tables,
}


if __name__ == "__main__":
    serve(JOBS, Job)
