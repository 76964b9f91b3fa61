"""Servers that are away while effects wait for them: who is told, and what a signal's handler raises meanwhile."""

from __future__ import annotations

import signal
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from oncelog import once
from oncelog.once import redis_leases
from oncelog.once.database import Database
from oncelog.once.elsewhere import Elsewhere
from oncelog.once.handlers import raised_by_handler
from tests.once.fake_consumer import FakeConsumer
from tests.once.shop import PARTITION, orders
from tests.support.ports import unused_port

pytestmark = pytest.mark.real

NO_RETRY = Retry(NoBackoff(), 0)


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def interrupted() -> Iterator[None]:
    """A moment from now the user's handler of SIGALRM raises what sockets raise, too."""

    def give_up(*_: object) -> None:
        raise TimeoutError("the user's own")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def runner_of(path: Path, leases: once.RedisLeases | None = None, effect: Any = None, **options: Any) -> once.Runner:
    consumer = FakeConsumer({PARTITION: orders(1)})
    strategy = once.Token(leases=leases)
    effect = effect or (lambda connection, record: None)
    return once.Runner(consumer, str(path / "db"), effect, topics=["orders"], strategy=strategy, attempts=1, **options)


def test_redis_that_is_away_is_told_of_with_its_address_and_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = unused_port()
    leases = once.RedisLeases(redis.Redis(port=port, retry=NO_RETRY))
    with pytest.raises(once.DatabaseUnavailable):
        runner_of(tmp_path, leases, patience_s=0).run(max_records=1)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert f"Redis at localhost:{port}, which keeps the leases" in told[0]
    assert "refused" in told[0]
    assert "nothing is lost" in told[0]


def test_redis_that_takes_long_is_told_of_meanwhile(
    silent: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client may try for long, in silence."""
    monkeypatch.setattr(redis_leases, "SLOW_S", 0.0)
    leases = once.RedisLeases(redis.Redis(port=silent, retry=NO_RETRY, socket_timeout=0.1))
    with pytest.raises(redis.TimeoutError):
        leases.acquire("scope", "me", [("orders", "1")], 1_000)
    assert f"Redis at localhost:{silent}, which keeps the leases: has not answered" in caplog.text


def test_what_a_signals_handler_raises_while_redis_is_awaited_is_not_redis_that_is_away(
    tmp_path: Path, silent: int, interrupted: None
) -> None:
    leases = once.RedisLeases(redis.Redis(port=silent, retry=NO_RETRY, socket_timeout=60))
    with pytest.raises(TimeoutError, match="the user's own"):
        runner_of(tmp_path, leases, patience_s=0).run(max_records=1)


def test_nor_a_database_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver took it for its own, and said so in its own way."""

    def give_up(*_: object) -> None:
        raise TimeoutError("the user's own")

    before = signal.signal(signal.SIGUSR1, give_up)
    runner = runner_of(tmp_path, patience_s=0)

    def transaction(self: Database) -> None:
        try:
            signal.raise_signal(signal.SIGUSR1)
        except TimeoutError as error:
            raise sqlite3.OperationalError("database is locked") from error

    monkeypatch.setattr(type(runner._worker.database), "transaction", transaction)
    try:
        with pytest.raises(TimeoutError, match="the user's own"):
            runner.run(max_records=1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_database_that_is_away_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runner = runner_of(tmp_path)

    def transaction(self: Database) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(type(runner._worker.database), "transaction", transaction)
    monkeypatch.setattr(type(runner._worker.database), "is_outage", lambda self, error: True)
    monkeypatch.setattr(runner, "_rest", lambda backoff: runner.stop())
    runner.run(max_records=1)
    assert f"the database {tmp_path / 'db'}: disk I/O error; the same records are tried again" in caplog.text


def test_only_handlers_that_are_installed_are_looked_for() -> None:
    def handler(*_: object) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError) as raised:
        handler()
    assert raised_by_handler(raised.value) is None
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        assert raised_by_handler(raised.value) is raised.value
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_call_that_nobody_waits_for_keeps_no_other_one_waiting() -> None:
    elsewhere, hang = Elsewhere("test"), threading.Event()

    def leave() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        elsewhere.do(lambda: hang.wait(60), 0, leave)
    assert elsewhere.do(lambda: "answer", None, lambda: None) == "answer"
    hang.set()


def test_threads_are_used_again() -> None:
    elsewhere = Elsewhere("test")
    names = {elsewhere.do(threading.get_ident, None, lambda: None) for _ in range(3)}
    assert len(names) == 1
