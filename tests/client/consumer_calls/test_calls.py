"""`ConsumerCalls`: the end of a consumer."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.consumer_core import CommitEnded, Trouble
from oncelog.client.consumer_errors import ConsumerClosed
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.client.membership.news import Failed, Revoking
from oncelog.errors import GroupAuthorizationFailed
from tests.client.consumer_calls.scene import ONE, Scene


def test_the_end_tells_what_goes_and_who_committed_without_waiting() -> None:
    told: list[Any] = []
    scene = Scene(enable_auto_commit=False)
    scene.subscribed(ONE, on_revoked=lambda _, partitions: told.append(partitions))
    scene.calls.commits.commit_async({ONE: 5}, lambda offsets, error: told.append(error))
    scene.core.tell(Failed(GroupAuthorizationFailed("of no use any more")), Trouble(ValueError("neither")))
    scene.core.leaving = [Revoking(frozenset([ONE]))]
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert told == [None, [ONE]]
    assert scene.core.fatal is not None


def test_the_end_waits_for_answers_that_are_under_way() -> None:
    told: list[Any] = []
    scene = Scene().subscribed(ONE)

    def close(deadline_ms: int) -> None:
        def ended() -> None:
            scene.core.tell(CommitEnded({ONE: OffsetAndMetadata(1)}, None, lambda *ended: told.append(ended)))
            scene.core.fatal = ConsumerClosed("closed")

        scene.while_waiting.append(ended)

    scene.core.close = close  # type: ignore[method-assign]
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert len(told) == 1
    assert not scene.waits[0].is_wakeable


def test_the_end_hears_of_answers_that_come_with_the_deadline() -> None:
    """The core gives up at the deadline, and says so then: not before, and perhaps a little later."""
    told: list[Any] = []
    scene = Scene().subscribed(ONE)

    def close(deadline_ms: int) -> None:
        def ended() -> None:
            scene.now_ms = deadline_ms
            scene.while_waiting.append(given_up)

        def given_up() -> None:
            error = ConsumerClosed("before the group had the offsets")
            scene.core.tell(CommitEnded({ONE: OffsetAndMetadata(1)}, error, lambda *ended: told.append(ended)))
            scene.core.fatal = ConsumerClosed("closed")

        scene.while_waiting.append(ended)

    scene.core.close = close  # type: ignore[method-assign]
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert len(told) == 1


def test_a_callback_at_the_end_may_take_no_longer_than_the_end() -> None:
    """Whatever it asks for: `close(timeout)` is a promise."""
    asked: list[int] = []
    scene = Scene(enable_auto_commit=False)

    def commit(offsets: Any, now_ms: int, done: Any, *, timeout_ms: int, **how: Any) -> None:
        asked.append(timeout_ms)
        done(None)

    scene.core.commit = commit  # type: ignore[method-assign]
    scene.subscribed(ONE, on_revoked=lambda *_: scene.run(scene.calls.commits.commit({ONE: 5}, 60_000)))
    scene.run(scene.calls.commits.commit({ONE: 4}, 60_000))
    scene.core.leaving = [Revoking(frozenset([ONE]))]
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert asked == [60_000, 1_000]


def test_a_callback_that_raises_at_the_end_is_heard_after_all_is_done() -> None:
    scene = Scene().subscribed(ONE, on_revoked=lambda *_: 1 // 0)
    scene.core.leaving = [Revoking(frozenset([ONE]))]
    with pytest.raises(ZeroDivisionError):
        scene.run(scene.calls.close(1_000, is_failing=False))
    assert scene.core.fatal is not None
