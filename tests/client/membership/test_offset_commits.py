"""Offset commits and fetches: their order, their identity, each error, and what the asker hears."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncelog import errors
from oncelog.client.consumer_errors import CommitFailed, ConsumerClosed, ConsumerTimedOut
from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.client.membership import offset_commits
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.client.membership.group_world import Reader, World
from tests.client.membership.model_coordinator import GROUP, newest

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GONE = TopicPartition("gone", 0)
NOBODY = GroupMetadata(GROUP)
MEMBER = GroupMetadata(GROUP, 5, "m")
NEXT = GroupMetadata(GROUP, 6, "m")


class Desk:
    """A consumer that assigns for itself, and what its commits and fetches came to, in order."""

    def __init__(self, **brokers: Any) -> None:
        self.world = World({"t": 2}, **brokers)
        self.reader = Reader(self.world, "r", "classic", ("range",))
        self.world.readers.append(self.reader)
        self.reader.metadata.want("t", self.world.now_ms)
        self.reader.run()
        self.world.pass_time(200)
        self.ended: list[tuple[int, Exception | None]] = []
        self.found: list[Any] = []

    def warm(self) -> Desk:
        """Connected to the coordinator."""
        self.fetch()
        self.go_on()
        self.found.clear()
        self.world.brokers.asked.clear()
        return self

    @property
    def commits(self) -> offset_commits.OffsetCommits:
        return self.reader.commits

    def commit(
        self, offset: int, *partitions: TopicPartition, identity: GroupMetadata = NOBODY, retry: bool = True
    ) -> offset_commits.Withdraw:
        offsets = {one: OffsetAndMetadata(offset) for one in partitions or (T0,)}
        return self.commits.commit(
            offsets, identity, self.world.now_ms, lambda error: self.ended.append((offset, error)), retry=retry
        )

    def fetch(self, *partitions: TopicPartition) -> None:
        self.commits.fetch(partitions or (T0,), self.world.now_ms, self.found.append)

    def go_on(self, duration_ms: int = 2_000) -> None:
        self.reader.run()
        self.world.pass_time(duration_ms)

    def asked(self, api_key: ApiKey = ApiKey.OFFSET_COMMIT) -> int:
        return len(self.world.brokers.bodies(api_key))

    def errors(self) -> list[type | None]:
        return [None if error is None else type(error) for _, error in self.ended]


# --- commits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_in_every_version(version: int) -> None:
    desk = Desk(versions={ApiKey.OFFSET_COMMIT: (2, version)})
    desk.commit(7, T0, T1)
    desk.go_on()
    assert desk.ended == [(7, None)]
    assert desk.world.brokers.commits == [(T0, 7), (T1, 7)]
    assert desk.commits.is_idle
    assert desk.commits.commits == 1
    assert [version for api, version, _ in desk.world.brokers.asked if api is ApiKey.OFFSET_COMMIT] == [version]


def test_what_waits_goes_out_together_and_the_later_offset_wins() -> None:
    desk = Desk().warm()
    desk.commit(1)
    desk.go_on(1)
    for offset in (2, 3):
        desk.commit(offset)
    desk.commit(4, T1)
    desk.go_on()
    assert desk.ended == [(1, None), (2, None), (3, None), (4, None)]
    assert desk.world.brokers.commits == [(T0, 1), (T0, 3), (T1, 4)]


def test_an_older_commit_that_is_repeated_does_not_overwrite_a_newer_one() -> None:
    desk = Desk().warm()
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, 14)
    desk.commit(1)
    desk.go_on(1)
    desk.commit(2)
    desk.go_on()
    assert desk.ended == [(1, None), (2, None)]
    assert desk.world.brokers.commits == [(T0, 2)]


def test_a_commit_that_is_refused_for_one_partition_does_not_overwrite_newer_ones_of_the_others() -> None:
    desk = Desk().warm()
    desk.commit(5, T0, GONE)
    desk.go_on(1)
    desk.commit(9, T0)
    desk.go_on()
    assert desk.world.brokers.commits == [(T0, 5), (T0, 9)]
    assert (9, None) in desk.ended


def test_of_commits_in_one_request_the_older_one_repeats_only_what_was_refused() -> None:
    desk = Desk().warm()
    desk.commit(1, T1)
    desk.go_on(1)
    desk.commit(5, T0, GONE)
    desk.commit(9, T0)
    desk.go_on()
    assert desk.world.brokers.commits == [(T1, 1), (T0, 9)]
    _, both, *repeats = topics_asked(desk)
    assert both == ["t", "gone"]
    assert repeats, "the coordinator may not know the topic yet"
    assert all(one == ["gone"] for one in repeats)


def test_what_is_repeated_is_what_was_sent_last_even_if_its_asker_heard_that_the_answer_was_lost() -> None:
    desk = Desk().warm()
    desk.commit(1, T1)
    desk.go_on(1)
    desk.commit(5)
    desk.commit(9, retry=False)
    desk.go_on(9)
    assert desk.asked() == 1
    desk.world.brokers.lose_answers(ApiKey.OFFSET_COMMIT)
    desk.go_on()
    assert desk.errors() == [None, errors.CoordinatorNotAvailable, None]
    assert desk.world.brokers.commits == [(T1, 1), (T0, 9), (T0, 9)]


def test_a_deleted_topic_fails_soon_and_by_name_and_the_rest_of_its_commit_counts() -> None:
    desk = Desk().warm()
    desk.commit(5, GONE, T0)
    desk.go_on(500)
    [(_, error)] = desk.ended
    assert isinstance(error, errors.UnknownTopicOrPartition)
    assert "gone-0 does not exist any more" in str(error)
    assert desk.world.brokers.commits == [(T0, 5)]
    assert desk.commits.is_idle, "close() has nothing to wait for"


def test_a_partition_that_a_topic_does_not_have_fails_like_a_deleted_topic() -> None:
    desk = Desk().warm()
    desk.commit(5, TopicPartition("t", 2))
    desk.go_on(500)
    assert [str(error).split(",")[0] for _, error in desk.ended] == ["t-2 does not exist any more"]


def test_a_topic_that_is_created_meanwhile_gets_its_offset() -> None:
    desk = Desk().warm()
    desk.commit(5, GONE)
    desk.go_on(12)
    assert desk.asked() == 1
    desk.world.brokers.topics.create("gone", 1)
    desk.go_on()
    assert desk.ended == [(5, None)]
    assert desk.world.brokers.commits == [(GONE, 5)]


def test_nobody_asks_for_a_topic_in_a_way_that_creates_it() -> None:
    desk = Desk().warm()
    desk.commit(5, GONE)
    desk.go_on(500)
    questions = [body for body in desk.world.brokers.bodies(ApiKey.METADATA) if names_in(body) == ["gone"]]
    assert [body["allow_auto_topic_creation"] for body in questions] == [False]


def test_a_commit_that_was_withdrawn_is_not_repeated() -> None:
    desk = Desk().warm()
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, 14)
    withdraw = desk.commit(5)
    desk.go_on(1)
    withdraw()
    desk.go_on(1)
    desk.commit(9)
    desk.go_on()
    assert desk.errors() == [errors.CoordinatorLoadInProgress, None]
    assert desk.world.brokers.commits == [(T0, 9)]


def test_a_commit_that_was_withdrawn_while_it_waited_is_not_sent() -> None:
    desk = Desk().warm()
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, 14)
    withdraw = desk.commit(5)
    desk.go_on(15)
    assert desk.asked() == 1
    withdraw()
    assert desk.commits.is_idle
    desk.go_on()
    assert (desk.asked(), desk.ended) == (1, [])


def test_an_answer_by_id_is_understood_when_the_cluster_has_forgotten_the_topic() -> None:
    desk = Desk().warm()
    desk.commit(5)
    desk.fetch()
    desk.reader.run()
    cluster = desk.reader.metadata.cluster
    assert cluster is not None
    desk.reader.metadata.cluster = replace(cluster, topics={})
    desk.go_on()
    assert desk.ended == [(5, None)]
    assert desk.found == [{T0: OffsetAndMetadata(5)}]


def topics_asked(desk: Desk) -> list[list[str]]:
    return [names_in(body) for body in desk.world.brokers.bodies(ApiKey.OFFSET_COMMIT)]


def names_in(body: Any) -> list[str]:
    return [topic["name"] for topic in body["topics"]]


@pytest.mark.parametrize("code", [3, 7, 14, 15, 16, 100])
def test_what_may_succeed_later_is_repeated(code: int) -> None:
    desk = Desk()
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, code, code)
    desk.commit(1)
    desk.go_on()
    assert desk.ended == [(1, None)]
    assert desk.asked() == 3


@pytest.mark.parametrize("code", [3, 7, 14, 15, 16, 27])
def test_an_asynchronous_commit_is_not_repeated(code: int) -> None:
    desk = Desk()
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, code)
    desk.commit(1, retry=False)
    desk.go_on()
    assert desk.errors() == [errors.ERRORS_BY_CODE[code]]
    assert desk.asked() == 1


@pytest.mark.parametrize("code", [12, 28, 29, 30, 42, -1])
def test_what_cannot_succeed_ends_at_once(code: int) -> None:
    desk = Desk()
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, code)
    desk.commit(1)
    desk.go_on()
    assert desk.errors() == [errors.ERRORS_BY_CODE[code]]
    assert desk.asked() == 1


@pytest.mark.parametrize("code", [22, 25, 110])
def test_a_commit_for_partitions_that_others_have_says_what_to_do(code: int) -> None:
    desk = Desk()
    told: list[object] = []
    desk.commits.tell_member = lambda error, identity, now_ms: told.append((error.code, identity))
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, code)
    desk.commit(1, identity=MEMBER)
    desk.go_on()
    assert desk.errors() == [CommitFailed]
    assert "max.poll.interval.ms" in str(desk.ended[0][1])
    assert told == [(code, MEMBER)]


def test_a_fenced_instance_hears_that_it_is_fenced() -> None:
    desk = Desk()
    told: list[int] = []
    desk.commits.tell_member = lambda error, identity, now_ms: told.append(error.code)
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, errors.FencedInstanceId.code)
    desk.commit(1, identity=MEMBER, retry=False)
    desk.go_on()
    assert desk.errors() == [errors.FencedInstanceId]
    assert told == [errors.FencedInstanceId.code]


def test_a_lost_answer_is_asked_for_again_by_who_waits_for_it() -> None:
    desk = Desk()
    desk.world.brokers.lose_answers(ApiKey.OFFSET_COMMIT)
    desk.commit(1)
    desk.go_on()
    assert desk.ended == [(1, None)]
    desk.world.brokers.lose_answers(ApiKey.OFFSET_COMMIT)
    desk.commit(2, retry=False)
    desk.go_on()
    assert desk.errors() == [None, errors.CoordinatorNotAvailable]


def test_a_commit_that_finds_no_coordinator_ends_in_time_and_says_why() -> None:
    desk = Desk()
    desk.world.brokers.refuse(ApiKey.FIND_COORDINATOR, *([15] * 200))
    desk.commit(1)
    desk.go_on(5_000)
    [(_, error)] = desk.ended
    assert isinstance(error, ConsumerTimedOut)
    assert "COORDINATOR_NOT_AVAILABLE" in str(error)


def test_a_group_that_may_not_be_used_ends_it_at_once() -> None:
    desk = Desk()
    desk.world.brokers.refuse(ApiKey.FIND_COORDINATOR, 30)
    desk.commit(1)
    desk.fetch()
    desk.go_on()
    assert desk.errors() == [errors.GroupAuthorizationFailed]
    assert [type(one) for one in desk.found] == [errors.GroupAuthorizationFailed]
    desk.commit(2)
    desk.go_on()
    assert desk.ended[-1] == (2, None), "the next one tries again"


def test_nothing_is_committed_at_once() -> None:
    desk = Desk()
    desk.commits.commit({}, NOBODY, desk.world.now_ms, lambda error: desk.ended.append((0, error)), retry=True)
    assert desk.ended == [(0, None)]


def test_a_subscriber_without_a_place_commits_nothing() -> None:
    """As nobody in particular it could overwrite what a member commits later."""
    desk = Desk()
    desk.commits.needs_member = True
    desk.commit(1)
    assert desk.errors() == [CommitFailed]
    desk.go_on()
    assert desk.asked() == 0


def test_commits_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_commits, "MAX_WAITING", 3)
    desk = Desk()
    for offset in range(4):
        desk.commit(offset)
    assert desk.errors() == [errors.CoordinatorNotAvailable]
    desk.go_on()
    assert len(desk.ended) == 4


def test_one_who_asks_again_when_told_is_served() -> None:
    desk = Desk()
    desk.commits.commit({T0: OffsetAndMetadata(1)}, NOBODY, desk.world.now_ms, lambda error: desk.commit(2), retry=True)
    desk.go_on()
    assert desk.ended == [(2, None)]


def test_topics_without_a_known_id_are_called_by_name() -> None:
    desk = Desk()
    desk.world.brokers.topics.create("new", 1)
    desk.commit(1, TopicPartition("new", 0))
    desk.go_on()
    assert desk.ended == [(1, None)]
    [version] = [version for api, version, _ in desk.world.brokers.asked if api is ApiKey.OFFSET_COMMIT]
    assert version == 9


# --- identity ------------------------------------------------------------------------------------------------


def identities(desk: Desk) -> list[int]:
    return [body["generation_id_or_member_epoch"] for body in desk.world.brokers.bodies(ApiKey.OFFSET_COMMIT)]


def test_during_a_rebalance_commits_wait_and_go_on_under_the_next_generation() -> None:
    desk = Desk()
    desk.commits.hold(frozenset({T0, T1}))
    desk.commit(1, identity=MEMBER)
    desk.go_on()
    assert desk.asked() == 0
    desk.commits.moved_on(NEXT, frozenset({T0, T1}))
    desk.go_on()
    assert identities(desk) == [6]


def test_commits_for_what_was_given_up_in_a_rebalance_fail() -> None:
    desk = Desk()
    desk.commit(1, T0, identity=MEMBER)
    desk.commit(2, T1, identity=MEMBER)
    desk.commits.hold(frozenset({T0}))
    assert [(offset, type(error)) for offset, error in desk.ended] == [(2, CommitFailed)]
    desk.commits.moved_on(NEXT, frozenset({T0}))
    desk.go_on()
    assert identities(desk) == [6]


def test_a_member_that_lost_its_place_commits_nothing_of_before() -> None:
    desk = Desk()
    desk.commits.hold(frozenset({T0}))
    desk.commit(1, identity=MEMBER)
    desk.commits.fenced()
    assert desk.errors() == [CommitFailed]


def test_a_commit_that_meets_a_rebalance_is_repeated_after_it() -> None:
    desk = Desk()
    told: list[int] = []

    def tell(error: errors.KafkaError, identity: GroupMetadata, now_ms: int) -> None:
        told.append(error.code)
        desk.commits.hold(frozenset({T0}))

    desk.commits.tell_member = tell
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, errors.RebalanceInProgress.code)
    desk.commit(1, identity=MEMBER)
    desk.go_on()
    assert told == [errors.RebalanceInProgress.code]
    assert desk.ended == []
    desk.commits.moved_on(NEXT, frozenset({T0}))
    desk.go_on()
    assert identities(desk) == [5, 6]


def test_a_stale_epoch_is_repeated_with_the_next_one() -> None:
    desk = Desk().warm()
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, errors.StaleMemberEpoch.code, errors.StaleMemberEpoch.code)
    desk.commit(1, identity=MEMBER)
    desk.go_on(6)
    desk.commits.moved_on(NEXT, frozenset({T0}))
    desk.go_on()
    assert identities(desk)[0] == 5
    assert identities(desk)[-1] == 6


def test_under_way_while_its_partitions_are_given_up_an_error_means_too_late() -> None:
    desk = Desk().warm()
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, errors.StaleMemberEpoch.code)
    desk.commit(1, identity=MEMBER)
    desk.go_on(6)
    assert (desk.asked(), desk.ended) == (1, [])
    desk.commits.moved_on(NEXT, frozenset())
    desk.go_on()
    assert desk.errors() == [CommitFailed]


def test_commits_of_different_identities_do_not_share_a_request() -> None:
    desk = Desk()
    desk.world.brokers.refuse(ApiKey.OFFSET_COMMIT, 25, 25)
    desk.commit(1, identity=MEMBER)
    desk.commit(2, identity=NEXT)
    desk.go_on()
    assert identities(desk) == [5, 6]


def test_who_waits_for_commits_knows_when_they_are_settled() -> None:
    desk = Desk()
    desk.commit(1)
    number = desk.commits.last_number
    desk.commit(2)
    assert not desk.commits.is_settled(number)
    desk.go_on()
    assert desk.commits.is_settled(desk.commits.last_number)


def test_the_end_of_the_consumer_is_told_to_everybody_who_waits() -> None:
    desk = Desk().warm()
    desk.commit(1)
    desk.reader.run()
    desk.commit(2, retry=False)
    assert desk.errors() == []
    desk.commits.give_up()
    assert desk.commits.is_idle
    assert desk.errors() == [ConsumerClosed, ConsumerClosed]
    assert "the coordinator has not answered" in str(desk.ended[0][1])


# --- fetches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(newest(ApiKey.OFFSET_FETCH)[0], newest(ApiKey.OFFSET_FETCH)[1] + 1))
def test_offsets_are_fetched_in_every_version(version: int) -> None:
    desk = Desk(versions={ApiKey.OFFSET_FETCH: (1, version)})
    desk.commits.commit(
        {T0: OffsetAndMetadata(7, "note", 3)}, NOBODY, desk.world.now_ms, lambda error: None, retry=True
    )
    desk.go_on()
    desk.fetch(T0, T1)
    desk.go_on()
    epoch = 3 if version >= 5 else -1
    assert desk.found == [{T0: OffsetAndMetadata(7, "note", epoch), T1: None}]


def test_no_partitions_have_no_offsets() -> None:
    desk = Desk()
    desk.commits.fetch((), desk.world.now_ms, desk.found.append)
    assert desk.found == [{}]


@pytest.mark.parametrize("code", [14, 15, 16, 88, 7])
@pytest.mark.parametrize("version", [5, 10])
def test_a_fetch_that_may_succeed_later_is_repeated(code: int, version: int) -> None:
    desk = Desk(versions={ApiKey.OFFSET_FETCH: (1, version)})
    desk.world.brokers.refuse(ApiKey.OFFSET_FETCH, code, code)
    desk.fetch()
    desk.go_on()
    assert desk.found == [{T0: None}]


def test_a_fetch_whose_answer_is_lost_is_repeated() -> None:
    desk = Desk()
    desk.world.brokers.lose_answers(ApiKey.OFFSET_FETCH)
    desk.fetch()
    desk.go_on()
    assert desk.found == [{T0: None}]


@pytest.mark.parametrize("code", [30, 24, -1])
def test_a_fetch_that_cannot_succeed_ends_at_once(code: int) -> None:
    desk = Desk()
    desk.world.brokers.refuse(ApiKey.OFFSET_FETCH, code)
    desk.fetch()
    desk.go_on()
    assert [type(one) for one in desk.found] == [errors.ERRORS_BY_CODE[code]]


def test_a_fetch_ends_in_time() -> None:
    desk = Desk()
    desk.world.brokers.refuse(ApiKey.OFFSET_FETCH, *([14] * 500))
    desk.fetch()
    desk.go_on(5_000)
    assert [type(one) for one in desk.found] == [ConsumerTimedOut]


def test_a_topic_that_is_gone_has_no_offsets() -> None:
    desk = Desk()
    desk.world.brokers.topics.delete("t")
    desk.fetch()
    desk.go_on()
    assert desk.found == [{T0: None}]
