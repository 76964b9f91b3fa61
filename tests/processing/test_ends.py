"""When all is read that was there."""

from __future__ import annotations

from oncelog.processing.ends import Ends
from oncelog.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_one_worker() -> None:
    ends = Ends(1)
    assert not ends.are_reached
    ends.found(0, {})
    assert not ends.are_reached, "it has no partitions yet"
    ends.taken(0, [A, B])
    ends.known.update({A: 10, B: 0})
    ends.found(0, {A: 9, B: 0})
    assert not ends.are_reached
    ends.found(0, {A: 10, B: 0})
    assert ends.are_reached


def test_where_there_is_no_topic_there_is_nothing_to_wait_for() -> None:
    ends = Ends(2)
    assert not ends.are_reached
    ends.nothing_to_read()
    assert ends.are_reached


def test_an_end_that_is_not_known_is_not_reached() -> None:
    ends = Ends(1)
    ends.taken(0, [A])
    ends.found(0, {A: 10})
    assert not ends.are_reached


def test_a_partition_on_its_way_is_waited_for() -> None:
    ends = Ends(2)
    ends.taken(0, [A, B])
    ends.known.update({A: 10, B: 10})
    ends.gave_up(0, [B])
    ends.found(0, {A: 10})
    ends.found(1, {})
    assert not ends.are_reached, "nobody has read B to its end"
    assert ends.orphans() == [B]
    ends.taken(1, [B])
    ends.found(1, {B: 10})
    assert ends.are_reached


def test_a_partition_that_somebody_else_has() -> None:
    ends = Ends(1)
    ends.taken(0, [A, B])
    ends.known.update({A: 10, B: 10})
    ends.gave_up(0, [B])
    ends.found(0, {A: 10})
    ends.done_elsewhere({B: 9})
    assert not ends.are_reached
    ends.done_elsewhere({B: 10})
    assert ends.are_reached


def test_a_partition_that_was_read_may_move() -> None:
    ends = Ends(2)
    ends.taken(0, [A, B])
    ends.known.update({A: 10, B: 10})
    ends.found(0, {A: 10, B: 10})
    ends.gave_up(0, [B])
    ends.found(0, {A: 10})
    ends.found(1, {})
    assert ends.are_reached
    ends.gave_up(0, [A])
    assert ends.are_reached, "whoever leaves first does not hold up the others"


def test_a_worker_that_was_not_heard_of_is_waited_for() -> None:
    ends = Ends(2)
    ends.taken(0, [A])
    ends.known[A] = 0
    ends.found(0, {A: 0})
    assert not ends.are_reached
