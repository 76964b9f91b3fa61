"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.coordinator.effects import GroupOverrides, GroupSettings
from oncelog.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InvalidRegularExpression,
    InvalidRequest,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from oncelog.wire.codec import Message
from oncelog.wire.primitives import MAX_STRING_BYTES
from tests.coordinator.consumer.support import GROUP, Coordinator, FakeTopics, Kip848Client, settle

SESSION_MS = 45_000


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics(orders=4, payments=2)


@pytest.fixture
def coordinator(topics: FakeTopics) -> Coordinator:
    return Coordinator(topics)


def joined(coordinator: Coordinator, *names: str, **fields: Any) -> list[Kip848Client]:
    clients = [Kip848Client(coordinator, name, **fields) for name in names]
    settle(*clients)
    return clients


class TestRequests:
    JOIN: Message = {
        "group_id": GROUP,
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }

    @pytest.mark.parametrize(
        "changes",
        [
            {"member_id": ""},
            {"member_id": " "},
            {"group_id": ""},
            {"instance_id": ""},
            {"rack_id": ""},
            {"rebalance_timeout_ms": -1},
            {"topic_partitions": None},
            {"topic_partitions": [{"topic_id": FakeTopics(x=1).topic_id("x"), "partitions": [0]}]},
            {"subscribed_topic_names": None},
            {"member_epoch": -2},
            {"member_epoch": -3, "instance_id": "i"},
            {"member_epoch": 1, "member_id": ""},
            {"group_id": "g" * MAX_STRING_BYTES},
            {"member_id": "m" * MAX_STRING_BYTES},
            {"instance_id": "i" * MAX_STRING_BYTES},
        ],
        ids=lambda changes: str(changes)[:60],
    )
    def test_what_is_no_request(self, coordinator: Coordinator, changes: Message) -> None:
        answer = coordinator.ask("ConsumerGroupHeartbeat", 1, self.JOIN | changes)
        assert answer["error_code"] == InvalidRequest.code
        assert answer["error_message"]
        assert coordinator.log == []

    def test_an_assignor_that_is_not_offered(self, coordinator: Coordinator) -> None:
        answer = coordinator.ask("ConsumerGroupHeartbeat", 1, self.JOIN | {"server_assignor": "sticky"})
        assert answer["error_code"] == UnsupportedAssignor.code

    def test_version_0_is_given_a_member_id(self, coordinator: Coordinator) -> None:
        answer = coordinator.ask("ConsumerGroupHeartbeat", 0, self.JOIN | {"member_id": ""})
        assert answer["error_code"] == 0
        assert answer["member_id"] in coordinator.group().members

    def test_a_member_without_topics_is_a_member(self, coordinator: Coordinator) -> None:
        answer = coordinator.ask("ConsumerGroupHeartbeat", 1, self.JOIN | {"subscribed_topic_names": []})
        assert (answer["member_epoch"], answer["assignment"]) == (2, {"topic_partitions": []})
        assert coordinator.group().state_name == "Stable"

    @pytest.mark.parametrize("epoch", [1, -1])
    def test_who_does_not_join_needs_a_group(self, coordinator: Coordinator, epoch: int) -> None:
        body = {"group_id": GROUP, "member_id": "a", "member_epoch": epoch}
        assert coordinator.ask("ConsumerGroupHeartbeat", 1, body)["error_code"] == GroupIdNotFound.code

    @pytest.mark.parametrize("epoch", [1, -1])
    def test_who_does_not_join_must_be_in_it(self, coordinator: Coordinator, epoch: int) -> None:
        joined(coordinator, "a")
        body = {"group_id": GROUP, "member_id": "b", "member_epoch": epoch}
        assert coordinator.ask("ConsumerGroupHeartbeat", 1, body)["error_code"] == UnknownMemberId.code

    def test_a_full_group_takes_nobody_but_its_members(self, topics: FakeTopics) -> None:
        coordinator = Coordinator(topics, GroupSettings(group_consumer_max_size=1))
        (a,) = joined(coordinator, "a")
        assert Kip848Client(coordinator, "b").beat()["error_code"] == GroupMaxSizeReached.code
        assert a.beat()["error_code"] == 0
        a.epoch, a.owned = 0, set()
        assert a.beat()["error_code"] == 0


