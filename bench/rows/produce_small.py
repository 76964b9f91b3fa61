"""Produce 100 B records with confluent-kafka, idempotent, a callback for each."""

from __future__ import annotations

from bench.clients import create_topic, produce_small
from bench.figures import Figure, Progress, Recorder, at_least, turns
from bench.peers import both_running
from bench.scale import Scale

WHAT = "produce 100 B, confluent-kafka with callbacks, idempotent"
PARTITIONS, VALUE = 4, b"v" * 100


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, "small", PARTITIONS)
            produce_small(broker.bootstrap, "small", scale.small_records // 5, VALUE)
        for kind in turns(scale.rounds):
            rate = produce_small(brokers[kind].bootstrap, "small", scale.small_records, VALUE)
            recorder.add(WHAT, kind, rate)
            progress(f"{WHAT}: {kind} {rate:,.0f}/s")
    return [recorder.figure(WHAT, "records/s", at_least(1.0), "the client is the limit")]
