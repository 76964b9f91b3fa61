"""The broker's wall clock jumps, forwards and backwards, while it runs and between runs."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.faults.scene import Scene, no_acknowledged_record_is_lost_doubled_or_misplaced

JUMPS = 8
MAX_JUMP_S = 20 * 3600
"""Below producer.id.expiration.ms (24 h): a broker that believes a producer to be gone for a day forgets it."""


def test_clock_jumps(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    offset_file = tmp_path / "clock-offset"
    monkeypatch.setenv("CLOCK_OFFSET_FILE", str(offset_file))
    clock = str(Path(__file__).parent / "jumping_clock")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [clock, os.environ.get("PYTHONPATH")])))
    # Otherwise records from a client whose clock is right are refused, rightly, as coming from the future.
    config = {"log.message.timestamp.after.max.ms": 2 * MAX_JUMP_S * 1_000}
    with Scene(tmp_path, config=config) as scene:
        for _ in range(JUMPS):
            offset_file.write_text(str(rng.randint(-MAX_JUMP_S, MAX_JUMP_S)))
            scene.await_progress()
            time.sleep(rng.uniform(0, 0.2))
            if rng.random() < 0.5:
                scene.crash()
                scene.broker.start()
        no_acknowledged_record_is_lost_doubled_or_misplaced(scene)
