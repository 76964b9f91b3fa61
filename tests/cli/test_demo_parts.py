"""The demo's parts alone: the script that the load must not outrun, the trap, and what the screen says."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from oncelog.cli.demo_screen import progress_screen
from oncelog.cli.demo_script import STEPS, Act, Script, Step
from oncelog.cli.demo_trap import Trap


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

    def test_each_step_lets_more_come(self) -> None:
        """Or a trap that is set when all is booked would wait for ever."""
        script = Script(1_000)
        for step in STEPS:
            allowed = script.allowed
            assert allowed >= step.share * 1_000, "what makes the step due can be sent"
            script.done()
            assert script.allowed > allowed

    def test_the_demo_kills_broker_processors_and_members(self) -> None:
        acts = [step.act for step in STEPS]
        assert [acts.count(act) for act in Act] == [3, 4, 3, 1, 1, 1]


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
    with progress_screen(Console(file=said), 1_000) as screen:
        for number in range(1_001):
            screen.advance(number, number)
        screen.tell("and more")
    lines = said.getvalue().splitlines()
    assert len(lines) == 12
    assert lines[-2].split()[2:] == ["1,000", "of", "1,000", "acknowledged,", "1,000", "booked"]
    assert lines[-1].endswith(" s  and more")


def test_progress_on_a_terminal_is_two_bars() -> None:
    said = StringIO()
    with progress_screen(Console(file=said, force_terminal=True, width=100), 1_000) as screen:
        screen.advance(1_000, 500)
        screen.tell("and more")
    assert " s  and more" in said.getvalue()
    assert "1000/1000" in said.getvalue()
    assert "500/1000" in said.getvalue()
