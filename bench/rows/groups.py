"""What groups cost a broker: rebalances of ten members with 100 partitions, and offset commits. Same client on both."""

from __future__ import annotations

from bench.clients import create_topic
from bench.consumers import Job
from bench.figures import Figure, Progress, Recorder, at_least, at_most, turns
from bench.peers import both_running
from bench.scale import Scale

REBALANCE, COMMITS = "rebalance of 10 members, 100 partitions", "offset commits, one after the other"
TOPIC, PARTITIONS = "shared", 100


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            Job(broker.bootstrap, TOPIC, PARTITIONS, scale.commits // 10, group="warm").measured("confluent commits")
        for number, kind in enumerate(turns(scale.rounds)):
            bootstrap = brokers[kind].bootstrap
            job = Job(bootstrap, TOPIC, PARTITIONS, scale.commits, group=f"commits-{number}")
            rate = job.measured("confluent commits")["rate"]
            recorder.add(COMMITS, kind, rate)
            progress(f"{COMMITS}: {kind} {rate:,.0f}/s")
            job = Job(bootstrap, TOPIC, PARTITIONS, scale.rebalances, group=f"rebalance-{number}")
            median_ms = job.measured("confluent rebalance")["median_ms"]
            recorder.add(REBALANCE, kind, median_ms)
            progress(f"{REBALANCE}: {kind} {median_ms:,.0f} ms")
    return [
        recorder.figure(REBALANCE, "ms", at_most(1.0, 0.3), "confluent-kafka; from the tenth member's start"),
        recorder.figure(COMMITS, "commits/s", at_least(1.0, 2.0), "confluent-kafka, synchronous"),
    ]
