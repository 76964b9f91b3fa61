"""One group of the classic protocol: its state, its members, and what it allows.

Owns the transition table, the membership, the choice of leader and protocol, and the record that says all of it. What
the log says (`image`) changes by `adopt` alone. Everything else (who waits, who is about to join, the round that is
under way) is soft: it dies with the process, and the group is then as its last record says. Never answers anybody,
except those whom it releases.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from oncelog.coordinator.classic.member import Member, Protocols, member_from_record, size_of
from oncelog.coordinator.classic.replies import join_failed, sync_failed
from oncelog.coordinator.effects import Caller, Reply
from oncelog.coordinator.groups import CLASSIC, CONSUMER_PROTOCOL_TYPE, NOBODY, UNKNOWN_MEMBER
from oncelog.coordinator.records import CoordinatorRecord, RecordType, group_tombstone
from oncelog.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.wire.codec import MalformedMessage, Message, decode

_SUBSCRIPTION_VERSION_BYTES = 2


class State(Enum):
    """Named as Kafka's tools show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS = frozenset(
    {
        (State.EMPTY, State.PREPARING_REBALANCE),
        (State.STABLE, State.PREPARING_REBALANCE),
        (State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE),
        (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE),
        (State.PREPARING_REBALANCE, State.EMPTY),
        (State.EMPTY, State.DEAD),
        (State.STABLE, State.DEAD),
        (State.COMPLETING_REBALANCE, State.DEAD),
        (State.PREPARING_REBALANCE, State.DEAD),
    }
)
"""What happens between two records. Stable, and Empty after members, come from the log (see `adopt`)."""


