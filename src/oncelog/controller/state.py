"""What the metadata log adds up to: topics with their partitions, configs, features, the next producer id.

`replay` is the only method that changes anything, and it never judges: whether a record may be written was decided
before it was, and whether what others wrote can be served is for `takeover` to say. A record that does not fit what
came before it raises LookupError or ValueError. Everything else here answers questions. Plans for writes are in
`topics`, `configs`, `producer_ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from oncelog.controller.records import IGNORED, AnyRecord, NewPartitions, RecordType
from oncelog.wire.codec import Message

T = TypeVar("T")

NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
FIRST_LEADER_EPOCH = 0
FIRST_PARTITION_EPOCH = 0
LEADER_UNCHANGED = -2
"""In a PartitionChangeRecord. Any other leader, even the same one, begins an epoch."""
FEATURE_OFF = 0


class Outcome(NamedTuple, Generic[T]):
    """What a write asks for: records to make durable, and the response that is true once they are."""

    records: Sequence[AnyRecord]
    response: T


class ResourceType(IntEnum):
    """What a config belongs to, as the protocol numbers it."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    type: ResourceType
    name: str


class Partition(NamedTuple):
    index: int  # type: ignore[assignment]  # the tuple's own `index` is of no use here
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    directories: tuple[UUID, ...]


@dataclass(slots=True, eq=False)
class Topic:
    id: UUID
    name: str
    partitions: dict[int, Partition] = field(default_factory=dict)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: types (`client-id`, `user`, `ip`) in the order of the alphabet, each with a name. A name of None
