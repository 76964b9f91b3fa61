"""Assignors by the names that `partition.assignment.strategy` knows, and users' own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from oncelog.client.membership.assignor import EAGER, Assignments, Assignor, Subscription, Topics
from oncelog.client.membership.assignors.range_assignor import RangeAssignor
from oncelog.client.membership.assignors.round_robin import RoundRobinAssignor
from oncelog.client.membership.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from oncelog.types import TopicPartition

BUILT_IN: tuple[Assignor, ...] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
_BY_NAME = {assignor.name: assignor for assignor in BUILT_IN}


class UsersAssignor:
    """An object that need not have more than `name` and `assign`."""

    def __init__(self, given: Any) -> None:
        self.name: str = given.name
        self.protocols: Collection[str] = getattr(given, "protocols", (EAGER,))
        self._given = given

    def assign(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assignments:
        given = self._given.assign(topics, subscriptions)
        return {member_id: [TopicPartition(*one) for one in given.get(member_id, ())] for member_id in subscriptions}

    def user_data(self, owned: Collection[TopicPartition], generation_id: int) -> bytes | None:
        make = getattr(self._given, "user_data", None)
        return None if make is None else make(owned, generation_id)


def assignors_named(strategy: Iterable[Any]) -> tuple[Assignor, ...]:
    """In the order of preference. Raises KeyError for a name that is not known: configs check theirs."""
    return tuple(_BY_NAME[one] if isinstance(one, str) else UsersAssignor(one) for one in strategy)
