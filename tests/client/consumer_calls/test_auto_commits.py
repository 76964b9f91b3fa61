"""`AutoCommits`: only what is done with is committed, and when."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.consumer_calls.auto_commits import REVOCATION_COMMIT_MS
from oncelog.client.consumer_errors import CommitFailed
from oncelog.client.membership.news import Revoking
from tests.client.consumer_calls.scene import ONE, Scene


def test_automatic_commits_cover_earlier_polls_only() -> None:
    scene = Scene(auto_commit_interval_ms=100).subscribed(ONE)
    scene.arrive(ONE, 0, 30)
    scene.poll(limit=10)
    scene.now_ms = 100
    scene.poll(limit=10)
    assert scene.core.committed == [{ONE: 10}], "the second ten are in hand"
    scene.poll(limit=10)
    assert len(scene.core.committed) == 1, "the interval is not over"
    scene.run(scene.calls.close(0, is_failing=False))
    assert scene.core.committed[1:] == [{ONE: 30}]


def test_a_poll_that_waits_commits_when_it_is_due() -> None:
    scene = Scene(auto_commit_interval_ms=100).subscribed(ONE)
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.poll(5_000)
    assert scene.core.committed == [{ONE: 10}]
    assert scene.waits[0].deadline_ms == 100


def test_what_is_done_is_committed_before_it_is_given_up() -> None:
    order: list[Any] = []
    scene = Scene()
    scene.subscribed(ONE, on_revoked=lambda *_: order.append(list(scene.core.committed)))
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.core.tell(Revoking(frozenset([ONE])))
    assert scene.poll() == []
    assert order == [[{ONE: 10}]]


def test_a_commit_before_partitions_are_given_up_does_not_hold_up_poll_for_as_long_as_a_call_may_take(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(default_api_timeout_ms=60_000).subscribed(ONE)
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.core.is_silent = True
    scene.core.tell(Revoking(frozenset([ONE])))
    assert scene.poll() == []
    assert scene.core.commit_timeouts_ms == [REVOCATION_COMMIT_MS]
    assert scene.core.withdrawn == 1
    assert len(scene.core.heard_of) == 1, "the group goes on"
    assert "records may come again" in caplog.text


def test_a_failed_automatic_commit_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(auto_commit_interval_ms=0).subscribed(ONE)
    scene.core.commit_error = CommitFailed("late")
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.poll()
    scene.poll()
    assert "offset commit of orders-0 failed: late" in caplog.text
