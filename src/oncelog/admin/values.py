"""What `Admin` takes and returns. Frozen values with Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from typing import Final, Literal
from uuid import UUID

from oncelog.client.leaders import EARLIEST_OFFSET, LATEST_OFFSET
from oncelog.client.metadata import Node, PartitionMetadata
from oncelog.types import TopicPartition


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a config value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class OffsetSpec(IntEnum):
    """Offsets that have a name, for `Admin.list_offsets`; a timestamp in milliseconds may stand in their place."""

    LATEST = LATEST_OFFSET
    EARLIEST = EARLIEST_OFFSET
    MAX_TIMESTAMP = -3


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    """None for a secret."""
    source: ConfigSource
    read_only: bool = False
    is_sensitive: bool = False
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: UUID
    partitions: int
    """-1 where the broker is too old to say."""
    replication_factor: int
    configs: Mapping[str, ConfigEntry]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition's leader remembers of one producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None


class TransactionState(StrEnum):
    """Of a transactional id: what became of its last transaction."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    coordinator_id: int
    """The node that coordinates it."""
    producer_id: int
    state: str
    """One of `TransactionState`."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    coordinator_id: int
    state: str
    """One of `TransactionState`."""
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    """When the transaction began; None where there is none."""
    partitions: tuple[TopicPartition, ...]
    """What it has written to, as far as it has no marker there yet."""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """Open in a partition, and nobody will ever end it: readers of committed records wait before it."""

    partition: TopicPartition
    producer: ProducerState
    transactional_id: str | None
    """None where no coordinator knows the producer."""


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The identity that the next producer of the transactional id comes after."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    type: str
    """`classic` or `consumer` (KIP-848)."""
    state: str
    """`Stable`, `PreparingRebalance`, `CompletingRebalance`, `Assigning`, `Reconciling`, `Empty` or `Dead`."""
    protocol_type: str
    """`consumer` for groups of consumers; others, such as Kafka Connect, name their own."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    """The name of a static member."""
    client_id: str
    client_host: str
    assignment: frozenset[TopicPartition]
    epoch: int | None
    """Of the member, in a group of type `consumer`."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int | None
    """Of the group, if it is of type `consumer`."""
    members: tuple[GroupMember, ...]


class Wildcard(Enum):
    ANY_NAME = "*"


ANY_NAME: Final = Wildcard.ANY_NAME
"""In a filter of `Admin.describe_client_quotas`: whatever the name is, the default included."""

EntityName = str | None
"""The name of a user or client id; None is the default, which stands for everyone without a quota of their own."""

EntityMatch = EntityName | Literal[Wildcard.ANY_NAME]


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The limits of one entity: a user, a client id, or a client id of a user."""

    entity: Mapping[str, EntityName]
    """By `user` and `client-id`, such as `{"user": "alice", "client-id": None}`."""
    limits: Mapping[str, float]
    """By `producer_byte_rate`, `consumer_byte_rate` (bytes per second), `request_percentage`."""
