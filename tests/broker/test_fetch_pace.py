"""Clients that pause when their queue is full are faster at their own pace, and nobody is held for long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.broker.fetch_pace import FULL_QUEUE, MAX_HOLD_MS, MAX_PARTITIONS, UNLIMITED, FetchPace
from oncelog.broker.fetch_view import PartitionKey, TopicKey
from oncelog.wire.fetch import FetchPartition

TOPIC = TopicKey("orders", None)
RECORD_BYTES = 100
BACKOFF_MS = 1_000
TRANSFER_MS = 8


def positions(*offsets: int) -> dict[PartitionKey, FetchPartition]:
    return {
        PartitionKey(TOPIC, index): FetchPartition(index, -1, offset, -1, -1, 1 << 20)
        for index, offset in enumerate(offsets)
    }


class Reader:
    """librdkafka's fetching, and an application that reads at a steady speed behind it."""

    def __init__(self, read_per_ms: float, answered_at_most: int, pace: FetchPace | None) -> None:
        self.pace = pace
        self.read_per_ms = read_per_ms
        self.answered_at_most = answered_at_most
        self.now_ms = 0.0
        self.fetched = 0
        self.queued = 0.0
        self.pauses = 0

    def read(self, count: int) -> float:
        """Read so many more; records per millisecond."""
        begun_ms, end = self.now_ms, self.fetched + count
        while self.fetched < end:
            answered = min(self.answered_at_most, end - self.fetched)
            if self.pace is not None:
                self.pace.asked(positions(self.fetched), int(self.now_ms))
                answered = min(answered, self.pace.max_bytes // RECORD_BYTES)
                self._pass(self.pace.answers(answered * RECORD_BYTES))
            self._pass(TRANSFER_MS)
            self.fetched += answered
            self.queued += answered
            if self.queued >= FULL_QUEUE and self.fetched < end:
                self.pauses += 1
                self._pass(BACKOFF_MS)
        self._pass(self.queued / self.read_per_ms)
        return count / (self.now_ms - begun_ms)

    def _pass(self, elapsed_ms: float) -> None:
        self.now_ms += elapsed_ms
        self.queued = max(0.0, self.queued - self.read_per_ms * elapsed_ms)


def gain(read_per_ms: float, answered_at_most: int, count: int) -> float:
    paced = Reader(read_per_ms, answered_at_most, FetchPace())
    return paced.read(count) / Reader(read_per_ms, answered_at_most, None).read(count)


@pytest.mark.parametrize("answered_at_most", [4_000, 38_000])
@pytest.mark.parametrize("read_per_ms", [300, 500, 1_000, 3_000])
def test_a_quick_application_no_longer_waits(read_per_ms: float, answered_at_most: int) -> None:
    unpaced = Reader(read_per_ms, answered_at_most, None)
    unpaced.read(5_000_000)
    gained = gain(read_per_ms, answered_at_most, 5_000_000)
    assert gained > 1.3 if unpaced.pauses else gained == 1.0


@pytest.mark.parametrize("answered_at_most", [95_000, 300_000])
def test_answers_that_would_fill_the_queue_alone_become_smaller(answered_at_most: int) -> None:
    assert gain(1_000, answered_at_most, 20_000_000) > 2


@pytest.mark.parametrize("answered_at_most", [4_000, 38_000, 95_000])
@pytest.mark.parametrize("read_per_ms", [1, 20, 50, 100])
def test_a_slow_application_is_not_slowed_down(read_per_ms: float, answered_at_most: int) -> None:
    """Its queue never runs dry, with or without pauses."""
    assert gain(read_per_ms, answered_at_most, 2_000_000) > 0.97


@pytest.mark.parametrize("answered_at_most", [190_000, 300_000, 480_000])
@pytest.mark.parametrize("read_per_ms", [120, 150, 200, 300, 500])
def test_an_application_that_large_answers_keep_busy_loses_nothing(read_per_ms: float, answered_at_most: int) -> None:
    """What is in the queue when the client pauses lasts until it asks again: to hold answers back gains nothing."""
    assert gain(read_per_ms, answered_at_most, 20_000_000) > 0.95


def test_an_application_that_gained_nothing_is_tried_again() -> None:
    reader = Reader(200, 300_000, FetchPace())
    reader.read(20_000_000)
    reader.read_per_ms = 1_000
    reader.read(150_000_000)
    assert reader.read(20_000_000) > 2 * Reader(1_000, 300_000, None).read(20_000_000)


def test_a_client_that_had_read_everything_is_measured_from_then_on() -> None:
    """However long it had nothing to do: its application is not slow."""
    pace = FetchPace()
    reader = Reader(1_000, 38_000, pace)
    for _ in range(10):
        rate = reader.read(500_000)
        pace.asked(positions(reader.fetched), int(reader.now_ms))
        reader.now_ms += 3_600_000
    assert rate > 900


def test_the_speed_is_found_again_when_it_changes() -> None:
    reader = Reader(200, 38_000, FetchPace())
    reader.read(3_000_000)
    reader.read_per_ms = 1_000
    reader.read(3_000_000)
    assert reader.read(20_000_000) > 500
    reader.read_per_ms = 200
    assert reader.read(20_000_000) > 150


def test_a_client_that_never_pauses_is_never_held() -> None:
    pace = FetchPace()
    for number in range(1_000):
        pace.asked(positions(number * 50_000), number * 20)
        assert pace.answers(5_000_000) == 0
        assert pace.max_bytes == UNLIMITED


def test_one_that_has_read_everything_does_not_pause_it_waits() -> None:
    pace = FetchPace()
    for number in range(100):
        pace.asked(positions(number * FULL_QUEUE), number * 5_000)
        pace.asked(positions(number * FULL_QUEUE), number * 5_000 + 10)  # not told of an answer: there is nothing yet
    pace.asked(positions(200 * FULL_QUEUE), 500_000)
    assert pace.answers(5_000_000) == 0


def paused() -> tuple[FetchPace, int]:
    """A pace that has seen a pause, and the offset at which its client stands."""
    pace = FetchPace()
    pace.asked(positions(0), 0)
    pace.answers(40_000 * RECORD_BYTES)
    for now_ms, offset in ((10, 40_000), (20, 80_000), (30, 120_000)):
        pace.asked(positions(offset), now_ms if offset < FULL_QUEUE else now_ms + BACKOFF_MS)
        assert pace.answers(40_000 * RECORD_BYTES) == 0
    return pace, 120_000


def test_a_client_that_has_paused_is_held() -> None:
    pace, offset = paused()
    pace.asked(positions(offset + 40_000), 1_040)
    assert pace.answers(40_000 * RECORD_BYTES) == 0, "its queue was empty"
    pace.asked(positions(offset + 80_000), 1_050)
    assert 10 <= pace.answers(40_000 * RECORD_BYTES) <= 80
    assert pace.max_bytes == 40_000 * RECORD_BYTES


def test_records_that_are_skipped_fill_no_queue() -> None:
    pace, _ = paused()
    now_ms, held_ms = 1_040, 0
    pace.asked(positions(10**15), now_ms)
    for number in range(20):
        hold_ms = pace.answers(RECORD_BYTES)
        held_ms += hold_ms
        now_ms += hold_ms + 10
        pace.asked(positions(10**15 + number), now_ms)
    assert held_ms <= 2 * MAX_HOLD_MS
    assert pace.answers(RECORD_BYTES) == 0


def test_a_long_rest_leaves_a_pace_as_it_was() -> None:
    pace, offset = paused()
    for day in range(1, 1_000):
        pace.asked(positions(offset), day * 86_400_000)
        assert pace.answers(RECORD_BYTES) == 0
    now_ms = 1_000 * 86_400_000
    for number in range(3):
        pace.asked(positions(offset + number * 40_000), now_ms)
        hold_ms = pace.answers(40_000 * RECORD_BYTES)
    assert hold_ms > 0


def test_positions_are_bounded() -> None:
    pace = FetchPace()
    pace.asked(positions(*range(MAX_PARTITIONS + 1)), 0)
    assert len(pace._positions) == 0
    for start in range(10):
        named = {PartitionKey(TopicKey(f"topic {start}", None), index): one for (_, index), one in many().items()}
        pace.asked(named, start)
        assert len(pace._positions) <= MAX_PARTITIONS


def test_so_many_partitions_as_are_remembered_are_paced() -> None:
    pace = FetchPace()
    for number in range(3):
        pace.asked(positions(*[number * FULL_QUEUE // MAX_PARTITIONS] * MAX_PARTITIONS), number * BACKOFF_MS)
        pace.answers(FULL_QUEUE * RECORD_BYTES)
    assert pace.max_bytes < UNLIMITED


def many() -> dict[PartitionKey, FetchPartition]:
    return positions(*range(MAX_PARTITIONS // 3))


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(-1, 2**63 - 1), max_size=3),
            st.integers(0, 2**62),
            st.integers(0, 2**31 - 1) | st.none(),
        ),
        max_size=40,
    )
)
def test_whatever_a_client_asks_it_is_held_for_a_bounded_time(
    steps: list[tuple[list[int], int, int | None]],
) -> None:
    """Also when the clock goes back."""
    pace = FetchPace()
    for offsets, now_ms, answered_bytes in steps:
        pace.asked(positions(*offsets), now_ms)
        assert pace.max_bytes >= 0
        if answered_bytes is not None:
            assert 0 <= pace.answers(answered_bytes) <= MAX_HOLD_MS
