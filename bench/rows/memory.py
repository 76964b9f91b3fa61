"""Memory: resident bytes of the broker's processes when idle, and after 1 GB was written and read."""

from __future__ import annotations

import time

from bench.clients import create_topic, java_consumer, producer_performance
from bench.figures import KINDS, Figure, Progress, Recorder, at_most
from bench.peers import resident_mb, running
from bench.scale import Scale

IDLE, LOADED = "memory idle", "memory after 1 GB written and read"
TOPIC, PARTITIONS, RECORD_BYTES = "memory", 4, 1_000


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    for kind in KINDS:
        with running(kind) as broker:
            time.sleep(scale.settle_s)
            recorder.add(IDLE, kind, resident_mb(broker))
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            producer_performance(broker.bootstrap, TOPIC, scale.memory_load_records, RECORD_BYTES)
            java_consumer(broker.bootstrap, TOPIC, scale.memory_load_records, groups=False)
            time.sleep(scale.settle_s)
            recorder.add(LOADED, kind, resident_mb(broker))
        progress(f"memory: {kind} {recorder.samples[IDLE][kind][0]:.0f} MB, {recorder.samples[LOADED][kind][0]:.0f} MB")
    return [recorder.figure(IDLE, "MB", at_most(0.25, 0.15)), recorder.figure(LOADED, "MB", at_most(0.2, 0.15))]
