"""`Positions`: where the user reads, as seen from what is in its hands."""

from __future__ import annotations

import pytest

from oncelog.client.consumer_core import Trouble
from oncelog.client.consumer_errors import ConsumerTimedOut, NotAssigned
from oncelog.errors import TopicAuthorizationFailed
from tests.client.consumer_calls.scene import ELSEWHERE, ONE, Scene


def unplaced() -> Scene:
    """Nobody has told yet where to read."""
    scene = Scene().subscribed(ONE)
    scene.core.fetcher.states[ONE].jump(None)
    return scene


def test_a_position_is_waited_for_until_it_is_known() -> None:
    scene = unplaced()
    scene.while_waiting.append(lambda: scene.core.fetcher.states[ONE].jump(7))
    assert scene.run(scene.calls.positions.position(ONE, 1_000)) == 7
    assert [wait.deadline_ms for wait in scene.waits] == [1_000]


def test_a_position_that_nobody_tells_times_out() -> None:
    scene = unplaced()
    with pytest.raises(ConsumerTimedOut, match="orders-0 is not known after 1000 ms"):
        scene.run(scene.calls.positions.position(ONE, 1_000))


def test_who_waits_for_a_position_hears_why_there_is_none() -> None:
    scene = unplaced()
    scene.while_waiting.append(lambda: scene.core.tell(Trouble(TopicAuthorizationFailed("no"))))
    with pytest.raises(TopicAuthorizationFailed):
        scene.run(scene.calls.positions.position(ONE, 1_000))
    assert not scene.core.outbox, "once"


def test_in_an_iteration_positions_and_lags_count_what_was_handed_out() -> None:
    scene = Scene().subscribed(ONE)
    scene.core.fetcher.states[ONE].high_watermark = 10
    scene.arrive(ONE, 0, 10)
    scene.core.in_hand = scene.run(scene.calls.reading.next_chunk())[4]
    assert scene.run(scene.calls.positions.position(ONE, 0)) == 5
    assert scene.calls.positions.lag(ONE) == 5
    assert scene.calls.positions.lags() == {ONE: 5}


def test_a_seek_ends_what_iteration_holds() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 10)
    scene.core.in_hand = scene.run(scene.calls.reading.next_chunk())[4]
    scene.run(scene.calls.positions.seek(ONE, 2))
    assert scene.calls.progress.is_interrupted
    assert scene.run(scene.calls.positions.position(ONE, 0)) == 2


def test_seeks_go_to_offsets_of_what_is_ours() -> None:
    scene = Scene().subscribed(ONE)
    with pytest.raises(ValueError, match="0 or more, not -1"):
        scene.run(scene.calls.positions.seek(ONE, -1))
    with pytest.raises(NotAssigned):
        scene.run(scene.calls.positions.seek(ELSEWHERE, 0))
