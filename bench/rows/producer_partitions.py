"""What many partitions cost: the same keyed records to 1,000 partitions and to 10, by the time until all are stored."""

from __future__ import annotations

from bench.clients import create_topic
from bench.contest import Entry, hold, warm_up
from bench.figures import KINDS, NAMES, OURS, Figure, Progress, at_most
from bench.peers import both_running
from bench.producers import Job
from bench.scale import Scale

FEW = 10
PROGRAM = "oncelog plain"
LONG = 4
"""What many partitions cost at the beginning and the end is little of this, and it is long enough to be measured."""
WARM_UPS = 15
"""What a Kafka that has just started does for the first requests of 1,000 partitions is no cost of the producer."""


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    few, many = f"{FEW} partitions", f"{scale.partitions:,} partitions"
    topics = {few: ("few", FEW), many: ("many", scale.partitions)}
    count = LONG * scale.small_records
    entries = [Entry(name, PROGRAM, Job("", topic, count, keyed=True)) for name, (topic, _) in topics.items()]
    with both_running() as brokers:
        for broker in brokers.values():
            for topic, partitions in topics.values():
                create_topic(broker.bootstrap, topic, partitions)
        for entry in entries:
            warm_up(WARM_UPS, brokers, entry)
        results = hold(scale.rounds, brokers, entries, progress)
    made = []
    for kind in KINDS:
        seconds = {name: [count / result["rate"] for result in results[kind, name]] for name in topics}
        samples = {few: seconds[few], OURS: seconds[many]}
        what = f"producer, {count:,} keyed records to {many}, on {NAMES[kind]}"
        made.append(Figure(what, "s", samples, at_most(1.5, 1.1), peer=few))
    return made
