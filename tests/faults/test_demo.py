"""`oncelog demo`, small: what it prints, reports and returns, and that Ctrl-C leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from oncelog.audit.account import Audit, AuditReport, Ledger
from oncelog.audit.ids import RecordId
from oncelog.broker.process import Broker
from oncelog.cli import demo
from oncelog.cli.demo_crew import MemberFailed
from oncelog.cli.demo_member import Way
from oncelog.cli.demo_members import Members
from oncelog.cli.demo_outcome import Evidence, Shipped, Tally
from oncelog.types import TopicPartition
from tests.support import spark
from tests.support.patience import eventually

RECORDS = 4_000
COMMAND = [sys.executable, "-m", "oncelog", "demo"]


def test_survives_its_faults(tmp_path: Path) -> None:
    command = [*COMMAND, "--records", str(RECORDS), "--json", "--report", str(tmp_path / "report")]
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": spark.shared_classes()}  # two drivers start: let it be soon
    done = subprocess.run(command, capture_output=True, text=True, timeout=480, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{RECORDS:,} of {RECORDS:,} acknowledged" in done.stderr
    assert f"{RECORDS:,} of {RECORDS:,} sent" in done.stderr
    audit = json.loads(done.stdout)
    assert audit["clean"]
    assert (audit["kills"], audit["processor_kills"], audit["member_kills"]) == (4, 4, 6)
    assert (audit["driver_kills"], audit["worker_kills"]) == (1, 2)
    assert audit["answers_lost"] > 0
    assert audit["duplicates_recognised"] > 0, "no fault made the producer send anything twice"
    assert (audit["total"]["sent"], audit["total"]["stored"]) == (RECORDS, RECORDS)
    assert (audit["processed"]["sent"], audit["processed"]["processed"]) == (RECORDS, RECORDS)
    assert audit["processed_read_uncommitted"]["duplicated"] > 0, "no kill left an open transaction behind"
    assert (audit["booked"]["sent"], audit["booked"]["booked"]) == (RECORDS, RECORDS)
    assert audit["without_idempotence"]["duplicated"] > 0
    assert audit["without_idempotence"]["sent"] == RECORDS
    assert audit["booked_without_once"]["duplicated"] > 0
    assert audit["booked_without_once"]["sent"] == RECORDS
    shipped = audit["shipped"]
    assert (shipped["stored"]["sent"], shipped["stored"]["stored"]) == (RECORDS, RECORDS)
    for place, name in (("in_topic", "shipped"), ("in_table", "rows")):
        findings = [shipped[place][finding] for finding in (name, "lost", "duplicated", "out_of_order", "unnumbered")]
        assert findings == [RECORDS, 0, 0, 0, 0]
    check_report(tmp_path / "report" / "index.html")


def check_report(path: Path) -> None:
    """Well-formed, with the verdict, the audit, the plot and a lane for each who was killed."""
    text = path.read_text()
    words = " ".join(ElementTree.fromstring(text.partition("\n")[2]).itertext())
    assert "Nothing is lost, nothing is duplicated, everything is in order" in words
    assert "Orders per second" in words
    for place in ("in the first topic", "in the output topic", "rows in the table"):
        assert place in words
    for who, label in (
        ("broker", "kill -9"),
        ("Spark driver", "kill -9 inside a commit"),
        ("Spark workers", "kill -9"),
    ):
        assert f"{who}: {label}" in words


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
LOST = audit_of(0, 1)
GOOD = Evidence(
    stored=CLEAN,
    stored_plainly=DOUBLED,
    processed=CLEAN,
    processed_plainly=DOUBLED,
    booked=CLEAN,
    booked_plainly=DOUBLED,
    shipped=Shipped(stored=CLEAN, in_topic=CLEAN, in_table=CLEAN),
)


@pytest.mark.parametrize("harm", [DOUBLED, TURNED_ROUND, LOST], ids=["doubled", "reordered", "lost"])
def test_a_good_end(capsys: pytest.CaptureFixture[str], harm: AuditReport) -> None:
    """What people see, without the minute before it."""
    evidence = replace(GOOD, stored_plainly=harm, booked_plainly=harm)
    assert demo.conclude(evidence, Tally(kills=3, driver_kills=1, duplicates_recognised=7), as_json=False) == 0
    said = capsys.readouterr().out
    assert "7 duplicate batches recognised" in said
    assert "kill -9 of the broker 3 times, a Spark driver once\n" in said
    verdicts = [line.partition(": lost") for line in said.splitlines()[-2:]]
    assert verdicts == [
        ("sent 3, stored 3, processed 3, booked 3", ": lost", " 0, duplicated 0, out of order 0"),
        (
            "through Spark: sent 3, stored 3, in the output topic 3, rows in the table 3",
            ": lost",
            " 0, duplicated 0, out of order 0",
        ),
    ]


def test_a_good_end_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    evidence = replace(GOOD, shipped=None)
    assert demo.conclude(evidence, Tally(), as_json=False) == 0
    assert "Spark" not in capsys.readouterr().out
    assert demo.conclude(evidence, Tally(), as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["shipped"] is None


@pytest.mark.parametrize(
    ("evidence", "tally", "word"),
    [
        (replace(GOOD, booked=DOUBLED), Tally(), "booked 4: lost 0, duplicated 1, out of order 0"),
        (replace(GOOD, booked=LOST), Tally(), "booked 2: lost 1, duplicated 0, out of order 0"),
        (replace(GOOD, booked=TURNED_ROUND), Tally(), "lost 0, duplicated 0, out of order 1"),
        (replace(GOOD, stored=DOUBLED), Tally(), "log, demo-0: demo/demo-0/1 is stored again"),
        (replace(GOOD, processed=DOUBLED), Tally(), "payments, demo-0: demo/demo-0/1 is stored again"),
        (replace(GOOD, processed_plainly=CLEAN), Tally(), "a reader of uncommitted records saw nothing wrong"),
        (GOOD, Tally(failures=["demo/demo-0/1: timed out"]), "1 record could not be sent"),
        (replace(GOOD, stored_plainly=CLEAN), Tally(), "without idempotence nothing went wrong"),
        (replace(GOOD, booked_plainly=CLEAN), Tally(), "with automatic commits nothing went wrong"),
        (
            replace(GOOD, shipped=Shipped(stored=CLEAN, in_topic=DOUBLED, in_table=CLEAN)),
            Tally(),
            "Spark, in the output topic, demo-0: demo/demo-0/1 is stored again",
        ),
        (
            replace(GOOD, shipped=Shipped(stored=CLEAN, in_topic=CLEAN, in_table=LOST)),
            Tally(),
            "rows in the table 2: lost 1, duplicated 0, out of order 0",
        ),
    ],
    ids=[
        "booked twice",
        "not booked",
        "booked late",
        "stored twice",
        "processed twice",
        "no harm processed",
        "not sent",
        "no harm sent",
        "no harm booked",
        "shipped twice",
        "no row",
    ],
)
def test_a_bad_end(capsys: pytest.CaptureFixture[str], evidence: Evidence, tally: Tally, word: str) -> None:
    assert demo.conclude(evidence, tally, as_json=False) == 1
    assert word in capsys.readouterr().out
    assert demo.conclude(evidence, tally, as_json=True) == 1


def test_too_few_records() -> None:
    done = subprocess.run([*COMMAND, "--records", "10"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "fewer than 1,000 would be done before the first fault" in done.stderr


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*COMMAND, "--report", str(tmp_path / "report")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert "broker ready" in process.stdout.readline()
    eventually(lambda: any(tmp_path.glob("oncelog-demo-*/plain.log")), "members are started")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said.splitlines() == [
        "interrupted: ending all processes and removing their data; press Ctrl-C again to stop at once",
        "interrupted; all processes are stopped and their data removed",
    ]
    assert told_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def told_of(folder: Path) -> list[str]:
    """The processes that work in the folder; each was told so when it was started."""
    commands = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has just ended
                commands.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [command for command in commands if str(folder) in command]


def test_a_consumer_that_dies_by_itself_is_reported(tmp_path: Path) -> None:
    with Broker() as broker, Members(Way.ONCE, broker, "orders", tmp_path, seed=1) as members:
        assert not members.kill_victim(), "nobody is caught"
        first, second = members._processes.values()
        first.terminate()
        first.wait()
        with pytest.raises(MemberFailed, match=r"books once ended with exit code -15 although it was not killed"):
            members.kill_victim()
    assert second.poll() is not None
