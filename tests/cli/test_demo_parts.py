"""The demo's parts alone: the script that the load must not outrun, the trap, the chronicle, what the screen says."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from oncelog.cli import demo_driver
from oncelog.cli.demo_chronicle import Chronicle, Who
from oncelog.cli.demo_driver import MAX_SLOW_STARTS, WATCH_S, Driver, DriverFailed
from oncelog.cli.demo_pipeline import LEAD as PIPELINE_LEAD
from oncelog.cli.demo_rows import Rows
from oncelog.cli.demo_screen import progress_screen
from oncelog.cli.demo_script import CLIENT_STEPS, LEAD, PIPELINE_STEPS, Act, Script, Step
from oncelog.cli.demo_trap import Trap
from oncelog.report import Event, Span, Tone


class TestScript:
    def test_a_step_is_due_with_its_share(self) -> None:
        script = Script(1_000, (Step(0.2, Act.JOIN), Step(0.5, Act.LEAVE)))
        assert script.due(199) is None
        assert script.due(200) is Act.JOIN
        assert script.due(900) is Act.JOIN, "it waits until it is done"
        script.done()
        assert script.due(200) is None
        assert script.due(500) is Act.LEAVE
        script.done()
        assert script.is_over
        assert script.due(1_000) is None

    def test_the_load_waits_for_the_script(self) -> None:
        script = Script(1_000, (Step(0.2, Act.JOIN), Step(0.5, Act.LEAVE)))
        assert script.allowed == 300
        script.done()
        assert script.allowed == 600
        script.done()
        assert script.allowed == 1_000

    @pytest.mark.parametrize(("steps", "lead"), [(CLIENT_STEPS, LEAD), (PIPELINE_STEPS, PIPELINE_LEAD)])
    def test_each_step_lets_more_come(self, steps: tuple[Step, ...], lead: float) -> None:
        """Or a trap that is set when all has arrived would wait for ever."""
        script = Script(1_000, steps, lead)
        for step in steps:
            allowed = script.allowed
            assert allowed >= step.share * 1_000, "what makes the step due can be sent"
            script.done()
            assert script.allowed > allowed

    def test_the_demo_kills_broker_processors_and_members(self) -> None:
        acts = [step.act for step in CLIENT_STEPS]
        assert [acts.count(act) for act in Act] == [3, 4, 3, 1, 1, 1, 0, 0]

    def test_the_demo_kills_spark(self) -> None:
        assert {step.act for step in PIPELINE_STEPS} == {Act.KILL_DRIVER, Act.KILL_WORKER, Act.KILL_BROKER}


class TestTrap:
    def test_catches_one_alone(self, tmp_path: Path) -> None:
        trap = Trap(tmp_path / "trap")
        assert not trap.step_in(1)
        trap.set()
        assert trap.is_set
        assert trap.take_victim() is None
        assert Trap(tmp_path / "trap").step_in(2)
        assert not Trap(tmp_path / "trap").step_in(3)
        assert trap.is_set, "the victim is still in it"
        assert trap.take_victim() == 2
        assert not trap.is_set
        assert trap.take_victim() is None

    def test_can_be_set_again(self, tmp_path: Path) -> None:
        trap = Trap(tmp_path / "trap")
        for victim in (4, 5):
            trap.set()
            assert trap.step_in(victim)
            assert trap.take_victim() == victim


def test_progress_in_a_pipe_is_a_line_now_and_then() -> None:
    said = StringIO()
    with progress_screen(Console(file=said), 1_000, ("acknowledged", "booked"), lambda: 3.0) as screen:
        for number in range(1_001):
            screen.advance(number, number)
        screen.tell("and more")
    lines = said.getvalue().splitlines()
    assert len(lines) == 12
    assert lines[-2].split()[2:] == ["1,000", "of", "1,000", "acknowledged,", "1,000", "booked"]
    assert lines[-1] == "  3.0 s  and more"


@pytest.mark.real
def test_progress_on_a_terminal_is_a_bar_for_each_place() -> None:
    said = StringIO()
    console = Console(file=said, force_terminal=True, width=100)
    with progress_screen(console, 1_000, ("acknowledged", "shipped", "rows"), lambda: 3.0) as screen:
        screen.advance(1_000, 500, 250)
        screen.tell("and more")
    assert " s  and more" in said.getvalue()
    assert "1000/1000" in said.getvalue()
    assert "500/1000" in said.getvalue()
    assert "250/1000" in said.getvalue()


def test_the_chronicle_knows_lives_kills_and_rates() -> None:
    now = 100.0
    chronicle = Chronicle(lambda: now)
    chronicle.begins(Who.BROKER)
    chronicle.sample({"rows": 0})
    now = 100.5
    chronicle.sample({"rows": 7})
    now = 102.0
    chronicle.ends(Who.BROKER)
    chronicle.note(Who.BROKER, "kill -9", Tone.BAD)
    chronicle.sample({"rows": 50})
    chronicle.begins(Who.BROKER)
    now = 104.0
    chronicle.ends(Who.DRIVER)
    (lane,) = chronicle.lanes()
    assert lane.spans == (Span(0.0, 2.0, "runs from"), Span(2.0, 4.0, "runs from"))
    assert lane.events == (Event(2.0, "kill -9", Tone.BAD),)
    (rows,) = chronicle.rates()
    assert rows.points == ((2.0, 25),), "a sample that comes too soon is left out"


def test_rows_of_a_table_that_is_not_there_yet(tmp_path: Path) -> None:
    assert Rows(tmp_path / "shipments.db").count == 0
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


class TestSlowStarts:
    """Spark ends a query if a Python process does not start within ten seconds."""

    def restarts(self, folder: Path, times: int, message: str) -> int:
        count = 0
        with Driver(str(times), message, "", folder, "tests.cli.slow_spark") as driver:
            while not driver.is_running:
                count += not driver.check_alive()
                time.sleep(WATCH_S)
            driver.finish()
        return count

    def test_another_driver_starts(self, tmp_path: Path) -> None:
        assert self.restarts(tmp_path, 2, "Python worker failed to connect back.") == 2

    def test_but_not_for_ever(self, tmp_path: Path) -> None:
        with pytest.raises(DriverFailed, match="connect back"):
            self.restarts(tmp_path, MAX_SLOW_STARTS + 1, "Python worker failed to connect back.")

    def test_nor_for_another_reason(self, tmp_path: Path) -> None:
        with pytest.raises(DriverFailed, match="exit code 1 although it was not killed"):
            self.restarts(tmp_path, 1, "out of memory")

    def test_the_cause_is_shown_before_thousands_of_java_frames(self, tmp_path: Path) -> None:
        frames = "\n".join(f"\tat org.apache.spark.Frame{number}.run(Frame.java:1)" for number in range(1_000))
        with pytest.raises(DriverFailed, match="the cause\nCaused by: its cause") as failure:
            self.restarts(tmp_path, 1, f"the cause\n{frames}\nCaused by: its cause\n{frames}\n\t... 7 more")
        assert "Frame" not in str(failure.value)
        assert "7 more" not in str(failure.value)


class TestMissingParts:
    def test_pyspark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo_driver, "find_spec", lambda name: None)
        assert "pip install 'oncelog[spark]'" in str(demo_driver.missing_parts())

    def test_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(demo_driver, "find_spec", lambda name: object())
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert "Java 17" in str(demo_driver.missing_parts())
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").touch(0o755)
        assert demo_driver.missing_parts() is None
