"""Consume: 1,000 B records with the Java consumer, 100 B records with confluent-kafka."""

from __future__ import annotations

from bench.clients import (
    consume_small,
    create_topic,
    has_groups,
    java_consumer,
    produce_small,
    producer_performance,
)
from bench.figures import Figure, Progress, Recorder, at_least, turns
from bench.peers import both_running
from bench.scale import Scale

LARGE, SMALL = "consume 1,000 B, Java consumer", "consume 100 B, confluent-kafka"
PARTITIONS = 4


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    with both_running() as brokers:
        groups = has_groups(brokers["oncelog"].address)
        for broker in brokers.values():
            create_topic(broker.bootstrap, "large", PARTITIONS)
            create_topic(broker.bootstrap, "small", PARTITIONS)
            producer_performance(broker.bootstrap, "large", scale.large_records, 1_000)
            produce_small(broker.bootstrap, "small", scale.small_records, b"v" * 100)
        for kind in turns(scale.rounds):
            bootstrap = brokers[kind].bootstrap
            rate = java_consumer(bootstrap, "large", scale.large_records, groups=groups)
            recorder.add(LARGE, kind, rate)
            progress(f"{LARGE}: {kind} {rate:,.0f}/s")
            rate = consume_small(bootstrap, "small", PARTITIONS, scale.small_records)
            recorder.add(SMALL, kind, rate)
            progress(f"{SMALL}: {kind} {rate:,.0f}/s")
    program = "ConsumerPerformance" if groups else "ConsumerPerformance's loop on assigned partitions (no groups yet)"
    return [
        recorder.figure(LARGE, "records/s", at_least(1.0, 1.5), program),
        recorder.figure(SMALL, "records/s", at_least(1.0, 1.5)),
    ]
