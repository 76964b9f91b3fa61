"""`Commits`: what the user commits, and who hears how it ended."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.consumer_calls.steps import Interceptors
from oncelog.client.consumer_errors import CommitFailed, ConsumerTimedOut
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.client.membership.news import Lost
from oncelog.errors import RebalanceInProgress
from tests.client.consumer_calls.scene import ONE, Scene


class Watching(Interceptors):
    def __init__(self) -> None:
        self.commits: list[Any] = []

    def on_commit(self, offsets: Any) -> None:
        self.commits.append(offsets)


def test_a_commit_after_a_loss_fails_even_if_nothing_is_owned() -> None:
    scene = Scene(enable_auto_commit=False).subscribed()
    scene.run(scene.calls.commits.commit(None, None))
    scene.core.tell(Lost(frozenset([ONE])))
    with pytest.raises(CommitFailed, match="the next one tells on_lost"):
        scene.run(scene.calls.commits.commit(None, None))


def test_a_commit_whose_caller_has_left_is_not_tried_again() -> None:
    """The user commits something newer next, which it would overwrite."""
    scene = Scene(enable_auto_commit=False).subscribed(ONE)
    scene.core.is_silent = True
    with pytest.raises(ConsumerTimedOut):
        scene.run(scene.calls.commits.commit({ONE: 5}, 1_000))
    assert scene.core.withdrawn == 1


def test_asynchronous_commits_are_told_in_a_later_poll() -> None:
    told: list[Any] = []
    scene = Scene(enable_auto_commit=False).subscribed(ONE)
    scene.calls.commits.commit_async({ONE: 5}, lambda *ended: told.append(ended))
    assert told == []
    scene.poll()
    assert told == [({ONE: OffsetAndMetadata(5)}, None)]


def test_interceptors_hear_of_commits_that_went_well() -> None:
    interceptor = Watching()
    scene = Scene(interceptor, auto_commit_interval_ms=0).subscribed(ONE)
    scene.run(scene.calls.commits.commit({ONE: 1}, None))
    scene.calls.commits.commit_async({ONE: 2}, None)
    scene.core.commit_error = RebalanceInProgress("no")
    scene.calls.commits.commit_async({ONE: 3}, None)
    scene.poll()
    scene.core.commit_error = None
    scene.arrive(ONE, 0, 10)
    for _ in range(3):
        scene.poll()
    assert [each[ONE].offset for each in interceptor.commits] == [1, 2, 10]
