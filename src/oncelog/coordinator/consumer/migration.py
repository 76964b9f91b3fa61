"""From a classic group to a consumer group and back, while the members go on.

A classic group becomes a consumer group when a member of the new protocol joins it, and a classic one again when the
last such member goes; `group.consumer.migration.policy` may forbid either. Owns the translation and its conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from oncelog.coordinator.classic.group import ClassicGroup
from oncelog.coordinator.classic.member import Member as OfClassicGroup
from oncelog.coordinator.consumer.draft import Draft
from oncelog.coordinator.consumer.embedded import read_assignment, read_subscription, with_ids, write_assignment
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.group_records import (
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from oncelog.coordinator.consumer.member import (
    ClassicPart,
    ClassicProtocol,
    HeldPartitions,
    Member,
    MemberState,
    merged,
    partitions_of,
)
from oncelog.coordinator.consumer.membership import Surroundings
from oncelog.coordinator.consumer.subscription import metadata_hash
from oncelog.coordinator.effects import GroupSettings, Reply, TopicsView
from oncelog.coordinator.groups import CONSUMER_PROTOCOL_TYPE, Group
from oncelog.coordinator.records import CoordinatorRecord
from oncelog.errors import GroupIdNotFound, InconsistentGroupProtocol, RebalanceInProgress

UPGRADING_POLICIES = frozenset({"bidirectional", "upgrade"})
DOWNGRADING_POLICIES = frozenset({"bidirectional", "downgrade"})


def upgrade(group: Group, around: Surroundings) -> tuple[Draft, list[Reply]]:
    """The classic group as a consumer group in which nobody has moved yet. Those who wait in it shall join again."""
    assert isinstance(group, ClassicGroup)
    _check_upgrade(group, around.settings)
    try:
        assigned = {member_id: _assignment(group, member) for member_id, member in group.members.items()}
        given = {(name, number) for parts in assigned.values() for name, numbers in parts.items() for number in numbers}
        members = [
            _upgraded_member(group, member, assigned[member.member_id], given, around.topics)
            for member in group.members.values()
        ]
    except InconsistentGroupProtocol as error:
        raise _cannot_upgrade(group, f"a member's consumer protocol cannot be read ({error.message})") from error
    draft = Draft(ConsumerGroup(group.group_id), group.tombstones())
    topics = frozenset[str]().union(*(member.topics for member in members))
    draft.write(
        *(member_record(group.group_id, member) for member in members),
        # A member made the assignment; one of the coordinator is due, even if whoever comes changes nothing else.
        epoch_record(group.group_id, group.generation + 1, metadata_hash(topics, around.topics)),
        *(target_record(group.group_id, member.member_id, partitions_of(member.assigned)) for member in members),
        target_epoch_record(group.group_id, group.generation, around.now_ms),
        *(current_record(group.group_id, member) for member in members),
    )
    return draft, group.release_waiting(RebalanceInProgress.code)


def _check_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    if settings.group_consumer_migration_policy.lower() not in UPGRADING_POLICIES:
        raise _cannot_upgrade(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _cannot_upgrade(group, f"its protocol type is {group.protocol_type!r}, not {CONSUMER_PROTOCOL_TYPE!r}")
    if len(group.members) > settings.group_consumer_max_size:
        raise _cannot_upgrade(group, f"it has {len(group.members)} members, more than group.consumer.max.size")


def _cannot_upgrade(group: ClassicGroup, reason: str) -> GroupIdNotFound:
    return GroupIdNotFound(f"classic group {group.group_id!r} cannot become a consumer group: {reason}")


def _assignment(group: ClassicGroup, member: OfClassicGroup) -> Mapping[str, frozenset[int]]:
    assignment = read_assignment(member.assignment)
    if assignment.has_user_data:
        raise _cannot_upgrade(group, "its assignor is a custom one, whose data would be lost; use one of Kafka's own")
    return assignment.partitions


def _upgraded_member(
    group: ClassicGroup,
    member: OfClassicGroup,
    assigned: Mapping[str, frozenset[int]],
    given: Container[tuple[str, int]],
    topics: TopicsView,
) -> Member:
    """It has what the last generation gave it, and perhaps still what it had when it joined that generation, unless
    that generation has `given` it to somebody."""
    subscription = read_subscription(member.metadata(group.protocol) or member.protocols[0][1])
    unclear = {
        name: frozenset(number for number in numbers if (name, number) not in given)
        for name, numbers in subscription.owned.items()
    }
    revoking = _held(unclear, group.generation, topics)
    return Member(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=subscription.topics,
        classic=ClassicPart(
            member.session_timeout_ms, tuple(ClassicProtocol(name, metadata) for name, metadata in member.protocols)
        ),
        epoch=group.generation,
        previous_epoch=group.generation,
        state=MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE,
        assigned=_held(assigned, group.generation, topics),
        revoking=revoking,
    )


def _held(partitions: Mapping[str, frozenset[int]], epoch: int, topics: TopicsView) -> HeldPartitions:
    return {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in with_ids(partitions, topics).items()}


def may_downgrade(staying: Collection[Member], settings: GroupSettings) -> bool:
    return (
        bool(staying)
        and all(member.classic is not None for member in staying)
        and settings.group_consumer_migration_policy.lower() in DOWNGRADING_POLICIES
        and len(staying) <= settings.group_max_size
    )


def downgrade(group: ConsumerGroup, staying: Collection[Member], around: Surroundings) -> list[CoordinatorRecord]:
    """The consumer group goes, and comes again as a classic one whose generation is the group's epoch. Its assignment
    is what members still hold, not the target: should the group be upgraded again before they have rejoined, nobody
    may get a partition that another one reads."""
    classic_group = ClassicGroup(group.group_id)
    classic_group.generation, classic_group.state_timestamp_ms = group.group_epoch, around.now_ms
    assignments = {}
    for member in staying:
        assert member.classic is not None
        classic_group.add(_downgraded_member(member, member.classic), CONSUMER_PROTOCOL_TYPE)
        held = merged(member.assigned, member.revoking)
        assignments[member.member_id] = write_assignment(held, around.topics, member.classic.protocols[0].metadata)
    classic_group.protocol = classic_group.select_protocol()
    return [*group.tombstones(), classic_group.record(classic_group.members.values(), assignments)]


def _downgraded_member(member: Member, classic: ClassicPart) -> OfClassicGroup:
    return OfClassicGroup(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in classic.protocols),
    )
