"""Produce 1,000 B records with Kafka's own ProducerPerformance: acks=all, 128 KiB batches, idempotent as by default."""

from __future__ import annotations

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
            rate = producer_performance(brokers[kind].bootstrap, "large", scale.large_records, RECORD_BYTES)
            recorder.add(WHAT, kind, rate)
            progress(f"{WHAT}: {kind} {rate:,.0f}/s")
    return [recorder.figure(WHAT, "records/s", at_least(1.2, 2.0))]
