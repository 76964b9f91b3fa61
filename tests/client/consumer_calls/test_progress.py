"""`Progress`: what is in hand, and what is done with."""

from __future__ import annotations

from tests.client.consumer_calls.scene import ONE, TWO, Scene


def test_an_error_ends_the_block_and_what_is_in_hand_is_not_committed() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 30)
    scene.poll(limit=10)
    scene.poll(limit=10)
    scene.run(scene.calls.close(0, is_failing=True))
    assert scene.core.committed == [{ONE: 10}]


def test_in_an_iteration_everything_before_the_record_in_hand_is_done() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 30)
    chunk = scene.run(scene.calls.reading.next_chunk())
    scene.core.in_hand = chunk[4]
    scene.run(scene.calls.commits.commit(None, None))
    assert scene.core.committed == [{ONE: 5}], "up to and with the one in hand"
    scene.run(scene.calls.close(0, is_failing=True))
    assert scene.core.committed[1:] == [{ONE: 4}]


def test_a_broken_iteration_gives_back_what_it_did_not_hand_out() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 10)
    scene.core.in_hand = scene.run(scene.calls.reading.next_chunk())[4]
    assert scene.poll() == [5, 6, 7, 8, 9]


def test_what_is_not_ours_any_more_is_not_committed() -> None:
    scene = Scene().subscribed(ONE, TWO)
    scene.arrive(ONE, 0, 10)
    scene.arrive(TWO, 0, 5)
    scene.poll()
    scene.poll()
    del scene.core.fetcher.states[TWO]
    scene.run(scene.calls.close(0, is_failing=False))
    assert scene.core.committed == [{ONE: 10}]


def test_a_seek_replaces_what_was_done() -> None:
    scene = Scene().subscribed(ONE)
    scene.arrive(ONE, 0, 10)
    scene.poll()
    scene.poll()
    scene.run(scene.calls.positions.seek(ONE, 3))
    scene.run(scene.calls.close(0, is_failing=False))
    assert scene.core.committed == [{ONE: 3}]
