"""Consume: 1,000 B records with the Java consumer, 100 B records with confluent-kafka.

confluent-kafka's consumer stops asking for a second once it has 100,000 records. With that it does nothing for nine
tenths of the time, and the quicker a broker fills its queue, the fewer records it asks for between two pauses. So it is
measured as it comes, and, to see what it can do at most, with a shorter pause: then the client is the limit with either
broker. Both brokers hold the same batches.
"""

from __future__ import annotations

from bench.clients import (
    consume_small,
    create_topic,
    has_groups,
    java_consumer,
    producer_performance,
    write_evenly,
)
from bench.figures import Figure, Progress, Recorder, at_least, turns
from bench.peers import both_running
from bench.scale import Scale

LARGE = "consume 1,000 B, Java consumer"
SMALL = "consume 100 B, confluent-kafka as it comes"
SMALL_AWAKE = "consume 100 B, confluent-kafka, fetch.queue.backoff.ms=100"
PARTITIONS = 4
SHORT_PAUSE = {"fetch.queue.backoff.ms": 100}


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    with both_running() as brokers:
        groups = has_groups(brokers["oncelog"].address)
        for broker in brokers.values():
            create_topic(broker.bootstrap, "large", PARTITIONS)
            create_topic(broker.bootstrap, "small", PARTITIONS)
            producer_performance(broker.bootstrap, "large", scale.large_records, 1_000)
            write_evenly(broker.bootstrap, "small", PARTITIONS, scale.small_records, b"v" * 100)
        for kind in turns(scale.rounds):
            bootstrap = brokers[kind].bootstrap
            rate = java_consumer(bootstrap, "large", scale.large_records, groups=groups)
            recorder.add(LARGE, kind, rate)
            progress(f"{LARGE}: {kind} {rate:,.0f}/s")
            for what, settings in ((SMALL, {}), (SMALL_AWAKE, SHORT_PAUSE)):
                rate = consume_small(bootstrap, "small", PARTITIONS, scale.small_records, **settings)
                recorder.add(what, kind, rate)
                progress(f"{what}: {kind} {rate:,.0f}/s")
    program = "ConsumerPerformance" if groups else "ConsumerPerformance's loop on assigned partitions (no groups yet)"
    return [
        recorder.figure(LARGE, "records/s", at_least(1.0, 1.5), program),
        recorder.figure(SMALL, "records/s", at_least(1.0, 1.5)),
        recorder.figure(SMALL_AWAKE, "records/s", None, "the client is the limit"),
    ]
