"""`send()` with and without a callback, and `send_table`, against confluent-kafka: 100 B records, idempotent."""

from __future__ import annotations

from bench.clients import create_topic
from bench.contest import Comparison, Entry, figures, hold, warm_up
from bench.figures import Figure, Progress, at_least
from bench.peers import both_running
from bench.producers import Job
from bench.scale import Scale

TOPIC, PARTITIONS, PEER = "send", 4, "confluent-kafka"
WARM_UPS = 15
PROGRAMS = ("confluent callbacks", "oncelog callbacks", "confluent plain", "oncelog plain", "oncelog table")

COMPARED = [
    Comparison(
        "send() with a callback, 100 B",
        "records/s",
        theirs="confluent callbacks",
        ours="oncelog callbacks",
        peer=PEER,
        bounds=at_least(1.5, 2.5),
    ),
    Comparison(
        "send() without callback, 100 B",
        "records/s",
        theirs="confluent plain",
        ours="oncelog plain",
        peer=PEER,
        bounds=at_least(1.2, 2.0),
    ),
    Comparison(
        "send_table, 100 B",
        "records/s",
        theirs="confluent callbacks",
        ours="oncelog table",
        peer=PEER,
        bounds=at_least(4.0, 8.0),
        note="confluent-kafka with a callback for every record",
    ),
]


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    job = Job("", TOPIC, scale.small_records)
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        warm_up(WARM_UPS, brokers, Entry("warm-up", "oncelog plain", job))
        results = hold(scale.rounds, brokers, [Entry(name, name, job) for name in PROGRAMS], progress)
    return figures(results, COMPARED)
