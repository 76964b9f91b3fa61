"""`roundrobin`: all partitions of all topics in a row, dealt to the members in turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from oncelog.client.membership.assignor import EAGER, Assignments, Subscription, Topics
from oncelog.client.membership.assignors.members import in_order
from oncelog.types import TopicPartition


class RoundRobinAssignor:
    name = "roundrobin"
    protocols: Collection[str] = (EAGER,)

    def user_data(self, owned: Collection[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assignments:
        members = in_order(subscriptions)
        wanted = {member_id: frozenset(subscriptions[member_id].topics) for member_id in members}
        assignments: Assignments = {member_id: [] for member_id in subscriptions}
        turn = 0
        for topic in sorted(frozenset().union(*wanted.values()) & topics.keys()):
            for partition in range(len(topics[topic])):
                while topic not in wanted[members[turn % len(members)]]:
                    turn += 1
                assignments[members[turn % len(members)]].append(TopicPartition(topic, partition))
                turn += 1
        return assignments
