"""Memory while a broker backs up: it is stopped, and 100 B records with callbacks are sent until the buffer is full."""

from __future__ import annotations

from bench.clients import create_topic
from bench.contest import Entry, hold
from bench.figures import KINDS, NAMES, OURS, Figure, Progress, at_most
from bench.peers import both_running
from bench.producers import BUFFER_MEMORY_BYTES, Job
from bench.scale import Scale

TOPIC, PARTITIONS = "backlog", 4
PROGRAM = "oncelog backlog"
BOUND, BOUND_MB = "buffer.memory + 60 MB", BUFFER_MEMORY_BYTES / 1e6 + 60.0


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    entry = Entry(PROGRAM, PROGRAM, Job("", TOPIC, scale.backlog_records))
    with both_running() as brokers:
        for broker in brokers.values():
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        results = hold(scale.rounds, brokers, [entry], progress)
    made = []
    for kind in KINDS:
        growth = [result["growth_mb"] for result in results[kind, PROGRAM]]
        samples = {BOUND: [BOUND_MB] * len(growth), OURS: growth}
        what = f"memory while the broker is stopped, on {NAMES[kind]}"
        made.append(Figure(what, "MB", samples, at_most(1.0), "growth until the buffer is full", BOUND))
    return made
