"""One member of a consumer group, as the log knows it.

Owns the values: who the member is, what it subscribed to, which epoch it has reached and which partitions it holds.
Never changes one: every step yields a new value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

JOINING_EPOCH = 0
"""The epoch with which a member joins, or joins again."""

LEAVING_EPOCH = -1
"""The epoch of a heartbeat that says good-bye."""

STATIC_LEAVING_EPOCH = -2
"""The epoch of a static member that left for a while: its partitions wait for it until its session ends."""

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. No topic is without a partition."""

HeldPartitions = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch at which it was assigned to its member."""

NO_PARTITIONS: Partitions = {}


class MemberState(IntEnum):
    """How far a member has come on its way to the target assignment, with Kafka's numbers."""

    STABLE = 0
    """It holds what the target of its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It still has to give up partitions; until then it stays in its epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members still hold."""
    UNKNOWN = 127
    """A newer coordinator wrote a state that this one does not know."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        return _STATES.get(number, cls.UNKNOWN)


_STATES = {int(state): state for state in MemberState}


class ClassicProtocol(NamedTuple):
    """An assignor that a member of the classic protocol offers, and its subscription in that assignor's format."""

    name: str
    metadata: bytes


class ClassicPart(NamedTuple):
    """What a member that speaks the classic protocol brings along."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    topics: frozenset[str] = frozenset()
    """The topics that it subscribed to by name."""
    topic_regex: str = ""
    classic: ClassicPart | None = None
    """None for a member that speaks the new protocol."""
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: HeldPartitions = field(default_factory=dict)
    revoking: HeldPartitions = field(default_factory=dict)
    """What it was told to give up and has not yet said to have given up: it still holds them."""

    def held_since(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch at which the partition was assigned to it; None if it is not its own."""
        since = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if since is None else since

    def reached(self, epoch: int) -> bool:
        """Nothing is left to do on the way to the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved(
        self, epoch: int, state: MemberState, assigned: HeldPartitions, revoking: HeldPartitions | None = None
    ) -> Member:
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            revoking={} if revoking is None else revoking,
        )

    def without_assignment(self) -> Member:
        return replace(
            self, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, state=MemberState.STABLE, assigned={}, revoking={}
        )


def partitions_of(held: HeldPartitions) -> dict[UUID, frozenset[int]]:
    return {topic_id: frozenset(partitions) for topic_id, partitions in held.items()}


def merged(*parts: HeldPartitions) -> dict[UUID, frozenset[int]]:
    return gather((topic_id, partitions) for held in parts for topic_id, partitions in held.items())


def holds_any(held: HeldPartitions, partitions: Partitions) -> bool:
    return any(not partition_set.isdisjoint(held.get(topic_id, ())) for topic_id, partition_set in partitions.items())


def holds_all(held: HeldPartitions, partitions: Partitions) -> bool:
    return all(partition_set <= held.get(topic_id, {}).keys() for topic_id, partition_set in partitions.items())


def gather(pairs: Iterable[tuple[UUID, Iterable[int]]]) -> dict[UUID, frozenset[int]]:
    """Partitions from a message, in which a topic may appear twice or without a partition."""
    found: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in pairs:
        numbers = frozenset(partitions)
        if numbers:
            found[topic_id] = found.get(topic_id, frozenset()) | numbers
    return found