class TestEpochs:
    def test_every_member_shares_the_topic_after_one_has_given_up(self, coordinator: Coordinator) -> None:
        a, b = Kip848Client(coordinator, "a"), Kip848Client(coordinator, "b")
        assert a.beat()["member_epoch"] == 2
        assert len(a.owned) == 4
        assert b.beat()["member_epoch"] == 3
        assert b.owned == set()
        assert a.beat_in_silence()["member_epoch"] == 2
        b.beat()
        assert b.owned == set(), "nobody has said that it was given up"
        assert coordinator.group().state_name == "Reconciling"
        assert a.beat()["member_epoch"] == 3
        b.beat()
        assert len(a.owned) == len(b.owned) == 2
        assert coordinator.group().state_name == "Stable"

    def test_the_assignment_is_told_when_it_changed_or_is_asked_for(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a")
        assert a.beat()["assignment"] is None
        assert a.beat(**a.everything())["assignment"] is not None
        a.epoch, a.owned = 0, set()
        assert a.beat()["assignment"] is not None
        assert len(a.owned) == 4

    def test_a_heartbeat_that_changes_nothing_writes_nothing(self, coordinator: Coordinator) -> None:
        a, b = joined(coordinator, "a", "b")
        written = len(coordinator.log)
        a.beat()
        b.beat(**b.everything())
        assert len(coordinator.log) == written

    @pytest.mark.parametrize("epoch", [4, 99])
    def test_an_epoch_of_the_future_is_fenced(self, coordinator: Coordinator, epoch: int) -> None:
        a, _ = joined(coordinator, "a", "b")
        assert a.beat(member_epoch=epoch)["error_code"] == FencedMemberEpoch.code

    def test_the_epoch_before_is_taken_if_the_answer_was_lost(self, coordinator: Coordinator) -> None:
        a, b = joined(coordinator, "a", "b")
        b.leave()
        kept = a.owned
        a.beat()
        assert a.epoch == 4
        assert a.beat(member_epoch=3, topic_partitions=None)["error_code"] == FencedMemberEpoch.code
        a.epoch, a.owned = 3, kept
        assert a.beat()["member_epoch"] == 4
        a.epoch = 2
        assert a.beat()["error_code"] == FencedMemberEpoch.code

    def test_the_epoch_before_is_fenced_with_partitions_of_others(self, coordinator: Coordinator) -> None:
        a, b = joined(coordinator, "a", "b")
        c = Kip848Client(coordinator, "c")
        settle(a, b, c)
        a.epoch, a.owned = 3, a.owned | b.owned
        assert a.beat()["error_code"] == FencedMemberEpoch.code

    def test_a_change_of_subscription_is_a_new_epoch(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        a, b = joined(coordinator, "a", "b")
        assert a.beat(subscribed_topic_names=["payments"])["member_epoch"] == 3
        a.topics = ["payments"]
        assert coordinator.group().group_epoch == 4
        settle(a, b)
        assert a.owned == topics.places(["payments"])
        assert b.owned == topics.places(["orders"])

    def test_the_wish_of_most_members_chooses_the_assignor(self, coordinator: Coordinator) -> None:
        def assignor() -> str:
            return coordinator.ask("ConsumerGroupDescribe", 1, {"group_ids": [GROUP]})["groups"][0]["assignor_name"]

        a, b = joined(coordinator, "a", "b")
        assert assignor() == "uniform"
        ranged = Kip848Client(coordinator, "c", assignor="range")
        settle(a, b, ranged)
        assert assignor() == "range"
        assert (0 in {partition for _, partition in a.owned}, len(a.owned)) == (True, 2)

    def test_who_leaves_leaves_everything_to_the_others(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        a, b = joined(coordinator, "a", "b")
        answer = b.leave()
        assert (answer["error_code"], answer["member_epoch"]) == (0, -1)
        assert coordinator.group().state_name == "Assigning"
        settle(a)
        assert a.owned == topics.places(["orders"])
        a.leave()
        assert (coordinator.group().state_name, coordinator.group().is_empty) == ("Empty", True)


class TestClocks:
    def test_a_silent_member_is_fenced(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        a, b = joined(coordinator, "a", "b")
        coordinator.pass_time(SESSION_MS - 1_000)
        a.beat()
        coordinator.pass_time(2_000)
        assert coordinator.group().members.keys() == {"a"}
        assert b.beat()["error_code"] == UnknownMemberId.code
        settle(a, b)
        assert a.owned | b.owned == topics.places(["orders"])

    def test_all_who_are_silent_go_together(self, coordinator: Coordinator) -> None:
        joined(coordinator, "a", "b", "c")
        epoch = coordinator.group().group_epoch
        coordinator.pass_time(SESSION_MS)
        assert coordinator.group().is_empty
        assert coordinator.group().group_epoch == epoch + 1

    def test_who_does_not_give_up_in_time_is_fenced(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a", rebalance_timeout_ms=10_000)
        b = Kip848Client(coordinator, "b")
        b.beat()
        a.beat_in_silence()
        for _ in range(9):
            coordinator.pass_time(1_000)
            a.beat_in_silence()
        assert "a" in coordinator.group().members
        coordinator.pass_time(1_000)
        assert coordinator.group().members.keys() == {"b"}
        settle(b)
        assert len(b.owned) == 4

    def test_who_gave_up_in_time_is_not(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a", rebalance_timeout_ms=10_000)
        b = Kip848Client(coordinator, "b")
        b.beat()
        a.beat()
        a.beat()
        coordinator.pass_time(20_000)
        assert coordinator.group().members.keys() == {"a", "b"}

    def test_a_fencing_that_was_not_written_is_tried_again(self, coordinator: Coordinator) -> None:
        joined(coordinator, "a")
        coordinator.now_ms += SESSION_MS
        assert coordinator.core.expire(coordinator.now_ms).records, "the disk fails: this is lost"
        coordinator.pass_time(2_000)
        assert coordinator.group().is_empty

    def test_a_group_may_have_times_of_its_own(self, topics: FakeTopics) -> None:
        own = GroupOverrides(consumer_session_timeout_ms=50_000, consumer_heartbeat_interval_ms=7_000)
        coordinator = Coordinator(topics, GroupSettings(overrides=lambda group_id: own))
        (a,) = joined(coordinator, "a")
        assert a.beat()["heartbeat_interval_ms"] == 7_000
        coordinator.pass_time(49_999)
        assert not coordinator.group().is_empty
        coordinator.pass_time(1)
        assert coordinator.group().is_empty

    def test_sessions_begin_anew_with_a_new_coordinator(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a", rebalance_timeout_ms=60_000)
        b = Kip848Client(coordinator, "b")
        b.beat()
        a.beat_in_silence()
        coordinator.pass_time(30_000)
        coordinator.load()
        coordinator.pass_time(30_000)
        assert coordinator.group().members.keys() == {"a", "b"}
        coordinator.pass_time(15_000)
        assert coordinator.group().is_empty


class TestStaticMembers:
    def test_who_comes_back_in_time_finds_everything_as_it_was(self, coordinator: Coordinator) -> None:
        a, b = Kip848Client(coordinator, "a", instance_id="i"), Kip848Client(coordinator, "b")
        settle(a, b)
        had, epoch = set(a.owned), coordinator.group().group_epoch
        assert a.leave(-2)["member_epoch"] == -2
        b.beat()
        back = Kip848Client(coordinator, "a2", instance_id="i")
        assert back.beat()["member_epoch"] == epoch
        assert back.owned == had
        assert coordinator.group().group_epoch == epoch
        assert coordinator.group().members.keys() == {"a2", "b"}

    def test_who_stays_away_is_fenced(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a", instance_id="i")
        a.leave(-2)
        coordinator.pass_time(SESSION_MS)
        assert coordinator.group().is_empty
        assert coordinator.group().instances == {}

    def test_an_instance_that_has_not_left_is_not_given_away(self, coordinator: Coordinator) -> None:
        joined(coordinator, "a", instance_id="i")
        late = Kip848Client(coordinator, "b", instance_id="i")
        assert late.beat()["error_code"] == UnreleasedInstanceId.code

    def test_the_same_process_may_join_again(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a", instance_id="i")
        a.epoch, a.owned = 0, set()
        assert a.beat()["error_code"] == 0
        assert len(a.owned) == 4

    def test_whom_another_replaced_is_fenced(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a", instance_id="i")
        epoch = a.epoch
        a.leave(-2)
        back = Kip848Client(coordinator, "b", instance_id="i")
        settle(back)
        a.epoch = epoch
        assert a.beat()["error_code"] == FencedInstanceId.code
        assert a.leave(-1)["error_code"] == FencedInstanceId.code
        assert a.leave(-2)["error_code"] == FencedInstanceId.code

    def test_an_unknown_instance(self, coordinator: Coordinator) -> None:
        joined(coordinator, "a")
        stranger = Kip848Client(coordinator, "b", instance_id="i", epoch=1)
        assert stranger.beat()["error_code"] == UnknownMemberId.code
        assert stranger.leave(-2)["error_code"] == UnknownMemberId.code

    def test_whoever_left_for_good_is_gone(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a", instance_id="i")
        a.leave(-1)
        assert coordinator.group().is_empty

    def test_what_it_was_to_give_up_is_free_while_it_is_away(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a", instance_id="i")
        b = Kip848Client(coordinator, "b")
        b.beat()
        a.beat_in_silence()
        a.leave(-2)
        b.beat()
        assert len(b.owned) == 2


class TestTopics:
    def test_new_partitions_are_given_out(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        a, b = joined(coordinator, "a", "b")
        topics.grow("orders", 6)
        coordinator.topics_changed()
        assert coordinator.group().state_name == "Assigning"
        settle(a, b)
        assert a.owned | b.owned == topics.places(["orders"])

    def test_a_topic_that_comes_later_is_read(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        (a,) = joined(coordinator, "a", topics=["later"])
        assert a.owned == set()
        topics.create("later", 2)
        coordinator.topics_changed()
        settle(a)
        assert a.owned == topics.places(["later"])

    def test_a_deleted_topic_is_taken_back(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        (a,) = joined(coordinator, "a", topics=["orders", "payments"])
        topics.delete("orders")
        coordinator.topics_changed()
        settle(a)
        assert a.owned == topics.places(["payments"])

    def test_a_topic_made_anew_is_another_one(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        (a,) = joined(coordinator, "a")
        topics.delete("orders")
        topics.create("orders", 4)
        coordinator.topics_changed()
        settle(a)
        assert a.owned == topics.places(["orders"])

    def test_what_does_not_concern_the_group_changes_nothing(
        self, coordinator: Coordinator, topics: FakeTopics
    ) -> None:
        joined(coordinator, "a")
        written = len(coordinator.log)
        topics.create("elsewhere", 1)
        topics.grow("payments", 9)
        coordinator.topics_changed()
        assert len(coordinator.log) == written

    def test_what_changed_while_nobody_looked_is_found_when_loaded(
        self, coordinator: Coordinator, topics: FakeTopics
    ) -> None:
        (a,) = joined(coordinator, "a")
        topics.grow("orders", 5)
        coordinator.load()
        settle(a)
        assert a.owned == topics.places(["orders"])


class TestRegularExpressions:
    def test_topics_that_match_are_read_now_and_later(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        (a,) = joined(coordinator, "a", topics=[], regex="(orders|pay).*")
        assert a.owned == topics.places(["orders", "payments"])
        topics.create("orders-eu", 1)
        topics.create("refunds", 1)
        coordinator.topics_changed()
        settle(a)
        assert a.owned == topics.places(["orders", "payments", "orders-eu"])
        topics.delete("payments")
        coordinator.topics_changed()
        settle(a)
        assert a.owned == topics.places(["orders", "orders-eu"])

    def test_names_and_an_expression_add_up(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        (a,) = joined(coordinator, "a", topics=["orders"], regex="pay.*")
        assert a.owned == topics.places(["orders", "payments"])

    def test_what_is_no_expression(self, coordinator: Coordinator) -> None:
        a = Kip848Client(coordinator, "a", topics=[], regex="(?=orders)")
        answer = a.beat()
        assert (answer["error_code"], coordinator.log) == (InvalidRegularExpression.code, [])

    def test_an_expression_that_nobody_uses_is_forgotten(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        a, b = joined(coordinator, "a", "b", topics=[], regex="orders")
        a.beat(subscribed_topic_regex="pay.*")
        assert coordinator.group().regexes.keys() == {"orders", "pay.*"}
        b.beat(subscribed_topic_regex="")
        assert coordinator.group().regexes.keys() == {"pay.*"}
        settle(a, b)
        assert (a.owned, b.owned) == (topics.places(["payments"]), set())
        a.leave()
        assert coordinator.group().regexes == {}


class TestOffsets:
    """Who may commit and fetch offsets."""

    def commit(self, coordinator: Coordinator, member_id: str, epoch: int, version: int = 9) -> None:
        coordinator.group().check_offset_commit(member_id, None, epoch, version, coordinator.now_ms)

    def test_a_member_in_its_epoch(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a")
        self.commit(coordinator, "a", a.epoch)
        coordinator.group().check_offset_fetch("a", a.epoch)
        coordinator.group().check_offset_fetch(None, -1)

    def test_another_epoch_is_stale(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a")
        for epoch in (a.epoch - 1, a.epoch + 1, -1):
            with pytest.raises(StaleMemberEpoch):
                self.commit(coordinator, "a", epoch)
            with pytest.raises(StaleMemberEpoch):
                coordinator.group().check_offset_fetch("a", epoch)

    def test_what_was_kept_over_a_new_epoch(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a")
        before, had = a.epoch, sorted(a.owned)
        b = Kip848Client(coordinator, "b")
        settle(a, b)
        group = coordinator.group()
        assert a.epoch > before
        assert group.has_kept("a", before, sorted(a.owned))
        assert not group.has_kept("a", before, had)
        assert not group.has_kept("a", before - 1, sorted(a.owned))
        assert not group.has_kept("a", a.epoch + 1, sorted(a.owned))
        assert not group.has_kept("b", before, sorted(b.owned))

    def test_an_unknown_member(self, coordinator: Coordinator) -> None:
        joined(coordinator, "a")
        for member_id in ("", "b"):
            with pytest.raises(UnknownMemberId):
                self.commit(coordinator, member_id, -1)
        with pytest.raises(UnknownMemberId):
            coordinator.group().check_offset_fetch("b", 1)

    def test_old_requests_carry_no_epoch(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a")
        with pytest.raises(UnsupportedVersion):
            self.commit(coordinator, "a", a.epoch, version=8)

    def test_anybody_may_commit_for_an_empty_group(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a")
        a.leave()
        self.commit(coordinator, "", -1, version=2)
        with pytest.raises(UnknownMemberId):
            self.commit(coordinator, "a", 1)

    def test_deleting(self, coordinator: Coordinator) -> None:
        (a,) = joined(coordinator, "a", topics=["orders"], regex="pay.*")
        with pytest.raises(NonEmptyGroup):
            coordinator.group().check_delete()
        assert coordinator.group().is_subscribed("orders")
        assert coordinator.group().is_subscribed("payments")
        assert not coordinator.group().is_subscribed("refunds")
        a.leave()
        coordinator.group().check_delete()
        coordinator.ask("DeleteGroups", 2, {"groups_names": [GROUP]})
        assert GROUP not in coordinator.core._groups
        coordinator.compact()
        assert coordinator.log == [], "nothing is left of it"


def test_a_crash_between_any_two_heartbeats_changes_nothing(topics: FakeTopics) -> None:
    """The same clients twice, one coordinator is killed after every request: both say the same."""
    answers: list[list[Message]] = []
    for is_killed in (False, True):
        coordinator = Coordinator(FakeTopics(orders=4, payments=2))
        clients = [Kip848Client(coordinator, name, topics=["orders", "payments"]) for name in "abc"]
        heard: list[Message] = []
        for client in clients * 4:
            heard.append(client.beat())
            if is_killed:
                before = coordinator.hard_state()
                coordinator.compact()
                coordinator.load()
                assert coordinator.hard_state() == before
        answers.append(heard)
    assert answers[0] == answers[1]


def test_describing_tells_what_each_has_and_is_to_have(coordinator: Coordinator, topics: FakeTopics) -> None:
    (a,) = joined(coordinator, "a", instance_id="i", topics=["orders"], regex="pay.*")
    Kip848Client(coordinator, "b").beat()
    groups = coordinator.ask("ConsumerGroupDescribe", 1, {"group_ids": [GROUP, "nobody"]})["groups"]
    assert (groups[0]["group_state"], groups[0]["group_epoch"], groups[0]["assignment_epoch"]) == ("Reconciling", 3, 3)
    one, other = groups[0]["members"]
    assert (one["member_id"], one["instance_id"], one["member_epoch"], one["member_type"]) == ("a", "i", a.epoch, 1)
    assert (one["subscribed_topic_names"], one["subscribed_topic_regex"]) == (["orders"], "pay.*")
    assert [topic["topic_name"] for topic in one["assignment"]["topic_partitions"]] == ["orders", "payments"]
    assert other["assignment"] == {"topic_partitions": []}
    assert other["target_assignment"]["topic_partitions"][0]["topic_name"] == "orders"
    assert (groups[1]["error_code"], groups[1]["group_id"]) == (GroupIdNotFound.code, "nobody")


def test_a_classic_members_commit_has_a_generation(coordinator: Coordinator) -> None:
    """See `test_classic_members` for the rest of what they do."""
    from tests.coordinator.consumer.clients import NewClient, OldClient

    NewClient(coordinator, "new", ["orders"]).act()
    old = OldClient(coordinator, "old", ["orders"])
    old.act()
    group = coordinator.group()
    group.check_offset_commit(old.member_id, None, old.generation, 2, coordinator.now_ms)
    with pytest.raises(IllegalGeneration):
        group.check_offset_commit(old.member_id, None, old.generation - 1, 2, coordinator.now_ms)
