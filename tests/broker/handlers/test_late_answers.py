"""Answers that come later: a bug in one of them ends one connection, and nobody else's."""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID

import pytest

from oncelog.broker.handlers import find_coordinator, init_producer_id, metadata
from oncelog.broker.request import FAILED, Pending
from oncelog.controller.lane import all_at_once
from tests.broker.handlers.conftest import Asking
from tests.broker.support import Desk, FailingStorage

INIT = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}


@pytest.fixture
def desk() -> Desk:
    desk = Desk(FailingStorage(), "/data")
    desk.broker.controller.serve_by(desk.threads.run_in_thread, all_at_once)
    return desk


@pytest.mark.parametrize(
    ("module", "function", "api", "version", "body"),
    [
        (init_producer_id, "_serve", "init_producer_id", 4, INIT),
        (find_coordinator, "_answer", "find_coordinator", 3, {"key": "g", "key_type": 0}),
        (find_coordinator, "_coordination", "find_coordinator", 3, {"key": "g", "key_type": 0}),
        (metadata, "_describe", "metadata", 8, {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}),
    ],
)
def test_a_late_half_that_fails_ends_its_connection_and_no_other(
    monkeypatch: pytest.MonkeyPatch, desk: Desk, module: Any, function: str, api: str, version: int, body: Any
) -> None:
    for name in find_coordinator.MODULES.values():
        monkeypatch.delitem(sys.modules, name, raising=False)
    real, calls = getattr(module, function), []

    def failing_once(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise ZeroDivisionError("a bug")
        return real(*arguments)

    monkeypatch.setattr(module, function, failing_once)
    ended: list[list[Any]] = [[], []]
    for answers in ended:
        pending = desk.dispatch(api, version, body)
        assert isinstance(pending, Pending)
        pending.on_complete = answers.append
    desk.threads.run_all()
    assert ended[0] == [FAILED]
    assert len(ended[1]) == 1
    assert ended[1] != [FAILED]


def test_who_asks_while_a_module_is_being_loaded_waits_for_that(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    name = "oncelog.broker.groups.coordination"
    module = sys.modules.pop(name, None)
    told: list[str] = []
    try:
        desk.broker.when_loaded(name, 0, lambda: told.append("first"))
        monkeypatch.setitem(sys.modules, name, sys)  # as while its code runs
        desk.broker.when_loaded(name, 0, lambda: told.append("second"))
        assert not told
        assert len(desk.threads.waiting) == 1
        desk.threads.run_all()
        assert told == ["first", "second"]
        desk.broker.when_loaded(name, 0, lambda: told.append("third"))
        assert told[-1] == "third"
    finally:
        monkeypatch.undo()
        if module is not None:
            sys.modules[name] = module


def test_topics_that_are_deleted_together_are_gone_although_following_one_fails(
    monkeypatch: pytest.MonkeyPatch, ask: Asking
) -> None:
    def fail(_: str) -> None:
        raise ZeroDivisionError("a bug")

    for name in ("a", "b"):
        ask.create(name)
        ask.append(name, 0, 1)
    monkeypatch.setattr(ask.broker.metrics, "forget_topic", fail)
    topics = [{"name": name, "topic_id": UUID(int=0)} for name in ("a", "b")]
    answer = ask("delete_topics", 6, topics=topics, timeout_ms=1000)
    assert [one["error_code"] for one in answer["responses"]] == [0, 0]
    assert not ask.broker.controller.state.topics
    assert not ask.broker.logs.logs
