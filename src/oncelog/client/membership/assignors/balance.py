"""Spreads partitions over members as evenly as their subscriptions allow, moving as few as it can.

Even means: nobody can be relieved, neither by handing a partition to a member that has two less, nor by handing one on
along a chain of members. Where all members want the same topics that is floor or ceiling of the average, and the number
of partitions that move is the smallest possible. Otherwise chains are looked for that cost the fewest moves, and what
moved is given back wherever that leaves it as even.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from oncelog.client.membership.assignor import Assignments
from oncelog.types import TopicPartition


def balance(
    counts: Mapping[str, int], wanted: Mapping[str, Collection[str]], kept: Mapping[str, Sequence[TopicPartition]]
) -> Assignments:
    """`wanted` are existing topics by member, in the order of the members; `kept` what each has and still wants."""
    topics = sorted(frozenset().union(*wanted.values()))
    partitions = [TopicPartition(topic, index) for topic in topics for index in range(counts[topic])]
    if not wanted:
        return {}
    if all(set(some) == set(topics) for some in wanted.values()):
        return _split_evenly(partitions, list(wanted), kept)
    return _Chains(partitions, wanted, kept).balanced()


def _split_evenly(
    partitions: Sequence[TopicPartition], members: Sequence[str], kept: Mapping[str, Sequence[TopicPartition]]
) -> Assignments:
    share, extras = divmod(len(partitions), len(members))
    assignments: Assignments = {}
    for member in sorted(members, key=lambda one: -len(kept[one])):  # who has the most keeps one more than its share
        has_extra = extras > 0 and len(kept[member]) > share
        extras -= has_extra
        assignments[member] = sorted(kept[member])[: share + has_extra]
    given = {partition for some in assignments.values() for partition in some}
    queue = [(len(assignments[member]), place, member) for place, member in enumerate(members)]
    heapq.heapify(queue)
    for partition in partitions:
        if partition not in given:
            load, place, member = queue[0]
            assignments[member].append(partition)
            heapq.heapreplace(queue, (load + 1, place, member))
    return assignments


class _Chains:
    """Members with different subscriptions. A move from x to y is possible where x has a partition of a topic that y
    wants; a chain of moves takes one partition from its first member and gives one to its last."""

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        wanted: Mapping[str, Collection[str]],
        kept: Mapping[str, Sequence[TopicPartition]],
    ) -> None:
        self._members = list(wanted)
        self._place = {member: place for place, member in enumerate(self._members)}
        self._partitions = list(partitions)
        self._readers: dict[str, list[str]] = {}
        for member, topics in wanted.items():
            for topic in topics:
                self._readers.setdefault(topic, []).append(member)
        self._keeper = {partition: member for member, some in kept.items() for partition in some}
        self._load = dict.fromkeys(self._members, 0)
        self._held: dict[str, dict[str, set[TopicPartition]]] = {member: {} for member in self._members}

    def balanced(self) -> Assignments:
        for partition, member in self._keeper.items():
            self._give(partition, member)
        homeless = [partition for partition in self._partitions if partition not in self._keeper]
        for partition in sorted(homeless, key=lambda one: len(self._readers[one.topic])):
            self._give(
                partition, min(self._readers[partition.topic], key=lambda one: (self._load[one], self._place[one]))
            )
        while self._relieve_one():
            pass
        self._give_back()
        return {
            member: sorted(partition for some in self._held[member].values() for partition in some)
            for member in self._members
        }

    def _give(self, partition: TopicPartition, member: str) -> None:
        self._held[member].setdefault(partition.topic, set()).add(partition)
        self._load[member] += 1

    def _take(self, partition: TopicPartition, member: str) -> None:
        held = self._held[member]
        held[partition.topic].remove(partition)
        if not held[partition.topic]:
            del held[partition.topic]
        self._load[member] -= 1

    def _relieve_one(self) -> bool:
        """One chain from a member to another that has at least two less. False if there is none."""
        for member in sorted(self._members, key=lambda one: (-self._load[one], self._place[one])):
            chain = self._chain_from(member)
            if chain:
                for partition, giver, taker in chain:
                    self._take(partition, giver)
                    self._give(partition, taker)
                return True
        return False

    def _chain_from(self, source: str) -> list[tuple[TopicPartition, str, str]]:
        """The moves of the chain to the least loaded member that can be reached, the cheapest there is: a partition
        that its giver did not have before costs nothing. Members and topics are the nodes of the search."""
        cost: dict[tuple[bool, str], int] = {(True, source): 0}
        came_from: dict[tuple[bool, str], str] = {}
        queue = deque([(0, True, source)])
        while queue:
            spent, is_member, name = queue.popleft()
            if spent > cost[is_member, name]:
                continue
            for step, other in self._steps(is_member, name):
                node = (not is_member, other)
                if spent + step < cost.get(node, 1 << 62):
                    cost[node] = spent + step
                    came_from[node] = name
                    (queue.append if step else queue.appendleft)((spent + step, *node))
        reached = [name for is_member, name in cost if is_member and self._load[name] <= self._load[source] - 2]
        if not reached:
            return []
        taker = min(reached, key=lambda one: (self._load[one], cost[True, one], self._place[one]))
        chain = []
        while taker != source:
            topic = came_from[True, taker]
            giver = came_from[False, topic]
            chain.append((self._cheapest(giver, topic), giver, taker))
            taker = giver
        return chain

    def _steps(self, is_member: bool, name: str) -> Iterable[tuple[int, str]]:
        if not is_member:
            return ((0, member) for member in self._readers[name])
        return ((self._price(self._cheapest(name, topic), name), topic) for topic in self._held[name])

    def _cheapest(self, member: str, topic: str) -> TopicPartition:
        return min(self._held[member][topic], key=lambda one: (self._price(one, member), -one.partition))

    def _price(self, partition: TopicPartition, giver: str) -> int:
        return int(self._keeper.get(partition) == giver)

    def _give_back(self) -> None:
        """What moved returns to its former member, if that one has less than who has it now: as even, and no move."""
        moved = [
            (partition, member)
            for member, held in self._held.items()
            for some in held.values()
            for partition in some
            if self._keeper.get(partition, member) != member
        ]
        is_settled = False
        while not is_settled:
            is_settled = True
            for partition, member in sorted(moved):
                keeper = self._keeper[partition]
                if self._load[keeper] < self._load[member]:
                    self._take(partition, member)
                    self._give(partition, keeper)
                    moved.remove((partition, member))
                    is_settled = False
