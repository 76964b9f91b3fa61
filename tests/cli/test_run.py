"""`oncelog run` as people start it: a process, a file, signals."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live

import oncelog
from oncelog.cli.reader import Start, TopicReader
from oncelog.cli.run_screen import TerminalScreen
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.spark.moments import Moment
from oncelog.spark.pipeline.progress import Progress
from oncelog.types import IsolationLevel
from tests.cli.conftest import Run
from tests.spark.support.moments import Moments
from tests.support import parts
from tests.support import spark as support
from tests.support.process import BrokerProcess

PATIENCE_S = 240
RECORDS = 250
ROWS_PER_BATCH = 100
SHOWN_CHARACTERS = 20_000

PIPELINE = """\
[pipeline]
name = "shout"
checkpoint = "checkpoints/shout"
trigger = "available-now"

[source]
subscribe = "{source}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = {rows}

[[step]]
name = "loud"
sql = \"\"\"
SELECT key,
  upper(CAST(value AS STRING)) AS value
FROM source
\"\"\"

[sink]
type = "topic"
topic = "{sink}"
create = true
partitions = 2
"""


def pipeline_file(source: str, sink: str) -> str:
    return PIPELINE.format(source=source, sink=sink, rows=ROWS_PER_BATCH)


@pytest.fixture
def oncelog_command(request: pytest.FixtureRequest) -> Run:
    """The fixture `oncelog`, under a name that leaves the package its own."""
    command: Run = request.getfixturevalue("oncelog")
    return command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_problems_are_lines_that_name_lines(oncelog_command: Run, folder: Path) -> None:
    (folder / "pipeline.toml").write_text(pipeline_file(source="a", sink="b").replace("topic =", "topci ="))
    outcome = oncelog_command("run", "pipeline.toml", "-o", "pipeline.triger=once")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines() == [
        '-o pipeline.triger: [pipeline] "triger": did you mean "trigger"?',
        'pipeline.toml:21: [sink] "topci": did you mean "topic"?',
        'pipeline.toml:22: [sink] "create" makes the topic that "topic" names, and there is none',
    ]


def test_problems_for_scripts(oncelog_command: Run, folder: Path) -> None:
    (folder / "pipeline.toml").write_text("[pipeline]\nname = \n")
    outcome = oncelog_command("run", "pipeline.toml", "--check", "--json")
    assert outcome.code == 1
    assert (outcome.json["event"], outcome.json["file"], outcome.json["line"]) == ("problem", "pipeline.toml", 2)


@pytest.mark.real
def test_what_is_missing_outside_is_told_before_spark_starts(oncelog_command: Run, folder: Path) -> None:
    (folder / "pipeline.toml").write_text(pipeline_file(source="a", sink="b"))
    outcome = oncelog_command("-b", "127.0.0.1:1", "run", "pipeline.toml", "--master", "spark://127.0.0.1:1")
    assert outcome.code == 1
    master, source, sink = outcome.err.splitlines()
    assert master.startswith('-o pipeline.master: [pipeline] "master" does not answer (127.0.0.1:1: ')
    assert source.startswith("pipeline.toml:6: [source] no broker answers (127.0.0.1:1: Connection refused)")
    assert sink.startswith("pipeline.toml:19: [sink] no broker answers (127.0.0.1:1: Connection refused)")
    assert list(folder.iterdir()) == [folder / "pipeline.toml"], "looking makes nothing"


def test_without_java_one_line_names_the_package(
    oncelog_command: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    outcome = oncelog_command("run", "pipeline.toml")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "apt install openjdk-17-jre-headless" in outcome.err


def test_without_pyspark_one_line_says_how_to_get_it(
    oncelog_command: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    outcome = oncelog_command("run", "pipeline.toml")
    assert outcome.code == 1
    assert outcome.err == (
        "oncelog: a pipeline runs on Spark, and PySpark is not installed: pip install 'oncelog[spark]'\n"
    )
    assert oncelog_command("run", "--example").code == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gone.toml"], "oncelog: gone.toml: No such file or directory"),
        (["latin.toml"], "oncelog: latin.toml is not a text file in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read(oncelog_command: Run, folder: Path, words: list[str], expected: str) -> None:
    (folder / "latin.toml").write_bytes('name = "größe"'.encode("latin-1"))
    outcome = oncelog_command("run", *words)
    assert outcome.code == 1
    assert outcome.err.startswith(expected)


def test_the_example_is_printed(oncelog_command: Run) -> None:
    outcome = oncelog_command("run", "--example")
    assert outcome.code == 0
    assert tomllib.loads(outcome.out)["pipeline"]["name"] == "billing"


def test_a_terminal_shows_one_row_for_each_sink() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with Live(console=console, auto_refresh=False) as live:
        screen = TerminalScreen(live)
        for batch in range(2):
            screen.progress(Progress("paid", batch, 1500, 2000.4, 750, 600, 50, 12_345, 1600))
        screen.progress(Progress("files", 7, None, 0.0, 10, 5, 2, None, 1))
    table = Console(file=io.StringIO(), width=120)
    table.print(screen.table())
    assert isinstance(table.file, io.StringIO)
    rows = [line.strip("│").split("│") for line in table.file.getvalue().splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["paid", "1", "1,600", "3,000", "1,500", "2,000", "12,345", "750", "600", "50"],
        ["files", "7", "1", "0", "-", "0", "-", "10", "5", "2"],
    ]


@pytest.fixture
def topics(new_topic: Callable[[], str]) -> tuple[str, str]:
    return new_topic(), new_topic()


class Running:
    """A run of the command as a process of its own, whose lines can be waited for."""

    def __init__(self, folder: Path, moments: Moments, *words: str) -> None:
        parts.required(parts.java)
        settings = {**support.local_settings(folder / "spark"), "spark.log.level": "WARN"}
        master = settings.pop("spark.master")
        (folder / "spark").mkdir(exist_ok=True)
        overrides = [word for key, value in settings.items() for word in ("-o", f"pipeline.{key}={value}")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oncelog", "run", *words, "--json", "--master", master, *overrides],
            cwd=folder,
            env={**os.environ, **support.environment(), **moments.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._folder = folder
        self.events: list[dict[str, Any]] = []

    def wait_for(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))
            if is_it(self.events[-1]):
                return self.events[-1]
        raise AssertionError(f"it ended without that: {self.events}, {self.end()}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it complained of."""
        out, err = self._process.communicate(timeout=PATIENCE_S)
        self.events += [json.loads(line) for line in out.splitlines()]
        for path in re.findall(r"\S+spark\.log", err):  # captured, and shown with a failure
            print((self._folder / path).read_text(errors="replace")[-SHOWN_CHARACTERS:])
        return self._process.returncode, err


