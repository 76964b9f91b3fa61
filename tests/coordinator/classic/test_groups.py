"""SyncGroup, Heartbeat, LeaveGroup and sessions of classic groups; what survives a crash."""

from __future__ import annotations

import pytest

from oncelog.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.wire.api import ApiKey
from tests.coordinator.support import Rig, error_of, joined


def assignment_of(rig: Rig, member_id: str, generation: int = 1) -> bytes:
    answer = rig.sync(member_id, generation).answer
    assert answer is not None
    assert answer["error_code"] == 0
    return bytes(answer["assignment"])


class TestSync:
    def test_all_wait_for_the_leader(self) -> None:
        rig = Rig()
        leader, first = rig.new_member()
        follower, second = rig.new_member()
        rig.pass_time(0)
        waiting = rig.sync(follower, 1)
        assert waiting.answer is None
        rig.sync(leader, 1, {leader: b"a", follower: b"b"})
        assert waiting.answer is not None
        assert bytes(waiting.answer["assignment"]) == b"b"
        assert (waiting.answer["protocol_type"], waiting.answer["protocol_name"]) == ("consumer", "range")
        assert joined(first)["generation_id"] == joined(second)["generation_id"] == 1

    def test_whoever_the_leader_forgets_has_nothing(self) -> None:
        rig = Rig()
        member_id, _ = rig.new_member()
        rig.pass_time(0)
        rig.sync(member_id, 1)
        assert rig.state() == "Stable"
        assert assignment_of(rig, member_id) == b""

    def test_a_stable_group_tells_it_again(self) -> None:
        rig = Rig()
        members = rig.stable_group(2)
        assert [assignment_of(rig, member_id) for member_id in members] == [each.encode() for each in members]

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"group_id": ""}, InvalidGroupId.code),
            ({"group_id": "other"}, UnknownMemberId.code),
            ({"member_id": "other"}, UnknownMemberId.code),
            ({"group_instance_id": "other"}, UnknownMemberId.code),
            ({"generation_id": 2}, IllegalGeneration.code),
            ({"protocol_name": "sticky"}, InconsistentGroupProtocol.code),
            ({"protocol_type": "connect"}, InconsistentGroupProtocol.code),
            ({"protocol_name": None}, InconsistentGroupProtocol.code),
        ],
    )
    def test_what_is_refused(self, fields: dict[str, object], code: int) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        body = {"group_id": "g", "generation_id": 1, "member_id": member_id, "assignments": []}
        body |= {"protocol_type": "consumer", "protocol_name": "range"}
        assert rig.ask(ApiKey.SYNC_GROUP, body | fields)["error_code"] == code

    def test_before_version_5_no_protocol_is_named(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        assert error_of(rig.sync(member_id, 1, version=4)) == 0

    def test_a_new_round_sends_those_who_wait_back(self) -> None:
        rig = Rig()
        rig.new_member()
        follower, _ = rig.new_member()
        rig.pass_time(0)
        waiting = rig.sync(follower, 1)
        rig.new_member()
        assert error_of(waiting) == RebalanceInProgress.code
        assert error_of(rig.sync(follower, 1)) == RebalanceInProgress.code

    def test_whoever_never_syncs_is_removed(self) -> None:
        rig = Rig()
        leader, _ = rig.new_member()
        silent, _ = rig.new_member()
        rig.pass_time(0)
        rig.sync(leader, 1, {leader: b"a", silent: b"b"})
        for _ in range(6):
            assert (rig.heartbeat(leader, 1), rig.heartbeat(silent, 1)) == (0, 0)
            rig.pass_time(9_999)
        rig.heartbeat(leader, 1)
        rig.pass_time(6)
        assert rig.heartbeat(silent, 1) == UnknownMemberId.code
        assert rig.heartbeat(leader, 1) == RebalanceInProgress.code

    def test_a_second_sync_takes_the_place_of_the_first(self) -> None:
        rig = Rig()
        rig.new_member()
        follower, _ = rig.new_member()
        rig.pass_time(0)
        first, second = rig.sync(follower, 1), rig.sync(follower, 1)
        assert error_of(first) == RebalanceInProgress.code
        assert second.answer is None


class TestHeartbeat:
    def test_what_is_refused(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        assert rig.heartbeat(member_id, 1) == 0
        assert rig.heartbeat(member_id, 2) == IllegalGeneration.code
        assert rig.heartbeat("other", 1) == UnknownMemberId.code
        assert rig.heartbeat(member_id, 1, group_id="other") == UnknownMemberId.code
        assert rig.heartbeat(member_id, 1, group_id="") == InvalidGroupId.code

    def test_a_session_ends_without_it(self) -> None:
        rig = Rig()
        silent, alive = rig.stable_group(2)
        rig.pass_time(5_000)
        rig.heartbeat(alive, 1)
        rig.pass_time(5_000)
        assert rig.heartbeat(silent, 1) == UnknownMemberId.code
        assert rig.heartbeat(alive, 1) == RebalanceInProgress.code

    def test_it_counts_while_the_assignment_is_awaited(self) -> None:
        rig = Rig()
        member_id, _ = rig.new_member()
        rig.pass_time(0)
        for _ in range(3):
            rig.pass_time(9_999)
            assert rig.heartbeat(member_id, 1) == 0

    def test_who_waits_for_us_does_not_expire(self) -> None:
        rig = Rig()
        leader, other = rig.stable_group(2)
        again = rig.join(member_id=leader)
        for _ in range(5):
            rig.heartbeat(other, 1)
            rig.pass_time(9_999)
        assert again.answer is None
        rig.join(member_id=other)
        assert {member["member_id"] for member in joined(again)["members"]} == {leader, other}

    def test_a_session_begins_anew_for_whoever_waited_in_vain(self) -> None:
        rig = Rig()
        silent, _ = rig.new_member()
        joining = rig.join(group_instance_id="i")
        rig.pass_time(0)
        static = joined(joining)["member_id"]
        waiting = rig.sync(static, 1, group_instance_id="i")
        rig.pass_time(9_999)
        rig.heartbeat(silent, 1)
        rig.pass_time(1)
        assert waiting.answer is None
        rig.leave(silent)
        assert error_of(waiting) == RebalanceInProgress.code
        rig.pass_time(9_999)
        assert [member["member_id"] for member in rig.described()["members"]] == [static]
        rig.pass_time(1)
        assert rig.described()["members"] == []

    def test_offset_commits_count_as_well(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        for _ in range(3):
            rig.pass_time(9_999)
            assert rig.commit(1, member_id, 1) == 0
        assert rig.state() == "Stable"


class TestLeave:
    def test_the_others_share_what_is_left(self) -> None:
        rig = Rig()
        leader, other = rig.stable_group(2)
        assert rig.leave(leader) == [0]
        answer = joined(rig.join(member_id=other))
        assert (answer["leader"], answer["generation_id"]) == (other, 2)

    def test_the_last_one_leaves_an_empty_group(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        assert rig.leave(member_id) == [0]
        described = rig.described()
        assert (described["group_state"], described["protocol_type"]) == ("Empty", "consumer")
        assert joined_generation(rig) == 3

    def test_several_at_once_by_id_and_by_instance(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        static = rig.join(group_instance_id="i")
        assert rig.leave(member_id, "other", instances=["i", "unknown"]) == [0, 25, 0, 25]
        assert error_of(static) == UnknownMemberId.code
        assert rig.state() == "Empty"

    def test_whoever_goes_while_its_sync_waits_is_told(self) -> None:
        rig = Rig()
        rig.new_member()
        follower, _ = rig.new_member()
        rig.pass_time(0)
        waiting = rig.sync(follower, 1)
        rig.leave(follower)
        assert error_of(waiting) == UnknownMemberId.code

    def test_a_pending_member_may_go(self) -> None:
        rig = Rig()
        (leader,) = rig.stable_group()
        pending = rig.join().answer
        assert pending is not None
        again = rig.join(member_id=leader)
        assert again.answer is None
        assert rig.leave(pending["member_id"]) == [0]
        assert joined(again)["generation_id"] == 2

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_old_versions_name_one_member(self, version: int) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        for expected in (0, UnknownMemberId.code):
            answer = rig.ask(ApiKey.LEAVE_GROUP, {"group_id": "g", "member_id": member_id}, version)
            assert answer["error_code"] == expected

    def test_no_group(self) -> None:
        rig = Rig()
        assert rig.leave("m", group_id="other") == [UnknownMemberId.code]
        answer = rig.ask(ApiKey.LEAVE_GROUP, {"group_id": "", "members": [{"member_id": "m"}]})
        assert answer["error_code"] == InvalidGroupId.code


def joined_generation(rig: Rig) -> int:
    _, ticket = rig.new_member()
    rig.pass_time(0)
    generation: int = joined(ticket)["generation_id"]
    return generation


class TestTheLog:
    def test_a_group_comes_back_stable_and_its_sessions_begin_anew(self) -> None:
        rig = Rig()
        members = rig.stable_group(3)
        before = rig.described()
        rig.now_ms += 1_000_000
        rig.crash()
        assert rig.described() == before
        rig.pass_time(9_999)
        assert [rig.heartbeat(member_id, 1) for member_id in members] == [0, 0, 0]
        rig.crash()
        rig.pass_time(10_000)
        assert rig.state() == "Empty"

    def test_a_round_that_was_not_over_never_was(self) -> None:
        rig = Rig()
        (leader,) = rig.stable_group()
        newcomer, _ = rig.new_member()
        rig.join(member_id=leader)
        assert rig.heartbeat(leader, 2) == 0
        rig.crash()
        assert rig.heartbeat(leader, 2) == IllegalGeneration.code
        assert rig.heartbeat(leader, 1) == 0
        assert error_of(rig.sync(newcomer, 2)) == UnknownMemberId.code

    def test_nobody_hears_of_an_assignment_that_is_not_durable(self) -> None:
        rig = Rig()
        leader, _ = rig.new_member()
        follower, _ = rig.new_member()
        rig.pass_time(0)
        waiting = rig.sync(follower, 1)
        rig.append_fails = True
        leading = rig.sync(leader, 1, {follower: b"b"})
        assert (waiting.answer, leading.answer) == (None, None)
        rig.append_fails = False
        assert rig.state() == "CompletingRebalance"
        again = rig.sync(follower, 1)
        rig.sync(leader, 1, {follower: b"c"})
        assert again.answer is not None
        assert bytes(again.answer["assignment"]) == b"c"

    def test_unloading_answers_all_who_wait(self) -> None:
        rig = Rig()
        rig.stable_group()
        ticket = rig.join(version=3)
        (reply,) = rig.coordinator.unload()
        assert (reply.ticket, reply.body["error_code"]) == (ticket, 16)
