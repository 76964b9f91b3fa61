"""JoinGroup: who may join, as whom, and what begins a round."""

from __future__ import annotations

from typing import ClassVar

import pytest

from oncelog.coordinator.effects import GroupSettings
from oncelog.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from tests.coordinator.support import Rig, error_of, joined, protocols


def test_a_dynamic_member_first_gets_an_id() -> None:
    rig = Rig()
    answer = rig.join().answer
    assert answer is not None
    assert (answer["error_code"], answer["member_id"]) == (MemberIdRequired.code, "client-id1")
    assert (answer["generation_id"], answer["protocol_name"]) == (-1, None)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_it_joins_at_once(version: int) -> None:
    rig = Rig()
    ticket = rig.join(version=version)
    rig.pass_time(0)
    assert joined(ticket)["members"][0]["member_id"] == joined(ticket)["leader"] == "client-id1"


def test_version_0_has_one_timeout_for_both() -> None:
    rig = Rig()
    first = rig.join(version=0)
    rig.pass_time(0)
    member_id = joined(first)["member_id"]
    rig.sync(member_id, 1)
    second = rig.join(version=0)
    rig.pass_time(5_000)
    rig.heartbeat(member_id, 1)
    rig.pass_time(4_999)
    assert second.answer is None
    rig.pass_time(1)
    assert joined(second)["generation_id"] == 2


def test_a_pending_member_keeps_a_round_open_until_its_session_ends() -> None:
    rig = Rig()
    (leader,) = rig.stable_group()
    rig.join()
    again = rig.join(member_id=leader)
    rig.pass_time(9_999)
    assert again.answer is None
    rig.pass_time(1)
    assert joined(again)["generation_id"] == 2


def test_every_round_is_a_new_generation_and_tells_the_leader_who_is_in_it() -> None:
    rig = Rig()
    (leader,) = rig.stable_group()
    second, waiting = rig.new_member()
    assert waiting.answer is None
    assert rig.state() == "PreparingRebalance"
    leading = joined(rig.join(member_id=leader))
    assert [member["member_id"] for member in leading["members"]] == [leader, second]
    assert leading["generation_id"] == joined(waiting)["generation_id"] == 2
    assert (joined(waiting)["members"], joined(waiting)["leader"]) == ([], leader)


def test_whoever_does_not_come_back_in_time_is_out() -> None:
    rig = Rig()
    leader, lost = rig.stable_group(2)
    again = rig.join(member_id=leader)
    for _ in range(6):
        assert rig.heartbeat(lost, 1) == RebalanceInProgress.code
        assert again.answer is None
        rig.pass_time(9_999)
    rig.heartbeat(lost, 1)
    rig.pass_time(6)
    assert [member["member_id"] for member in joined(again)["members"]] == [leader]
    assert rig.heartbeat(lost, 1) == UnknownMemberId.code


def test_the_protocol_with_the_most_votes_among_those_that_all_know() -> None:
    rig = Rig(GroupSettings(group_initial_rebalance_delay_ms=100))
    wishes = [("sticky", "range", "roundrobin"), ("roundrobin", "range"), ("roundrobin", "range", "sticky")]
    tickets = [rig.new_member(protocols=protocols(*names))[1] for names in wishes]
    rig.pass_time(200)
    assert [joined(ticket)["protocol_name"] for ticket in tickets] == ["roundrobin"] * 3


def test_a_member_without_a_common_protocol_is_refused() -> None:
    rig = Rig()
    rig.stable_group()
    for fields in ({"protocols": protocols("sticky")}, {"protocol_type": "connect"}, {"protocols": []}):
        assert error_of(rig.join(**fields)) == InconsistentGroupProtocol.code
    assert error_of(rig.join("other", protocols=[])) == InconsistentGroupProtocol.code
    assert error_of(rig.join("other", protocol_type="")) == InconsistentGroupProtocol.code


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    rig = Rig()
    (leader,) = rig.stable_group(protocols=protocols("range", "range", "sticky"))
    rig.new_member(protocols=protocols("sticky", "sticky", "range"))
    again = joined(rig.join(member_id=leader, protocols=protocols("sticky", "sticky", "range")))
    assert again["protocol_name"] == "sticky"


