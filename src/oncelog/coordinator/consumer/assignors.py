"""The assignors that the coordinator offers: which member of a group is to read which partitions.

`uniform` gives every member as many partitions as any other, plus or minus one, and moves no partition without need.
`range` gives each member one run of neighbouring partitions of every topic, the same run in topics of the same size, so
that members can join topics. Pure functions of the subscriptions; nothing here knows of epochs or reconciliation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from oncelog.coordinator.consumer.balancing import balance
from oncelog.coordinator.consumer.member import Partitions

UNIFORM = "uniform"
RANGE = "range"


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    """Those that exist."""
    had: Partitions
    """What the previous assignment gave it."""


Assignment = dict[str, Partitions]
Assignor = Callable[[Sequence[Subscriber], Mapping[UUID, int]], Assignment]
"""From the subscribers and the partition counts of their topics to what each is to have. Every partition of a topic
that somebody reads goes to exactly one of its readers."""


def assign_uniform(subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> Assignment:
    ordered = sorted(subscribers, key=lambda subscriber: subscriber.member_id)
    if not ordered:
        return {}
    if all(subscriber.topics == ordered[0].topics for subscriber in ordered):
        return _assign_evenly(ordered, {topic_id: partition_counts[topic_id] for topic_id in ordered[0].topics})
    return _assign_by_balancing(ordered, partition_counts)


def _assign_evenly(subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> Assignment:
    """Everybody may read everything: who had too many gives some up, who has too few gets what is free.

    The members that already had more than the even share are the ones to have the odd partition more: this way as few
    partitions move as possible. Nearly everybody keeps what it had, in a group that grows by one: those are counted,
    and only the others are taken apart."""
    share, odd = divmod(sum(partition_counts.values()), len(subscribers))
    free = {topic_id: set(range(count)) for topic_id, count in partition_counts.items()}
    kept = {subscriber.member_id: _kept(subscriber.had, free) for subscriber in subscribers}
    limits = []
    for member_id, partitions in kept.items():
        load = sum(map(len, partitions.values()))
        limit = share + 1 if odd and load > share else share
        odd -= limit > share
        if load > limit:
            places = _places(partitions)
            for topic_id, partition in places[limit:]:
                free[topic_id].add(partition)
            kept[member_id], load = _gathered(places[:limit]), limit
        limits.append((member_id, load, limit))
    waiting = _places(free)[::-1]
    for member_id, load, limit in limits:
        quota = limit
        if odd and limit == share:
            quota, odd = share + 1, odd - 1
        if load < quota:
            given = [waiting.pop() for _ in range(quota - load)]
            kept[member_id] = _gathered([*_places(kept[member_id]), *given])
    return kept


def _kept(had: Partitions, free: dict[UUID, set[int]]) -> Partitions:
    """What a member had and may keep, taken out of what is free: two members that had the same do not both keep it. The
    very same value, where that is all of it."""
    kept: dict[UUID, frozenset[int]] = {}
    for topic_id, numbers in had.items():
        still_free = free.get(topic_id)
        if still_free is None:
            continue
        mine = numbers & still_free
        if mine:
            still_free -= mine
            kept[topic_id] = mine
    return had if kept == had else kept


def _places(partitions: Mapping[UUID, Iterable[int]]) -> list[tuple[UUID, int]]:
    return [(topic_id, partition) for topic_id in sorted(partitions) for partition in sorted(partitions[topic_id])]


def _assign_by_balancing(subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> Assignment:
    """Not everybody may read everything: what nobody had goes to whom has least, topics with few readers first; then
    partitions move from those with more to those with less, as long as that evens them out."""
    readers: dict[UUID, list[str]] = {}
    for subscriber in subscribers:
        for topic_id in subscriber.topics:
            readers.setdefault(topic_id, []).append(subscriber.member_id)
    free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in readers}
    kept = {subscriber.member_id: _places(_kept(_still_read(subscriber), free)) for subscriber in subscribers}
    balanced = balance(kept, _places(free), readers)
    return {member_id: _gathered(places) for member_id, places in balanced.items()}


def _still_read(subscriber: Subscriber) -> Partitions:
    return {topic_id: numbers for topic_id, numbers in subscriber.had.items() if topic_id in subscriber.topics}


def assign_range(subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> Assignment:
    ordered = sorted(subscribers, key=_range_order)
    assigned: dict[str, dict[UUID, frozenset[int]]] = {subscriber.member_id: {} for subscriber in ordered}
    for topic_id in sorted({topic_id for subscriber in ordered for topic_id in subscriber.topics}):
        readers = [subscriber.member_id for subscriber in ordered if topic_id in subscriber.topics]
        share, odd = divmod(partition_counts[topic_id], len(readers))
        start = 0
        for rank, member_id in enumerate(readers):
            end = start + share + (rank < odd)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _range_order(subscriber: Subscriber) -> tuple[bool, str, str]:
    """Static members first and by their instance: their place, and so their run, outlives their member id."""
    return subscriber.instance_id is None, subscriber.instance_id or "", subscriber.member_id


def _gathered(places: Iterable[tuple[UUID, int]]) -> Partitions:
    topics: dict[UUID, set[int]] = {}
    for topic_id, partition in places:
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}


ASSIGNORS: dict[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}
