"""What concerns all groups of a partition: lists, descriptions, deletion, and which protocol a group speaks."""

from __future__ import annotations

from oncelog.errors import GroupIdNotFound, NonEmptyGroup
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.coordinator.support import Rig, joined


def listed(rig: Rig, **filters: list[str]) -> dict[str, tuple[str, str, str]]:
    groups: list[Message] = rig.ask(ApiKey.LIST_GROUPS, filters)["groups"]
    return {each["group_id"]: (each["protocol_type"], each["group_state"], each["group_type"]) for each in groups}


def deleted(rig: Rig, *group_ids: str) -> dict[str, int]:
    results: list[Message] = rig.ask(ApiKey.DELETE_GROUPS, {"groups_names": list(group_ids)})["results"]
    return {each["group_id"]: each["error_code"] for each in results}


class TestList:
    def test_states_and_types_in_any_case(self) -> None:
        rig = Rig()
        rig.stable_group()
        rig.commit(group_id="simple")
        stable, simple = ("consumer", "Stable", "classic"), ("", "Empty", "classic")
        assert listed(rig) == {"g": stable, "simple": simple}
        assert listed(rig, states_filter=["STABLE", "unknown"]) == {"g": stable}
        assert listed(rig, types_filter=["Classic"]) == {"g": stable, "simple": simple}
        assert listed(rig, types_filter=["consumer"]) == {}

    def test_old_versions_know_no_filters(self) -> None:
        rig = Rig()
        rig.stable_group()
        for version in range(6):
            assert [each["group_id"] for each in rig.ask(ApiKey.LIST_GROUPS, {}, version)["groups"]] == ["g"]


class TestDescribe:
    def test_a_stable_group_with_what_its_members_hold(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        described = rig.described()
        assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
        (member,) = described["members"]
        assert (member["member_id"], member["client_id"], member["client_host"]) == (member_id, "client", "/127.0.0.1")
        assert bytes(member["member_assignment"]) == member_id.encode()
        assert bytes(member["member_metadata"]) != b""

    def test_in_a_round_there_is_no_protocol(self) -> None:
        rig = Rig()
        rig.stable_group()
        rig.new_member()
        described = rig.described()
        assert (described["group_state"], described["protocol_data"]) == ("PreparingRebalance", "")
        assert bytes(described["members"][0]["member_metadata"]) == b""

    def test_a_group_that_is_not_there(self) -> None:
        rig = Rig()
        assert rig.described("other")["error_code"] == GroupIdNotFound.code
        for version in range(6):
            described = rig.described("other", version)
            assert (described["error_code"], described["group_state"]) == (0, "Dead")


class TestDeletion:
    def test_takes_group_and_offsets_from_the_log(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        rig.commit(1, member_id, 1)
        assert deleted(rig, "g", "other") == {"g": NonEmptyGroup.code, "other": GroupIdNotFound.code}
        rig.leave(member_id)
        assert deleted(rig, "g", "g") == {"g": 0}
        assert rig.committed() == -1
        assert rig.coordinator.hard_state() == rig.replayed().hard_state() == Rig().coordinator.hard_state()

    def test_a_group_that_only_held_offsets(self) -> None:
        rig = Rig()
        rig.commit()
        assert deleted(rig, "g") == {"g": 0}
        assert listed(rig) == {}

    def test_begins_at_generation_1_again(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        rig.leave(member_id)
        deleted(rig, "g")
        ticket = rig.new_member()[1]
        rig.pass_time(0)
        assert joined(ticket)["generation_id"] == 1


def test_a_group_nobody_joined_after_all_is_cleaned_away() -> None:
    rig = Rig()
    rig.commit(group_id="other")
    rig.join()
    assert "g" in listed(rig)
    rig.pass_time(600_000)
    assert listed(rig).keys() == {"other"}


class TestTwoProtocols:
    def beat(self, rig: Rig, **fields: object) -> Message:
        body: Message = {"group_id": "g", "member_id": "m1", "member_epoch": 0, "rebalance_timeout_ms": 1_000}
        body |= {"subscribed_topic_names": ["orders"], "topic_partitions": []}
        return rig.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, body | fields)

    def test_an_empty_consumer_group_takes_classic_members(self) -> None:
        rig = Rig()
        assert self.beat(rig)["error_code"] == 0
        assert listed(rig)["g"][2] == "consumer"
        assert self.beat(rig, member_epoch=-1)["error_code"] == 0
        rig.stable_group()
        assert listed(rig)["g"] == ("consumer", "Stable", "classic")
        assert rig.coordinator.hard_state() == rig.replayed().hard_state()

    def test_an_empty_classic_group_takes_consumers(self) -> None:
        rig = Rig()
        (member_id,) = rig.stable_group()
        rig.commit(5, member_id, 1)
        rig.leave(member_id)
        assert self.beat(rig)["error_code"] == 0
        assert listed(rig)["g"][2] == "consumer"
        assert rig.committed() == 5
        assert rig.described()["error_code"] == GroupIdNotFound.code
        assert rig.coordinator.hard_state() == rig.replayed().hard_state()

    def test_a_group_that_only_held_offsets_becomes_one_of_consumers(self) -> None:
        rig = Rig()
        rig.commit(5)
        assert self.beat(rig)["error_code"] == 0
        rig.crash()
        assert listed(rig)["g"][2] == "consumer"
        assert rig.committed() == 5
