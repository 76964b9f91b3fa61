"""Members of a group in the order in which Kafka's clients serve them."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.client.membership.assignor import Subscription, Topics


def in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Static members first, by instance id: so that one that restarts, with another member id, gets what it had."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = subscriptions[member_id].group_instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    return sorted(subscriptions, key=place)


def members_by_topic(topics: Topics, subscriptions: Mapping[str, Subscription]) -> dict[str, list[str]]:
    """For each topic that exists and is wanted, its members in order."""
    found: dict[str, list[str]] = {}
    for member_id in in_order(subscriptions):
        for topic in dict.fromkeys(subscriptions[member_id].topics):
            if topic in topics:
                found.setdefault(topic, []).append(member_id)
    return found
