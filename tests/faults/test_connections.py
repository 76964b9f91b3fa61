"""Connections cut under load, at the worst moment: the records are stored, the answer never arrives."""

from __future__ import annotations

import random
import time
from pathlib import Path

from oncelog.audit.ports import unused_port
from oncelog.audit.proxy import CuttingProxy
from tests.faults.metrics import duplicates_recognised
from tests.faults.scene import Scene, no_acknowledged_record_is_lost_doubled_or_misplaced

CUTS = 30
KILLS = 10


def test_cut_connections(tmp_path: Path, rng: random.Random) -> None:
    metrics_port = unused_port()
    with CuttingProxy() as proxy:
        scene = Scene(tmp_path, config={"metrics.port": metrics_port}, advertise=proxy.bootstrap_servers)
        proxy.upstream = (scene.broker.host, scene.broker.port)
        with scene:
            for _ in range(CUTS):
                scene.await_progress()
                time.sleep(rng.uniform(0, 0.1))
                if rng.random() < 0.7:
                    proxy.swallow_answers()
                    time.sleep(rng.uniform(0.01, 0.1))
                proxy.cut()
            no_acknowledged_record_is_lost_doubled_or_misplaced(scene)
            assert duplicates_recognised(metrics_port) > 0, "no cut made the client send anything twice"


def test_what_was_stored_before_a_kill_is_recognised_after_it(tmp_path: Path, rng: random.Random) -> None:
    """Stored, unanswered, and then the broker that knew of it is gone: only what it left on disk can tell."""
    metrics_port = unused_port()
    recognised = 0
    with CuttingProxy() as proxy:
        scene = Scene(tmp_path, config={"metrics.port": metrics_port}, advertise=proxy.bootstrap_servers)
        proxy.upstream = (scene.broker.host, scene.broker.port)
        with scene:
            for _ in range(KILLS):
                scene.await_progress()
                recognised += duplicates_recognised(metrics_port)
                proxy.swallow_answers()
                time.sleep(rng.uniform(0.01, 0.1))
                scene.crash()
                proxy.cut()
                scene.broker.start()
            no_acknowledged_record_is_lost_doubled_or_misplaced(scene)
            recognised += duplicates_recognised(metrics_port)
    assert recognised > 0, "no kill made the client send anything twice"
