"""Produce 1,000 B records with Kafka's own ProducerPerformance: acks=all, 128 KiB batches, idempotent as by default.

As everybody runs it, and with a first half that is not counted. While a JVM compiles, the processor time that a broker
leaves to it counts; the longer it has run, the more it alone is the limit, with either broker. What a round has written
is on the disk before the next one begins, so that nobody pays for another's pages."""

from __future__ import annotations

import os

from bench.clients import create_topic, producer_performance
from bench.figures import Figure, Progress, Recorder, at_least, turns
from bench.peers import both_running
from bench.scale import Scale

PLAIN = "produce 1,000 B, ProducerPerformance"
WARM = "produce 1,000 B, ProducerPerformance, second half"
PARTITIONS, RECORD_BYTES = 4, 1_000


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, "large", PARTITIONS)
            producer_performance(broker.bootstrap, "large", scale.large_records // 5, RECORD_BYTES)
        count = scale.large_records
        for kind in turns(scale.rounds):
            for what, warm_up in ((PLAIN, 0), (WARM, count)):
                os.sync()
                rate = producer_performance(brokers[kind].bootstrap, "large", count, RECORD_BYTES, warm_up=warm_up)
                recorder.add(what, kind, rate)
                progress(f"{what}: {kind} {rate:,.0f}/s")
    return [
        recorder.figure(PLAIN, "records/s", at_least(1.2, 2.0)),
        recorder.figure(WARM, "records/s", None, "the client is the limit"),
    ]
