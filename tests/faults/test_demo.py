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

from oncelog.audit.account import Audit, Ledger
from oncelog.audit.ids import RecordId
from oncelog.cli import demo
from oncelog.types import TopicPartition

COMMAND = [sys.executable, "-m", "oncelog", "demo"]


def test_survives_its_faults() -> None:
    command = [*COMMAND, "--records", "20000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("kill -9 number") == 3
    assert "20,000 of 20,000 acknowledged" in done.stderr
    audit = json.loads(done.stdout)
    assert audit["clean"]
    assert audit["kills"] == 3
    assert audit["cuts"] > 5
    assert audit["duplicates_recognised"] > 0, "no fault made the client send anything twice"
    assert (audit["total"]["sent"], audit["total"]["stored"]) == (20_000, 20_000)


def test_the_table_and_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """What people see, of a good end and of a bad one, without the minute in between."""
    ledger = Ledger()
    audit = Audit(ledger)
    for number in range(3):
        ledger.sent(RecordId("demo/demo-0", number), TopicPartition("demo", 0))
        ledger.acknowledged(RecordId("demo/demo-0", number), TopicPartition("demo", 0))
        audit.observe(TopicPartition("demo", 0), number, RecordId("demo/demo-0", number))
    assert demo.conclude(audit.report(), demo.Tally(kills=3, cuts=15, duplicates_recognised=7), as_json=False) == 0
    said = capsys.readouterr().out
    assert "7 duplicate batches recognised" in said
    assert "lost 0, duplicated 0, out of order 0" in said

    audit.observe(TopicPartition("demo", 0), 3, RecordId("demo/demo-0", 1))
    assert demo.conclude(audit.report(), demo.Tally(), as_json=False) == 1
    assert "lost 0, duplicated 1, out of order 0" in capsys.readouterr().out
    assert demo.conclude(Audit().report(), demo.Tally(failures=["demo/demo-0/1: timed out"]), as_json=False) == 1


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert "broker ready" in process.stdout.readline()
    assert len(list(tmp_path.iterdir())) == 1
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
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
