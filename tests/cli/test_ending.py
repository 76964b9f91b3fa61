"""How commands end that are told to: what is said, what Ctrl-C does then, and which exit code there is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oncelog.cli import ending
from oncelog.cli.consume_group import _Member
from oncelog.cli.demo_play import on_ctrl_c
from oncelog.cli.ending import INTERRUPTED
from oncelog.cli.produce import Stored
from oncelog.client.consumer_errors import NotAssigned
from oncelog.faults import FaultProxy, Rule
from oncelog.spark.pipeline.running import StoppedEarly, StopRequest
from oncelog.types import TopicPartition
from tests.cli.conftest import Run
from tests.consumer.scene import create, write
from tests.support.patience import PATIENCE_S, eventually
from tests.support.ports import refusing_port
from tests.support.process import BrokerProcess

PARTITION = TopicPartition("orders", 0)


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """`oncelog ...` as somebody starts it in a shell."""
    command = [sys.executable, "-m", "oncelog", *words]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def line_with(text: str, stream: Any) -> str:
    for line in stream:
        if text in line:
            return str(line)
    raise AssertionError(f"it ended without a word of {text!r}")


# --- what is waited for -----------------------------------------------------------------------------------------------


@pytest.mark.real
def test_what_takes_long_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "MOMENT_S", 0)
    told = ""

    def is_told() -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return bool(told)

    with ending.ending(lambda: "leaving group billing"):
        eventually(is_told, "it is said")
    assert told == "oncelog: leaving group billing; press Ctrl-C again to stop at once\n"


@pytest.mark.real
def test_what_does_not_is_not(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "MOMENT_S", 3_600)
    with ending.ending(lambda: 1 / 0):  # type: ignore[arg-type, return-value]
        pass
    assert capsys.readouterr().err == ""


def test_ctrl_c_before_the_command_began_is_quiet(oncelog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oncelog.cli.main.build_parser", interrupted)
    outcome = oncelog("topics", "list")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")


# --- consume and produce ----------------------------------------------------------------------------------------------


def test_a_member_that_waits_for_the_group_says_so_and_ends_at_the_second_ctrl_c(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    """The group's broker does not answer the offset commit: the first Ctrl-C waits for it, the second does not."""
    create(oncelog_broker, topic := new_topic())
    write(oncelog_broker, topic, [b"one", b"two"])
    silence = Rule.drop_response("OffsetCommit", cut_after_ms=600_000)
    with FaultProxy(oncelog_broker.bootstrap, [silence]) as proxy:
        words = ["consume", topic, "--group", topic, "--from-beginning", "-b", proxy.bootstrap_servers]
        with running(*words) as process:
            line_with("two", process.stdout)
            eventually(lambda: proxy.report().total.dropped > 0, "the offset commit is under way")
            process.send_signal(signal.SIGINT)
            said = line_with("leaving", process.stderr)
            assert said.startswith(
                f"oncelog: leaving group {topic}: its broker has not answered yet; press Ctrl-C again"
            )
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == INTERRUPTED
    assert errors.startswith("oncelog: the last 2 records may be read again by the group: the commit of")


def test_a_member_without_a_broker_does_not_say_that_it_is_at_the_end() -> None:
    words = ["consume", "orders", "--group", "billing", "-b", f"127.0.0.1:{refusing_port()}"]
    with running(*words) as process:
        said = line_with("waiting for new records", process.stderr)
        assert said == "oncelog: no broker can be reached; waiting for new records (Ctrl-C stops)\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (INTERRUPTED, "")


class PlayedConsumer:
    def __init__(
        self,
        *,
        is_connected: bool = True,
        lags: dict[TopicPartition, int | None] | None = None,
        is_kept_waiting: bool = False,
        missing_topics: frozenset[str] = frozenset(),
    ) -> None:
        self.is_connected = is_connected
        self._is_kept_waiting = is_kept_waiting
        self.missing_topics = missing_topics
        self.asked = 0
        self._lags = {PARTITION: 0} if lags is None else lags

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._lags)

    def topics(self, timeout: float) -> set[str]:
        self.asked += 1
        return {"order", "sales"}

    def lag(self, partition: TopicPartition) -> int | None:
        if partition.topic == "lost":
            raise NotAssigned([partition])
        return self._lags[partition]


