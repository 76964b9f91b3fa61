"""One synchronous send, every record awaited before the next, against confluent-kafka: 100 B, linger 0, idempotent."""

from __future__ import annotations

from bench.clients import create_topic
from bench.contest import Comparison, Entry, figures, hold
from bench.figures import Figure, Progress, at_most
from bench.peers import both_running
from bench.producers import Job
from bench.scale import Scale

TOPIC, PEER = "synchronous", "confluent-kafka"
THEIRS, OURS = "confluent synchronous", "oncelog synchronous"

COMPARED = [
    Comparison("producer, one synchronous send, p50", "ms", THEIRS, OURS, PEER, at_most(1.0, 0.7), "p50"),
    Comparison("producer, one synchronous send, p99", "ms", THEIRS, OURS, PEER, None, "p99"),
]


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    job = Job("", TOPIC, scale.synchronous_sends, linger_ms=0)
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, 1)
            Job(broker.bootstrap, TOPIC, scale.synchronous_sends // 2, linger_ms=0).measured(THEIRS)
        results = hold(scale.rounds, brokers, [Entry(name, name, job) for name in (THEIRS, OURS)], progress)
    return figures(results, COMPARED)
