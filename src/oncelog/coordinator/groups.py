"""What all groups have in common, and where they are kept.

Owns the map of groups that classic groups, consumer groups and offsets share, and which partition of
`__consumer_offsets` a group belongs to. Never knows a protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from operator import mul
from typing import Protocol
from uuid import UUID

from oncelog.coordinator.effects import Reply
from oncelog.coordinator.records import CoordinatorRecord
from oncelog.errors import CoordinatorNotAvailable, GroupIdNotFound

CLASSIC = "classic"
CONSUMER = "consumer"

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers, in both kinds of groups (Kafka Connect's is `connect`)."""

UNKNOWN_GENERATION = -1
"""The generation of those who commit offsets without being a member."""

UNKNOWN_MEMBER = ""

NOBODY = (UNKNOWN_MEMBER, None, UNKNOWN_GENERATION)
"""The member id, instance id and generation of a request that does not say who asks."""


class Group(Protocol):
    """Everything that offsets, listings and deletions need of a group."""

    group_id: str

    @property
    def group_type(self) -> str:
        """CLASSIC or CONSUMER."""
        ...

    @property
    def state_name(self) -> str:
        """As Kafka spells it: `Stable`, `PreparingRebalance`, `Reconciling`, ..."""
        ...

    @property
    def protocol_type(self) -> str:
        """`consumer`; empty for a classic group that only holds offsets."""
        ...

    @property
    def is_empty(self) -> bool:
        """It has no members."""
        ...

    @property
    def size(self) -> int:
        """How many members it has."""
        ...

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, version: int, now_ms: int
    ) -> None:
        """Raises KafkaError where this member of this generation (or member epoch) may not commit offsets now.
        `version` is that of the OffsetCommit request. A commit that is allowed may be a sign of life."""
        ...

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """The same for TxnOffsetCommit, which nobody need be a member for: at first its requests did not say who asks.
        Who does say is checked."""
        ...

    def has_kept(self, member_id: str, epoch: int, places: Iterable[tuple[UUID, int]]) -> bool:
        """The member is in a later epoch by now, but has had these partitions since that one or longer: nobody else can
        have committed offsets for them since, and it may do so (KIP-1251)."""
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None:
        """Raises NonEmptyGroup where the group still has members, GroupIdNotFound where it is dead."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic: then its offsets neither expire nor may be deleted."""
        ...

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts that was committed then; None: it does not expire now."""
        ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """What takes the group back from the log; its offsets are not its own."""
        ...

    def release_waiting(self, error_code: int) -> list[Reply]:
        """Every join or sync that waits is answered with this error, and waits no more."""
        ...

    def hard_state(self) -> object:
        """What its records say, comparable; None if it has none."""
        ...


MAX_ALL_MEMBERS_BYTES = 32 << 20
"""Of what the members of all classic groups of a broker say and are assigned. A consumer says some hundred bytes, so
that is room for a hundred thousand; without it, few large requests in many groups would take all memory. It counts
twice: a request that waits is kept too."""


class MemberRoom:
    """What the members of all groups of a broker take, over all partitions that it coordinates."""

    def __init__(self, max_bytes: int = MAX_ALL_MEMBERS_BYTES) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0

    def check(self, more_bytes: int) -> None:
        """Clients take the answer as a reason to come again after a pause, for a join and for a sync: nobody has to be
        restarted when there is room again."""
        if more_bytes > 0 and self.held_bytes + more_bytes > self.max_bytes:
            raise CoordinatorNotAvailable(f"the members of all groups take {self.held_bytes} bytes; there is no room")


class GroupMap(dict[str, Group]):
    """All groups of one partition by their ids. Only replay (and, for the soft state of a classic group's first join,
    ClassicGroups) adds or removes one."""

    def __init__(self, room: MemberRoom | None = None) -> None:
        super().__init__()
        self.room = MemberRoom() if room is None else room
        self._sizes: dict[str, int] = {}
        """What each group takes of the room."""
        self.rebalance_wanted: set[str] = set()
        """Groups that a downgrade has just made classic: ClassicGroups begins a rebalance as soon as their records
        are replayed."""

    def existing(self, group_id: str) -> Group:
        group = self.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        return group

    def __setitem__(self, group_id: str, group: Group) -> None:
        if self.get(group_id) is not group:
            self.resized(group_id, 0)
        super().__setitem__(group_id, group)

    def __delitem__(self, group_id: str) -> None:
        super().__delitem__(group_id)
        self.resized(group_id, 0)

    def resized(self, group_id: str, size_bytes: int) -> None:
        """The members of a group take so much now."""
        self.room.held_bytes += size_bytes - self._sizes.pop(group_id, 0)
        if size_bytes:
            self._sizes[group_id] = size_bytes

    def leave_room(self) -> None:
        """Another one coordinates these groups."""
        for group_id in list(self._sizes):
            self.resized(group_id, 0)


HASHED_AT_ONCE = 64
_POWERS = [pow(31, exponent, 2**32) for exponent in range(HASHED_AT_ONCE, -1, -1)]
"""Of 31, the highest first: what each unit of a text counts in its hash. A name may be long, and a request full of
them; this is many times faster than unit by unit."""


def coordinator_for(group_id: str, partition_count: int) -> int:
    """Which partition of `__consumer_offsets` keeps the group: by Java's hash of the id, as Kafka finds it."""
    hashed = _java_hash(group_id)
    # Java has no positive counterpart of its smallest integer; Kafka takes 0.
    return (0 if hashed == -(2**31) else abs(hashed)) % partition_count


def _java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 units, in signed 32 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(data) // 2}H", data)
    value = 0
    for at in range(0, len(units), HASHED_AT_ONCE):
        some = units[at : at + HASHED_AT_ONCE]
        value = (value * _POWERS[-1 - len(some)] + sum(map(mul, some, _POWERS[-len(some) :]))) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
