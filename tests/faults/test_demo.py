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

from oncelog.audit.account import Audit, AuditReport, Ledger
from oncelog.audit.ids import RecordId
from oncelog.cli import demo
from oncelog.types import TopicPartition

COMMAND = [sys.executable, "-m", "oncelog", "demo"]


def test_survives_its_faults() -> None:
    command = [*COMMAND, "--records", "20000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("kill -9 number") == 3
    assert "20,000 of 20,000 acknowledged" in done.stderr
    audit = json.loads(done.stdout)
    assert audit["clean"]
    assert audit["kills"] == 3
    assert audit["answers_lost"] > 0
    assert audit["duplicates_recognised"] > 0, "no fault made the producer send anything twice"
    assert (audit["total"]["sent"], audit["total"]["stored"]) == (20_000, 20_000)
    assert audit["without_idempotence"]["duplicated"] > 0
    assert audit["without_idempotence"]["sent"] == 20_000


def audit_of(*numbers: int) -> AuditReport:
    """Of three records that were sent and acknowledged, and stored as the numbers say."""
    ledger = Ledger()
    audit = Audit(ledger)
    for number in range(3):
        ledger.sent(RecordId("demo/demo-0", number), TopicPartition("demo", 0))
        ledger.acknowledged(RecordId("demo/demo-0", number), TopicPartition("demo", 0))
    for offset, number in enumerate(numbers):
        audit.observe(TopicPartition("demo", 0), offset, RecordId("demo/demo-0", number))
    return audit.report()


CLEAN, DOUBLED, TURNED_ROUND = audit_of(0, 1, 2), audit_of(0, 1, 1, 2), audit_of(1, 0, 2)


@pytest.mark.parametrize("plain", [DOUBLED, TURNED_ROUND], ids=["doubled", "reordered"])
def test_a_good_end(capsys: pytest.CaptureFixture[str], plain: AuditReport) -> None:
    """What people see, without the half minute before it."""
    assert demo.conclude(CLEAN, plain, demo.Tally(kills=3, duplicates_recognised=7), as_json=False) == 0
    said = capsys.readouterr().out
    assert "7 duplicate batches recognised" in said
    assert said.splitlines()[-1] == "lost 0, duplicated 0, out of order 0"


@pytest.mark.parametrize(
    ("report", "plain", "tally", "word"),
    [
        (DOUBLED, DOUBLED, demo.Tally(), "lost 0, duplicated 1, out of order 0"),
        (audit_of(0, 1), DOUBLED, demo.Tally(), "lost 1, duplicated 0, out of order 0"),
        (CLEAN, DOUBLED, demo.Tally(failures=["demo/demo-0/1: timed out"]), "1 records could not be sent"),
        (CLEAN, CLEAN, demo.Tally(), "this run proves nothing"),
    ],
    ids=["doubled", "lost", "not sent", "harmless faults"],
)
def test_a_bad_end(
    capsys: pytest.CaptureFixture[str], report: AuditReport, plain: AuditReport, tally: demo.Tally, word: str
) -> None:
    assert demo.conclude(report, plain, tally, as_json=False) == 1
    assert word in capsys.readouterr().out


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert "broker ready" in process.stdout.readline()
    assert len(list(tmp_path.iterdir())) == 1
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.strip() == "interrupted; the broker is stopped and its data removed"
    assert list(tmp_path.iterdir()) == []
