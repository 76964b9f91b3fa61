"""Which broker leads a partition, as far as anybody has told us: metadata, or a broker that was asked in vain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from oncelog.client.fetch.partitions import PartitionState
from oncelog.client.metadata import NO_LEADER, Node
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network
from oncelog.types import TopicPartition
from oncelog.wire.hot import CurrentLeader, NodeEndpoint
from oncelog.wire.schema import ZERO_UUID


class Leadership(NamedTuple):
    node_id: int
    epoch: int
    topic_id: UUID | None
    """None where brokers are too old to have ids."""


class Leaders:
    def __init__(
        self, network: Network, metadata: MetadataCache, states: Mapping[TopicPartition, PartitionState]
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._states = states

    def told(self, partition: TopicPartition) -> Leadership | None:
        """What metadata says; None if it does not know the partition."""
        cluster = self._metadata.cluster
        topic = None if cluster is None else cluster.topics.get(partition.topic)
        if (
            cluster is None
            or topic is None
            or not topic.is_usable
            or not 0 <= partition.partition < len(topic.partitions)
        ):
            return None
        one = topic.partitions[partition.partition]
        leader = one.leader if one.leader in cluster.nodes else NO_LEADER
        return Leadership(leader, one.leader_epoch, None if topic.topic_id == ZERO_UUID else topic.topic_id)

    def of(self, partition: TopicPartition) -> tuple[int, int]:
        """Whom to ask, NO_LEADER if nobody knows, and the epoch to say. The state of a partition may know more than
        metadata."""
        state = self._states.get(partition)
        if state is not None:
            return state.leader, state.leader_epoch
        told = self.told(partition)
        return (NO_LEADER, -1) if told is None else (told.node_id, told.epoch)

    def can_ask(self, node_id: int, topic: str, now_ms: int) -> bool:
        """Whether the node takes a request now. If not, what makes it so is set in motion."""
        if node_id == NO_LEADER:
            self._metadata.want(topic, now_ms)
            self._metadata.mark_stale()
            return False
        return self.is_ready(node_id, now_ms)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        if self._network.is_ready(node_id, now_ms):
            return True
        if not self._network.is_connected(node_id):
            self._network.connect(node_id, now_ms)
            if self._network.is_unreachable(node_id, now_ms):
                self._metadata.mark_stale()  # others may lead by now
        return False

    def hint(self, state: PartitionState, leader: CurrentLeader | None, endpoints: Iterable[NodeEndpoint]) -> bool:
        """A broker that does not lead names the one that does; whether that is news."""
        if leader is None or leader.leader_epoch <= state.leader_epoch or leader.leader_id < 0:
            return False
        if not self._network.knows(leader.leader_id):
            at = next((one for one in endpoints if one.node_id == leader.leader_id), None)
            if at is None:
                return False
            self._network.add_node(Node(at.node_id, at.host, at.port, at.rack))
        state.leader, state.leader_epoch = leader
        return True