@pytest.mark.parametrize(
    ("consumer", "why"),
    [
        (PlayedConsumer(), None),
        (PlayedConsumer(is_connected=False), "no broker can be reached"),
        (PlayedConsumer(is_kept_waiting=True), "a broker that was asked for records has not answered"),
        (
            PlayedConsumer(lags={}, missing_topics=frozenset(["orders"])),
            "there is no topic orders (did you mean order?)",
        ),
        (PlayedConsumer(lags={}), "group billing has given this member no partition of orders yet"),
        (PlayedConsumer(lags={PARTITION: 7}), "nothing arrives, although this member is not at the end of orders"),
        (PlayedConsumer(lags={PARTITION: None}), "nothing arrives, although this member is not at the end of orders"),
        (
            PlayedConsumer(lags={TopicPartition("lost", 0): 0}),
            "nothing arrives, although this member is not at the end",
        ),
    ],
)
def test_why_nothing_comes(consumer: Any, why: str | None) -> None:
    class Args:
        topic, group = "orders", "billing"

    said = _Member(consumer, Args())._why_quiet()  # type: ignore[arg-type]
    assert said is None if why is None else str(said).startswith(why)


def test_the_topic_that_was_meant_is_asked_for_once() -> None:
    class Args:
        topic, group = "orders", "billing"

    consumer: Any = PlayedConsumer(lags={}, missing_topics=frozenset(["orders"]))
    member = _Member(consumer, Args())  # type: ignore[arg-type]
    assert member._why_quiet() == member._why_quiet()
    assert consumer.asked == 1


def test_produce_tells_what_is_stored_of_what_it_sent(capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored()
    stored.tell_interrupted()
    assert capsys.readouterr().err == ""
    stored.sent, stored.records = 5_000, 4_000
    stored.tell_interrupted()
    said = "4,000 of 5,000 records confirmed as stored; 1,000 records may or may not be stored"
    assert capsys.readouterr().err == f"oncelog: {said}\n"


# --- run, demo, faults ------------------------------------------------------------------------------------------------


class _Ended(BaseException):
    """In the place of the process's end."""


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise _Ended

    monkeypatch.setattr(os, "_exit", end)
    return codes


def test_a_pipeline_that_has_not_begun_does_not_wait_for_spark(exits: list[int]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopRequest().on_signals():
        with pytest.raises(StoppedEarly):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(_Ended):
            signal.raise_signal(signal.SIGINT)
    assert exits == [INTERRUPTED]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_pipeline_that_runs_lets_batches_end_unless_it_is_told_again(exits: list[int]) -> None:
    stop = StopRequest()
    stop.has_queries = True
    with stop.on_signals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert (stop.count, exits) == (2, [])
        with pytest.raises(_Ended):
            signal.raise_signal(signal.SIGTERM)
    assert exits == [143]


def test_the_demo_ends_in_order_unless_it_is_told_again(
    exits: list[int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from oncelog.cli import demo_play

    killed: list[int] = []
    monkeypatch.setattr(demo_play, "children", lambda: {4_711})
    monkeypatch.setattr(os, "killpg", lambda pid, number: killed.append(pid))
    try:
        with pytest.raises(KeyboardInterrupt):
            on_ctrl_c()
        assert "press Ctrl-C again to stop at once\n" in capfd.readouterr().err
        assert killed == []
        with pytest.raises(_Ended):
            on_ctrl_c()
    finally:
        demo_play.interrupted.clear()
    assert (killed, exits) == ([4_711], [INTERRUPTED])


def test_the_fault_proxy_reports_at_the_first_ctrl_c(oncelog_broker: BrokerProcess) -> None:
    with running("-b", oncelog_broker.bootstrap, "faults", "--seed", "7") as process:
        line_with("ready", process.stdout)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "seed=7, 0 connections, rules: none\n")
