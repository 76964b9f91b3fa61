from __future__ import annotations

from oncelog.client.fetch.inbox import FetchedData, Frame, Inbox
from oncelog.client.fetch.partitions import PartitionState
from oncelog.types import TopicPartition


class Scene:
    def __init__(self, max_bytes: int = 1_000) -> None:
        self.wakes = 0
        self.inbox = Inbox(max_bytes, self._wake)
        self.states = [PartitionState(TopicPartition("t", index), position=0) for index in range(4)]

    def _wake(self) -> None:
        self.wakes += 1

    def put(self, *indexes: int, size_bytes: int = 100) -> list[FetchedData]:
        """One answer with data of these partitions."""
        frame = Frame(size_bytes, len(indexes))
        states = [self.states[index] for index in indexes]
        answer = [FetchedData(state, state.seek_count, 0, memoryview(b"."), (), frame) for state in states]
        self.inbox.put(answer)
        return answer

    def take(self) -> int | None:
        taken = self.inbox.take()
        return None if taken is None else taken.state.partition.partition


def test_first_in_first_out() -> None:
    scene = Scene()
    scene.put(2, 0)
    scene.put(1)
    assert bool(scene.inbox)
    assert [scene.take() for _ in range(4)] == [2, 0, 1, None]
    assert not scene.inbox


def test_bytes_count_until_the_last_partition_of_their_frame_is_done_with() -> None:
    scene = Scene()
    scene.put(0, 1, size_bytes=300)
    scene.take()
    assert scene.inbox.buffered_bytes == 300
    scene.take()
    assert scene.inbox.buffered_bytes == 300  # it is being read
    scene.take()
    assert scene.inbox.buffered_bytes == 0


def test_what_was_put_back_comes_next() -> None:
    scene = Scene()
    first, _ = scene.put(0, 1)
    assert scene.inbox.take() is first
    scene.inbox.put_back_front(first)
    assert scene.states[0].waiting == 1
    assert [scene.take() for _ in range(3)] == [0, 1, None]
    assert scene.inbox.buffered_bytes == 0


def test_what_is_not_current_is_thrown_away() -> None:
    scene = Scene()
    scene.put(0)
    scene.put(1)
    scene.states[0].jump(7)
    assert scene.take() == 1
    assert scene.states[0].waiting == 0
    assert scene.inbox.buffered_bytes == 100


def test_paused_data_keeps_its_place() -> None:
    scene = Scene()
    scene.put(0, 1, 0, 2, size_bytes=400)
    scene.states[0].is_paused = True
    assert [scene.take() for _ in range(3)] == [1, 2, None]
    assert not scene.inbox
    assert len(scene.inbox) == 2
    scene.states[0].is_paused = False
    assert [scene.take() for _ in range(3)] == [0, 0, None]


def test_paused_data_makes_room_when_it_takes_more_than_half() -> None:
    scene = Scene()
    scene.put(0, size_bytes=400)
    scene.states[0].is_paused = True
    assert scene.take() is None
    assert scene.inbox.buffered_bytes == 400
    scene.put(0, size_bytes=200)
    assert scene.take() is None
    assert scene.inbox.buffered_bytes == 0
    assert scene.states[0].has_dropped


def test_nothing_is_read_behind_a_gap() -> None:
    """It was dropped while it was paused, and is not fetched again yet."""
    scene = Scene()
    scene.put(0, size_bytes=600)
    scene.states[0].is_paused = True
    assert scene.take() is None
    scene.states[0].is_paused = False
    scene.put(0)
    assert scene.take() is None


def test_the_fetcher_is_woken_if_it_waits() -> None:
    scene = Scene()
    scene.take()
    assert scene.wakes == 0
    scene.inbox.is_awaited = True
    scene.take()
    scene.take()
    assert scene.wakes == 1
