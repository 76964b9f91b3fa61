"""`poll`, iteration and `read_table` against confluent-kafka, `AsyncConsumer` against aiokafka: 100 B records."""

from __future__ import annotations

from bench.clients import create_topic, produce_small
from bench.consumers import Job
from bench.contest import Comparison, Entry, figures, hold
from bench.figures import Figure, Progress, at_least
from bench.peers import both_running
from bench.scale import Scale

TOPIC, PARTITIONS, PEER = "read", 4, "confluent-kafka"
LONG = 4
"""Tables are read so fast that they need a longer topic."""

COMPARED = [
    Comparison("poll(), 100 B", "records/s", "confluent consume", "oncelog poll", PEER, at_least(2.0, 4.0)),
    Comparison(
        "iterate one record at a time, 100 B",
        "records/s",
        "confluent poll",
        "oncelog iterate",
        PEER,
        at_least(1.5, 3.0),
    ),
    Comparison("read_table, 100 B", "records/s", "confluent consume", "oncelog table", PEER, at_least(10.0, 20.0)),
    Comparison(
        "AsyncConsumer, async for, 100 B",
        "records/s",
        "aiokafka iterate",
        "oncelog async iterate",
        "aiokafka",
        at_least(2.0, 5.0),
    ),
]


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    small = Job("", TOPIC, PARTITIONS, scale.small_records)
    short = Job("", TOPIC, PARTITIONS, scale.async_records)
    long = Job("", TOPIC, PARTITIONS, LONG * scale.small_records)
    entries = [
        Entry("confluent consume", "confluent consume", small),
        Entry("oncelog poll", "oncelog poll", small),
        Entry("confluent poll", "confluent poll", small),
        Entry("oncelog iterate", "oncelog iterate", small),
        Entry("oncelog table", "oncelog table", long),
        Entry("aiokafka iterate", "aiokafka iterate", short),
        Entry("oncelog async iterate", "oncelog async iterate", small),
    ]
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            produce_small(broker.bootstrap, TOPIC, LONG * scale.small_records, b"v" * 100)
        results = hold(scale.rounds, brokers, entries, progress)
    return figures(results, COMPARED)
