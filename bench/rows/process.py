"""Consume, transform, produce: `process()` against the loop that one writes with confluent-kafka, 100 B records in
transactions of 1,000."""

from __future__ import annotations

from dataclasses import replace

from bench.clients import create_topic, produce_small
from bench.contest import Comparison, Entry, figures, hold
from bench.figures import Figure, Progress, at_least
from bench.peers import both_running
from bench.processors import Job
from bench.scale import Scale

SOURCE, TARGET, PARTITIONS, PEER = "orders", "bills", 4, "confluent-kafka"
TRANSACTION_RECORDS = 1_000
WORKERS = 4
LOOP = "confluent loop"

COMPARED = [
    Comparison("process(), 100 B", "records/s", LOOP, "process", PEER, at_least(2.0, 5.0)),
    Comparison("process(tables=True), 100 B", "records/s", LOOP, "tables", PEER, at_least(2.0, 5.0)),
    Comparison(f"process(workers={WORKERS}), 100 B", "records/s", LOOP, "workers", PEER, None, note="against one loop"),
]


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    job = Job("", SOURCE, TARGET, scale.async_records, min(TRANSACTION_RECORDS, scale.async_records // 10))
    together = Job("", SOURCE, TARGET, scale.async_records, job.transaction_records, workers=WORKERS)
    entries = [
        Entry(LOOP, LOOP, job),
        Entry("process", "oncelog process", job),
        Entry("tables", "oncelog tables", job),
        Entry("workers", "oncelog process", together),
    ]
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, SOURCE, PARTITIONS)
            create_topic(broker.bootstrap, TARGET, PARTITIONS)
            produce_small(broker.bootstrap, SOURCE, 2 * scale.async_records, b"v" * 100)
            for program in (LOOP, "oncelog process"):  # until the broker's code is compiled
                replace(job, bootstrap=broker.bootstrap).measured(program)
        results = hold(scale.rounds, brokers, entries, progress)
    return figures(results, COMPARED)
