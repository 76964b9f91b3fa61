"""Produce 1,000 B records with Kafka's own ProducerPerformance: acks=all, 128 KiB batches, idempotent as by default.

Its first half is not counted: a JVM that has just started is slower than either broker. What a round has written is on
the disk before the next one begins, so that nobody pays for another's pages."""

from __future__ import annotations

import os

from bench.clients import create_topic, producer_performance
from bench.figures import Figure, Progress, Recorder, at_least, turns
from bench.peers import both_running
from bench.scale import Scale

WHAT = "produce 1,000 B, ProducerPerformance"
PARTITIONS, RECORD_BYTES = 4, 1_000


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, "large", PARTITIONS)
            producer_performance(broker.bootstrap, "large", scale.large_records // 5, RECORD_BYTES)
        for kind in turns(scale.rounds):
            os.sync()
            count, bootstrap = scale.large_records, brokers[kind].bootstrap
            rate = producer_performance(bootstrap, "large", count, RECORD_BYTES, warm_up=count)
            recorder.add(WHAT, kind, rate)
            progress(f"{WHAT}: {kind} {rate:,.0f}/s")
    return [recorder.figure(WHAT, "records/s", at_least(1.2, 2.0))]
