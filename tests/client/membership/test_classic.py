"""Classic members and a real coordinator: each phase, each loss, each error, and what a member does about it."""

from __future__ import annotations

import re

import pytest

from oncelog import errors
from oncelog.client.consumer_errors import MaxPollExceeded
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.client.membership.consumer_protocol import decode_subscription
from oncelog.client.membership.news import Assigned, Failed, Lost, Revoking
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.client.membership.group_world import Reader, World, every_partition_is_read
from tests.client.membership.model_coordinator import APIS, newest

COOPERATIVE = {"strategy": ("cooperative-sticky",)}


def partitions(topic: str, *indexes: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, index) for index in indexes)


def joined(**settings: object) -> tuple[World, Reader]:
    world = World({"t": 4})
    reader = world.add("t", **settings)  # type: ignore[arg-type]
    world.settle()
    reader.news.clear()
    world.brokers.asked.clear()
    return world, reader


def kinds(reader: Reader) -> list[type]:
    return [type(one) for one in reader.news]


# --- joining -------------------------------------------------------------------------------------------------


def test_the_first_join_brings_a_member_id_and_the_second_brings_us_in() -> None:
    world = World({"t": 4})
    reader = world.add("t")
    world.settle()
    assert [body["member_id"] for body in world.brokers.bodies(ApiKey.JOIN_GROUP)] == [
        "",
        reader.member.identity.member_id,
    ]
    assert reader.news == [Assigned(partitions("t", 0, 1, 2, 3), partitions("t", 0, 1, 2, 3))]
    assert reader.member.identity.generation_id == 1
    assert reader.member.counters.rebalances == 1


def test_the_oldest_brokers_are_spoken_to() -> None:
    versions = {api: (newest(api)[0], newest(api)[0]) for api in APIS if api is not ApiKey.API_VERSIONS}
    world = World({"t": 4}, versions={**versions, ApiKey.METADATA: (0, 4)})
    readers = [world.add("t"), world.add("t")]
    world.settle()
    every_partition_is_read(world, "t")
    readers[0].member.leave(world.now_ms, "bye")
    world.until(lambda: readers[0].member.is_gone)
    readers[0].die()
    world.settle()
    every_partition_is_read(world, "t")
    assert {error for error in readers[1].commit_results if error is not None} == set()


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_group_brings_us_in(version: int) -> None:
    world = World({"t": 4}, versions={ApiKey.JOIN_GROUP: (0, version)})
    world.add("t")
    world.add("t")
    world.settle()
    every_partition_is_read(world, "t")


@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
def test_when_an_answer_is_lost_the_same_member_goes_on(api_key: ApiKey) -> None:
    world, reader = joined()
    member_id = reader.member.identity.member_id
    world.brokers.lose_answers(api_key)
    reader.member.ask_rebalance("test")
    world.pass_time(400)
    world.settle()
    assert reader.member.identity.member_id == member_id
    assert world.brokers.members() == {member_id}
    assert Lost not in kinds(reader)
    assert len(world.brokers.bodies(ApiKey.JOIN_GROUP)) == (1 if api_key is ApiKey.HEARTBEAT else 2)
    every_partition_is_read(world, "t")


def test_the_first_answer_lost_leaves_no_second_member_behind() -> None:
    world = World({"t": 4})
    world.brokers.lose_answers(ApiKey.JOIN_GROUP)
    reader = world.add("t")
    world.settle()
    world.pass_time(4_000)
    assert world.brokers.members() == {reader.member.identity.member_id}


@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
@pytest.mark.parametrize("code", [14, 15, 16, 7])
def test_errors_of_a_coordinator_that_cannot_answer_are_waited_out(api_key: ApiKey, code: int) -> None:
    world, reader = joined(**COOPERATIVE)
    member_id = reader.member.identity.member_id
    world.brokers.refuse(api_key, code, code)
    reader.member.ask_rebalance("test")
    world.settle()
    assert reader.member.identity.member_id == member_id
    assert Lost not in kinds(reader)
    assert world.failures == []
    every_partition_is_read(world, "t")


