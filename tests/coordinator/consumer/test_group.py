"""What the log says of a group, record by record and also as older Kafkas wrote it; and what follows from it."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncelog.coordinator.consumer.draft import Draft
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.group_records import (
    ResolvedRegex,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from oncelog.coordinator.consumer.member import ClassicPart, ClassicProtocol, Member, MemberState
from oncelog.coordinator.effects import Caller
from oncelog.coordinator.records import CoordinatorRecord, RecordType, decode_record, encode_record
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, decode_exactly, encode
from tests.coordinator.consumer.support import GROUP, Coordinator, FakeTopics, Kip848Client, settle

T = UUID(int=1)
MEMBER = Member(
    "a",
    instance_id="i",
    rack_id="r",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=7,
    server_assignor="range",
    topics=frozenset({"orders", "payments"}),
    topic_regex="x.*",
    classic=ClassicPart(9, (ClassicProtocol("range", b"1"), ClassicProtocol("sticky", b""))),
    epoch=5,
    previous_epoch=4,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned={T: {0: 3, 1: 5}},
    revoking={T: {2: 4}},
)


def through_bytes(record: CoordinatorRecord) -> CoordinatorRecord:
    decoded = decode_record(*encode_record(record))
    assert decoded is not None
    return decoded


def group_of(*records: CoordinatorRecord) -> ConsumerGroup:
    group = ConsumerGroup(GROUP)
    for record in records:
        group.replay(through_bytes(record))
    return group


def test_a_member_is_what_its_two_records_say_in_any_order() -> None:
    records = [member_record(GROUP, MEMBER), current_record(GROUP, MEMBER)]
    for order in (records, records[::-1]):
        group = group_of(*order)
        assert group.members == {"a": MEMBER}
        assert group.instances == {"i": "a"}
        assert [group.owner_of(T, partition) for partition in range(4)] == ["a", "a", "a", None]


def test_a_member_of_the_new_protocol_has_nothing_classic() -> None:
    member = Member("a", topics=frozenset({"orders"}))
    assert group_of(member_record(GROUP, member)).members["a"].classic is None


def test_tombstones_free_what_a_member_has_and_then_take_it_away() -> None:
    group = group_of(
        member_record(GROUP, MEMBER), current_record(GROUP, MEMBER), target_record(GROUP, "a", {T: frozenset({0})})
    )
    current, target, metadata = member_tombstones(GROUP, "a")
    group.replay(current)
    assert group.owner_of(T, 0) is group.owner_of(T, 2) is None
    assert group.members["a"].assigned == {}
    group.replay(target)
    assert group.target_of("a") == {}
    group.replay(metadata)
    assert (group.members, group.instances, group.topics) == ({}, {}, frozenset())


def test_tombstones_of_what_never_was_change_nothing() -> None:
    group = ConsumerGroup(GROUP)
    before = group.hard_state()
    for record in [*member_tombstones(GROUP, "a"), regex_tombstone(GROUP, "x")]:
        group.replay(record)
    assert group.hard_state() == before


def test_epochs_and_targets_and_expressions() -> None:
    resolved = ResolvedRegex(frozenset({"xa", "xb"}), 77)
    group = group_of(
        epoch_record(GROUP, 6, -(2**63)),
        target_epoch_record(GROUP, 5, 1_234),
        target_record(GROUP, "a", {T: frozenset({1, 0})}),
        member_record(GROUP, MEMBER),
        regex_record(GROUP, "x.*", resolved),
    )
    assert (group.group_epoch, group.metadata_hash, group.assignment_epoch) == (6, -(2**63), 5)
    assert group.target_of("a") == {T: frozenset({0, 1})}
    assert group.topics == {"orders", "payments", "xa", "xb"}
    assert group.state_name == "Assigning"


def test_kafka_before_4_3_did_not_say_when_a_partition_was_assigned() -> None:
    value = {
        "member_epoch": 8,
        "previous_member_epoch": 7,
        "state": 0,
        "assigned_partitions": [{"topic_id": T, "partitions": [1, 0], "assignment_epochs": None}],
        "partitions_pending_revocation": [],
    }
    record = CoordinatorRecord(
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, {"group_id": GROUP, "member_id": "a"}, value
    )
    assert group_of(record).members["a"].assigned == {T: {0: 8, 1: 8}}


def test_a_state_of_a_newer_coordinator_is_unknown() -> None:
    record = through_bytes(current_record(GROUP, MEMBER))
    assert record.value is not None
    group = ConsumerGroup(GROUP)
    group.replay(record._replace(value=record.value | {"state": 42}))
    assert group.members["a"].state is MemberState.UNKNOWN


def test_what_older_versions_kept_of_topics_goes_with_the_next_epoch() -> None:
    topics = FakeTopics(orders=1)
    coordinator = Coordinator(topics)
    (a,) = [Kip848Client(coordinator, "a")]
    settle(a)
    old = CoordinatorRecord(RecordType.CONSUMER_GROUP_PARTITION_METADATA, {"group_id": GROUP}, {"topics": []})
    coordinator.log.append(encode_record(old))
    coordinator.load()
    assert coordinator.group().has_partition_metadata
    topics.grow("orders", 2)
    coordinator.topics_changed()
    assert not coordinator.group().has_partition_metadata


def test_a_draft_leaves_the_group_as_it_is() -> None:
    group = group_of(member_record(GROUP, MEMBER), current_record(GROUP, MEMBER), epoch_record(GROUP, 6, 0))
    before = group.hard_state()
    draft = Draft(group)
    draft.write(*draft.group.tombstones())
    assert draft.group.members == {}
    assert group.hard_state() == before


def requests(a: Kip848Client) -> list[Message]:
    new = Kip848Client(a.coordinator, "new", regex="pay.*").request()
    leave = {"group_id": GROUP, "member_id": "a", "member_epoch": -1}
    return [new, leave, a.request(subscribed_topic_names=["payments"])]


@pytest.mark.parametrize("number", range(3), ids=["join", "leave", "subscribe"])
def test_what_is_not_written_has_not_happened(number: int) -> None:
    """The append fails: the records are never replayed, and the group goes on as before."""
    coordinator = Coordinator(FakeTopics(orders=4, payments=2))
    a, b = Kip848Client(coordinator, "a"), Kip848Client(coordinator, "b")
    settle(a, b)
    before = coordinator.hard_state()
    body = requests(a)[number]
    request = decode_exactly("ConsumerGroupHeartbeatRequest", 1, encode("ConsumerGroupHeartbeatRequest", 1, body))
    caller = Caller("ticket", "client", "/127.0.0.1", 1)
    effects = coordinator.core.handle(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, caller, coordinator.now_ms)
    assert effects.records
    assert coordinator.hard_state() == before
    settle(a, b)
