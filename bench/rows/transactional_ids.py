"""Many transactional ids: what 1,000 open transactions cost, and a restart with 100,000 ids in the log."""

from __future__ import annotations

import time

from bench.clients import create_topic
from bench.figures import KINDS, Figure, Progress, Recorder, at_most, turns
from bench.peers import resident_mb, running
from bench.scale import Scale
from bench.transactors import await_all_known, initialise, open_transactions

MEMORY, INIT = "memory with 1,000 open transactions", "InitProducerId, each of 1,000 new ids"
RESTART = "ready after kill -9 with 100,000 transactional ids"
TOPIC = "ids"


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    recorder = Recorder()
    for kind in KINDS:
        with running(kind) as broker:
            create_topic(broker.bootstrap, TOPIC, 1)
            initialise(broker.address, 1)
            begun = time.perf_counter()
            producers = initialise(broker.address, scale.open_transactions)
            recorder.add(INIT, kind, (time.perf_counter() - begun) * 1_000 / scale.open_transactions)
            open_transactions(broker.address, producers, TOPIC)
            time.sleep(scale.settle_s)
            recorder.add(MEMORY, kind, resident_mb(broker))
        progress(f"{MEMORY}: {kind} {recorder.samples[MEMORY][kind]}; {INIT}: {recorder.samples[INIT][kind]}")
    for kind in turns(scale.recovery_rounds):
        with running(kind) as broker:
            initialise(broker.address, scale.transactional_ids)
            broker.kill()
            begun = time.perf_counter()
            broker.start()
            await_all_known(broker.address, scale.transactional_ids)
            elapsed_ms = (time.perf_counter() - begun) * 1_000
        recorder.add(RESTART, kind, elapsed_ms)
        progress(f"{RESTART}: {kind} {elapsed_ms:,.0f} ms")
    return [
        recorder.figure(MEMORY, "MB", at_most(0.5)),
        recorder.figure(INIT, "ms", None, "pipelined on one connection"),
        recorder.figure(RESTART, "ms", at_most(1.0, 0.3), "until every id can be described"),
    ]
