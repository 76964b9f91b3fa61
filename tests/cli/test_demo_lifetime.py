"""Ctrl-C, or an error, while the demo starts something: nothing of it is left, neither process nor thread."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.process import Broker
from oncelog.cli import demo_producers
from oncelog.cli.demo_crew import Crew
from oncelog.cli.demo_driver import Driver
from oncelog.cli.demo_lifetime import Lifetime, uncut
from oncelog.cli.demo_producers import Sending
from oncelog.cli.demo_script import Script
from oncelog.faults import FaultProxy

PROGRAM = "tests.cli.slow_spark"
"""Lives until its standard input ends."""
Process = subprocess.Popen[bytes]


class Idlers(Crew):
    def __init__(self, folder: Path) -> None:
        super().__init__("an idler", "idlers", PROGRAM, folder, FaultProxy("127.0.0.1:9"), size=2)
        self._folder = folder

    def words(self, number: int) -> list[object]:
        return [0, "", "", self._folder, self._folder / f"started-{number}"]


def idle_driver(folder: Path) -> Driver:
    return Driver("0", "", "", folder, PROGRAM)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Process]]:
    """Every process that is started, also one that whoever started it does not know of."""
    processes: list[Process] = []
    start = subprocess.Popen.__init__

    def noted(self: Process, *words: Any, **settings: Any) -> None:
        start(self, *words, **settings)
        processes.append(self)

    monkeypatch.setattr(subprocess.Popen, "__init__", noted)
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def plain_ctrl_c() -> Iterator[None]:
    """As in a program that has just begun: Spark, in a test before this one, has a handler of its own."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def threads_before() -> list[threading.Thread]:
    return threading.enumerate()


def test_an_error_at_the_second_start_ends_the_first(
    tmp_path: Path, started: list[Process], threads_before: list[threading.Thread]
) -> None:
    class Failing(Idlers):
        def words(self, number: int) -> list[object]:
            if number == 1:
                raise OSError("no more processes")
            return super().words(number)

    with pytest.raises(OSError, match="no more processes"), Failing(tmp_path):
        pass
    assert [process.returncode for process in started] == [-signal.SIGKILL]
    assert threading.enumerate() == threads_before, "of the proxy"


@pytest.mark.parametrize("new", [Idlers, idle_driver], ids=["crew", "driver"])
def test_ctrl_c_inside_popen_leaves_no_process(
    new: Callable[[Path], Lifetime], tmp_path: Path, started: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess.Popen.__init__

    def interrupted(self: Process, *words: Any, **settings: Any) -> None:
        start(self, *words, **settings)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt), new(tmp_path):
        pass
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_ctrl_c_while_a_sender_waits_for_its_topic(
    monkeypatch: pytest.MonkeyPatch, threads_before: list[threading.Thread]
) -> None:
    def wait(*_: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_producers, "NumberedLoad", wait)
    broker = Broker(port=9)  # never started, and never asked
    sending = Sending(broker, "orders", Script(1_000, ()), 1, 1_000, enable_idempotence=True)
    with pytest.raises(KeyboardInterrupt), sending:
        pass
    assert set(threading.enumerate()) <= set(threads_before), "of the proxy and of the producer"


def test_a_driver_that_cannot_start_shows_why(tmp_path: Path) -> None:
    (tmp_path / "moments").mkdir()
    with pytest.raises(FileExistsError), idle_driver(tmp_path):
        pass


class TestUncut:
    def test_ctrl_c_comes_when_all_is_noted(self) -> None:
        noted: list[str] = []

        def start() -> None:
            signal.raise_signal(signal.SIGINT)
            noted.append("all")

        with pytest.raises(KeyboardInterrupt), uncut():
            start()
        assert noted == ["all"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_in_a_thread_there_is_nothing_to_wait_for(self) -> None:
        """Only the main thread may set handlers."""
        done = threading.Event()

        def start() -> None:
            with uncut():
                done.set()

        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        assert done.is_set()

    def test_a_process_that_is_started_hears_ctrl_c(self) -> None:
        with uncut(), subprocess.Popen(["sleep", "60"]) as process:
            process.send_signal(signal.SIGINT)
        assert process.returncode == -signal.SIGINT
