"""The work of a classic group's leader: from what the members say to what each of them gets, and when that is outdated.

Owns the two-phase rule of cooperative rebalances: a partition that another member still owns is given to nobody, so
that its owner gives it up and joins again, and then it is given. Rubbish from a member costs that member its
partitions, and nobody else anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from oncelog.client.membership.assignor import COOPERATIVE, Assignments, Assignor, Subscription, Topics
from oncelog.client.membership.consumer_protocol import decode_subscription, encode_assignment
from oncelog.client.metadata import ClusterMetadata
from oncelog.client.metadata_cache import MetadataCache
from oncelog.errors import InvalidTopicException, UnknownTopicOrPartition
from oncelog.types import TopicPartition
from oncelog.wire.codec import MalformedMessage, Message

_log = logging.getLogger(__name__)

_DOES_NOT_EXIST = (UnknownTopicOrPartition.code, InvalidTopicException.code)


class Leader:
    """For one generation."""

    def __init__(self, assignor: Assignor, members: Iterable[Message], metadata: MetadataCache) -> None:
        self._assignor = assignor
        self._metadata = metadata
        self._members = read_members(members)
        self.topics = frozenset(topic for one in self._members.values() for topic in one.topics)
        """What the group subscribes to, whether it exists or not."""
        self._uses_racks = any(one.rack for one in self._members.values())
        # A question that is under way knows nothing of topics that are new to us; the one after it does.
        self._enough_answers = metadata.answers + 2
        self._seen: Topics = {}

    @property
    def knows_topics(self) -> bool:
        """The brokers were asked about every topic of the group."""
        cluster = self._metadata.cluster
        if cluster is not None and self.topics <= cluster.topics.keys():
            return True
        return self._metadata.answers >= self._enough_answers

    @property
    def is_outdated(self) -> bool:
        """Topics came, went or grew since the assignment."""
        return self._seen != self._visible()

    def assign(self) -> dict[str, bytes]:
        """What each member gets, ready for SyncGroup."""
        self._seen = self._visible()
        assignments = self._assignor.assign(self._seen, self._members)
        if COOPERATIVE in self._assignor.protocols:
            assignments = withhold_what_moves(assignments, self._members)
        return {member_id: encode_assignment(assignments.get(member_id, ())) for member_id in self._members}

    def skip(self) -> None:
        """The coordinator keeps the last assignment, for a leader that came back; topics are watched all the same."""
        self._seen = self._visible()

    def _visible(self) -> Topics:
        return visible_topics(self.topics, self._metadata.cluster, self._seen, with_racks=self._uses_racks)


def read_members(members: Iterable[Message]) -> dict[str, Subscription]:
    """What the coordinator passed on of each member; without those that make no sense."""
    subscriptions: dict[str, Subscription] = {}
    for member in members:
        try:
            subscriptions[member["member_id"]] = decode_subscription(member["metadata"], member["group_instance_id"])
        except MalformedMessage as error:
            _log.warning("member %s gets no partitions, its subscription is garbled: %s", member["member_id"], error)
    return subscriptions


def visible_topics(
    names: Iterable[str], cluster: ClusterMetadata | None, earlier: Topics, *, with_racks: bool
) -> Topics:
    """Those that exist, as assignors see them. One about which the brokers cannot tell now is as it was earlier."""
    if cluster is None:
        return earlier
    racks = {node.node_id: node.rack for node in cluster.nodes.values() if node.rack} if with_racks else {}
    found: dict[str, tuple[frozenset[str], ...]] = {}
    for name in names:
        topic = cluster.topics.get(name)
        if topic is not None and topic.is_usable:
            found[name] = tuple(
                frozenset(racks[node] for node in one.replicas if node in racks) for one in topic.partitions
            )
        elif name in earlier and topic is not None and topic.error_code not in _DOES_NOT_EXIST:
            found[name] = tuple(earlier[name])
    return found


def withhold_what_moves(assignments: Assignments, subscriptions: Mapping[str, Subscription]) -> Assignments:
    owners: dict[TopicPartition, set[str]] = {}
    for member_id, subscription in subscriptions.items():
        for partition in subscription.owned:
            owners.setdefault(partition, set()).add(member_id)
    return {
        member_id: [one for one in partitions if owners.get(one, {member_id}) <= {member_id}]
        for member_id, partitions in assignments.items()
    }