def send(bootstrap: str, topic: str, numbers: range) -> None:
    with oncelog.Producer(bootstrap) as producer:
        for number in numbers:
            producer.send(topic, value=f"row {number}", key=str(number % 7))


def received(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """Keys and values of all committed records, in the order of each partition."""
    with BlockingClient(ClientConfig.of(bootstrap)) as client:
        reader = TopicReader(client, topic, None, IsolationLevel.READ_COMMITTED)
        reader.start(Start(0), until_end=True)
        found = []
        while not reader.finished:
            found += [((record.key or b"").decode(), (record.value or b"").decode()) for _, record in reader.poll()]
    return found


def test_a_stop_lets_the_running_batch_end_and_the_next_run_goes_on(
    broker: BrokerProcess, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, sink = topics
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.create_topic(source, partitions=2)
    (tmp_path / "pipeline.toml").write_text(pipeline_file(source=source, sink=sink))
    send(broker.bootstrap, source, range(RECORDS))
    moments = Moments(tmp_path / "moments")
    moments.arm(Moment.FLUSHED, "hold")

    trigger = "pipeline.trigger=processing-time 100 milliseconds"
    first = Running(tmp_path, moments, "pipeline.toml", "-b", broker.bootstrap, "-o", trigger)
    moments.await_reached(Moment.FLUSHED)
    first.signal(signal.SIGTERM)
    first.wait_for(lambda event: str(event.get("text")).startswith("stopping"))
    moments.release(Moment.FLUSHED)
    assert first.end() == (0, "")
    plan = next(event for event in first.events if event["event"] == "plan")
    assert plan["sinks"][0]["exactly_once"]
    [rows] = [event["rows"] for event in first.events if event["event"] == "progress"]
    assert 0 < rows <= ROWS_PER_BATCH
    assert len(received(broker.bootstrap, sink)) == rows
    with oncelog.Admin(broker.bootstrap) as admin:
        assert admin.list_transactions(states=["Ongoing"], pattern="shout.sink.*") == []

    second = Running(tmp_path, moments, "pipeline.toml", "-b", broker.bootstrap)
    assert second.end() == (0, "")
    expected = [(str(number % 7), f"ROW {number}") for number in range(RECORDS)]
    after = received(broker.bootstrap, sink)
    assert sorted(after) == sorted(expected)
    for key in "0123456":
        assert [one for one in after if one[0] == key] == [one for one in expected if one[0] == key]
    assert "WARN" in (tmp_path / "checkpoints" / "shout.spark.log").read_text()
