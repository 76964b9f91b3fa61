"""Members of KIP-848 groups and a real coordinator: what a heartbeat says, what its answer does, each error."""

from __future__ import annotations

import re

import pytest

from oncelog import errors
from oncelog.client.membership.news import Assigned, Failed, Lost, Revoking
from oncelog.coordinator.consumer.sessions import Sessions
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.client.membership.group_world import Reader, World, every_partition_is_read

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


def partitions(topic: str, *indexes: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, index) for index in indexes)


def joined(**settings: object) -> tuple[World, Reader]:
    world = World({"t": 4})
    reader = world.add("t", protocol="consumer", **settings)  # type: ignore[arg-type]
    world.settle()
    reader.news.clear()
    world.brokers.asked.clear()
    return world, reader


def kinds(reader: Reader) -> list[type]:
    return [type(one) for one in reader.news]


def heartbeats(world: World, member_id: str = "uuid-r0") -> list[Message]:
    return [body for body in world.brokers.bodies(HEARTBEAT) if body["member_id"] == member_id]


def owned_in(body: Message) -> int | None:
    """How many partitions a heartbeat says that it owns; None where it says nothing."""
    topics = body["topic_partitions"]
    return None if topics is None else sum(len(topic["partitions"]) for topic in topics)


@pytest.mark.parametrize("interval_ms", [-1, -(2**31), 1])
def test_a_coordinator_that_wants_heartbeats_without_a_pause_gets_some(
    interval_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = joined()
    monkeypatch.setattr(Sessions, "heartbeat_interval_ms", lambda *_: interval_ms)
    world.pass_time(2_000)
    assert 10 <= len(heartbeats(world)) <= 400


def test_one_that_wants_none_for_weeks_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = joined()
    monkeypatch.setattr(Sessions, "heartbeat_interval_ms", lambda *_: 2**31 - 1)
    world.pass_time(70_000)
    assert heartbeats(world)


# --- what heartbeats say -------------------------------------------------------------------------------------


def test_the_first_heartbeat_says_everything_and_the_next_ones_what_changed() -> None:
    world = World({"t": 4})
    reader = world.add("t", protocol="consumer", client_rack="r", group_remote_assignor="uniform")
    world.settle()
    first, acknowledgement, *others = heartbeats(world)
    assert first["member_epoch"] == 0
    assert first["rebalance_timeout_ms"] == 5_000
    assert first["subscribed_topic_names"] == ["t"]
    assert first["rack_id"] == "r"
    assert first["server_assignor"] == "uniform"
    assert first["topic_partitions"] == []
    assert acknowledgement["subscribed_topic_names"] is None
    assert owned_in(acknowledgement) == 4
    assert len(others) >= 2
    for body in others:
        assert body["topic_partitions"] is None
        assert body["rebalance_timeout_ms"] == -1
        assert body["server_assignor"] is None
    assert reader.news == [Assigned(partitions("t", 0, 1, 2, 3), partitions("t", 0, 1, 2, 3))]
    assert reader.member.identity.member_id == "uuid-r0"
    assert reader.member.identity.generation_id >= 1


def test_heartbeats_come_as_often_as_the_coordinator_wants() -> None:
    world, reader = joined()
    world.pass_time(3_000)
    assert 9 <= len(heartbeats(world)) <= 12
    assert reader.member.counters.heartbeats >= 9


def test_after_a_loss_a_heartbeat_says_everything_again() -> None:
    world, reader = joined()
    world.brokers.lose_answers(HEARTBEAT)
    world.pass_time(1_500)
    _, again, *_ = heartbeats(world)
    assert again["subscribed_topic_names"] == ["t"]
    assert owned_in(again) == 4
    assert reader.news == []


def test_what_was_told_to_a_request_that_came_late_is_heard_after_all() -> None:
    """The coordinator has told the member to give something up, in an answer that nobody waited for."""
    world, reader = joined()
    world.pass_time(400)
    *_, last = heartbeats(world)
    other = world.add("t", protocol="consumer")
    while len(world.brokers.members()) < 2:
        world.pass_time(1)
    world.brokers.hear_late(HEARTBEAT, last, world.now_ms)
    world.until(lambda: len(other.owned) == 2)
    assert len(reader.owned) == 2
    assert Lost not in kinds(reader), "nobody had to wait until the coordinator lost its patience"


def test_a_changed_subscription_is_told_at_once() -> None:
    world = World({"t": 1, "u": 1})
    reader = world.add("t", protocol="consumer")
    world.settle()
    reader.subscribe("u")
    world.settle()
    assert reader.owned == partitions("u", 0)
    assert reader.news[1] == Revoking(partitions("t", 0))
    assert reader.news[-1] == Assigned(partitions("u", 0), partitions("u", 0))
    assert Lost not in kinds(reader)


def test_what_is_revoked_is_acknowledged_only_when_the_user_has_let_it_go() -> None:
    world, reader = joined()
    reader.is_polling = False
    other = world.add("t", protocol="consumer")
    world.pass_time(2_000)
    assert all(owned_in(body) in (None, 4) for body in heartbeats(world))
    assert other.owned == frozenset()
    assert len(reader.member.assignment) == 4
    reader.is_polling = True
    world.settle()
    told = [owned_in(body) for body in heartbeats(world) if body["topic_partitions"] is not None]
    assert [owned for owned in told if owned != 4] == [2]
    assert len(other.owned) == 2
    every_partition_is_read(world, "t")
    assert [error for error in reader.commit_results if error is not None] == []


def test_topics_get_their_names_from_metadata() -> None:
    world = World({"t": 2})
    reader = world.add("t", "later", protocol="consumer")
    world.settle()
    world.brokers.topics.create("later", 1)
    world.brokers.topics_changed(world.now_ms)
    world.until(lambda: reader.owned == partitions("t", 0, 1) | partitions("later", 0))


def test_a_topic_that_grows_is_read_whole() -> None:
    world, reader = joined()
    world.brokers.topics.counts["t"] = 6
    world.brokers.topics_changed(world.now_ms)
    world.until(lambda: len(reader.owned) == 6)
    assert reader.news == [Assigned(partitions("t", 0, 1, 2, 3, 4, 5), partitions("t", 4, 5))]


# --- patterns ------------------------------------------------------------------------------------------------


def test_a_pattern_is_matched_by_the_coordinator() -> None:
    world = World({"in-1": 1, "other": 1})
    reader = world.add(re.compile("IN-.*", re.IGNORECASE), protocol="consumer")
    world.settle()
    assert reader.owned == partitions("in-1", 0)
    assert heartbeats(world)[0]["subscribed_topic_regex"] == "(?i)IN-.*"
    assert heartbeats(world)[0]["subscribed_topic_names"] == []


def test_an_older_coordinator_is_told_the_names_that_match() -> None:
    world = World({"in-1": 1, "other": 1}, versions={HEARTBEAT: (0, 0)})
    reader = world.add(re.compile("in-.*"), protocol="consumer")
    world.settle()
    assert reader.owned == partitions("in-1", 0)
    world.brokers.topics.create("in-2", 1)
    world.brokers.topics_changed(world.now_ms)
    world.until(lambda: reader.owned == partitions("in-1", 0) | partitions("in-2", 0))


def test_a_pattern_that_the_coordinator_does_not_understand_is_matched_here() -> None:
    world = World({"in-1": 1, "in-2": 1})
    world.brokers.refuse(HEARTBEAT, errors.InvalidRegularExpression.code)
    reader = world.add(re.compile("in-(?!2).*"), protocol="consumer")
    world.settle()
    assert reader.owned == partitions("in-1", 0)
    assert world.failures == []


def test_from_a_pattern_to_names() -> None:
    world = World({"in-1": 1, "other": 1})
    reader = world.add(re.compile("in-.*"), protocol="consumer")
    world.settle()
    reader.subscribe("other")
    world.settle()
    assert reader.owned == partitions("other", 0)
    assert not reader.member.wants_all_topics


# --- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [14, 15, 16, 7])
def test_errors_of_a_coordinator_that_cannot_answer_are_waited_out(code: int) -> None:
    world, reader = joined()
    world.brokers.refuse(HEARTBEAT, code, code)
    world.settle()
    assert reader.news == []
    assert reader.member.is_joined


@pytest.mark.parametrize("error", [errors.FencedMemberEpoch, errors.UnknownMemberId, errors.GroupIdNotFound])
def test_a_fenced_member_loses_everything_and_joins_again(error: type[errors.KafkaError]) -> None:
    world, reader = joined()
    world.brokers.refuse(HEARTBEAT, error.code)
    world.settle()
    assert kinds(reader) == [Lost, Assigned]
    again = next(body for body in heartbeats(world)[1:])
    assert again["member_epoch"] == 0
    assert again["topic_partitions"] == []
    assert again["member_id"] == "uuid-r0"
    every_partition_is_read(world, "t")


def test_brokers_without_the_protocol_are_told_by_the_setting_that_helps() -> None:
    world = World({"t": 4}, versions={HEARTBEAT: (100, 101)})
    reader = world.add("t", protocol="consumer")
    world.pass_time(3_000)
    assert kinds(reader) == [Failed]
    assert "group.protocol=classic" in str(world.failures[0])


def test_a_coordinator_that_has_the_protocol_switched_off_is_told_too() -> None:
    world = World({"t": 4})
    world.brokers.refuse(HEARTBEAT, errors.UnsupportedVersion.code)
    reader = world.add("t", protocol="consumer")
    world.pass_time(3_000)
    assert kinds(reader) == [Failed]
    assert "group.protocol=classic" in str(world.failures[0])


@pytest.mark.parametrize("code", [111, 112, 81, 30, 42, 24])
def test_what_the_coordinator_refuses_the_user_hears_and_the_next_poll_tries_again(code: int) -> None:
    world = World({"t": 4})
    world.brokers.refuse(HEARTBEAT, code)
    reader = world.add("t", protocol="consumer")
    world.settle()
    assert kinds(reader) == [Failed, Assigned]


def test_a_fenced_instance_ends_for_good() -> None:
    world, reader = joined(group_instance_id="i")
    world.brokers.refuse(HEARTBEAT, errors.FencedInstanceId.code)
    world.pass_time(2_000)
    assert kinds(reader) == [Lost, Failed]
    world.brokers.asked.clear()
    world.pass_time(2_000)
    assert heartbeats(world) == []


def test_topics_that_may_not_be_read_cost_no_partitions() -> None:
    world, reader = joined()
    world.brokers.refuse(HEARTBEAT, errors.TopicAuthorizationFailed.code)
    world.settle()
    assert kinds(reader) == [Failed]
    assert reader.owned == partitions("t", 0, 1, 2, 3)


def test_a_coordinator_that_moves_or_restarts_costs_no_partitions() -> None:
    world, reader = joined()
    world.brokers.move(world.now_ms)
    world.pass_time(1_000)
    world.brokers.crash(world.now_ms)
    world.pass_time(1_000)
    world.settle()
    assert reader.news == []


# --- leaving -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_gives_up_first_and_then_says_so(instance_id: str | None, epoch: int) -> None:
    world, reader = joined(group_instance_id=instance_id)
    reader.is_polling = False
    reader.member.leave(world.now_ms, "done")
    world.pass_time(500)
    assert [body for body in heartbeats(world) if body["member_epoch"] < 0] == []
    reader.is_polling = True
    world.until(lambda: reader.member.is_gone)
    assert reader.news == [Revoking(partitions("t", 0, 1, 2, 3))]
    assert heartbeats(world)[-1]["member_epoch"] == epoch
    assert reader.member.identity.generation_id == -1
    reader.subscribe("t")
    world.settle()
    every_partition_is_read(world, "t")


def test_while_the_user_gives_up_heartbeats_go_on() -> None:
    world, reader = joined()
    reader.is_polling = False
    reader.member.leave(world.now_ms, "done")
    world.pass_time(5_000)
    assert len(heartbeats(world)) > 5
    assert {body["subscribed_topic_names"] for body in heartbeats(world) if body["topic_partitions"] is None} == {None}
    reader.is_polling = True
    world.until(lambda: reader.member.is_gone)
    assert reader.commit_results[-1] is None


@pytest.mark.parametrize("moment_ms", range(0, 700, 10))
def test_whoever_leaves_while_its_epoch_changes_still_commits(moment_ms: int) -> None:
    """The answer that brings the new epoch may be on its way, or not be asked for yet."""
    world, reader = joined()
    world.add("t", protocol="consumer")
    world.pass_time(moment_ms)
    reader.commit_results.clear()
    reader.member.leave(world.now_ms, "done")
    world.until(lambda: reader.member.is_gone)
    assert {type(result) for result in reader.commit_results} <= {type(None)}
    assert world.failures == []


def test_whoever_has_not_asked_to_join_yet_has_nothing_to_leave() -> None:
    world = World({"t": 4})
    reader = world.add("t", protocol="consumer")
    reader.metadata.want("t", world.now_ms)
    reader.member.user_polled(world.now_ms)
    reader.member.poll(world.now_ms)
    assert not reader.member.is_gone, "it is about to join"
    reader.member.leave(world.now_ms, "done")
    assert reader.member.is_gone
    world.pass_time(5_000)
    assert heartbeats(world) == []


def test_a_user_who_does_not_poll_leaves_the_group_and_comes_back_with_the_next_poll() -> None:
    world, reader = joined()
    reader.is_polling = False
    world.pass_time(6_000)
    assert world.brokers.members() == set()
    assert heartbeats(world)[-1]["member_epoch"] == -1
    reader.is_polling = True
    world.settle()
    assert reader.news == [
        Lost(partitions("t", 0, 1, 2, 3)),
        Assigned(partitions("t", 0, 1, 2, 3), partitions("t", 0, 1, 2, 3)),
    ]


def test_a_static_member_gets_its_place_back() -> None:
    world = World({"t": 4})
    world.add("t", protocol="consumer", group_instance_id="a")
    second = world.add("t", protocol="consumer", group_instance_id="b")
    world.settle()
    had = second.owned
    second.member.leave(world.now_ms, "restart")
    world.until(lambda: second.member.is_gone)
    second.die()
    again = world.add("t", protocol="consumer", group_instance_id="b")
    world.settle()
    assert again.owned == had


def test_members_of_both_protocols_share_a_group() -> None:
    world = World({"t": 4})
    world.add("t", protocol="consumer")
    world.settle()
    world.add("t")
    world.settle()
    every_partition_is_read(world, "t")
