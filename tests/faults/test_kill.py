"""kill -9 under load, again and again, with and without damage to what a crash may damage."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import vandal
from tests.faults.scene import Scene, no_acknowledged_record_is_lost_doubled_or_misplaced
from tests.support.sizes import IS_SOAK

KILLS = 120 if IS_SOAK else 20
KILLS_PER_DAMAGE = 4 if IS_SOAK else 1
MAX_LIFE_S = 0.15


def live_and_crash(scene: Scene, rng: random.Random) -> None:
    scene.await_progress()
    time.sleep(rng.uniform(0, MAX_LIFE_S))
    scene.crash()


@pytest.mark.timeout(600)
def test_many_kills(tmp_path: Path, rng: random.Random) -> None:
    # Slowly: the longer the starts take, the more there is to audit in the end.
    with Scene(tmp_path, records_per_second=1_000) as scene:
        for _ in range(KILLS):
            live_and_crash(scene, rng)
            scene.broker.start()
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)


@pytest.mark.parametrize("damage", vandal.HARMLESS_DAMAGE, ids=lambda damage: damage.__name__)
def test_kills_with_damage_in_between(
    tmp_path: Path, rng: random.Random, damage: Callable[[Path, random.Random], list[Path]]
) -> None:
    with Scene(tmp_path, records_per_second=10_000, record_bytes=1_000) as scene:
        # Some segments are rolled first: only then are there snapshots to damage.
        scene.await_progress(6_000)
        damaged: list[Path] = []
        for _ in range(KILLS_PER_DAMAGE):
            live_and_crash(scene, rng)
            damaged += damage(scene.data_dir, rng)
            scene.broker.start()
        assert damaged, "nothing was damaged: the test proves nothing"
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)


def test_a_kill_during_recovery(tmp_path: Path, rng: random.Random) -> None:
    with Scene(tmp_path) as scene:
        for _ in range(5):
            live_and_crash(scene, rng)
            for _ in range(3):
                scene.start_and_crash_within(rng.uniform(0.02, 0.25))
            scene.broker.start()
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)
