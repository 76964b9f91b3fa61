"""`AsyncProducer` against aiokafka: 100 B records, idempotent, awaited in groups of 1,000.

Linger is 0 for both: a group is over only when its last record is acknowledged, so lingering would be all one sees.
"""

from __future__ import annotations

from bench.clients import create_topic
from bench.contest import Comparison, Entry, figures, hold, warm_up
from bench.figures import Figure, Progress, at_least
from bench.peers import both_running
from bench.producers import Job
from bench.scale import Scale

TOPIC, PARTITIONS = "async", 4
WARM_UPS = 60
ROUNDS = 2
"""For each of the others': a job takes half a second, in which this or that wakes up late."""
THEIRS, OURS = "aiokafka groups", "oncelog groups"
WHAT = "AsyncProducer, 100 B, awaited in groups of 1,000"


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    job = Job("", TOPIC, scale.async_records, linger_ms=0)
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        warm_up(WARM_UPS, brokers, Entry(OURS, OURS, job))
        results = hold(ROUNDS * scale.rounds, brokers, [Entry(name, name, job) for name in (THEIRS, OURS)], progress)
    return figures(results, [Comparison(WHAT, "records/s", THEIRS, OURS, "aiokafka", at_least(8.0, 15.0))])
