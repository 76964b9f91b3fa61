"""What is special to the driver with a thread: waking it, ending it, and names that are slow to look up."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.client import selecting
from oncelog.client.driven import MAX_POLL_MS
from oncelog.client.network_events import Answered, Lost
from oncelog.client.selecting import SelectingDriver
from oncelog.client.sockets import Address, look_up, monotonic_ms
from oncelog.client.turn import Turn
from tests.client.driver_scene import METADATA, Asker, ScriptedServer, answering, requests_of, unused_address

pytestmark = pytest.mark.timeout(200)

PATIENCE_S = 60  # far longer than anything takes; the driver sleeps at most a third of it when nobody wakes it


class Counter(Asker):
    """Does the errands that other threads leave for it, and tells when."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.is_open_ended = True
        self.errands = 0
        self.done = 0
        self.progress = threading.Condition()

    def poll(self, now_ms: int) -> int:
        self.polls += 1
        with self.progress:
            self.done = self.errands
            self.progress.notify_all()
        return MAX_POLL_MS

    def wait_for(self, count: int) -> None:
        with self.progress:
            assert self.progress.wait_for(lambda: self.done >= count, PATIENCE_S), "a wake was lost"


@contextmanager
def running(driver: SelectingDriver) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=driver.run)
    thread.start()
    try:
        yield thread
    finally:
        driver.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost wake is noticed: nobody else would wake the driver before the test gives up."""
    monkeypatch.setattr("oncelog.client.driven.MAX_POLL_MS", 100 * PATIENCE_S * 1000)
    monkeypatch.setattr("tests.client.test_selecting.MAX_POLL_MS", 100 * PATIENCE_S * 1000)


@pytest.mark.usefixtures("impatient")
def test_a_thousand_wakes_one_after_the_other() -> None:
    core = Counter()
    driver = SelectingDriver(core)
    with running(driver):
        for number in range(1, 1001):
            core.errands = number
            driver.wake()
            core.wait_for(number)
    assert core.failures == []
    assert core.polls < 2 * 1000 + 10  # and none of the wakes goes on waking


@pytest.mark.usefixtures("impatient")
def test_wakes_from_many_threads_at_once() -> None:
    core = Counter()
    driver = SelectingDriver(core)
    lock = threading.Lock()

    def hurry() -> None:
        for _ in range(500):
            with lock:
                core.errands += 1
            driver.wake()

    threads = [threading.Thread(target=hurry) for _ in range(4)]
    with running(driver):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        core.wait_for(2_000)
    assert core.failures == []


@pytest.mark.usefixtures("impatient")
def test_a_wake_before_the_start_counts() -> None:
    core = Counter()
    driver = SelectingDriver(core)
    core.errands = 1
    for _ in range(100_000):  # more than a pipe holds
        driver.wake()
    with running(driver):
        core.wait_for(1)


@pytest.mark.deterministic
@pytest.mark.parametrize(("looks_at_ms", "times_rung"), [(9_999, 0), (10_000, 0), (10_001, 1)])
def test_a_driver_that_looks_in_time_by_itself_is_not_woken(
    monkeypatch: pytest.MonkeyPatch, looks_at_ms: int, times_rung: int
) -> None:
    """To wake it takes a system call."""
    rung = 0

    def count(driver: SelectingDriver) -> None:
        nonlocal rung
        rung += 1

    monkeypatch.setattr(SelectingDriver, "_ring", count)
    driver = SelectingDriver(Counter())
    driver.turn.is_asleep, driver.turn.wakes_at_ms = True, looks_at_ms
    driver.wake_by(10_000)
    driver.wake_by(10_000)
    assert rung == times_rung
    driver.close()


@pytest.mark.usefixtures("impatient")
def test_wakes_by_a_moment_that_comes_before_the_driver_would_look() -> None:
    core = Counter()
    driver = SelectingDriver(core)
    with running(driver):
        for number in range(1, 501):
            core.errands = number
            driver.wake_by(monotonic_ms() + number % 3)
            core.wait_for(number)


class Busy(Counter):
    """Is held up in its second pass, after it has slept for once."""

    def __init__(self) -> None:
        super().__init__()
        self.is_busy, self.may_go_on = threading.Event(), threading.Event()

    def poll(self, now_ms: int) -> int:
        if self.polls == 1:
            self.is_busy.set()
            assert self.may_go_on.wait(PATIENCE_S)
        return super().poll(now_ms)


def test_a_driver_that_is_awake_is_woken_without_a_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Busy()
    driver = SelectingDriver(core)
    with running(driver):
        driver.wake()
        assert core.is_busy.wait(PATIENCE_S)
        with monkeypatch.context() as patch:
            patch.setattr(SelectingDriver, "_ring", lambda driver: pytest.fail("a system call"))
            for _ in range(1000):
                driver.wake()
        core.may_go_on.set()


@pytest.mark.usefixtures("impatient")
def test_a_wake_during_a_pass_leads_to_another() -> None:
    core = Busy()
    driver = SelectingDriver(core)
    with running(driver):
        driver.wake()
        assert core.is_busy.wait(PATIENCE_S)
        polls = core.polls
        driver.wake()
        core.may_go_on.set()
        with core.progress:
            assert core.progress.wait_for(lambda: core.polls >= polls + 2, PATIENCE_S)


@pytest.mark.usefixtures("impatient")
def test_a_wake_at_the_moment_of_falling_asleep_is_not_lost() -> None:
    core = Counter()

    class FallingAsleep(Turn):
        """Somebody wakes the driver just before it says that it sleeps."""

        @property
        def is_asleep(self) -> bool:  # type: ignore[override]
            return self._sleeps

        @is_asleep.setter
        def is_asleep(self, sleeps: bool) -> None:
            if sleeps and core.errands == 0:
                core.errands = 1
                driver.wake()
            self._sleeps = sleeps

        _sleeps = False

    driver = SelectingDriver(core)
    driver.turn = FallingAsleep()
    with running(driver):
        core.wait_for(1)


@pytest.mark.usefixtures("impatient")
def test_after_a_connection_that_fails_at_once_the_next_is_tried_at_once() -> None:
    with ScriptedServer(answering) as server:
        core = Asker([("255.255.255.255", 9092), server.address], [METADATA])  # no address to connect to
        SelectingDriver(core).run()
    assert [event.node_id for event in core.events] == [-2]


def test_closing_ends_the_driver_and_its_requests() -> None:
    has_asked = threading.Event()

    def keep_silent(connection: object) -> None:
        for _ in requests_of(connection):  # type: ignore[arg-type]
            has_asked.set()

    with ScriptedServer(keep_silent) as server:
        core = Asker([server.address], [METADATA])
        with running(SelectingDriver(core)):
            assert has_asked.wait(PATIENCE_S)
    (event,) = core.events
    assert isinstance(event, Lost)
    assert "the client was closed" in event.reason
    assert core.failures == []


def test_nothing_is_left_open() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    nobody = unused_address()
    with ScriptedServer(answering) as server:
        SelectingDriver(Asker([server.address], [METADATA])).run()
        before = open_files()
        for _ in range(3):
            SelectingDriver(Asker([server.address, nobody], [METADATA])).run()
            SelectingDriver(Asker([server.address], [METADATA])).close()  # never ran
        driver = SelectingDriver(Asker([], []))
        driver.run()
        driver.close()
        driver.close()
        driver.wake()
        assert open_files() <= before + 3  # the server's side of connections that it has not noticed yet


def test_a_driver_that_was_closed_does_not_run() -> None:
    core = Asker([unused_address()], [METADATA])
    driver = SelectingDriver(core)
    driver.close()
    driver.run()
    assert core.polls == 0
    assert core.failures == []


def test_a_wake_never_writes_into_what_took_the_place_of_the_closed_pipe(tmp_path: Path) -> None:
    driver = SelectingDriver(Asker([], []))
    driver.close()
    with (tmp_path / "innocent").open("wb") as innocent:
        driver.turn.is_asleep = True  # as a waker may see it that was held up since
        driver.wake()
        os.fsync(innocent.fileno())
    assert (tmp_path / "innocent").read_bytes() == b""


def test_a_slow_name_server_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()
    asked: list[str] = []

    def slow_look_up(host: str, port: int) -> list[Address]:
        asked.append(host)
        is_asked.set()
        assert may_answer.wait(PATIENCE_S)
        return look_up("127.0.0.1", port)

    monkeypatch.setattr(selecting, "look_up", slow_look_up)
    with ScriptedServer(answering) as server:
        core = Asker([("slow", server.address[1]), server.address], [METADATA] * 50)
        core.network.connect(-1, monotonic_ms())
        core.network.connect(-2, monotonic_ms())
        SelectingDriver(core).run()
        assert len(core.events) == 50
        assert {event.node_id for event in core.events if isinstance(event, Answered)} == {-2}
        assert is_asked.wait(PATIENCE_S)
        may_answer.set()
    assert asked == ["slow"]


def test_a_name_that_is_being_looked_up_is_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()
    asked: list[str] = []
    asked_meanwhile: list[str] = []

    def slow_look_up(host: str, port: int) -> list[Address]:
        asked.append(host)
        is_asked.set()
        assert may_answer.wait(PATIENCE_S)
        return look_up("127.0.0.1", port)

    class Insistent(Asker):
        """Lets the name server answer after the third attempt to connect."""

        def poll(self, now_ms: int) -> int:
            if self.polls == 12:
                assert is_asked.wait(PATIENCE_S)
                asked_meanwhile.extend(asked)
                may_answer.set()
            super().poll(now_ms)
            return 10

    monkeypatch.setattr(selecting, "look_up", slow_look_up)
    with ScriptedServer(answering) as server:
        core = Insistent(
            [("slow", server.address[1])],
            [METADATA],
            socket_connection_setup_timeout_ms=20,
            socket_connection_setup_timeout_max_ms=2_000,
            reconnect_backoff_ms=1,
        )
        SelectingDriver(core).run()
    assert isinstance(core.events[0], Answered)
    assert asked_meanwhile == ["slow"]
    assert core.failures == []


def test_what_is_no_exception_is_reported_and_goes_on() -> None:
    class Interrupted(Asker):
        def poll(self, now_ms: int) -> int:
            raise KeyboardInterrupt

    core = Interrupted([], [METADATA])
    with pytest.raises(KeyboardInterrupt):
        SelectingDriver(core).run()
    assert [type(error) for error in core.failures] == [KeyboardInterrupt]
