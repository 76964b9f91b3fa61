"""One consumer group: its members, its epochs, and who is to have and who has which partition.

Owns the hard state, which only `replay` changes, and what follows from it: who owns a partition, which topics are read,
the group's state. Never decides who gets what, and knows no clock.

Three epochs tell how far things are: the group's epoch rises with every change of members, subscriptions or topics; the
target assignment has the epoch that it was computed for; each member has the epoch that it has reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from oncelog.coordinator.consumer.group_records import (
    ResolvedRegex,
    current_from,
    group_tombstones,
    member_from,
    member_tombstones,
    partition_metadata_tombstone,
    regex_from,
    regex_tombstone,
    target_from,
)
from oncelog.coordinator.consumer.member import NO_PARTITIONS, Member, Partitions
from oncelog.coordinator.effects import Reply
from oncelog.coordinator.groups import CONSUMER, CONSUMER_PROTOCOL_TYPE, NOBODY, UNKNOWN_GENERATION
from oncelog.coordinator.records import CoordinatorRecord, RecordType
from oncelog.errors import (
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)

FIRST_COMMIT_VERSION = 9
"""Members of the new protocol commit offsets with their epoch, which older requests cannot carry."""

NO_EPOCH = -1


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        """Of the topics that the group reads, as they were at the group's epoch."""
        self.assignment_epoch = 0
        self.assigned_at_ms = 0
        """When the target assignment was computed."""
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """The member id of each static member, by its instance id."""
        self.target: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        self._owners: dict[tuple[UUID, int], str] = {}
        self._subscriptions: Counter[tuple[frozenset[str], str]] = Counter()
        """How many members subscribe so, by name and by regular expression: mostly all of them say the same."""
        self._topics: frozenset[str] | None = None

    def fork(self) -> ConsumerGroup:
        """A copy to try records on: what the group will be once they are replayed."""
        copy = ConsumerGroup(self.group_id)
        copy.group_epoch, copy.metadata_hash, copy.assignment_epoch = (
            self.group_epoch,
            self.metadata_hash,
            self.assignment_epoch,
        )
        copy.assigned_at_ms = self.assigned_at_ms
        copy.members, copy.instances, copy.target = dict(self.members), dict(self.instances), dict(self.target)
        copy.regexes, copy.has_partition_metadata = dict(self.regexes), self.has_partition_metadata
        copy._owners, copy._topics = dict(self._owners), self._topics
        copy._subscriptions = Counter(self._subscriptions)
        return copy

    # What the log says.

    def replay(self, record: CoordinatorRecord) -> None:
        value = record.value
        match record.type:
            case RecordType.CONSUMER_GROUP_METADATA:
                if value is not None:
                    self.group_epoch, self.metadata_hash = value["epoch"], value["metadata_hash"]
            case RecordType.CONSUMER_GROUP_PARTITION_METADATA:
                self.has_partition_metadata = value is not None
            case RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
                self.assignment_epoch = NO_EPOCH if value is None else value["assignment_epoch"]
                self.assigned_at_ms = 0 if value is None else value["assignment_timestamp"]
            case RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION:
                self._replay_regex(record)
            case _:
                self._replay_member_record(record)

    def _replay_regex(self, record: CoordinatorRecord) -> None:
        regex = record.key["regular_expression"]
        if record.value is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = regex_from(record.value)
        self._topics = None

    def _replay_member_record(self, record: CoordinatorRecord) -> None:
        member_id, value = record.key["member_id"], record.value
        known = self.members.get(member_id)
        match record.type:
            case RecordType.CONSUMER_GROUP_MEMBER_METADATA:
                if value is not None:
                    self._put(member_from(known or Member(member_id), value))
                elif known is not None:
                    self._remove(known)
            case RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
                if value is not None:
                    self._put(current_from(known or Member(member_id), value))
                elif known is not None:
                    self._put(known.without_assignment())
            case RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
                if value is not None:
                    self.target[member_id] = target_from(value)
                else:
                    self.target.pop(member_id, None)

    def _put(self, member: Member) -> None:
        known = self.members.get(member.member_id)
        if known is not None:
            self._release(known)
        self.members[member.member_id] = member
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    self._owners[topic_id, partition] = member.member_id
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if known is None or (known.topics, known.topic_regex) != (member.topics, member.topic_regex):
            if known is not None:
                self._unsubscribe(known)
            self._subscribe(member)

    def _remove(self, member: Member) -> None:
        self._release(member)
        del self.members[member.member_id]
        if member.instance_id is not None and self.instances.get(member.instance_id) == member.member_id:
            del self.instances[member.instance_id]
        self._unsubscribe(member)

    def _subscribe(self, member: Member) -> None:
        subscription = (member.topics, member.topic_regex)
        self._subscriptions[subscription] += 1
        if self._subscriptions[subscription] == 1:
            self._topics = None

    def _unsubscribe(self, member: Member) -> None:
        subscription = (member.topics, member.topic_regex)
        self._subscriptions[subscription] -= 1
        if not self._subscriptions[subscription]:
            del self._subscriptions[subscription]
            self._topics = None

    def _release(self, member: Member) -> None:
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    if self._owners.get((topic_id, partition)) == member.member_id:
                        del self._owners[topic_id, partition]

    # What follows from it.

    @property
    def group_type(self) -> str:
        return CONSUMER

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.reached(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def topics(self) -> frozenset[str]:
        """The names that the group reads, by name or by regular expression, whether they exist or not."""
        if self._topics is None:
            self._topics = frozenset().union(*(self._read_by(*said) for said in self._subscriptions))
        return self._topics

    def topics_of(self, member: Member) -> frozenset[str]:
        return self._read_by(member.topics, member.topic_regex)

    def _read_by(self, topics: frozenset[str], topic_regex: str) -> frozenset[str]:
        resolved = self.regexes.get(topic_regex) if topic_regex else None
        return topics if resolved is None else topics | resolved.topics

    def used_regexes(self) -> set[str]:
        return {topic_regex for _, topic_regex in self._subscriptions if topic_regex}

    def owner_of(self, topic_id: UUID, partition: int) -> str | None:
        return self._owners.get((topic_id, partition))

    def target_of(self, member_id: str) -> Partitions:
        return self.target.get(member_id, NO_PARTITIONS)

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"member {member_id!r} is not in group {self.group_id!r}; join again")
        return member

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    # What offsets, listings and deletions ask.

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, version: int, now_ms: int
    ) -> None:
        if generation <= UNKNOWN_GENERATION and self.is_empty:
            return
        member = self.member(member_id)
        if member.classic is None and version < FIRST_COMMIT_VERSION:
            raise UnsupportedVersion(
                f"members of the consumer protocol commit with OffsetCommit version {FIRST_COMMIT_VERSION} or newer"
            )
        self._check_epoch(member, generation)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        if (generation <= UNKNOWN_GENERATION and self.is_empty) or (member_id, instance_id, generation) == NOBODY:
            return
        self._check_epoch(self.member(member_id), generation)

    def has_kept(self, member_id: str, epoch: int, places: Iterable[tuple[UUID, int]]) -> bool:
        member = self.member(member_id)
        since = (member.held_since(*place) for place in places)
        return epoch < member.epoch and all(held is not None and held <= epoch for held in since)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if not member_id and member_epoch < 0:
            return
        self._check_epoch(self.member(member_id or ""), member_epoch)

    def _check_epoch(self, member: Member, epoch: int) -> None:
        if epoch == member.epoch:
            return
        problem = f"member {member.member_id!r} is in epoch {member.epoch}, the request is of {epoch}"
        if member.classic is not None:
            raise IllegalGeneration(problem)
        raise StaleMemberEpoch(f"{problem}; ask again with the epoch of the latest heartbeat")

    def check_offset_delete(self) -> None:
        """Allowed while there are members; for topics that none of them reads."""

    def check_delete(self) -> None:
        if self.members:
            raise NonEmptyGroup(f"group {self.group_id!r} has {len(self.members)} members; stop them first")

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.topics

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def release_waiting(self, error_code: int) -> list[Reply]:
        return []

    def tombstones(self) -> list[CoordinatorRecord]:
        records = [record for member_id in self.members for record in member_tombstones(self.group_id, member_id)]
        records += [regex_tombstone(self.group_id, regex) for regex in self.regexes]
        if self.has_partition_metadata:
            records.append(partition_metadata_tombstone(self.group_id))
        return records + group_tombstones(self.group_id)

    def hard_state(self) -> object:
        """Comparable; what a replay of the log must give again."""
        return (
            self.group_id,
            (self.group_epoch, self.metadata_hash, self.assignment_epoch, self.assigned_at_ms),
            dict(self.members),
            dict(self.instances),
            {member_id: dict(target) for member_id, target in self.target.items()},
            dict(self.regexes),
            dict(self._owners),
        )
