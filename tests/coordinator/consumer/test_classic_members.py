"""Members of the classic protocol in a consumer group, and groups that change from one protocol to the other."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from oncelog.coordinator.effects import GroupSettings
from oncelog.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.wire.codec import Message, decode_exactly, encode
from tests.coordinator.consumer.clients import NewClient, OldClient
from tests.coordinator.consumer.support import GROUP, Coordinator, FakeTopics

Client = NewClient | OldClient


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics(orders=4, payments=2)


@pytest.fixture
def coordinator(topics: FakeTopics) -> Coordinator:
    return Coordinator(topics)


def settle(coordinator: Coordinator, *clients: Client, rounds: int = 30) -> None:
    """Everybody acts until the group rests, and everything that is wanted is read once."""
    for _ in range(rounds):
        for client in clients:
            client.act()
        coordinator.pass_time(100)
        if all(client.is_in for client in clients) and coordinator.core._groups[GROUP].state_name == "Stable":
            read = [place for client in clients for place in client.has]
            wanted = coordinator.topics.places({name for client in clients for name in client.topics})
            if sorted(read) == sorted(wanted):
                return
    raise AssertionError(f"no rest after {rounds} rounds: {[vars(client) for client in clients]}")


def subscription(*topics: str, version: int = 1) -> bytes:
    return struct.pack(">h", version) + encode("ConsumerProtocolSubscription", version, {"topics": list(topics)})


def join_body(**changes: Any) -> Message:
    body = {
        "group_id": GROUP,
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("orders")}],
    }
    return body | changes


def mixed(coordinator: Coordinator, **fields: Any) -> tuple[NewClient, OldClient]:
    new, old = NewClient(coordinator, "new", ["orders"]), OldClient(coordinator, "old", ["orders"], **fields)
    new.act()
    settle(coordinator, new, old)
    return new, old


class TestJoining:
    @pytest.mark.parametrize("is_cooperative", [False, True], ids=["eager", "cooperative"])
    def test_both_kinds_share_the_topics(self, coordinator: Coordinator, is_cooperative: bool) -> None:
        new, old = mixed(coordinator, is_cooperative=is_cooperative)
        assert coordinator.group_type == "consumer"
        assert len(new.has) == len(old.has) == 2
        third = NewClient(coordinator, "third", ["orders", "payments"])
        settle(coordinator, new, old, third)
        old.leave()
        settle(coordinator, new, third)

    def test_from_version_4_a_member_gets_an_id_first(self, coordinator: Coordinator) -> None:
        mixed(coordinator)
        answer = coordinator.ask("JoinGroup", 4, join_body())
        assert (answer["error_code"], answer["generation_id"]) == (MemberIdRequired.code, -1)
        assert answer["member_id"] not in coordinator.group().members
        again = coordinator.ask("JoinGroup", 4, join_body(member_id=answer["member_id"]))
        assert (again["error_code"], again["protocol_name"]) == (0, "range")
        assert answer["member_id"] in coordinator.group().members

    def test_version_0_has_one_timeout_and_no_second_round(self, coordinator: Coordinator) -> None:
        mixed(coordinator)
        answer = coordinator.ask("JoinGroup", 0, join_body())
        assert answer["error_code"] == 0
        assert coordinator.group().members[answer["member_id"]].rebalance_timeout_ms == 45_000

    def test_nobody_leads(self, coordinator: Coordinator) -> None:
        mixed(coordinator)
        answer = coordinator.ask("JoinGroup", 3, join_body())
        assert (answer["leader"], answer["members"]) == ("", [])

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"protocol_type": "connect"}, InconsistentGroupProtocol),
            ({"protocols": [{"name": "mine", "metadata": subscription("orders")}]}, InconsistentGroupProtocol),
            ({"protocols": [{"name": "range", "metadata": b""}]}, InconsistentGroupProtocol),
            ({"protocols": [{"name": "range", "metadata": b"\x00\x01\xff"}]}, InconsistentGroupProtocol),
            ({"protocols": []}, InconsistentGroupProtocol),
            ({"session_timeout_ms": 1}, InvalidSessionTimeout),
            ({"member_id": "m", "group_instance_id": "i"}, UnknownMemberId),
        ],
    )
    def test_who_is_refused(self, coordinator: Coordinator, changes: Message, error: type[Any]) -> None:
        mixed(coordinator)
        version = 5 if "group_instance_id" in changes else 3
        assert coordinator.ask("JoinGroup", version, join_body(**changes))["error_code"] == error.code

    def test_a_full_group(self, topics: FakeTopics) -> None:
        coordinator = Coordinator(topics, GroupSettings(group_consumer_max_size=1))
        NewClient(coordinator, "new", ["orders"]).act()
        assert coordinator.ask("JoinGroup", 3, join_body())["error_code"] == GroupMaxSizeReached.code

    def test_a_newer_subscription_is_read_as_far_as_it_is_known(self, coordinator: Coordinator) -> None:
        mixed(coordinator)
        metadata = struct.pack(">h", 9) + subscription("payments", version=3)[2:] + b"more"
        answer = coordinator.ask("JoinGroup", 3, join_body(protocols=[{"name": "range", "metadata": metadata}]))
        assert coordinator.group().members[answer["member_id"]].topics == {"payments"}


class TestSyncingAndHeartbeats:
    def request(self, old: OldClient, **changes: Any) -> Message:
        body = {
            "group_id": GROUP,
            "generation_id": old.generation,
            "member_id": old.member_id,
            "group_instance_id": None,
        }
        return body | changes

    def test_a_sync_tells_the_assignment(self, coordinator: Coordinator) -> None:
        _, old = mixed(coordinator)
        answer = coordinator.ask(
            "SyncGroup", 5, self.request(old, protocol_type="consumer", protocol_name="range", assignments=[])
        )
        assignment = decode_exactly("ConsumerProtocolAssignment", 3, answer["assignment"], 2)
        assert [topic["topic"] for topic in assignment["assigned_partitions"]] == ["orders"]
        assert (answer["protocol_type"], answer["protocol_name"]) == ("consumer", "range")

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"generation_id": 99}, IllegalGeneration),
            ({"member_id": "stranger"}, UnknownMemberId),
            ({"member_id": "new-1"}, UnknownMemberId),
            ({"group_instance_id": "i"}, UnknownMemberId),
        ],
    )
    def test_who_is_refused(self, coordinator: Coordinator, changes: Message, error: type[Any]) -> None:
        _, old = mixed(coordinator)
        assert coordinator.ask("Heartbeat", 4, self.request(old, **changes))["error_code"] == error.code
        assert coordinator.ask("SyncGroup", 3, self.request(old, assignments=[], **changes))["error_code"] == error.code

    @pytest.mark.parametrize("changes", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
    def test_a_sync_of_another_protocol(self, coordinator: Coordinator, changes: Message) -> None:
        _, old = mixed(coordinator)
        named = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []} | changes
        answer = coordinator.ask("SyncGroup", 5, self.request(old, **named))
        assert answer["error_code"] == InconsistentGroupProtocol.code

    def test_a_change_of_the_group_calls_them_to_join_again(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        _, old = mixed(coordinator)
        assert coordinator.ask("Heartbeat", 4, self.request(old))["error_code"] == 0
        topics.grow("orders", 5)
        coordinator.topics_changed()
        assert coordinator.ask("Heartbeat", 4, self.request(old))["error_code"] == RebalanceInProgress.code
        sync = coordinator.ask("SyncGroup", 3, self.request(old, assignments=[]))
        assert sync["error_code"] == RebalanceInProgress.code

    def test_who_waits_for_others_is_called_when_they_are_done(self, coordinator: Coordinator) -> None:
        new = NewClient(coordinator, "new", ["orders"])
        new.act()
        old = OldClient(coordinator, "old", ["orders"])
        old.act()
        assert old.has == set()
        assert coordinator.ask("Heartbeat", 4, self.request(old))["error_code"] == 0, "nothing is free yet"
        new.act()
        new.act()
        assert coordinator.ask("Heartbeat", 4, self.request(old))["error_code"] == RebalanceInProgress.code
        old.must_join = True
        old.act()
        assert len(old.has) == 2


class TestClocks:
    def test_a_silent_one_is_fenced_by_its_own_session(self, coordinator: Coordinator) -> None:
        new, old = mixed(coordinator)
        for _ in range(5):
            coordinator.pass_time(10_000)
            new.act()
        assert old.member_id not in coordinator.group().members
        settle(coordinator, new)

    def test_who_does_not_join_again_in_time_is_fenced(self, coordinator: Coordinator, topics: FakeTopics) -> None:
        new, old = mixed(coordinator, rebalance_timeout_ms=10_000)
        topics.grow("orders", 8)
        coordinator.topics_changed()
        body = {"group_id": GROUP, "generation_id": old.generation, "member_id": old.member_id}
        for _ in range(12):
            coordinator.pass_time(1_000)
            coordinator.ask("Heartbeat", 2, body)
            new.act()
        assert old.member_id not in coordinator.group().members

    def test_who_does_not_sync_in_time_is_fenced(self, coordinator: Coordinator) -> None:
        new, _ = mixed(coordinator)
        answer = coordinator.ask("JoinGroup", 3, join_body(rebalance_timeout_ms=10_000))
        body = {"group_id": GROUP, "generation_id": answer["generation_id"], "member_id": answer["member_id"]}
        for _ in range(12):
            coordinator.pass_time(1_000)
            coordinator.ask("Heartbeat", 2, body)
            new.act()
        assert answer["member_id"] not in coordinator.group().members

    def test_who_joins_and_syncs_in_time_stays(self, coordinator: Coordinator) -> None:
        new, old = mixed(coordinator, rebalance_timeout_ms=10_000)
        known = old.member_id
        for _ in range(30):
            coordinator.pass_time(1_000)
            new.act()
            old.act()
        assert known in coordinator.group().members


class TestLeaving:
    def test_several_at_once_each_with_an_answer(self, coordinator: Coordinator) -> None:
        new, old = mixed(coordinator)
        third = OldClient(coordinator, "third", ["orders"], "i")
        settle(coordinator, new, old, third)
        members = [
            {"member_id": old.member_id, "group_instance_id": None},
            {"member_id": "stranger", "group_instance_id": None},
            {"member_id": "stranger", "group_instance_id": "i"},
            {"member_id": "", "group_instance_id": "i"},
            {"member_id": "", "group_instance_id": "j"},
        ]
        answer = coordinator.ask("LeaveGroup", 5, {"group_id": GROUP, "members": members})
        assert [member["error_code"] for member in answer["members"]] == [
            0,
            UnknownMemberId.code,
            FencedInstanceId.code,
            0,
            UnknownMemberId.code,
        ]
        assert coordinator.group().members.keys() == {new.member_id}

    def test_old_requests_know_one_member(self, coordinator: Coordinator) -> None:
        _, old = mixed(coordinator)
        leave = {"group_id": GROUP, "member_id": old.member_id}
        assert coordinator.ask("LeaveGroup", 2, leave)["error_code"] == 0
        assert coordinator.ask("LeaveGroup", 2, leave)["error_code"] == UnknownMemberId.code


class TestUpgrade:
    def classic(self, coordinator: Coordinator, *, is_cooperative: bool = False) -> list[OldClient]:
        clients = [OldClient(coordinator, name, ["orders"], is_cooperative=is_cooperative) for name in ("a", "b")]
        settle(coordinator, *clients)
        assert coordinator.group_type == "classic"
        return clients

    @pytest.mark.parametrize("is_cooperative", [False, True], ids=["eager", "cooperative"])
    def test_a_new_member_turns_the_group(self, coordinator: Coordinator, is_cooperative: bool) -> None:
        a, b = self.classic(coordinator, is_cooperative=is_cooperative)
        had = a.has | b.has
        new = NewClient(coordinator, "new", ["orders"])
        assert new.beat()["error_code"] == 0
        assert coordinator.group_type == "consumer"
        assert new.has == set(), "the others still read everything"
        assert a.has | b.has == had
        settle(coordinator, a, b, new)
        assert sorted(map(len, (a.has, b.has, new.has))) == [1, 1, 2]

    def test_what_the_log_says_of_it_is_all_there_is(self, coordinator: Coordinator) -> None:
        a, b = self.classic(coordinator)
        new = NewClient(coordinator, "new", ["orders"])
        new.beat()
        before = coordinator.hard_state()
        coordinator.compact()
        coordinator.load()
        assert coordinator.hard_state() == before
        settle(coordinator, a, b, new)

    def test_who_waits_in_the_old_group_is_told_to_join_again(self, coordinator: Coordinator) -> None:
        a, b = self.classic(coordinator)
        late = OldClient(coordinator, "late", ["orders"])
        late.act()
        assert late.waits
        new = NewClient(coordinator, "new", ["orders"])
        new.beat()
        late.act()
        assert not late.waits
        settle(coordinator, a, b, late, new)

    @pytest.mark.parametrize("policy", ["disabled", "downgrade"])
    def test_a_policy_may_forbid_it(self, topics: FakeTopics, policy: str) -> None:
        settings = GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy)
        coordinator = Coordinator(topics, settings)
        self.classic(coordinator)
        assert NewClient(coordinator, "new", ["orders"]).beat()["error_code"] == GroupIdNotFound.code
        assert coordinator.group_type == "classic"

    def test_a_group_of_another_kind_stays_what_it_is(self, coordinator: Coordinator) -> None:
        coordinator.send("JoinGroup", 3, join_body(protocol_type="connect"))
        coordinator.pass_time(1)
        assert NewClient(coordinator, "new", ["orders"]).beat()["error_code"] == GroupIdNotFound.code

    def test_an_assignment_with_data_of_its_assignor_cannot_be_taken_over(self, coordinator: Coordinator) -> None:
        ticket = coordinator.send("JoinGroup", 3, join_body())
        coordinator.pass_time(1)
        answer = coordinator.answer(ticket)
        assert answer is not None
        data = struct.pack(">h", 1) + encode(
            "ConsumerProtocolAssignment", 1, {"assigned_partitions": [], "user_data": b"x"}
        )
        sync = {
            "group_id": GROUP,
            "generation_id": answer["generation_id"],
            "member_id": answer["member_id"],
            "assignments": [{"member_id": answer["member_id"], "assignment": data}],
        }
        coordinator.ask("SyncGroup", 2, sync)
        refused = NewClient(coordinator, "new", ["orders"]).beat()
        assert refused["error_code"] == GroupIdNotFound.code
        assert "custom" in refused["error_message"]

    def test_a_group_that_is_too_large(self, topics: FakeTopics) -> None:
        coordinator = Coordinator(topics, GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_max_size=1))
        self.classic(coordinator)
        assert NewClient(coordinator, "new", ["orders"]).beat()["error_code"] == GroupIdNotFound.code

    def test_a_classic_group_without_members_just_makes_room(self, coordinator: Coordinator) -> None:
        a, b = self.classic(coordinator)
        a.leave()
        b.leave()
        coordinator.pass_time(100)
        new = NewClient(coordinator, "new", ["orders"])
        settle(coordinator, new)
        before = coordinator.hard_state()
        coordinator.compact()
        coordinator.load()
        assert coordinator.hard_state() == before

    def test_an_instance_goes_on_with_the_new_protocol(self, coordinator: Coordinator) -> None:
        static = OldClient(coordinator, "s", ["orders"], "i")
        other = OldClient(coordinator, "o", ["orders"])
        settle(coordinator, static, other)
        had = set(static.has)
        static.leave(for_a_while=True)
        successor = NewClient(coordinator, "s", ["orders"], "i")
        successor.act()
        assert successor.has == had, "it takes the place of its predecessor"
        settle(coordinator, successor, other)

    def test_an_instance_that_never_synced_gets_what_it_wants(self, coordinator: Coordinator) -> None:
        """Its successor brings nothing new, and yet a new assignment is due."""
        old = OldClient(coordinator, "old", ["orders"])
        settle(coordinator, old)
        static = OldClient(coordinator, "s", ["orders", "payments"], "i")
        static.act()
        assert static.waits
        static.leave(for_a_while=True)
        successor = NewClient(coordinator, "s", ["orders", "payments"], "i")
        settle(coordinator, old, successor)

    def test_what_a_slow_cooperative_member_has_not_given_up_yet_is_nobodys(self, coordinator: Coordinator) -> None:
        slow = OldClient(coordinator, "slow", ["orders"], is_cooperative=True)
        settle(coordinator, slow)
        slow._synced = lambda answer: None  # type: ignore[method-assign]
        other = OldClient(coordinator, "other", ["orders"], is_cooperative=True)
        for client in (other, slow, slow, other):
            client.act()
        assert len(slow.has) == 4
        assert len(coordinator.classic_group().members[slow.member_id].assignment) > 0
        new = NewClient(coordinator, "new", ["orders"])
        new.act()
        new.act()
        assert coordinator.group_type == "consumer"
        assert new.has == set()
        del slow._synced
        slow.must_join = True
        settle(coordinator, slow, other, new)


class TestDowngrade:
    def test_with_the_last_new_member_the_group_turns_back(self, coordinator: Coordinator) -> None:
        new, old = mixed(coordinator)
        new.leave()
        assert coordinator.group_type == "classic"
        settle(coordinator, old)
        before = coordinator.hard_state()
        coordinator.compact()
        coordinator.load()
        assert coordinator.hard_state() == before
        settle(coordinator, old)

    def test_a_crash_before_the_rebalance_leaves_nothing_unread(self, coordinator: Coordinator) -> None:
        new, old = mixed(coordinator)
        new.leave()
        coordinator.load()
        settle(coordinator, old)

    def test_a_silent_last_new_member_as_well(self, coordinator: Coordinator) -> None:
        _, old = mixed(coordinator)
        for _ in range(10):
            coordinator.pass_time(5_000)
            old.act()
        assert coordinator.group_type == "classic"
        settle(coordinator, old)

    def test_while_another_new_one_is_there_it_stays(self, coordinator: Coordinator) -> None:
        new, old = mixed(coordinator)
        other = NewClient(coordinator, "other", ["orders"])
        settle(coordinator, new, old, other)
        new.leave()
        assert coordinator.group_type == "consumer"

    @pytest.mark.parametrize("policy", ["disabled", "upgrade"])
    def test_a_policy_may_forbid_it(self, topics: FakeTopics, policy: str) -> None:
        settings = GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_migration_policy=policy)
        coordinator = Coordinator(topics, settings)
        new, old = mixed(coordinator)
        new.leave()
        assert coordinator.group_type == "consumer"
        settle(coordinator, old)

    def test_a_classic_group_may_be_too_small_for_all(self, topics: FakeTopics) -> None:
        settings = GroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=1)
        coordinator = Coordinator(topics, settings)
        new, old = mixed(coordinator)
        other = OldClient(coordinator, "other", ["orders"])
        settle(coordinator, new, old, other)
        new.leave()
        assert coordinator.group_type == "consumer"

    def test_an_instance_that_goes_back_takes_the_group_with_it(self, coordinator: Coordinator) -> None:
        new = NewClient(coordinator, "s", ["orders"], "i")
        old = OldClient(coordinator, "old", ["orders"])
        new.act()
        settle(coordinator, new, old)
        had, generation = set(new.has), old.generation
        new.leave(for_a_while=True)
        back = OldClient(coordinator, "s", ["orders"], "i")
        back.act()
        assert coordinator.group_type == "classic"
        assert (back.has, back.generation, old.generation) == (had, generation, generation)
        settle(coordinator, back, old)
        assert old.generation == generation, "nobody had to join again"

    def test_an_instance_that_goes_back_with_other_topics_begins_a_round(self, coordinator: Coordinator) -> None:
        new = NewClient(coordinator, "s", ["orders"], "i")
        old = OldClient(coordinator, "old", ["orders"])
        new.act()
        settle(coordinator, new, old)
        new.leave(for_a_while=True)
        back = OldClient(coordinator, "s", ["orders", "payments"], "i")
        back.act()
        assert coordinator.group_type == "classic"
        settle(coordinator, back, old)

    def test_up_again_before_anybody_has_rejoined(self, coordinator: Coordinator) -> None:
        """What members still read is known across both changes: nobody else gets it."""
        olds = [OldClient(coordinator, name, ["orders"], is_cooperative=True) for name in ("a", "b")]
        settle(coordinator, *olds)
        first = NewClient(coordinator, "first", ["orders"])
        first.act()
        first.leave()
        assert coordinator.group_type == "classic"
        second = NewClient(coordinator, "second", ["orders"])
        second.act()
        assert second.has == set()
        settle(coordinator, *olds, second)

    def test_what_was_to_be_given_up_is_remembered(self, coordinator: Coordinator) -> None:
        old = OldClient(coordinator, "old", ["orders"], is_cooperative=True)
        settle(coordinator, old)
        new = NewClient(coordinator, "new", ["orders"])
        new.act()
        old._synced = lambda answer: None  # type: ignore[method-assign]
        for _ in range(2):
            old.act()
        assert coordinator.group().members[old.member_id].revoking
        new.leave()
        assignment = coordinator.classic_group().members[old.member_id].assignment
        (topic,) = decode_exactly("ConsumerProtocolAssignment", 3, assignment, 2)["assigned_partitions"]
        assert topic["partitions"] == [0, 1, 2, 3]
