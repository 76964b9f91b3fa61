from __future__ import annotations

import itertools

import pytest

from oncelog.broker.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_UNKNOWN_PARTITIONS,
    MIN_EVICTION_AGE_MS,
    FetchSessionCache,
)
from oncelog.broker.fetch_view import CachedPartition, FetchContext
from oncelog.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from oncelog.types import TopicPartition
from oncelog.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic

NO_PARTITION = 10_000_000
"""From here on there are none."""


class Records:
    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


def cache(max_slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(max_slots, itertools.count(1).__next__, lambda _: range(NO_PARTITION), lambda _: None)


def request(
    session_id: int, epoch: int, partitions: dict[int, int] | None = None, forgotten: list[int] | None = None
) -> FetchRequest:
    topics = []
    if partitions:
        topics = [
            FetchTopic(
                "orders",
                None,
                [FetchPartition(index, -1, offset, -1, -1, 1000) for index, offset in partitions.items()],
            )
        ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten=[("orders", None, forgotten)] if forgotten else [],
        rack_id="",
    )


def answer(index: int, high_watermark: int = 5, size_bytes: int = 0, error_code: int = 0) -> FetchedPartition:
    return FetchedPartition(
        index=index,
        error_code=error_code,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=0,
        aborted=None,
        preferred_read_replica=-1,
        diverging_epoch=None,
        current_leader=None,
        records=Records(size_bytes),
    )


def begun(sessions: FetchSessionCache, asked: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext:
    context = sessions.begin(asked, uses_topic_ids, now_ms)
    assert context is not None
    return context


def told(context: FetchContext, *answers: FetchedPartition) -> list[int]:
    """What the client hears, if this is what was found; of what is at its end, as of its high watermark."""
    cached = {one.requested.index: one for one in context.view}
    found: list[tuple[CachedPartition, FetchedPartition]] = []
    for one in answers:
        if one.error_code or one.records.size_bytes:
            found.append((cached[one.index], one))
        else:
            cached[one.index].piece = bytes([one.index])
            context.view.at_end(cached[one.index], one.high_watermark, one.log_start_offset)
    news = [one for partitions in context.news(found).values() for one in partitions]
    return sorted(one[0] if isinstance(one, bytes) else one.index for one in news)


def due(context: FetchContext) -> list[int]:
    return [cached.requested.index for cached in context.view.to_read()]


def test_a_full_fetch_opens_a_session_and_hears_everything() -> None:
    context = begun(cache(), request(0, INITIAL_EPOCH, {0: 0, 1: 0}), False, 0)
    assert context.session_id == 1
    assert told(context, answer(0), answer(1)) == [0, 1]


def test_an_incremental_fetch_hears_only_what_changed() -> None:
    sessions = cache()
    first = begun(sessions, request(0, INITIAL_EPOCH, {0: 0, 1: 0, 2: 0}), False, 0)
    told(first, answer(0), answer(1), answer(2))
    second = begun(sessions, request(first.session_id, 1), False, 0)
    assert due(second) == [], "nothing is known to have changed"
    assert told(second, answer(0), answer(1, high_watermark=6), answer(2, size_bytes=10)) == [1, 2]


def test_an_error_is_news_every_time_and_so_is_its_end() -> None:
    sessions = cache()
    first = begun(sessions, request(0, INITIAL_EPOCH, {0: 0}), False, 0)
    told(first, answer(0))
    for epoch in (1, 2):
        context = begun(sessions, request(first.session_id, epoch), False, 0)
        assert told(context, answer(0, error_code=3)) == [0]
    assert told(sessions.begin(request(first.session_id, 3), False, 0), answer(0)) == [0]


def test_partitions_are_added_moved_and_forgotten() -> None:
    sessions = cache()
    first = begun(sessions, request(0, INITIAL_EPOCH, {0: 0, 1: 0}), False, 0)
    context = begun(sessions, request(first.session_id, 1, {1: 7, 2: 0}, forgotten=[0]), False, 0)
    assert {one.requested.index: one.requested.fetch_offset for one in context.view} == {1: 7, 2: 0}
    assert due(context) == [1, 2]
    assert sorted(key.index for key in context.changed) == [1, 2]


def test_what_is_named_again_is_due_and_nothing_else() -> None:
    sessions = cache()
    first = begun(sessions, request(0, INITIAL_EPOCH, indexes(5)), False, 0)
    assert due(first) == [0, 1, 2, 3, 4]
    told(first, *(answer(index) for index in range(5)))
    assert due(begun(sessions, request(first.session_id, 1, {3: 9, 1: 0}), False, 0)) == [1, 3]


def test_another_isolation_or_version_is_another_look() -> None:
    context = begun(cache(), request(0, INITIAL_EPOCH, indexes(2)), False, 0)
    context.view.begin((12, False))
    told(context, answer(0), answer(1))
    context.view.begin((12, False))
    assert due(context) == []
    context.view.begin((12, True))
    assert due(context) == [0, 1]


def test_a_partition_that_gave_data_goes_to_the_end_of_the_line() -> None:
    sessions = cache()
    first = begun(sessions, request(0, INITIAL_EPOCH, {0: 0, 1: 0}), False, 0)
    told(first, answer(0, size_bytes=10), answer(1, size_bytes=10))
    second = begun(sessions, request(first.session_id, 1), False, 0)
    assert due(second) == [0, 1]
    told(second, answer(0, size_bytes=10))
    assert due(begun(sessions, request(first.session_id, 2), False, 0)) == [1, 0]


def test_unknown_ids_and_wrong_epochs_are_refused() -> None:
    sessions = cache()
    with pytest.raises(FetchSessionIdNotFound):
        sessions.begin(request(99, 1), False, 0)
    first = begun(sessions, request(0, INITIAL_EPOCH, {0: 0}), False, 0)
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.begin(request(first.session_id, 5), False, 0)
    with pytest.raises(FetchSessionTopicIdError):
        sessions.begin(request(first.session_id, 1), True, 0)


def test_the_final_epoch_closes_the_session() -> None:
    sessions = cache()
    first = begun(sessions, request(0, INITIAL_EPOCH, {0: 0}), False, 0)
    assert sessions.begin(request(first.session_id, FINAL_EPOCH, {0: 0}), False, 0) is None
    assert len(sessions) == 0


def test_a_session_without_partitions_ends() -> None:
    sessions = cache()
    first = begun(sessions, request(0, INITIAL_EPOCH, {0: 0}), False, 0)
    assert sessions.begin(request(first.session_id, 1, forgotten=[0]), False, 0) is None
    assert len(sessions) == 0


def test_a_full_cache_gives_up_only_a_session_that_idled() -> None:
    sessions = cache(max_slots=1)
    first = begun(sessions, request(0, INITIAL_EPOCH, {0: 0}), False, now_ms=0)
    assert sessions.begin(request(0, INITIAL_EPOCH, {0: 0}), False, now_ms=MIN_EVICTION_AGE_MS - 1) is None
    later = begun(sessions, request(0, INITIAL_EPOCH, {0: 0}), False, now_ms=MIN_EVICTION_AGE_MS)
    assert later.session_id not in (0, first.session_id)
    with pytest.raises(FetchSessionIdNotFound):
        sessions.begin(request(first.session_id, 1), False, MIN_EVICTION_AGE_MS)


# --- what sessions may keep ---------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> FetchSessionCache:
    """Five partitions in a session, eight in all of them."""
    monkeypatch.setattr("oncelog.broker.fetch_session.MAX_SESSION_PARTITIONS", 5)
    monkeypatch.setattr("oncelog.broker.fetch_session.MAX_KEPT_PARTITIONS", 8)
    return cache()


def indexes(count: int) -> dict[int, int]:
    return dict.fromkeys(range(count), 0)


def test_a_consumer_of_ten_thousand_partitions_has_a_session() -> None:
    sessions = cache()
    assert begun(sessions, request(0, INITIAL_EPOCH, indexes(10_000)), False, 0).session_id == 1
    assert sessions.kept_partitions == 10_000


def test_a_request_for_more_than_a_session_holds_is_served_without_one(small: FetchSessionCache) -> None:
    assert small.begin(request(0, INITIAL_EPOCH, indexes(6)), False, 0) is None
    assert len(small) == 0


def test_all_sessions_together_keep_so_many_partitions(small: FetchSessionCache) -> None:
    assert small.begin(request(0, INITIAL_EPOCH, indexes(5)), False, 0) is not None
    assert small.begin(request(0, INITIAL_EPOCH, indexes(4)), False, 1) is None
    assert small.begin(request(0, INITIAL_EPOCH, indexes(3)), False, 1) is not None
    assert small.kept_partitions == 8


def test_sessions_that_were_idle_for_long_make_room(small: FetchSessionCache) -> None:
    for _ in range(4):
        small.begin(request(0, INITIAL_EPOCH, indexes(2)), False, 0)
    assert small.begin(request(0, INITIAL_EPOCH, indexes(5)), False, MIN_EVICTION_AGE_MS) is not None
    assert (len(small), small.kept_partitions) == (2, 7)


@pytest.mark.parametrize("others", [0, 4])
def test_a_session_that_grows_too_large_ends(small: FetchSessionCache, others: int) -> None:
    """Its client then begins anew, and is served without one."""
    if others:
        small.begin(request(0, INITIAL_EPOCH, indexes(others)), False, 0)
    grown = begun(small, request(0, INITIAL_EPOCH, indexes(4)), False, 0)
    with pytest.raises(FetchSessionIdNotFound, match="too large"):
        small.begin(request(grown.session_id, 1, {index + 4: 0 for index in range(2 if not others else 1)}), False, 0)
    assert small.kept_partitions == others


def test_who_begins_with_much_that_does_not_exist_gets_no_session() -> None:
    sessions = cache()
    unknown = {NO_PARTITION + number: 0 for number in range(MAX_UNKNOWN_PARTITIONS)}
    assert sessions.begin(request(0, INITIAL_EPOCH, {0: 0, **unknown}), False, 0) is not None
    kept = sessions.kept_partitions
    assert sessions.begin(request(0, INITIAL_EPOCH, {0: 0, **unknown, 2 * NO_PARTITION: 0}), False, 0) is None
    assert sessions.kept_partitions == kept


def test_what_ends_a_session_makes_room() -> None:
    sessions = cache()
    first = begun(sessions, request(0, INITIAL_EPOCH, indexes(3)), False, 0)
    second = begun(sessions, request(first.session_id, INITIAL_EPOCH, indexes(4)), False, 0)
    assert sessions.kept_partitions == 4
    sessions.begin(request(second.session_id, 1, {}, forgotten=[0, 1]), False, 0)
    assert sessions.kept_partitions == 2
    sessions.begin(request(second.session_id, 2, {}, forgotten=[2, 3]), False, 0)
    assert (len(sessions), sessions.kept_partitions) == (0, 0)
    withheld = begun(sessions, request(0, INITIAL_EPOCH, indexes(3)), False, 0)
    sessions.withhold(withheld)
    assert (len(sessions), sessions.kept_partitions) == (0, 0)


@pytest.mark.parametrize("epoch", [1, INITIAL_EPOCH, FINAL_EPOCH])
def test_the_fetch_before_is_answered_first(epoch: int) -> None:
    """As it was asked: before the session changes or ends."""
    sessions = cache()
    first = begun(sessions, request(0, INITIAL_EPOCH, {0: 0, 1: 0}), False, 0)
    found: list[list[int]] = []

    def finish() -> None:
        first.view.finish = None
        found.append(due(first))

    first.view.finish = finish
    sessions.begin(request(first.session_id, epoch, {5: 0}, forgotten=[0]), False, 0)
    assert found == [[0, 1]]


def test_what_a_session_forgets_is_not_watched_any_more() -> None:
    unwatched: list[int] = []

    def unwatch(cached: CachedPartition) -> None:
        unwatched.append(cached.requested.index)
        cached.watched = None

    sessions = FetchSessionCache(10, itertools.count(1).__next__, lambda _: range(NO_PARTITION), unwatch)
    first = begun(sessions, request(0, INITIAL_EPOCH, indexes(3)), False, 0)
    for cached in first.view:
        cached.watched = TopicPartition("orders", cached.requested.index)
    begun(sessions, request(first.session_id, 1, forgotten=[1]), False, 0)
    assert unwatched == [1]
    sessions.begin(request(first.session_id, FINAL_EPOCH), False, 0)
    assert unwatched == [1, 0, 2]
