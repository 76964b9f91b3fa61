"""How long one request of somebody else waits at most while a topic with thousands of partitions is created.

The other one is a process of its own that asks for Metadata of a small topic every 2 ms by a raw socket. Nothing is
subtracted: what the machine itself makes it wait is in it."""

from __future__ import annotations

from bench.clients import create_topic
from bench.figures import OURS, Figure, Progress, at_most
from bench.growth import FILES
from bench.peers import running
from bench.rows.crowd import allow_open_files
from bench.scale import Scale
from tests.hostile.victim import victim

PEER, ALLOWED_MS = "what is allowed", 20.0


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    partitions = scale.growing_partitions
    allow_open_files(FILES * partitions + 1_000)
    what = f"longest wait of another client while {partitions:,} partitions are created"
    longest_ms = []
    for _ in range(scale.rounds):
        with running(OURS) as broker:
            create_topic(broker.bootstrap, "ordinary", 1)
            with victim(broker.address, "ordinary") as answers_ms:
                create_topic(broker.bootstrap, "large", partitions)
            longest_ms.append(max(answers_ms))
            progress(f"{what}: {longest_ms[-1]:.1f} ms, the longest of {len(answers_ms)}")
    return [Figure(what, "ms", {PEER: [ALLOWED_MS], OURS: longest_ms}, at_most(1.0), peer=PEER)]
