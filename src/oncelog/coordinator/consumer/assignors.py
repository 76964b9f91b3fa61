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


Assignment = dict[str, dict[UUID, frozenset[int]]]
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
    partitions move as possible."""
    share, odd = divmod(sum(partition_counts.values()), len(subscribers))
    free = {(topic_id, partition) for topic_id in partition_counts for partition in range(partition_counts[topic_id])}
    kept = {subscriber.member_id: _still_there(subscriber, free) for subscriber in subscribers}
    has_room = []
    for partitions in kept.values():
        limit = share + 1 if odd and len(partitions) > share else share
        odd -= limit > share
        for lost in partitions[limit:]:
            free.add(lost)
        del partitions[limit:]
        has_room.append((partitions, limit))
    waiting = sorted(free, reverse=True)
    for partitions, limit in has_room:
        quota = limit
        if odd and limit == share:
            quota, odd = share + 1, odd - 1
        while len(partitions) < quota:
            partitions.append(waiting.pop())
    return _by_topic(kept)


def _assign_by_balancing(subscribers: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> Assignment:
    """Not everybody may read everything: what nobody had goes to whom has least, topics with few readers first; then
    partitions move from those with more to those with less, as long as that evens them out."""
    readers: dict[UUID, list[str]] = {}
    for subscriber in subscribers:
        for topic_id in subscriber.topics:
            readers.setdefault(topic_id, []).append(subscriber.member_id)
    free = {(topic_id, partition) for topic_id in readers for partition in range(partition_counts[topic_id])}
    kept = {subscriber.member_id: _still_there(subscriber, free) for subscriber in subscribers}
    return _by_topic(balance(kept, sorted(free), readers))


def _still_there(subscriber: Subscriber, free: set[tuple[UUID, int]]) -> list[tuple[UUID, int]]:
    """What a member had and may keep, taken out of what is free: two members that had the same do not both keep it."""
    kept = []
    for topic_id in sorted(subscriber.had.keys() & subscriber.topics):
        for partition in sorted(subscriber.had[topic_id]):
            if (topic_id, partition) in free:
                free.remove((topic_id, partition))
                kept.append((topic_id, partition))
    return kept


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
    return assigned


def _range_order(subscriber: Subscriber) -> tuple[bool, str, str]:
    """Static members first and by their instance: their place, and so their run, outlives their member id."""
    return subscriber.instance_id is None, subscriber.instance_id or "", subscriber.member_id


def _by_topic(assigned: Mapping[str, Iterable[tuple[UUID, int]]]) -> Assignment:
    found: dict[str, dict[UUID, frozenset[int]]] = {}
    for member_id, partitions in assigned.items():
        topics: dict[UUID, set[int]] = {}
        for topic_id, partition in partitions:
            topics.setdefault(topic_id, set()).add(partition)
        found[member_id] = {topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}
    return found


ASSIGNORS: dict[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}
