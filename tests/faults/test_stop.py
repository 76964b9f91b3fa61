"""Clean stops under load, and a data folder that only one broker may open."""

from __future__ import annotations

import fcntl
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.scene import Scene, no_acknowledged_record_is_lost_doubled_or_misplaced

STOPS = 8


def test_clean_stops_under_load(tmp_path: Path, rng: random.Random) -> None:
    with Scene(tmp_path) as scene:
        for _ in range(STOPS):
            scene.await_progress()
            time.sleep(rng.uniform(0, 0.2))
            assert scene.broker.stop() == 0
            scene.broker.start()
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)


def refused_start(data_dir: Path) -> None:
    command = [sys.executable, "-m", "oncelog", "broker", "--data", str(data_dir), "--listen", "127.0.0.1:0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 1
    assert second.stdout == ""
    assert str(data_dir) in second.stderr
    assert "Traceback" not in second.stderr


def test_a_second_broker_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        refused_start(scene.data_dir)
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)


def test_a_folder_that_apache_kafka_has_open_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / ".lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # what Java's FileChannel.lock does
        refused_start(tmp_path)


def test_the_lock_dies_with_its_broker(tmp_path: Path) -> None:
    with Scene(tmp_path) as scene:
        scene.crash()
        scene.broker.start()
        scene.await_progress()
