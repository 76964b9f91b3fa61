"""The cluster that a sink writes to: questions to it, producers of the sink's transactional ids, what it allows.

Connections for questions are kept, one set for each process and cluster: planner and committer are called again with
every batch, and to connect anew would take longer than all they ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.admin.admin import BROKER_DEFAULT, Admin
from oncelog.admin.transactions import PROTOCOL_2, TRANSACTION_FEATURE
from oncelog.admin.values import ResourceType
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.client.settings import dotted, kinds_of
from oncelog.errors import ClusterAuthorizationFailed, KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from oncelog.producer.producer import Producer
from oncelog.spark.options import BadOption
from oncelog.spark.reaching import reached
from oncelog.spark.sink.settings import NewTopic

MAX_TIMEOUT_KEY: Final = "transaction.max.timeout.ms"
DEFAULT_MAX_TIMEOUT_MS: Final = 15 * 60 * 1000
"""Kafka's own, where the broker does not tell its."""

_QUESTION_KEYS: Final = frozenset(dotted(name) for name in kinds_of(ClientConfig))


@dataclass(slots=True)
class _Asking:
    admin: Admin
    client: BlockingClient
    max_timeout_ms: int | None = None


_asking: dict[tuple[tuple[str, str], ...], _Asking] = {}


@dataclass(frozen=True, slots=True)
class Brokers:
    settings: Mapping[str, str]
    _key: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        known = sorted((key, value) for key, value in self.settings.items() if key in _QUESTION_KEYS)
        object.__setattr__(self, "_key", tuple(known))

    @property
    def admin(self) -> Admin:
        return self._questions.admin

    @property
    def client(self) -> BlockingClient:
        return self._questions.client

    @property
    def _questions(self) -> _Asking:
        if self._key not in _asking:
            settings = dict(self._key)
            _asking[self._key] = _Asking(reached(settings), BlockingClient(ClientConfig.of(settings)))
        return _asking[self._key]

    def producer(self, **settings: Any) -> Producer:
        given = {key: value for key, value in self.settings.items() if key.replace(".", "_") not in settings}
        return Producer(given, **settings)

    def ensure_topic(self, name: str, new: NewTopic | None) -> None:
        """It exists when this returns. Raises BadOption if it does not, and may not or cannot be created."""
        try:
            self.admin.describe_topic(name)
        except UnknownTopicOrPartition:
            if new is None:
                raise BadOption(
                    f"the output topic {name!r} does not exist: create it first (oncelog topics create {name}), or set "
                    "the option create=true"
                ) from None
            self._create_topic(name, new)

    def _create_topic(self, name: str, new: NewTopic) -> None:
        partitions, replication_factor = new.partitions or BROKER_DEFAULT, new.replication_factor or BROKER_DEFAULT
        try:
            self.admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=new.configs
            )
        except TopicAlreadyExists:
            pass  # another task was faster
        except KafkaError as error:
            raise BadOption(f"the output topic {name!r} does not exist, and cannot be created: {error}") from None

    def uses_protocol_2(self) -> bool:
        """Of transactions."""
        node = self.admin.describe_cluster().nodes[0]
        features = self.client.connection_to((node.host, node.port)).features
        return features.get(TRANSACTION_FEATURE, 0) >= PROTOCOL_2

    def transaction_timeout_ms(self, wanted: int | None) -> int:
        """The one that was wanted, or the longest that the cluster allows."""
        allowed = self._max_transaction_timeout_ms()
        if wanted is None:
            return allowed
        if wanted > allowed:
            raise BadOption(
                f"kafka.transaction.timeout.ms is {wanted}, and the brokers allow {allowed} at most: lower it, or "
                f"raise {MAX_TIMEOUT_KEY} on the brokers"
            )
        return wanted

    def _max_transaction_timeout_ms(self) -> int:
        asking = self._questions
        if asking.max_timeout_ms is None:
            asking.max_timeout_ms = self._ask_max_timeout_ms()
        return asking.max_timeout_ms

    def _ask_max_timeout_ms(self) -> int:
        node = self.admin.describe_cluster().nodes[0].node_id
        try:
            entries = self.admin.describe_configs(ResourceType.BROKER, str(node))
        except ClusterAuthorizationFailed:
            return DEFAULT_MAX_TIMEOUT_MS
        told = entries[MAX_TIMEOUT_KEY].value if MAX_TIMEOUT_KEY in entries else None
        return DEFAULT_MAX_TIMEOUT_MS if told is None else int(told)
