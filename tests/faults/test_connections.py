"""Connections cut under load, at the worst moment: the records are stored, the answer never arrives."""

from __future__ import annotations

import random
import time
from pathlib import Path

from oncelog.audit.proxy import FaultProxy
from tests.faults.metrics import duplicates_recognised
from tests.faults.scene import Scene, no_acknowledged_record_is_lost_doubled_or_misplaced, unused_port

CUTS = 30


def test_cut_connections(tmp_path: Path, rng: random.Random) -> None:
    metrics_port = unused_port()
    with FaultProxy() as proxy:
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


def test_cut_connections_and_kills_together(tmp_path: Path, rng: random.Random) -> None:
    with FaultProxy() as proxy:
        scene = Scene(tmp_path, advertise=proxy.bootstrap_servers)
        proxy.upstream = (scene.broker.host, scene.broker.port)
        with scene:
            for _ in range(10):
                scene.await_progress()
                # Stored, unanswered, and then the broker that knew of it is gone.
                proxy.swallow_answers()
                time.sleep(rng.uniform(0.01, 0.1))
                scene.crash()
                proxy.cut()
                scene.broker.start()
            no_acknowledged_record_is_lost_doubled_or_misplaced(scene)
