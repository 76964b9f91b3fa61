"""Connections cut under load, at the worst moment: the records are stored, the answer never arrives."""

from __future__ import annotations

import random
import time
from pathlib import Path

from oncelog.faults import Rule
from tests.faults.metrics import duplicates_recognised
from tests.faults.scene import PROGRESS_TIMEOUT_S, Scene, no_acknowledged_record_is_lost_doubled_or_misplaced
from tests.support.ports import unused_port

CUTS = 30
KILLS = 10
MAX_KILLS = 50
"""A broker that is killed at a bad moment did not store anything: most moments are good."""
UNHEARD = Rule.drop_response("Produce", every=15, cut_after_ms=(10, 100))
"""From now and then an answer on, requests are carried out and nobody hears of it, until the connection is cut."""


def answers_dropped(scene: Scene) -> int:
    return scene.proxy.report().responses["Produce"].dropped


def await_dropped_answer(scene: Scene) -> None:
    before = answers_dropped(scene)
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while answers_dropped(scene) == before:
        assert time.monotonic() < deadline, scene.proxy.report()
        time.sleep(0.001)


def test_cut_connections(tmp_path: Path, rng: random.Random) -> None:
    metrics_port = unused_port()
    config = {"metrics.port": metrics_port}
    with Scene(tmp_path, config=config, rules=[UNHEARD], seed=rng.getrandbits(32)) as scene:
        for _ in range(CUTS):
            scene.await_progress()
            if rng.random() < 0.7:
                await_dropped_answer(scene)
            else:
                scene.proxy.cut()
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)
        assert duplicates_recognised(metrics_port) > 0, "no cut made the client send anything twice"


def test_what_was_stored_before_a_kill_is_recognised_after_it(tmp_path: Path, rng: random.Random) -> None:
    """Stored, unanswered, and then the broker that knew of it is gone: only what it left on disk can tell."""
    metrics_port = unused_port()
    recognised = 0
    config = {"metrics.port": metrics_port}
    with Scene(tmp_path, config=config, rules=[UNHEARD], seed=rng.getrandbits(32)) as scene:
        for kills in range(MAX_KILLS):
            if kills >= KILLS and recognised:
                break
            scene.await_progress()
            await_dropped_answer(scene)
            scene.crash()
            scene.broker.start()
            scene.await_progress()
            recognised += duplicates_recognised(metrics_port)  # by this broker: the one before took its count along
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)
    assert recognised > 0, "no kill made the client send anything twice"