def test_what_no_group_takes() -> None:
    rig = Rig()
    assert error_of(rig.join("")) == InvalidGroupId.code
    assert error_of(rig.join(session_timeout_ms=5_999)) == InvalidSessionTimeout.code
    assert error_of(rig.join(session_timeout_ms=1_800_001)) == InvalidSessionTimeout.code
    assert error_of(rig.join(member_id="stale")) == UnknownMemberId.code
    rig.stable_group()
    assert error_of(rig.join(member_id="stale")) == UnknownMemberId.code


def test_names_that_no_record_can_hold_stay_outside() -> None:
    rig = Rig()
    assert error_of(rig.join("g" * 32_760)) == InvalidGroupId.code
    assert error_of(rig.join(group_instance_id="i" * 32_760)) == InvalidRequest.code
    assert error_of(rig.join(protocols=protocols("p" * 32_760))) == InvalidRequest.code


def test_the_first_round_waits_for_more_as_long_as_they_come() -> None:
    rig = Rig(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    first = rig.new_member()[1]
    rig.pass_time(2_000)
    second = rig.new_member()[1]
    rig.pass_time(2_000)
    assert first.answer is None
    rig.pass_time(2_000)
    assert joined(first)["generation_id"] == joined(second)["generation_id"] == 1


def test_and_never_longer_than_the_rebalance_timeout() -> None:
    rig = Rig(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    first = rig.new_member(rebalance_timeout_ms=7_000)[1]
    for _ in range(6):
        rig.pass_time(1_000)
        rig.new_member(rebalance_timeout_ms=7_000)
    assert first.answer is None
    rig.pass_time(1_000)
    assert len(joined(first)["members"]) == 7


def test_the_group_has_a_largest_size() -> None:
    rig = Rig(GroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=2))
    members = rig.stable_group(2)
    assert error_of(rig.join()) == GroupMaxSizeReached.code
    again = rig.join(member_id=members[0])
    rig.join(member_id=members[1])
    assert joined(again)["generation_id"] == 2


def test_a_round_takes_only_as_many_as_the_group_may_have() -> None:
    rig = Rig(GroupSettings(group_initial_rebalance_delay_ms=100, group_max_size=2))
    accepted = [rig.join(version=3) for _ in range(2)]
    refused = rig.join(version=3)
    assert error_of(refused) == GroupMaxSizeReached.code
    rig.pass_time(200)
    assert [joined(ticket)["generation_id"] for ticket in accepted] == [1, 1]


class TestMembersThatTheGroupKnows:
    def test_a_lost_answer_is_given_again(self) -> None:
        rig = Rig()
        member_id, ticket = rig.new_member()
        rig.pass_time(0)
        assert joined(rig.join(member_id=member_id)) == joined(ticket)
        assert rig.state() == "CompletingRebalance"

    def test_new_metadata_begins_a_round_even_then(self) -> None:
        rig = Rig()
        member_id, _ = rig.new_member()
        rig.pass_time(0)
        again = joined(rig.join(member_id=member_id, protocols=protocols("range", topics=["bills"])))
        assert again["generation_id"] == 2

    def test_a_follower_with_nothing_new_stays_in_its_generation(self) -> None:
        rig = Rig()
        leader, follower = rig.stable_group(2)
        answer = joined(rig.join(member_id=follower))
        assert (answer["generation_id"], answer["leader"], answer["members"]) == (1, leader, [])
        assert rig.state() == "Stable"

    def test_a_leader_that_joins_again_wants_a_round(self) -> None:
        rig = Rig()
        leader, follower = rig.stable_group(2)
        assert rig.join(member_id=leader).answer is None
        assert rig.state() == "PreparingRebalance"
        assert rig.heartbeat(follower, 1) == RebalanceInProgress.code

    def test_a_second_join_takes_the_place_of_the_first(self) -> None:
        rig = Rig()
        leader, _ = rig.stable_group(2)
        first = rig.join(member_id=leader)
        second = rig.join(member_id=leader)
        assert error_of(first) == RebalanceInProgress.code
        assert second.answer is None


class TestStaticMembers:
    def joined_static(self, rig: Rig, version: int | None = None) -> str:
        ticket = rig.join(group_instance_id="i", version=version)
        rig.pass_time(0)
        member_id: str = joined(ticket)["member_id"]
        rig.sync(member_id, joined(ticket)["generation_id"], {member_id: b"mine"}, group_instance_id="i")
        return member_id

    def test_the_id_names_the_instance_and_is_given_at_once(self) -> None:
        assert self.joined_static(Rig()).startswith("i-")

    def test_a_leader_that_comes_back_keeps_generation_and_assignment(self) -> None:
        rig = Rig()
        old = self.joined_static(rig)
        answer = joined(rig.join(group_instance_id="i"))
        assert (answer["generation_id"], answer["skip_assignment"]) == (1, True)
        assert answer["leader"] == answer["member_id"] != old
        assert [member["member_id"] for member in answer["members"]] == [answer["member_id"]]
        synced = rig.sync(answer["member_id"], 1, group_instance_id="i").answer
        assert synced is not None
        assert bytes(synced["assignment"]) == b"mine"

    def test_an_old_client_is_told_of_a_leader_that_is_gone(self) -> None:
        rig = Rig()
        old = self.joined_static(rig)
        answer = joined(rig.join(group_instance_id="i", version=8))
        assert (answer["leader"], answer["members"], answer["skip_assignment"]) == (old, [], False)

    def test_the_process_before_is_fenced(self) -> None:
        rig = Rig()
        old = self.joined_static(rig)
        rig.join(group_instance_id="i")
        assert rig.heartbeat(old, 1, group_instance_id="i") == FencedInstanceId.code
        assert error_of(rig.join(member_id=old, group_instance_id="i")) == FencedInstanceId.code
        assert error_of(rig.sync(old, 1, group_instance_id="i")) == FencedInstanceId.code
        assert rig.commit(1, old, 1, group_instance_id="i") == FencedInstanceId.code
        assert rig.heartbeat(old, 1) == UnknownMemberId.code

    def test_the_new_id_survives_a_crash(self) -> None:
        rig = Rig()
        self.joined_static(rig)
        member_id = joined(rig.join(group_instance_id="i"))["member_id"]
        rig.crash()
        assert rig.heartbeat(member_id, 1, group_instance_id="i") == 0

    def test_without_a_durable_record_nothing_has_changed(self) -> None:
        rig = Rig()
        old = self.joined_static(rig)
        rig.append_fails = True
        assert rig.join(group_instance_id="i").answer is None
        rig.append_fails = False
        assert rig.heartbeat(old, 1, group_instance_id="i") == 0

    def test_another_protocol_needs_a_round(self) -> None:
        rig = Rig()
        first = rig.join(group_instance_id="i", protocols=protocols("range", "sticky"))
        rig.pass_time(0)
        member_id = joined(first)["member_id"]
        rig.sync(member_id, 1, {member_id: b"mine"}, group_instance_id="i")
        answer = joined(rig.join(group_instance_id="i", protocols=protocols("sticky", "range")))
        assert (answer["generation_id"], answer["protocol_name"]) == (2, "sticky")

    def test_whoever_waits_as_the_instance_is_fenced_by_the_next(self) -> None:
        rig = Rig()
        rig.stable_group()
        first = rig.join(group_instance_id="i")
        second = rig.join(group_instance_id="i")
        assert error_of(first) == FencedInstanceId.code
        assert second.answer is None

    def test_it_keeps_its_place_in_a_round_that_it_misses(self) -> None:
        rig = Rig()
        static = self.joined_static(rig)
        _, waiting = rig.new_member()
        for _ in range(6):
            rig.heartbeat(static, 1, group_instance_id="i")
            rig.pass_time(9_999)
        rig.heartbeat(static, 1, group_instance_id="i")
        rig.pass_time(6)
        members = {member["group_instance_id"] for member in joined(waiting)["members"]}
        assert members == {"i", None}
        assert joined(waiting)["leader"] == joined(waiting)["member_id"]

    def test_in_a_generation_that_waits_for_its_assignment_it_begins_a_round(self) -> None:
        rig = Rig()
        ticket = rig.join(group_instance_id="i")
        rig.pass_time(0)
        assert joined(ticket)["generation_id"] == 1
        assert joined(rig.join(group_instance_id="i"))["generation_id"] == 2


def test_a_join_whose_connection_is_gone_leaves_no_nameless_member() -> None:
    rig = Rig()
    (leader,) = rig.stable_group()
    lost = rig.join(version=3)
    rig.coordinator.forget(lost)
    rig.pass_time(0)
    again = joined(rig.join(member_id=leader))
    assert [member["member_id"] for member in again["members"]] == [leader]


def test_a_first_join_does_not_wait_for_ever() -> None:
    rig = Rig()
    rig.stable_group(rebalance_timeout_ms=1_000_000, session_timeout_ms=1_000_000)
    lost = rig.join(version=3, rebalance_timeout_ms=1_000_000)
    rig.pass_time(299_999)
    assert lost.answer is None
    rig.pass_time(1)
    assert error_of(lost) == UnknownMemberId.code


class TestRoomForMembers:
    """Many groups with one large member each are bounded together."""

    LARGE: ClassVar = [{"name": "range", "metadata": bytes(1_000)}]

    def rig(self) -> Rig:
        rig = Rig()
        rig.room.max_bytes = 2_500
        return rig

    def test_a_member_for_whom_there_is_no_room_is_told_to_come_again(self) -> None:
        rig = self.rig()
        for group_id in ("a", "b"):
            rig.join(group_id, version=3, protocols=self.LARGE)
        assert rig.room.held_bytes == 2_000
        assert error_of(rig.join("c", version=3, protocols=self.LARGE)) == CoordinatorNotAvailable.code
        assert rig.room.held_bytes == 2_000
        rig.pass_time(0)
        rig.pass_time(60_000)
        rig.pass_time(60_000)
        assert rig.room.held_bytes == 0, "sessions ended, and groups with them"
        assert rig.join("c", version=3, protocols=self.LARGE).answer is None

    def test_a_member_that_joins_again_counts_once(self) -> None:
        rig = self.rig()
        (leader,) = rig.stable_group(protocols=self.LARGE)
        held = rig.room.held_bytes
        assert held >= 1_000
        rig.join(member_id=leader, protocols=self.LARGE)
        rig.join(member_id=leader, protocols=[{"name": "range", "metadata": bytes(1_400)}])
        assert rig.room.held_bytes == held + 400
        rig.coordinator.unload()
        assert rig.room.held_bytes == 0

    def test_assignments_count(self) -> None:
        rig = self.rig()
        (leader,) = rig.stable_group(protocols=self.LARGE)
        joined(rig.join(member_id=leader, protocols=self.LARGE))
        before = rig.room.held_bytes
        assert error_of(rig.sync(leader, 2, {leader: bytes(2_000)})) == CoordinatorNotAvailable.code
        assert rig.room.held_bytes == before
        assert error_of(rig.sync(leader, 2, {leader: bytes(1_000)})) == 0
        assert rig.room.held_bytes == 2_000
