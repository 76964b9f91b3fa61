"""How long somebody else waits for Metadata while the broker is under attack: the p99 for each attack of the tests."""

from __future__ import annotations

from bench.figures import OURS, Figure, Progress, at_most, percentile
from bench.peers import fresh
from bench.scale import Scale
from tests.hostile.attacks import ATTACKS, prepare
from tests.hostile.victim import victim
from tests.support.process import BrokerProcess

PEER = "what is allowed"
ALLOWED_MS = 100.0


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    return [_under(name, scale.attack_rounds, progress) for name in ATTACKS]


def _under(name: str, rounds: int, progress: Progress) -> Figure:
    waits_ms = []
    for _ in range(rounds):
        with fresh(OURS) as broker:
            broker.config["metrics.port"] = "0"
            broker.start()
            waits_ms.append(_p99_ms(name, broker))
    what = f"Metadata, p99, under attack: {name.replace('_', ' ')}"
    progress(f"{what} {waits_ms} ms")
    return Figure(what, "ms", {PEER: [ALLOWED_MS], OURS: waits_ms}, at_most(1.0, 0.5), peer=PEER)


def _p99_ms(name: str, broker: BrokerProcess) -> float:
    prepare(broker)
    with victim(broker.address, "ordinary") as answers_ms:
        ATTACKS[name](broker)
    return percentile(answers_ms, 0.99)
