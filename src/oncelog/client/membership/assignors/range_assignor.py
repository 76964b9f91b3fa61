"""`range`: of each topic, every member gets a row of neighbouring partitions, the first members one more.

Where members and replicas tell their racks, a member gets partitions with a replica in its own rack first, as far as
its share allows (KIP-881); topics with as many partitions and the same members stay aligned: partition n of all of them
goes to one member.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from oncelog.client.membership.assignor import EAGER, Assignments, Subscription, Topics
from oncelog.client.membership.assignors.members import members_by_topic
from oncelog.types import TopicPartition


class _Shares:
    """One topic on its way to its members."""

    def __init__(self, topic: str, racks: Sequence[frozenset[str]], members: Mapping[str, str | None]) -> None:
        self.topic = topic
        self.members = members  # with their racks, in order
        self.unassigned = list(range(len(racks)))
        self._racks = racks
        self._share, self._extras = divmod(len(racks), len(members))
        self._taken = dict.fromkeys(members, 0)

    @property
    def depends_on_racks(self) -> bool:
        """Racks make a difference only if members are in racks of replicas, and not every partition is in all."""
        everywhere = frozenset().union(*self._racks)
        own = {rack for rack in self.members.values() if rack}
        return bool(own & everywhere) and any(racks != everywhere for racks in self._racks)

    def room(self, member_id: str) -> int:
        return max(0, self._share + (self._extras > 0) - self._taken[member_id])

    def is_near(self, member_id: str, partition: int) -> bool:
        rack = self.members[member_id]
        return not rack or rack in self._racks[partition]

    def give(self, member_id: str, partitions: Sequence[int], assignments: Assignments) -> None:
        assignments[member_id] += [TopicPartition(self.topic, partition) for partition in partitions]
        before = self._taken[member_id]
        self._taken[member_id] = before + len(partitions)
        if before <= self._share < self._taken[member_id]:
            self._extras -= 1
        given = set(partitions)
        self.unassigned = [partition for partition in self.unassigned if partition not in given]

    def give_rows(self, assignments: Assignments, may: Callable[[str, int], bool]) -> None:
        for member_id in self.members:
            row = [partition for partition in self.unassigned if may(member_id, partition)][: self.room(member_id)]
            if row:
                self.give(member_id, row, assignments)


class RangeAssignor:
    name = "range"
    protocols: Collection[str] = (EAGER,)

    def user_data(self, owned: Collection[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assignments:
        assignments: Assignments = {member_id: [] for member_id in subscriptions}
        all_shares = [
            _Shares(topic, topics[topic], {member_id: subscriptions[member_id].rack for member_id in members})
            for topic, members in members_by_topic(topics, subscriptions).items()
            if topics[topic]
        ]
        if any(shares.depends_on_racks for shares in all_shares):
            for aligned in _aligned(all_shares):
                if len(aligned) > 1:
                    _give_aligned(aligned, assignments)
                elif aligned[0].depends_on_racks:
                    aligned[0].give_rows(assignments, aligned[0].is_near)
        for shares in all_shares:
            shares.give_rows(assignments, lambda member_id, partition: True)
        for given in assignments.values():
            given.sort()
        return assignments


def _aligned(all_shares: Sequence[_Shares]) -> list[list[_Shares]]:
    """Topics that look alike to assignment, together."""
    groups: dict[tuple[tuple[str, ...], int], list[_Shares]] = {}
    for shares in all_shares:
        groups.setdefault((tuple(shares.members), len(shares.unassigned)), []).append(shares)
    return list(groups.values())


def _give_aligned(aligned: Sequence[_Shares], assignments: Assignments) -> None:
    """Partition by partition, all topics at once, to the first member that is near all of them and has room."""
    for partition in range(len(aligned[0].unassigned)):
        for member_id in aligned[0].members:
            if all(one.is_near(member_id, partition) and one.room(member_id) > 0 for one in aligned):
                for one in aligned:
                    one.give(member_id, [partition], assignments)
                break
