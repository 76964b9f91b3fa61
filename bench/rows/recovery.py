"""Ready after kill -9 with 2 GB in 20 partitions: from the start of the process until every partition answers."""

from __future__ import annotations

import time

from bench.clients import await_partitions, create_topic, producer_performance
from bench.figures import Figure, Progress, Recorder, at_most, turns
from bench.peers import running
from bench.scale import Scale

WHAT = "ready after kill -9 with 2 GB in 20 partitions"
TOPIC, PARTITIONS, RECORD_BYTES = "recovery", 20, 1_000


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    for kind in turns(scale.recovery_rounds):
        # A new log each time: once recovered, a log has less left to check after the next crash.
        with running(kind) as broker:
            create_topic(broker.bootstrap, TOPIC, PARTITIONS)
            producer_performance(broker.bootstrap, TOPIC, scale.recovery_records, RECORD_BYTES)
            broker.kill()
            begun = time.perf_counter()
            broker.start()
            stored = await_partitions(broker.bootstrap, TOPIC, PARTITIONS)
            elapsed_ms = (time.perf_counter() - begun) * 1_000
            assert stored == scale.recovery_records, f"{kind} holds {stored} of {scale.recovery_records} records"
        recorder.add(WHAT, kind, elapsed_ms)
        progress(f"{WHAT}: {kind} {elapsed_ms:,.0f} ms")
    return [recorder.figure(WHAT, "ms", at_most(1.0, 0.2))]
