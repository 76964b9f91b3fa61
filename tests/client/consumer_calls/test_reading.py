"""`Reading`: what is handed out, and how it is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.consumer_calls.steps import Interceptors
from oncelog.errors import CorruptMessage
from tests.client.consumer_calls.scene import ONE, TWO, Scene


def test_spoiled_data_is_told_and_fetched_again() -> None:
    scene = Scene().subscribed(ONE, TWO)
    scene.arrive(ONE, 0, 5)
    scene.arrive(TWO, 0, 5, crc=1)
    assert scene.poll() == [0, 1, 2, 3, 4]
    assert scene.core.fetched_again == [], "nobody has heard of it yet"
    with pytest.raises(CorruptMessage):
        scene.poll()
    assert scene.core.fetched_again == [TWO]


def test_whoever_waits_says_often_enough_that_it_is_alive() -> None:
    scene = Scene(enable_auto_commit=False, max_poll_interval_ms=3_000).subscribed(ONE)
    before = scene.core.polls
    scene.poll(10_000)
    assert [wait.deadline_ms for wait in scene.waits] == list(range(1_000, 10_001, 1_000))
    assert scene.core.polls - before == 11


def test_what_arrives_while_waiting_is_returned() -> None:
    scene = Scene().subscribed(ONE)
    scene.while_waiting.append(lambda: scene.arrive(ONE, 0, 2))
    assert scene.poll(10_000) == [0, 1]
    assert scene.now_ms == 0


def test_what_interceptors_hide_is_passed_over_at_once() -> None:
    class OnlyTwo(Interceptors):
        def on_consume(self, records: list[Any]) -> list[Any]:
            return [record for record in records if record.partition == 1]

    scene = Scene(OnlyTwo(), max_poll_records=5).subscribed(ONE, TWO)
    scene.arrive(ONE, 0, 20)
    scene.arrive(TWO, 0, 1)
    assert scene.poll() == [0]
    assert scene.waits == []
