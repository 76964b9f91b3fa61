"""What a consumer of thousands of partitions takes of its processor until it has the first record of each of them,
against confluent-kafka's, on our broker."""

from __future__ import annotations

from bench.consumers import Job
from bench.figures import OURS, Figure, Progress, at_most
from bench.growth import RECORDS, TOPIC, filled
from bench.scale import Scale

PEER = "confluent-kafka"
PROGRAMS = {PEER: "confluent first of each", OURS: "oncelog first of each"}


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    partitions = scale.growing_partitions
    what = f"processor time of a consumer until it has read from each of {partitions:,} partitions"
    samples: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with filled(partitions) as broker:
        job = Job(broker.bootstrap, TOPIC, partitions, partitions * RECORDS)
        for turn in range(scale.rounds):
            for name in PROGRAMS if turn % 2 == 0 else reversed(PROGRAMS):
                result = job.measured(PROGRAMS[name])
                samples[name].append(result["cpu_s"])
                progress(f"{what}: {name} {result['cpu_s']:.2f} s, in {result['elapsed_s']:.2f} s")
    return [Figure(what, "s", samples, at_most(1.5), peer=PEER)]
