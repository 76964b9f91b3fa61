"""The partitions of a topic, as Metadata and DescribeTopicPartitions tell of them: encoded by a template, in parts.

Owns what is told of a partition. Partitions of a topic look alike but for their index, so one of them is encoded by its
schema and repeated: half a microsecond for each, where the schema takes ten. There is no memory of what was encoded,
which would have to follow every disk that fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.broker.dispatch import api_name, response_schema
from oncelog.controller.state import Partition, Topic
from oncelog.errors import LeaderNotAvailable
from oncelog.types import TopicPartition
from oncelog.wire.codec import Message, encoded_elements
from oncelog.wire.encoder import EncodedElements

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

NO_LEADER: Final = -1

PARTITIONS_PER_STEP: Final = 1_000
"""What is described between two looks at the clock: a millisecond."""

_INDEX_AT: Final = 2
"""In an encoded partition, of either API and any version: after the error code."""


class PartitionArray:
    """Filled by `steps`, and then `encoded` stands for the field of the topic."""

    def __init__(self, broker: BrokerState, api_key: int, version: int, extra: Message | None = None) -> None:
        """`extra` is what the API tells besides of each partition."""
        self._broker = broker
        self._api_key = api_key
        self._extra = extra or {}
        self.encoded: EncodedElements = encoded_elements(response_schema(api_key), version, "topics", "partitions")

    def steps(self, topic: Topic, partitions: Sequence[Partition]) -> Iterator[None]:
        """After each of them the clock may be looked at; there is none for a few partitions."""
        for start in range(0, len(partitions), PARTITIONS_PER_STEP):
            self._describe(topic, partitions[start : start + PARTITIONS_PER_STEP])
            if start + PARTITIONS_PER_STEP < len(partitions):
                yield

    def _describe(self, topic: Topic, partitions: Sequence[Partition]) -> None:
        """Runs of partitions that look alike."""
        logs, name = self._broker.logs.logs, topic.name
        like, was_offline, run = partitions[0], False, list[int]()
        for partition in partitions:
            log = logs.get(TopicPartition(name, partition.index))
            offline = (log is None or log.offline) and self._broker.is_offline(name, partition.index)
            if offline != was_offline or not _is_alike(partition, like):
                self._add(like, was_offline, run)
                like, was_offline, run = partition, offline, []
            run.append(partition.index)
        self._add(like, was_offline, run)

    def _add(self, like: Partition, offline: bool, run: list[int]) -> None:
        """A partition whose disk failed has no leader: clients then wait and ask again, as with Kafka."""
        if not run:
            return
        message: Message = {
            "error_code": LeaderNotAvailable.code if offline else 0,
            "partition_index": like.index,
            "leader_id": NO_LEADER if offline else like.leader,
            "leader_epoch": like.leader_epoch,
            "replica_nodes": list(like.replicas),
            "isr_nodes": list(like.isr),
            "offline_replicas": [like.leader] if offline else [],
            **self._extra,
        }
        if offline:
            self._broker.metrics.count_errors(
                api_name(self._api_key), {"error_code": LeaderNotAvailable.code}, len(run)
            )
        self.encoded.append_alike(message, _INDEX_AT, run)


def _is_alike(one: Partition, other: Partition) -> bool:
    return (
        one.leader_epoch == other.leader_epoch
        and one.leader == other.leader
        and one.replicas == other.replicas
        and one.isr == other.isr
    )
