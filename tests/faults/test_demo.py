"""`oncelog demo`, small: what it prints, what it returns, and that Ctrl-C leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "oncelog", "demo"]


def test_ends_with_a_clean_audit() -> None:
    done = subprocess.run([*COMMAND, "--records", "20000"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kill -9 number") == 3
    assert "3 times kill -9, connections cut 15 times" in done.stdout
    assert "lost 0, duplicated 0, out of order 0" in done.stdout
    assert done.stderr == ""


def test_counts_as_json() -> None:
    command = [*COMMAND, "--records", "10000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    audit = json.loads(done.stdout)
    assert audit["clean"]
    assert audit["kills"] == 3
    assert audit["duplicates_recognised"] > 0, "no fault made the client send anything twice"
    assert (audit["total"]["sent"], audit["total"]["stored"]) == (10_000, 10_000)


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert demo.stdout is not None
    assert "broker ready" in demo.stdout.readline()
    assert len(list(tmp_path.iterdir())) == 1
    time.sleep(0.5)
    demo.send_signal(signal.SIGINT)
    _, said = demo.communicate(timeout=30)
    assert demo.returncode == 130
    assert said.strip() == "interrupted; the broker is stopped and its data removed"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "oncelog: confluent-kafka is needed to send the records: pip install confluent-kafka"
    )