class GroupImage(NamedTuple):
    """A GroupMetadata record, comparable, and free of the buffer that it was read from."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, value: Message) -> GroupImage:
        return cls(
            value["protocol_type"],
            value["generation"],
            value["protocol"],
            value["leader"],
            value["current_state_timestamp"],
            tuple(
                (
                    *(member[name] for name in _MEMBER_TEXT),
                    bytes(member["subscription"]),
                    bytes(member["assignment"]),
                )
                for member in value["members"]
            ),
        )


_MEMBER_TEXT = ("member_id", "group_instance_id", "client_id", "client_host", "rebalance_timeout", "session_timeout")


class ClassicGroup:
    group_type = CLASSIC

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.image: GroupImage | None = None
        """What the last record said; None while there is none, as for a group that only holds offsets."""
        self.state = State.EMPTY
        self.generation = 0
        self.kind: str | None = None
        """The protocol type: `consumer`, `connect`, ..."""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: set[str] = set()
        """Ids that were handed out, and have not joined yet."""
        self.unsynced_members: set[str] = set()
        """Those of this generation who have not asked for their assignment yet."""
        self._joined_members: set[str] = set()
        """Those who wait for the end of the join round."""
        self.is_first_round = False
        """The round began with an empty group: it is given time for more members to come."""
        self.has_newcomers = False
        """A member came during the present delay of the first round."""
        self.state_timestamp_ms = -1
        self._support: Counter[str] = Counter()
        """How many members know a protocol."""
        self._metadata_bytes = self._assigned_bytes = 0
        self._subscribed: tuple[str | None, set[str] | None] | None = None
        """The protocol, and what members read by it; None once a member has come, gone or changed its mind."""

    # What all groups have

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.kind or ""

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def size_bytes(self) -> int:
        """Of what its members say, and were assigned by the last record."""
        return self._metadata_bytes + self._assigned_bytes

    @property
    def is_simple(self) -> bool:
        """It never had a member that the log knows: it holds offsets, or is about to begin."""
        return self.image is None

    @property
    def is_blank(self) -> bool:
        """Nothing would be lost with it."""
        return self.image is None and not self.members and not self.pending_members

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, version: int, now_ms: int
    ) -> None:
        if self.state is State.EMPTY and generation < 0:
            return
        if self.state is State.DEAD:
            raise CoordinatorNotAvailable(f"group {self.group_id!r} was deleted")
        if generation < 0 and member_id == UNKNOWN_MEMBER and instance_id is None:
            raise UnknownMemberId(f"group {self.group_id!r} has members: only they may commit its offsets")
        self.check_member(member_id, instance_id)
        self.check_generation(generation)
        if self.state is State.COMPLETING_REBALANCE:
            raise RebalanceInProgress("the group waits for its assignment; commit when it has come")

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        if self.state is State.DEAD:
            raise CoordinatorNotAvailable(f"group {self.group_id!r} was deleted")
        if (self.state is State.EMPTY and generation < 0) or (member_id, instance_id, generation) == NOBODY:
            return
        self.check_member(member_id, instance_id)
        self.check_generation(generation)

    def has_kept(self, member_id: str, epoch: int, places: Iterable[tuple[UUID, int]]) -> bool:
        """Nobody knows: a generation assigns all partitions anew."""
        return False

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.state is State.DEAD:
            raise GroupIdNotFound(f"group {self.group_id!r} was deleted")

    def check_offset_delete(self) -> None:
        self.check_offset_fetch(None, -1)
        if self.members and self.kind != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroup(f"group {self.group_id!r} has members, and what they read is not known")

    def check_delete(self) -> None:
        self.check_offset_fetch(None, -1)
        if self.state is not State.EMPTY:
            raise NonEmptyGroup(f"group {self.group_id!r} is {self.state_name}; stop its members first")

    def is_subscribed(self, topic: str) -> bool:
        topics = self.subscribed_topics()
        return self.kind == CONSUMER_PROTOCOL_TYPE if topics is None else topic in topics

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.kind is None:
            return commit_timestamp_ms
        if self.state is State.EMPTY:
            return commit_timestamp_ms if self.state_timestamp_ms == -1 else self.state_timestamp_ms
        is_known = self.kind == CONSUMER_PROTOCOL_TYPE and self.subscribed_topics() is not None
        return commit_timestamp_ms if is_known and self.state is State.STABLE else None

    def tombstones(self) -> list[CoordinatorRecord]:
        return [group_tombstone(self.group_id)]

    def release_waiting(self, error_code: int) -> list[Reply]:
        replies = []
        for member in self.members.values():
            if (caller := self.end_join(member)) is not None:
                replies.append(join_failed(caller, member.member_id, error_code))
            if member.syncing is not None:
                replies.append(sync_failed(member.syncing, error_code))
            member.syncing = None
        return replies

    def hard_state(self) -> GroupImage | None:
        return self.image

    # The log's word

    def adopt(self, value: Message, *, is_live: bool) -> None:
        """What this record says is true from now on. Members whom the group knows keep what only this process knows of
        them (all their protocols, who waits)."""
        self.image = GroupImage.of(value)
        self.generation = value["generation"]
        self.kind = value["protocol_type"] or None
        self.protocol = value["protocol"]
        self.leader_id = value["leader"]
        self.state_timestamp_ms = value["current_state_timestamp"]
        known = self.members if is_live else {}
        self.members = {}
        for part in value["members"]:
            member = member_from_record(part, self.protocol)
            kept = known.get(member.member_id)
            if kept is not None:
                kept.assignment = member.assignment
            self.members[member.member_id] = kept or member
        self.static_members = {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }
        self._support = Counter(name for member in self.members.values() for name, _ in member.protocols)
        self._subscribed = None
        self._metadata_bytes = sum(size_of(member.protocols) for member in self.members.values())
        self._assigned_bytes = sum(len(member.assignment) for member in self.members.values())
        self.unsynced_members &= self.members.keys()
        self._joined_members &= self.members.keys()
        self.state = State.STABLE if self.members else State.EMPTY

    def record(
        self,
        members: Iterable[Member],
        assignments: Mapping[str, bytes],
        *,
        generation: int | None = None,
        leader_id: str | None = None,
    ) -> CoordinatorRecord:
        """This group with these members, of its present generation and leader unless others are named."""
        value = {
            "protocol_type": self.kind or "",
            "generation": self.generation if generation is None else generation,
            "protocol": self.protocol,
            "leader": leader_id or self.leader_id,
            "current_state_timestamp": self.state_timestamp_ms,
            "members": [member.record(self.protocol, assignments.get(member.member_id, b"")) for member in members],
        }
        return CoordinatorRecord(RecordType.GROUP_METADATA, {"group": self.group_id}, value)

    # Membership

    def transition_to(self, state: State, now_ms: int) -> None:
        assert (self.state, state) in TRANSITIONS, f"{self.state} -> {state}"
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: Member, kind: str) -> None:
        assert self.kind == kind or not self.members
        self.kind = kind
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        self.leader_id = self.leader_id or member.member_id
        self.members[member.member_id] = member
        if member.joining is not None:
            self._joined_members.add(member.member_id)
        self._support.update(name for name, _ in member.protocols)
        self._subscribed = None
        self._metadata_bytes += size_of(member.protocols)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        self.pending_members.discard(member_id)
        self.unsynced_members.discard(member_id)
        self._joined_members.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._support.subtract(name for name, _ in member.protocols)
            self._subscribed = None
            self._metadata_bytes -= size_of(member.protocols)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def update_protocols(self, member: Member, protocols: Protocols) -> None:
        self._support.subtract(name for name, _ in member.protocols)
        self._support.update(name for name, _ in protocols)
        self._subscribed = None
        self._metadata_bytes += size_of(protocols) - size_of(member.protocols)
        member.protocols = protocols

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """The instance, if one is named, is this member, and the member is known."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise UnknownMemberId(f"group {self.group_id!r} has no instance {instance_id!r}; join it")
            if known != member_id:
                raise FencedInstanceId(f"another process has joined as instance {instance_id!r} of {self.group_id!r}")
        if member_id not in self.members:
            raise UnknownMemberId(f"group {self.group_id!r} has no member {member_id!r}; join it anew")

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.group_id!r} is in generation {self.generation}, not {generation}")

    def await_join(self, member: Member, caller: Caller) -> None:
        """The member has joined the round; whoever asked for it is answered when the round ends."""
        member.joining = caller
        self._joined_members.add(member.member_id)

    def end_join(self, member: Member) -> Caller | None:
        """Who is to be answered now, if anybody waits."""
        caller, member.joining = member.joining, None
        self._joined_members.discard(member.member_id)
        return caller

    @property
    def joining_count(self) -> int:
        return len(self._joined_members)

    @property
    def has_all_joined(self) -> bool:
        """Asked with every join, and so never found out by asking every member."""
        return not self.pending_members and len(self._joined_members) == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """As long as the most patient member allows."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """The leader of the next generation is one who has joined it: the present one if it has, else the eldest."""
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.joining is None:
            leader = next((member for member in self.members.values() if member.joining is not None), None)
        if leader is None:
            return False
        self.leader_id = leader.member_id
        return True

    # Protocols

    def supports(self, kind: str, names: Collection[str]) -> bool:
        """Whether somebody with these protocols can join: at least one of them is common to all members."""
        if not self.members:
            return bool(kind) and bool(names)
        return self.kind == kind and any(self._support[name] == len(self.members) for name in names)

    def select_protocol(self) -> str:
        """The one that most members like best, among those that all can use."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def subscribed_topics(self) -> set[str] | None:
        """What the members read; None where that cannot be known, as with protocols that are not consumers'."""
        if self.kind != CONSUMER_PROTOCOL_TYPE or (self.members and self.protocol is None):
            return None
        if self._subscribed is None or self._subscribed[0] != self.protocol:
            self._subscribed = self.protocol, self._read_subscriptions()
        return self._subscribed[1]

    def _read_subscriptions(self) -> set[str] | None:
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(_topics_of(member.metadata(self.protocol)))
        except (MalformedMessage, struct.error):
            return None
        return topics

    def described(self) -> Message:
        """Its part of DescribeGroups."""
        protocol = self.protocol if self.state is State.STABLE else None
        return {
            "error_code": 0,
            "group_id": self.group_id,
            "group_state": self.state_name,
            "protocol_type": self.protocol_type,
            "protocol_data": protocol or "",
            "members": [member.described(protocol) for member in self.members.values()],
        }


def _topics_of(subscription: bytes) -> list[str]:
    """Every version of a consumer's subscription begins with the fields of version 0."""
    body, _ = decode("ConsumerProtocolSubscription", 0, subscription, _SUBSCRIPTION_VERSION_BYTES)
    topics: list[str] = body["topics"]
    return topics