@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
def test_a_rebalance_of_the_others_is_joined(api_key: ApiKey) -> None:
    world, reader = joined(**COOPERATIVE)
    world.brokers.refuse(api_key, errors.RebalanceInProgress.code)
    reader.member.ask_rebalance("test")
    world.settle()
    assert reader.member.identity.generation_id > 1
    assert Lost not in kinds(reader)
    every_partition_is_read(world, "t")


@pytest.mark.parametrize("api_key", [ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
def test_an_old_generation_loses_everything_and_joins_under_its_id(api_key: ApiKey) -> None:
    world, reader = joined(**COOPERATIVE)
    member_id = reader.member.identity.member_id
    world.brokers.refuse(api_key, errors.IllegalGeneration.code)
    reader.member.ask_rebalance("test")
    world.settle()
    assert kinds(reader)[-2:] == [Lost, Assigned]
    assert reader.member.identity.member_id == member_id
    every_partition_is_read(world, "t")


@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
def test_whoever_is_no_member_any_more_loses_everything_and_joins_as_a_new_one(api_key: ApiKey) -> None:
    world, reader = joined(**COOPERATIVE)
    member_id = reader.member.identity.member_id
    world.brokers.refuse(api_key, errors.UnknownMemberId.code)
    reader.member.ask_rebalance("test")
    world.settle()
    assert reader.news[-2:] == [
        Lost(partitions("t", 0, 1, 2, 3)),
        Assigned(partitions("t", 0, 1, 2, 3), partitions("t", 0, 1, 2, 3)),
    ]
    assert reader.member.identity.member_id != member_id


@pytest.mark.parametrize("error", [errors.UnknownMemberId, errors.RebalanceInProgress, errors.MemberIdRequired])
@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_a_coordinator_that_never_lets_us_in_is_not_asked_without_a_pause(
    api_key: ApiKey, error: type[errors.KafkaError]
) -> None:
    world = World({"t": 4})
    world.brokers.refuse(api_key, *[error.code] * 100_000)
    world.add("t")
    world.pass_time(5_000)
    assert len(world.brokers.bodies(api_key)) <= 300, "a pause of 20 ms at least, after a few attempts"


@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
def test_a_fenced_instance_ends_for_good(api_key: ApiKey) -> None:
    world, reader = joined(group_instance_id="i", **COOPERATIVE)
    world.brokers.refuse(api_key, errors.FencedInstanceId.code)
    reader.member.ask_rebalance("test")
    world.pass_time(3_000)
    assert kinds(reader)[-2:] == [Lost, Failed]
    assert [type(error) for error in world.failures] == [errors.FencedInstanceId]
    assert reader.owned == frozenset()
    world.brokers.asked.clear()
    world.pass_time(3_000)
    assert world.brokers.bodies(ApiKey.JOIN_GROUP) == []


@pytest.mark.parametrize("code", [23, 24, 26, 30, 81, 42, -1])
def test_what_the_coordinator_refuses_the_user_hears_and_the_next_poll_tries_again(code: int) -> None:
    world = World({"t": 4})
    world.brokers.refuse(ApiKey.JOIN_GROUP, code)
    reader = world.add("t")
    world.settle()
    assert kinds(reader) == [Failed, Assigned]
    assert [error.code for error in world.failures if isinstance(error, errors.KafkaError)] == [code]


def test_a_group_that_may_not_be_found_is_told_and_tried_again() -> None:
    world = World({"t": 4})
    world.brokers.refuse(ApiKey.FIND_COORDINATOR, errors.GroupAuthorizationFailed.code)
    reader = world.add("t")
    world.settle()
    assert kinds(reader) == [Failed, Assigned]


def test_a_coordinator_without_group_apis_is_told_once() -> None:
    world = World({"t": 4}, versions={ApiKey.JOIN_GROUP: (100, 101)})
    reader = world.add("t")
    world.pass_time(3_000)
    assert kinds(reader) == [Failed]
    assert isinstance(world.failures[0], errors.UnsupportedVersion)


# --- rebalancing ---------------------------------------------------------------------------------------------


def test_eager_members_join_only_after_they_gave_up_everything() -> None:
    world, reader = joined()
    reader.is_polling = False
    other = world.add("t")
    world.pass_time(2_000)
    assert [body["member_id"] for body in world.brokers.bodies(ApiKey.JOIN_GROUP)].count(
        reader.member.identity.member_id
    ) == 0
    assert reader.member.assignment == partitions("t", 0, 1, 2, 3)
    assert other.owned == frozenset()
    reader.is_polling = True
    world.settle()
    assert reader.news[0] == Revoking(partitions("t", 0, 1, 2, 3))
    every_partition_is_read(world, "t")


def test_cooperative_members_keep_what_does_not_move() -> None:
    world, reader = joined(**COOPERATIVE)
    other = world.add("t", **COOPERATIVE)  # type: ignore[arg-type]
    world.settle()
    [revoking] = [one for one in reader.news if isinstance(one, Revoking)]
    assert len(revoking.partitions) == 2
    assert reader.owned == partitions("t", 0, 1, 2, 3) - revoking.partitions
    assert other.owned == revoking.partitions
    assert [error for error in reader.commit_results if error is not None] == []


def test_a_mixed_group_uses_what_all_have() -> None:
    """As in a rolling change from eager to cooperative."""
    world = World({"t": 4})
    world.add("t", strategy=("range",))
    world.add("t", strategy=("cooperative-sticky", "range"))
    world.settle()
    every_partition_is_read(world, "t")


def test_a_changed_subscription_rejoins_and_gives_up_what_is_not_wanted() -> None:
    world = World({"t": 2, "u": 2})
    reader = world.add("t", "u", **COOPERATIVE)  # type: ignore[arg-type]
    world.settle()
    reader.news.clear()
    reader.subscribe("u")
    world.settle()
    assert reader.owned == partitions("u", 0, 1)
    assert reader.news[0] == Revoking(partitions("t", 0, 1))
    assert Lost not in kinds(reader)


def test_the_same_subscription_again_moves_nothing() -> None:
    world, reader = joined()
    reader.subscribe("t")
    world.settle()
    assert reader.member.identity.generation_id == 1
    assert reader.news == []


def test_an_assignor_of_the_user_that_raises_is_the_users_to_hear() -> None:
    class Broken:
        name = "broken"
        is_broken = True

        def assign(self, topics: object, members: dict[str, object]) -> dict[str, list[TopicPartition]]:
            if self.is_broken:
                self.is_broken = False
                raise ZeroDivisionError("my assignor")
            return {member_id: [TopicPartition("t", 0)] for member_id in members}

    world = World({"t": 1})
    reader = world.add("t", strategy=(Broken(),))
    world.settle()
    assert kinds(reader) == [Failed, Assigned]
    assert [type(error) for error in world.failures] == [ZeroDivisionError]


def test_what_is_refused_again_and_again_is_told_once_a_poll() -> None:
    world, reader = joined()
    reader.is_polling = False
    world.brokers.refuse(ApiKey.HEARTBEAT, *([30] * 9))
    world.pass_time(3_000)
    assert [type(one) for one in reader.member.take_news()] == [Failed]


def test_the_leader_notices_that_a_topic_grew() -> None:
    world, reader = joined()
    world.brokers.topics.counts["t"] = 6
    world.until(lambda: len(reader.owned) == 6)


def test_a_topic_that_is_created_later_is_read() -> None:
    world = World({"t": 1})
    reader = world.add("t", "later")
    world.settle()
    world.brokers.topics.create("later", 2)
    world.until(lambda: reader.owned == partitions("t", 0) | partitions("later", 0, 1))


def test_a_topic_that_is_deleted_is_given_up_and_the_group_goes_on() -> None:
    world = World({"t": 1, "u": 1})
    reader = world.add("t", "u")
    world.settle()
    world.brokers.topics.delete("u")
    world.until(lambda: reader.owned == partitions("t", 0))


def test_a_pattern_is_what_matches_now() -> None:
    world = World({"in-1": 1, "other": 1})
    reader = world.add(re.compile("in-.*"))
    assert reader.member.wants_all_topics
    world.settle()
    assert reader.owned == partitions("in-1", 0)
    world.brokers.topics.create("in-2", 1)
    world.until(lambda: reader.owned == partitions("in-1", 0) | partitions("in-2", 0))
    [first, *_] = world.brokers.bodies(ApiKey.JOIN_GROUP)
    assert b"in-1" in bytes(first["protocols"][0]["metadata"]), "joined only when it was known what matches"


def test_the_user_can_ask_for_a_rebalance() -> None:
    world, reader = joined()
    reader.member.ask_rebalance("new racks")
    assert not reader.member.is_joined
    world.settle()
    assert world.brokers.bodies(ApiKey.JOIN_GROUP)[0]["reason"] == "new racks"
    assert reader.member.identity.generation_id == 2


# --- the user ------------------------------------------------------------------------------------------------


def test_a_user_who_does_not_poll_leaves_the_group_and_comes_back_with_the_next_poll() -> None:
    world, reader = joined()
    reader.is_polling = False
    world.pass_time(6_000)
    assert world.brokers.members() == set()
    [leave] = world.brokers.bodies(ApiKey.LEAVE_GROUP)
    assert "max.poll.interval.ms" in leave["members"][0]["reason"]
    assert reader.member.assignment == frozenset()
    assert reader.member.identity.generation_id == -1
    late: list[Exception | None] = []
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(1)}
    reader.commits.commit(offsets, reader.member.identity, world.now_ms, late.append, retry=True)
    assert [type(error) for error in late] == [MaxPollExceeded]
    reader.is_polling = True
    world.settle()
    assert reader.news[0] == Lost(partitions("t", 0, 1, 2, 3))
    every_partition_is_read(world, "t")


def test_while_the_user_is_slow_heartbeats_go_on() -> None:
    world, reader = joined()
    reader.is_polling = False
    world.pass_time(4_500)
    assert reader.member.is_joined
    assert len(world.brokers.bodies(ApiKey.HEARTBEAT)) > 10


# --- leaving -------------------------------------------------------------------------------------------------


def test_leaving_gives_up_first_and_then_says_so() -> None:
    world, reader = joined()
    reader.is_polling = False
    reader.member.leave(world.now_ms, "done")
    world.pass_time(500)
    assert world.brokers.bodies(ApiKey.LEAVE_GROUP) == []
    reader.is_polling = True
    world.until(lambda: reader.member.is_gone)
    assert reader.news == [Revoking(partitions("t", 0, 1, 2, 3))]
    assert world.brokers.bodies(ApiKey.LEAVE_GROUP)[0]["members"][0]["reason"] == "done"
    assert world.brokers.members() == set()
    reader.subscribe("t")
    world.settle()
    every_partition_is_read(world, "t")


def test_leaving_a_group_that_was_never_joined_is_nothing() -> None:
    world = World({"t": 4})
    reader = world.add("t")
    reader.member.leave(world.now_ms, "done")
    assert reader.member.is_gone
    assert not reader.commits.needs_member


def test_leaving_while_joining_does_not_wait_for_the_others() -> None:
    world, reader = joined()
    other = world.add("t")
    reader.is_polling = False
    world.pass_time(700)  # the other's JoinGroup waits for the first
    other.member.leave(world.now_ms, "changed its mind")
    world.until(lambda: other.member.is_gone, 1_000)
    other.die()
    world.pass_time(500)
    assert world.brokers.members() == {reader.member.identity.member_id}


def test_a_coordinator_that_is_not_there_does_not_keep_us_from_leaving() -> None:
    world, reader = joined()
    world.brokers.be_silent()
    reader.member.leave(world.now_ms, "done")
    world.until(lambda: reader.member.is_gone, 6_000)  # the offset commit of the revocation fails first


# --- static members ------------------------------------------------------------------------------------------


def test_a_static_member_keeps_its_place_over_a_restart() -> None:
    world = World({"t": 4})
    first = world.add("t", group_instance_id="a")
    second = world.add("t", group_instance_id="b")
    world.settle()
    had = second.owned
    generation = first.member.identity.generation_id
    second.member.leave(world.now_ms, "restart")
    world.until(lambda: second.member.is_gone)
    second.die()
    assert world.brokers.bodies(ApiKey.LEAVE_GROUP) == []
    again = world.add("t", group_instance_id="b")
    world.settle()
    assert again.owned == had
    assert first.member.identity.generation_id == generation, "nobody else noticed"


def test_of_two_with_one_instance_id_the_older_ends() -> None:
    world = World({"t": 4})
    older = world.add("t", group_instance_id="a")
    world.settle()
    newer = world.add("t", group_instance_id="a")
    world.until(lambda: bool(world.failures))
    assert [type(error) for error in world.failures] == [errors.FencedInstanceId]
    assert kinds(older)[-2:] == [Lost, Failed]
    older.die()
    world.settle()
    assert newer.owned == partitions("t", 0, 1, 2, 3)


def test_a_coordinator_that_knows_no_instance_ids_is_an_error() -> None:
    world = World({"t": 4}, versions={ApiKey.JOIN_GROUP: (0, 4)})
    world.add("t", group_instance_id="a")
    world.pass_time(2_000)
    [error] = world.failures
    assert isinstance(error, errors.UnsupportedVersion)
    assert "group.instance.id" in str(error)


def test_a_static_leader_that_came_back_still_watches_the_topics() -> None:
    world = World({"t": 2})
    reader = world.add("t", group_instance_id="a")
    world.settle()
    reader.die()
    again = world.add("t", group_instance_id="a")
    world.settle()
    assert again.owned == partitions("t", 0, 1)
    assert again.member.identity.generation_id == 1, "nothing has changed"
    world.brokers.topics.counts["t"] = 3
    world.until(lambda: len(again.owned) == 3)


# --- the coordinator -----------------------------------------------------------------------------------------


def test_a_coordinator_that_moves_or_restarts_costs_no_partitions() -> None:
    world, reader = joined()
    world.brokers.move(world.now_ms)
    world.pass_time(2_000)
    world.brokers.crash(world.now_ms)
    world.pass_time(2_000)
    world.settle()
    assert reader.news == []
    assert reader.member.identity.generation_id == 1


def test_a_coordinator_that_does_not_answer_is_searched_again_after_the_session() -> None:
    world, _ = joined(request_timeout_ms=60_000)
    world.brokers.be_silent()
    world.pass_time(4_000)
    world.brokers.be_silent(False)
    world.brokers.asked.clear()
    world.settle()
    assert world.brokers.bodies(ApiKey.FIND_COORDINATOR)
    every_partition_is_read(world, "t")


def test_who_was_silent_for_longer_than_its_session_claims_nothing_when_it_joins_again() -> None:
    """A coordinator that takes every member id (of a KIP-848 group, from a classic member) would believe the claim."""
    world, reader = joined(**COOPERATIVE)
    reader.member.ask_rebalance("test")
    reader.frozen_until_ms = world.now_ms + 4_000
    world.pass_time(4_000)
    world.settle()
    assert kinds(reader)[0] is Lost
    claims = [
        decode_subscription(body["protocols"][0]["metadata"]).owned for body in world.brokers.bodies(ApiKey.JOIN_GROUP)
    ]
    assert set(claims) == {()}
    every_partition_is_read(world, "t")


def test_heartbeats_come_as_often_as_they_are_wished() -> None:
    world, reader = joined()
    world.pass_time(3_000)
    assert 9 <= len(world.brokers.bodies(ApiKey.HEARTBEAT)) <= 14
    assert reader.member.counters.heartbeats >= 9
