"""Start to "ready": from the start of the process until the broker answers, on an empty data folder it already made."""

from __future__ import annotations

import time

from bench.figures import Figure, Progress, Recorder, at_most, turns
from bench.peers import fresh
from bench.scale import Scale

WHAT = "start to ready"


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    with fresh("kafka") as kafka, fresh("oncelog") as oncelog:
        brokers = {"kafka": kafka, "oncelog": oncelog}
        for broker in brokers.values():
            # The first start formats Kafka's folder and fills the page cache with either broker's code.
            broker.start()
            broker.stop()
        for kind in turns(scale.start_rounds):
            begun = time.perf_counter()
            brokers[kind].start()
            elapsed_ms = (time.perf_counter() - begun) * 1_000
            brokers[kind].stop()
            recorder.add(WHAT, kind, elapsed_ms)
            progress(f"{WHAT}: {kind} {elapsed_ms:,.0f} ms")
    return [recorder.figure(WHAT, "ms", at_most(0.15, 0.1))]
