"""Requests that do not arrive: all of them together have a bound, and who stands still gives way first."""

from __future__ import annotations

from oncelog.broker.unfinished_frames import UnfinishedFrames


def test_who_has_not_grown_for_longest_gives_way() -> None:
    frames: UnfinishedFrames[str] = UnfinishedFrames(100)
    assert frames.note("a", 40) == []
    assert frames.note("b", 40) == []
    assert frames.note("a", 50) == [], "it has grown since"
    assert frames.note("c", 30) == ["b"]
    assert ("a" in frames, "b" in frames, frames.total_bytes) == (True, False, 80)
    assert frames.note("c", 100) == ["a"]


def test_one_alone_may_be_as_large_as_it_is_allowed_to_be() -> None:
    frames: UnfinishedFrames[str] = UnfinishedFrames(100)
    assert frames.note("a", 90) == []
    assert frames.note("b", 120) == ["a"]
    assert frames.note("b", 150) == []
    assert frames.note("b", 0) == []
    assert frames.total_bytes == 0


def test_what_has_arrived_or_gone_does_not_count() -> None:
    frames: UnfinishedFrames[int] = UnfinishedFrames(100)
    for number in range(1_000):
        assert frames.note(number, 60) == []
        assert frames.note(number, 0) == []
    assert frames.note(1, 0) == []
    assert frames.total_bytes == 0


def test_of_those_that_wait_for_their_turn_the_last_gives_way() -> None:
    frames: UnfinishedFrames[str] = UnfinishedFrames(100)
    assert frames.note("next", 50, is_waiting=True) == []
    assert frames.note("then", 40, is_waiting=True) == []
    assert frames.note("next", 50, is_waiting=True) == [], "it keeps its place"
    assert frames.note("last", 20, is_waiting=True) == ["last"]
    assert ("next" in frames, "then" in frames, frames.total_bytes) == (True, True, 90)


def test_those_that_are_still_arriving_give_way_before_those_that_wait() -> None:
    frames: UnfinishedFrames[str] = UnfinishedFrames(100)
    assert frames.note("stale", 30) == []
    assert frames.note("next", 40, is_waiting=True) == []
    assert frames.note("last", 60, is_waiting=True) == ["stale"]
    assert frames.note("growing", 40) == ["last"], "but for the one that has just grown"
    assert frames.note("next", 0) == []
    assert frames.total_bytes == 40
