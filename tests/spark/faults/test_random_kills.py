"""A stream under kills at random moments: drivers, their JVMs, Python's daemons and workers, and the broker.

`make faults` runs it at full size. A failure prints its seed, which repeats who is killed and how long each may live;
what they are doing then is up to the machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.support.rig import Rig
from tests.support.broker import OncelogBroker
from tests.support.kafka import KafkaBroker
from tests.support.process import BrokerProcess
from tests.support.sizes import long_at_full_size, only_at_full_size

KILLS = 120
ROWS = 200
MAX_LIFE_S = 4.0
"""Of a victim, after the query was seen to run."""
VICTIMS = ("worker", "worker", "worker", "broker", "jvm", "driver")
BROKERS: dict[str, type[OncelogBroker] | type[KafkaBroker]] = {"oncelog": OncelogBroker, "kafka": KafkaBroker}


@pytest.fixture
def mortal(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    kind = (request.config.getoption("--brokers") or "oncelog").split(",")[0]
    with BROKERS[kind](tmp_path / "broker", {"log.retention.ms": "-1"}) as broker:
        yield broker


class Scene:
    """A query that runs again whenever it failed, in a driver that is replaced when it was killed."""

    def __init__(self, rig: Rig, broker: BrokerProcess, chance: random.Random) -> None:
        self.rig = rig
        self.broker = broker
        self.chance = chance
        self.kills: Counter[str] = Counter()
        self.restarts = 0
        self.driver = rig.driver()

    def keep_running(self) -> None:
        if not self.driver.is_running():
            self.restarts += 1
            slots = self.chance.choice([None, {"by_key": 3}, {"by_key": 1}])
            self.driver.run(self.rig.plan(slots=slots, every="0 seconds"))

    def kill(self, victim: str) -> None:
        self.kills[victim] += 1
        if victim == "broker":
            self.broker.kill()
            self.broker.start()
        elif victim == "worker":
            workers = self.driver.workers()
            if workers:
                self._kill(self.chance.choice(workers))
        else:
            if victim == "jvm":  # its Python workers see that, and go, in their own time
                for pid in self.driver.workers("java"):
                    self._kill(pid)
                time.sleep(self.chance.random())
            self.driver.kill()
            self.driver = self.rig.driver()

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it went by itself meanwhile
            os.kill(pid, signal.SIGKILL)

    def finish(self) -> None:
        """All that is left comes out."""
        self.driver.stop_query()
        self.rig.run_to_the_end(self.driver)


@long_at_full_size
@only_at_full_size("a dozen seconds for each kill; the other files kill at every named moment")
def test_whoever_is_killed_whenever_rows_come_out_once(mortal: BrokerProcess, tmp_path: Path) -> None:
    seed = int(os.environ.get("ONCELOG_SEED", random.SystemRandom().getrandbits(32)))
    print(f"ONCELOG_SEED={seed}")
    chance = random.Random(seed)
    victims: list[str] = []
    with Rig(mortal, tmp_path, "random") as rig:
        scene = Scene(rig, mortal, chance)
        for _ in range(KILLS):
            rig.feed(ROWS)
            scene.keep_running()
            time.sleep(chance.random() * MAX_LIFE_S)
            victims = victims or chance.sample(VICTIMS, len(VICTIMS))
            scene.kill(victims.pop())
        rig.feed(ROWS)
        scene.keep_running()
        scene.finish()
        print(f"killed: {dict(scene.kills)}; the query was started {scene.restarts} times")
        rig.check()
