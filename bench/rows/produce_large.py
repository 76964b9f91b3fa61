"""Produce 1,000 B records with Kafka's own ProducerPerformance: acks=all, 128 KiB batches, idempotent as by default.

On brokers that have just started, a run of usual length and a long one; then on brokers that have been at it for a
while, with and without a first half that is not counted. Which of them is measured decides the ratio: both processors
are full, most of it with the tool itself, which makes every byte by chance. Kafka's part falls to a third while its
JVM compiles, and after that even a broker that cost nothing would be hardly a fifth faster. What a round has written is
on the disk before the next one begins, so that nobody pays for another's pages."""

from __future__ import annotations

import os

from bench.clients import create_topic, producer_performance
from bench.figures import Figure, Progress, Recorder, at_least, turns
from bench.peers import both_running, running
from bench.scale import Scale
from tests.support.process import BrokerProcess

JUST_STARTED = "produce 1,000 B, ProducerPerformance"
JUST_STARTED_LONG = "produce 1,000 B, ProducerPerformance, a long run"
RUN_IN = "produce 1,000 B, ProducerPerformance, brokers that have run for a while"
RUN_IN_WARM = "produce 1,000 B, ProducerPerformance, the same, second half"
TOPIC, PARTITIONS, RECORD_BYTES = "large", 4, 1_000
LONG = 5
"""How many times as many records a long run has."""


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    count = scale.large_records

    def run(what: str, kind: str, broker: BrokerProcess, records: int, warm_up: int = 0) -> None:
        os.sync()
        rate = producer_performance(broker.bootstrap, TOPIC, records, RECORD_BYTES, warm_up=warm_up)
        recorder.add(what, kind, rate)
        progress(f"{what}: {kind} {rate:,.0f}/s")

    for what, rounds, records in (
        (JUST_STARTED, scale.rounds, count),
        (JUST_STARTED_LONG, scale.long_rounds, LONG * count),
    ):
        for kind in turns(rounds):
            with running(kind) as broker:
                create_topic(broker.bootstrap, TOPIC, PARTITIONS)
                run(what, kind, broker, records)
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            producer_performance(broker.bootstrap, TOPIC, count, RECORD_BYTES)
        for kind in turns(scale.rounds):
            run(RUN_IN, kind, brokers[kind], count)
            run(RUN_IN_WARM, kind, brokers[kind], count, warm_up=count)
    return [
        recorder.figure(JUST_STARTED, "records/s", at_least(1.2, 2.0), "each run on a broker that has just started"),
        recorder.figure(JUST_STARTED_LONG, "records/s", None, "the same, with five times as many records"),
        recorder.figure(RUN_IN, "records/s", None, "Kafka is compiled by now; most of both processors is the client's"),
        recorder.figure(RUN_IN_WARM, "records/s", None, "as before, without the client's first million"),
    ]
