"""The records of consumer groups, between values and Kafka's messages.

Owns which record says what; never decides that something is to be said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from oncelog.coordinator.consumer.member import (
    ClassicPart,
    ClassicProtocol,
    HeldPartitions,
    Member,
    MemberState,
    Partitions,
    gather,
)
from oncelog.coordinator.records import CoordinatorRecord, RecordType
from oncelog.wire.codec import Message


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    resolved_at_ms: int


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = {"epoch": epoch, "metadata_hash": metadata_hash}
    return CoordinatorRecord(RecordType.CONSUMER_GROUP_METADATA, {"group_id": group_id}, value)


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    value = {"assignment_epoch": epoch, "assignment_timestamp": now_ms}
    return CoordinatorRecord(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, {"group_id": group_id}, value)


def member_record(group_id: str, member: Member) -> CoordinatorRecord:
    value: Message = {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.topic_regex,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "server_assignor": member.server_assignor,
        "classic_member_metadata": None if member.classic is None else _classic_message(member.classic),
    }
    return CoordinatorRecord(RecordType.CONSUMER_GROUP_MEMBER_METADATA, _member_key(group_id, member.member_id), value)


def member_from(known: Member, value: Message) -> Member:
    """The member as its record says; epochs and partitions are those of other records."""
    classic = value["classic_member_metadata"]
    return replace(
        known,
        instance_id=value["instance_id"],
        rack_id=value["rack_id"],
        client_id=value["client_id"],
        client_host=value["client_host"],
        topics=frozenset(value["subscribed_topic_names"]),
        topic_regex=value["subscribed_topic_regex"] or "",
        rebalance_timeout_ms=value["rebalance_timeout_ms"],
        server_assignor=value["server_assignor"],
        classic=None if classic is None else _classic_from(classic),
    )


def _classic_message(classic: ClassicPart) -> Message:
    return {
        "session_timeout_ms": classic.session_timeout_ms,
        "supported_protocols": [{"name": name, "metadata": metadata} for name, metadata in classic.protocols],
    }


def _classic_from(message: Message) -> ClassicPart:
    protocols = (
        ClassicProtocol(protocol["name"], bytes(protocol["metadata"])) for protocol in message["supported_protocols"]
    )
    return ClassicPart(message["session_timeout_ms"], tuple(protocols))


def current_record(group_id: str, member: Member) -> CoordinatorRecord:
    value = {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": int(member.state),
        "assigned_partitions": _held_message(member.assigned),
        "partitions_pending_revocation": _held_message(member.revoking),
    }
    key = _member_key(group_id, member.member_id)
    return CoordinatorRecord(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, value)


def current_from(known: Member, value: Message) -> Member:
    epoch = value["member_epoch"]
    return replace(
        known,
        epoch=epoch,
        previous_epoch=value["previous_member_epoch"],
        state=MemberState.of(value["state"]),
        assigned=_held_from(value["assigned_partitions"], epoch),
        revoking=_held_from(value["partitions_pending_revocation"], epoch),
    )


def _held_message(held: HeldPartitions) -> list[Message]:
    topics = []
    for topic_id in sorted(held):
        partitions = sorted(held[topic_id])
        epochs = [held[topic_id][partition] for partition in partitions]
        topics.append({"topic_id": topic_id, "partitions": partitions, "assignment_epochs": epochs})
    return topics


def _held_from(topics: Iterable[Message], member_epoch: int) -> dict[UUID, dict[int, int]]:
    """Kafka before 4.3 did not write when a partition was assigned: the member's epoch is the latest that it can be."""
    held: dict[UUID, dict[int, int]] = {}
    for topic in topics:
        partitions = topic["partitions"]
        epochs = topic["assignment_epochs"]
        if epochs is None or len(epochs) != len(partitions):
            epochs = [member_epoch] * len(partitions)
        held.setdefault(topic["topic_id"], {}).update(zip(partitions, epochs, strict=True))
    return held


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    topics = [{"topic_id": topic_id, "partitions": sorted(target[topic_id])} for topic_id in sorted(target)]
    key = _member_key(group_id, member_id)
    return CoordinatorRecord(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key, {"topic_partitions": topics})


def target_from(value: Message) -> dict[UUID, frozenset[int]]:
    return gather((topic["topic_id"], topic["partitions"]) for topic in value["topic_partitions"])


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = {"topics": sorted(resolved.topics), "version": 0, "timestamp": resolved.resolved_at_ms}
    key = {"group_id": group_id, "regular_expression": regex}
    return CoordinatorRecord(RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, key, value)


def regex_from(value: Message) -> ResolvedRegex:
    return ResolvedRegex(frozenset(value["topics"]), value["timestamp"])


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    key = {"group_id": group_id, "regular_expression": regex}
    return CoordinatorRecord(RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION, key, None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Before 4.1 Kafka kept what a group knew of its topics in a record; the hash in the group's record replaces it."""
    return CoordinatorRecord(RecordType.CONSUMER_GROUP_PARTITION_METADATA, {"group_id": group_id}, None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """What it holds is free first, then it is gone."""
    key = _member_key(group_id, member_id)
    return [
        CoordinatorRecord(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, None),
        CoordinatorRecord(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key, None),
        CoordinatorRecord(RecordType.CONSUMER_GROUP_MEMBER_METADATA, key, None),
    ]


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """What is left of a group whose members and regular expressions are gone."""
    key = {"group_id": group_id}
    return [
        CoordinatorRecord(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, key, None),
        CoordinatorRecord(RecordType.CONSUMER_GROUP_METADATA, key, None),
    ]


def _member_key(group_id: str, member_id: str) -> Message:
    return {"group_id": group_id, "member_id": member_id}