is everyone without one of their own."""


class ClientQuota(NamedTuple):
    """Whom a quota is for, and what it limits."""

    entity: QuotaEntity
    key: str


class ControllerState:
    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.client_quotas: dict[ClientQuota, float] = {}
        self.access_controls: set[UUID] = set()
        self.scram_users: set[tuple[str, int]] = set()
        self.had_delegation_tokens = False
        self._topics_by_id: dict[UUID, Topic] = {}
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._names_by_unified_name: dict[str, set[str]] = {}
        self._shared: dict[tuple[object, ...], tuple[object, ...]] = {}
        """Replicas and directories, which nearly all partitions have in common: one tuple for all of them."""

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self._topics_by_id.get(topic_id)

    def configs(self, resource: ConfigResource) -> Mapping[str, str]:
        return self._configs.get(resource, NO_CONFIGS)

    def configured_resources(self) -> Iterator[tuple[ConfigResource, Mapping[str, str]]]:
        yield from self._configs.items()

    def colliding_topic(self, name: str) -> str | None:
        """A topic whose name differs only in `.` and `_`, which metric names do not tell apart."""
        others = self._names_by_unified_name.get(unify(name), set()) - {name}
        return min(others) if others else None

    def replay(self, record: AnyRecord) -> None:
        if isinstance(record, NewPartitions):
            self._replay_new_partitions(record)
        elif record.type not in IGNORED:
            _REPLAYS[record.type](self, record.body)

    def _replay_topic(self, record: Message) -> None:
        topic = Topic(record["topic_id"], record["name"])
        self.topics[topic.name] = topic
        self._topics_by_id[topic.id] = topic
        self._names_by_unified_name.setdefault(unify(topic.name), set()).add(topic.name)

    def _replay_partition(self, record: Message) -> None:
        index = record["partition_id"]
        self._topics_by_id[record["topic_id"]].partitions[index] = Partition(
            index,
            record["leader"],
            record["leader_epoch"],
            record["partition_epoch"],
            self._share(record["replicas"]),
            self._share(record["isr"]),
            self._share(record["directories"]),
        )

    def _replay_new_partitions(self, new: NewPartitions) -> None:
        """In one step, and of values that are shared: a topic of thousands of partitions comes as a whole."""
        common = (
            new.leader,
            new.leader_epoch,
            new.partition_epoch,
            self._share(new.replicas),
            self._share(new.isr),
            self._share(new.directories),
        )
        make = Partition._make
        self._topics_by_id[new.topic_id].partitions.update({index: make((index, *common)) for index in new.indexes})

    def _share(self, values: Sequence[T]) -> tuple[T, ...]:
        own = tuple(values)
        return self._shared.setdefault(own, own)  # type: ignore[return-value]

    def _replay_partition_change(self, record: Message) -> None:
        partitions = self._topics_by_id[record["topic_id"]].partitions
        before = partitions[record["partition_id"]]
        leader = record.get("leader", LEADER_UNCHANGED)
        is_led_anew = leader != LEADER_UNCHANGED
        partitions[before.index] = before._replace(
            leader=leader if is_led_anew else before.leader,
            leader_epoch=before.leader_epoch + is_led_anew,
            partition_epoch=before.partition_epoch + 1,
            replicas=self._changed(record.get("replicas"), before.replicas),
            isr=self._changed(record.get("isr"), before.isr),
            directories=self._changed(record.get("directories"), before.directories),
        )

    def _changed(self, new: Sequence[T] | None, present: tuple[T, ...]) -> tuple[T, ...]:
        return present if new is None else self._share(new)

    def _replay_remove_topic(self, record: Message) -> None:
        topic = self._topics_by_id.pop(record["topic_id"])
        del self.topics[topic.name]
        self._configs.pop(ConfigResource(ResourceType.TOPIC, topic.name), None)
        names = self._names_by_unified_name[unify(topic.name)]
        names.discard(topic.name)
        if not names:
            del self._names_by_unified_name[unify(topic.name)]

    def _replay_config(self, record: Message) -> None:
        resource = ConfigResource(ResourceType(record["resource_type"]), record["resource_name"])
        if record["value"] is not None:
            self._configs.setdefault(resource, {})[record["name"]] = record["value"]
            return
        configs = self._configs.get(resource, {})
        configs.pop(record["name"], None)
        if not configs:
            self._configs.pop(resource, None)

    def _replay_feature_level(self, record: Message) -> None:
        if record["feature_level"] == FEATURE_OFF:
            self.features.pop(record["name"], None)
        else:
            self.features[record["name"]] = record["feature_level"]

    def _replay_producer_ids(self, record: Message) -> None:
        self.next_producer_id = record["next_producer_id"]

    def _replay_client_quota(self, record: Message) -> None:
        entity = tuple(sorted({part["entity_type"]: part["entity_name"] for part in record["entity"]}.items()))
        quota = ClientQuota(entity, record["key"])
        if record["remove"]:
            self.client_quotas.pop(quota, None)
        else:
            self.client_quotas[quota] = record["value"]

    def _replay_access_control_entry(self, record: Message) -> None:
        self.access_controls.add(record["id"])

    def _replay_remove_access_control_entry(self, record: Message) -> None:
        self.access_controls.discard(record["id"])

    def _replay_user_scram_credential(self, record: Message) -> None:
        self.scram_users.add((record["name"], record["mechanism"]))

    def _replay_remove_user_scram_credential(self, record: Message) -> None:
        self.scram_users.discard((record["name"], record["mechanism"]))

    def _replay_delegation_token(self, record: Message) -> None:
        self.had_delegation_tokens = True


_REPLAYS: dict[RecordType, Callable[[ControllerState, Message], None]] = {
    RecordType.TOPIC: ControllerState._replay_topic,
    RecordType.PARTITION: ControllerState._replay_partition,
    RecordType.PARTITION_CHANGE: ControllerState._replay_partition_change,
    RecordType.REMOVE_TOPIC: ControllerState._replay_remove_topic,
    RecordType.CONFIG: ControllerState._replay_config,
    RecordType.FEATURE_LEVEL: ControllerState._replay_feature_level,
    RecordType.PRODUCER_IDS: ControllerState._replay_producer_ids,
    RecordType.CLIENT_QUOTA: ControllerState._replay_client_quota,
    RecordType.ACCESS_CONTROL_ENTRY: ControllerState._replay_access_control_entry,
    RecordType.REMOVE_ACCESS_CONTROL_ENTRY: ControllerState._replay_remove_access_control_entry,
    RecordType.USER_SCRAM_CREDENTIAL: ControllerState._replay_user_scram_credential,
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: ControllerState._replay_remove_user_scram_credential,
    RecordType.DELEGATION_TOKEN: ControllerState._replay_delegation_token,
}


def unify(name: str) -> str:
    return name.replace(".", "_")
