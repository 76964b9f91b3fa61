"""`AutoCommits`: only what is done with is committed, and when."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.consumer_calls.auto_commits import REVOCATION_COMMIT_MS
from oncelog.client.consumer_errors import CommitFailed, ConsumerTimedOut
from oncelog.client.membership.news import Lost, Revoking
from tests.client.consumer_calls.scene import ONE, TWO, Scene


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


def with_a_commit_under_way(**settings: Any) -> Scene:
    """Of the first ten records, which are done with; the group is silent."""
    scene = Scene(auto_commit_interval_ms=100, **settings).subscribed(ONE)
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.core.is_silent = True
    scene.now_ms = 100
    scene.poll()
    assert len(scene.core.unanswered) == 1
    return scene


def answer(scene: Scene, error: Exception | None = None) -> None:
    """From now on the group answers, too."""
    scene.core.is_silent = False
    scene.core.unanswered.pop(0)(error)


LATE = ConsumerTimedOut("the offsets could not be committed in time")


def test_what_was_not_committed_is_committed_when_the_interval_is_over() -> None:
    scene = with_a_commit_under_way()
    answer(scene, LATE)
    scene.poll(5_000)
    assert scene.core.committed == [{ONE: 10}]
    scene.poll(5_000)
    assert scene.core.committed == [{ONE: 10}], "once it is committed nobody tries again"


def test_what_was_not_committed_is_committed_by_the_close() -> None:
    scene = with_a_commit_under_way()
    answer(scene, LATE)
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert scene.core.committed == [{ONE: 10}]


def test_the_close_does_not_rely_on_a_commit_that_has_no_answer() -> None:
    """It may fail between this and the end, when nobody tries again."""
    scene = with_a_commit_under_way()
    scene.core.is_silent = False
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert scene.core.committed == [{ONE: 10}]


def test_a_close_that_could_not_commit_does_not_try_again_when_its_partitions_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = with_a_commit_under_way()
    scene.core.leaving = [Revoking(frozenset([ONE]))]
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert len(scene.core.commit_timeouts_ms) == 2
    assert caplog.text.count("could not be committed") == 1


def test_the_close_does_not_repeat_a_commit_that_went_well() -> None:
    scene = with_a_commit_under_way()
    answer(scene)
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert scene.core.committed == []


def test_what_was_not_committed_is_committed_before_it_is_given_up() -> None:
    scene = with_a_commit_under_way()
    answer(scene, LATE)
    scene.core.tell(Revoking(frozenset([ONE])))
    scene.poll()
    assert scene.core.committed == [{ONE: 10}]


def test_a_revocation_that_could_not_commit_leaves_the_partitions_that_stay_to_the_next_commit() -> None:
    scene = Scene(auto_commit_interval_ms=100).subscribed(ONE, TWO)
    scene.arrive(ONE, 0, 10)
    scene.arrive(TWO, 0, 5)
    scene.poll()
    scene.core.commit_error = CommitFailed("too late for one of them")
    scene.core.tell(Revoking(frozenset([ONE])))
    scene.poll()
    scene.core.commit_error = None
    scene.core.committed.clear()
    scene.poll(10_000)
    assert scene.core.committed == [{TWO: 5}]


def test_a_commit_that_failed_brings_nothing_older_back() -> None:
    scene = with_a_commit_under_way()
    scene.core.is_silent = False
    scene.arrive(ONE, 10, 10)
    scene.poll()
    scene.now_ms = 200
    scene.poll()
    assert scene.core.committed == [{ONE: 20}]
    answer(scene, LATE)
    scene.poll(5_000)
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert scene.core.committed == [{ONE: 20}]


def test_a_partition_that_comes_back_is_not_committed_where_it_was_before_it_went() -> None:
    """Another member may have got further meanwhile."""
    scene = Scene(auto_commit_interval_ms=100).subscribed(ONE, on_revoked=lambda *_: 1 // 0)
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.core.commit_error = CommitFailed("no")
    scene.core.tell(Revoking(frozenset([ONE])))
    with pytest.raises(ZeroDivisionError):
        scene.poll()
    scene.core.commit_error = None
    scene.core.own(ONE)
    scene.poll(10_000)
    assert scene.core.committed == []


def test_a_commit_that_a_signal_interrupts_is_part_of_the_next() -> None:
    scene = Scene(auto_commit_interval_ms=100).subscribed(ONE, TWO)
    scene.arrive(TWO, 0, 5)
    scene.poll()
    commit = scene.core.commit

    def interrupt(*args: Any, **how: Any) -> Any:
        raise KeyboardInterrupt

    scene.core.commit = interrupt  # type: ignore[method-assign]
    scene.core.tell(Revoking(frozenset([ONE])))
    with pytest.raises(KeyboardInterrupt):
        scene.poll()
    scene.core.commit = commit  # type: ignore[method-assign]
    scene.poll(10_000)
    assert scene.core.committed == [{TWO: 5}]


@pytest.mark.parametrize("waits", [True, False])
def test_a_commit_that_failed_brings_nothing_back_that_the_users_own_commit_covers(waits: bool) -> None:
    scene = with_a_commit_under_way()
    scene.core.is_silent = False
    if waits:
        scene.run(scene.calls.commits.commit({ONE: 12}, None))
    else:
        scene.calls.commits.commit_async({ONE: 12}, None)
    answer(scene, LATE)
    scene.poll(5_000)
    assert scene.core.committed == [{ONE: 12}]


def test_what_was_done_since_the_user_asked_for_a_commit_is_not_covered_by_it() -> None:
    scene = Scene(auto_commit_interval_ms=100).subscribed(ONE)
    scene.calls.commits.commit_async({ONE: 50}, None)
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.poll(5_000)
    assert scene.core.committed == [{ONE: 50}, {ONE: 10}], "the user went back meanwhile"


def test_a_commit_that_failed_brings_nothing_back_from_before_a_seek_or_a_loss() -> None:
    scene = with_a_commit_under_way()
    scene.run(scene.calls.positions.seek(ONE, 3))
    answer(scene, LATE)
    scene.poll(5_000)
    assert scene.core.committed == [{ONE: 3}]
    scene = with_a_commit_under_way()
    scene.core.tell(Lost(frozenset([ONE])))
    scene.poll()
    answer(scene, LATE)
    scene.poll(5_000)
    scene.run(scene.calls.close(1_000, is_failing=False))
    assert scene.core.committed == []


def test_a_group_that_refuses_at_once_is_not_asked_in_a_loop() -> None:
    scene = Scene(auto_commit_interval_ms=0, retry_backoff_ms=100, retry_backoff_max_ms=1_000).subscribed(ONE)
    scene.core.commit_error = CommitFailed("no")
    scene.arrive(ONE, 0, 10)
    for _ in range(10):
        scene.poll()
    assert len(scene.core.commit_timeouts_ms) == 1
    scene.now_ms = 1_000
    scene.poll()
    assert len(scene.core.commit_timeouts_ms) == 2
