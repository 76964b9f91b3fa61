"""Memory of a consumer that falls behind: 1,000 B records wait in many partitions, and it reads almost none."""

from __future__ import annotations

from bench.clients import create_topic, producer_performance
from bench.consumers import Job
from bench.contest import Entry, hold
from bench.figures import KINDS, NAMES, OURS, Figure, Progress, at_most
from bench.peers import both_running
from bench.scale import Scale

TOPIC, PARTITIONS = "behind", 20
PROGRAM = "oncelog behind"
QUEUE_BYTES = 32 * 1024 * 1024
BOUND, BOUND_MB = "fetch.queue.max.bytes + 60 MB", QUEUE_BYTES / 1e6 + 60.0


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    count = scale.large_records // 4
    entry = Entry(PROGRAM, PROGRAM, Job("", TOPIC, PARTITIONS, count, queue_bytes=QUEUE_BYTES))
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            producer_performance(broker.bootstrap, TOPIC, count, 1_000)
        results = hold(min(scale.rounds, 3), brokers, [entry], progress)
    made = []
    for kind in KINDS:
        growth = [result["growth_mb"] for result in results[kind, PROGRAM]]
        samples = {BOUND: [BOUND_MB] * len(growth), OURS: growth}
        what = f"memory of a consumer that falls behind, on {NAMES[kind]}"
        made.append(Figure(what, "MB", samples, at_most(1.0), "growth at its highest", BOUND))
    return made
