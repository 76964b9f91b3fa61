"""What an assignor of the classic protocol is: the leader's rule of who gets which partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from oncelog.client.consumer_records import NO_GENERATION
from oncelog.types import TopicPartition

EAGER = "eager"
COOPERATIVE = "cooperative"


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member told the leader of itself."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack: str | None = None
    group_instance_id: str | None = None


Topics = Mapping[str, Sequence[frozenset[str]]]
"""The topics that exist: for each partition, in order, the racks of its replicas."""
Assignments = dict[str, list[TopicPartition]]


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """By which all members of a group agree on it."""

    @property
    def protocols(self) -> Collection[str]:
        """EAGER: members give up everything before they join. COOPERATIVE: they keep what does not move."""

    def assign(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assignments:
        """Every member of `subscriptions` has a list in the result. Topics that do not exist are not in `topics`."""

    def user_data(self, owned: Collection[TopicPartition], generation_id: int) -> bytes | None:
        """What a member adds to its subscription."""
