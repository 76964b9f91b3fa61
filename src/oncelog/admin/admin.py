"""`Admin`: topics, configs, quotas, groups, offsets, producers, transactions of a cluster, oncelog's or Apache Kafka's.

A thin shell over the blocking client: each method is one request (one per leader where leaders must be asked), and
an error of the broker is the exception of that name. Reading is repeated after a lost connection; a change is not,
because it may have been made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Unpack

from oncelog.admin.arguments import Configs, checked_entity, checked_limits, raise_config_error, resource_of, spec_of
from oncelog.admin.groups import GroupAdmin
from oncelog.admin.hearing import await_end_of_topic, await_name, await_topic
from oncelog.admin.lag import Budget, Lag, OnRead, measure_lags
from oncelog.admin.transactions import TransactionAdmin
from oncelog.admin.values import (
    ANY_NAME,
    ClientQuota,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    CreatedTopic,
    EntityMatch,
    EntityName,
    ResourceType,
    TopicDescription,
)
from oncelog.client import arguments as checked
from oncelog.client import foreign_calls
from oncelog.client.blocking import BlockingClient
from oncelog.client.cluster import connection_text
from oncelog.client.config import ClientConfig
from oncelog.client.hinting import Hinting, with_hints
from oncelog.client.leaders import ListedOffset, ask_leaders, by_topic, list_offsets, raise_error
from oncelog.client.metadata import Node, TopicMetadata
from oncelog.client.typed_settings import AdminSettings
from oncelog.errors import TopicAlreadyExists
from oncelog.types import IsolationLevel, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

BROKER_DEFAULT = -1
"""As partitions or replication factor: whatever the broker's own config says."""

ALL_RECORDS = -1
"""As the offset of `delete_records`: everything up to the high watermark."""

_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_UNTIMED = frozenset({ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CLIENT_QUOTAS})


@with_hints(foreign_calls.ADMIN)
class Admin(GroupAdmin, TransactionAdmin, metaclass=Hinting):
    """`with Admin("127.0.0.1:9092") as admin: admin.create_topic("orders", partitions=3)`

    Settings are Kafka's keys, with underscores as arguments (`request_timeout_ms=5000`) or with dots in a mapping
    (`Admin({"bootstrap.servers": "127.0.0.1:9092", "request.timeout.ms": 5000})`). Not thread-safe.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | Mapping[str, Any] | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        self._config = ClientConfig.of(bootstrap_servers if bootstrap_servers is not None else {}, **settings)
        self._client = BlockingClient(self._config)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_client"):
            return "<Admin>"
        where = connection_text(self._client.connected_to, self._config.bootstrap_servers)
        return f"<Admin {self._config.client_id!r} {where}>"

    # --- topics -----------------------------------------------------------------------------------------------

    def list_topics(self, *, include_internal: bool = False) -> list[TopicDescription]:
        """By name."""
        topics = self._client.refresh_metadata(None).topics.values()
        chosen = [topic for topic in topics if include_internal or not topic.is_internal]
        return [_described(topic) for topic in sorted(chosen, key=lambda topic: topic.name)]

    def describe_topic(self, name: str) -> TopicDescription:
        """Raises UnknownTopicOrPartition."""
        checked.a_text(name, "the name of the topic")
        self._client.refresh_metadata([name])
        return _described(self._client.topic(name))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Configs | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Returns when every broker knows it.

        `create_topic("orders", partitions=3, configs={"retention.ms": 86_400_000})`.

        Raises TopicAlreadyExists (then, too, every broker knows it), InvalidTopicException, InvalidConfig, ...
        """
        texts = checked.config_texts(configs)
        topic = {
            "name": checked.a_text(name, "the name of the topic"),
            "num_partitions": checked.whole_number(partitions, "partitions"),
            "replication_factor": checked.whole_number(replication_factor, "replication_factor"),
            "configs": [{"name": key, "value": value} for key, value in texts.items()],
        }
        answer = self._change(ApiKey.CREATE_TOPICS, {"topics": [topic], "validate_only": validate_only})
        (result,) = answer["topics"]
        if result["error_code"] == TopicAlreadyExists.code:
            await_name(self._client, name)  # somebody may have been faster, just now
        raise_config_error(result, name, "topic", texts)
        if not validate_only:
            await_topic(self._client, name, result["num_partitions"])
        return CreatedTopic(
            name=result["name"],
            topic_id=result["topic_id"],
            partitions=result["num_partitions"],
            replication_factor=result["replication_factor"],
            configs={one["name"]: _config_entry(one) for one in result["configs"] or ()},
        )

    def delete_topic(self, name: str) -> None:
        """Returns when no broker knows it any more. Raises UnknownTopicOrPartition."""
        checked.a_text(name, "the name of the topic")
        answer = self._change(ApiKey.DELETE_TOPICS, {"topics": [{"name": name}], "topic_names": [name]})
        (result,) = answer["responses"]
        raise_error(result, name, "topic")
        await_end_of_topic(self._client, name, result["topic_id"])

    def create_partitions(self, name: str, total_count: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `total_count` partitions, and return when every broker knows them. Keys may move to others.

        Raises InvalidPartitions.
        """
        count = checked.whole_number(total_count, "total_count")
        topic = {"name": checked.a_text(name, "the name of the topic"), "count": count, "assignments": None}
        answer = self._change(ApiKey.CREATE_PARTITIONS, {"topics": [topic], "validate_only": validate_only})
        (result,) = answer["results"]
        raise_error(result, name, "topic")
        if not validate_only:
            await_topic(self._client, name, total_count)

    # --- configs ----------------------------------------------------------------------------------------------

    def describe_configs(
        self, resource_type: ResourceType | str, name: str | int, *, include_documentation: bool = False
    ) -> dict[str, ConfigEntry]:
        """All settings of a topic, a broker (whose name is its node id) or a group, by key:
        `describe_configs("topic", "orders")["retention.ms"].value`."""
        resource_type, name = resource_of(resource_type, name)
        resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
        request = {"resources": [resource], "include_documentation": include_documentation}
        answer = self._ask(ApiKey.DESCRIBE_CONFIGS, request, self._home_of(resource_type, name))
        (result,) = answer["results"]
        raise_error(result, name, resource_type.name.lower())
        return {one["name"]: _config_entry(one) for one in result["configs"]}

    def alter_configs(
        self,
        resource_type: ResourceType | str,
        name: str | int,
        *,
        assign: Configs | None = None,
        remove: str | Iterable[str] = (),
        append: Configs | None = None,
        subtract: Configs | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change some settings and leave the others. `append` and `subtract` are for lists, such as cleanup.policy.

        Raises InvalidConfig, UnknownTopicOrPartition.
        """
        resource_type, name = resource_of(resource_type, name)
        operations = (
            (_SET, checked.config_texts(assign, "assign")),
            (_DELETE, dict.fromkeys(checked.texts(remove, "remove"))),
            (_APPEND, checked.config_texts(append, "append")),
            (_SUBTRACT, checked.config_texts(subtract, "subtract")),
        )
        changes = [
            {"name": key, "config_operation": operation, "value": value}
            for operation, values in operations
            for key, value in values.items()
        ]
        resource = {"resource_type": resource_type, "resource_name": name, "configs": changes}
        answer = self._change(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            {"resources": [resource], "validate_only": validate_only},
            self._home_of(resource_type, name),
        )
        (result,) = answer["responses"]
        raise_config_error(result, name, resource_type.name.lower(), [key for _, keys in operations for key in keys])

    def _home_of(self, resource_type: ResourceType, name: str) -> Node | None:
        """A broker's own settings are known to that broker alone."""
        if resource_type != ResourceType.BROKER or not name:
            return None
        return next((node for node in self.describe_cluster().nodes if str(node.node_id) == name), None)

    # --- quotas -----------------------------------------------------------------------------------------------

    def describe_client_quotas(
        self, entity: Mapping[str, EntityMatch] | None = None, *, strict: bool = False
    ) -> list[ClientQuota]:
        """The quotas of every entity that has the given parts; with `strict`, those that have no others.

        `{"user": "alice"}` finds alice's and those of her client ids, `{"client-id": None}` the default of client ids,
        `{"user": ANY_NAME}` all users. None finds all quotas.
        """
        components = [_quota_filter(kind, name) for kind, name in checked_entity(entity or {}).items()]
        answer = self._ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": strict})
        raise_error(answer, _described_entity(entity or {}), "quota")
        quotas = [_client_quota(entry) for entry in answer["entries"] or ()]
        return sorted(quotas, key=lambda quota: _described_entity(quota.entity))

    def alter_client_quotas(
        self,
        entity: Mapping[str, EntityName],
        *,
        assign: Mapping[str, float] | None = None,
        remove: str | Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some limits of one entity, take others away, and leave the rest.

        `alter_client_quotas({"client-id": "importer"}, assign={"producer_byte_rate": 1_000_000})`. Raises
        InvalidRequest.
        """
        parts = [{"entity_type": kind, "entity_name": name} for kind, name in checked_entity(entity).items()]
        changes = [
            *({"key": key, "value": value, "remove": False} for key, value in checked_limits(assign or {}).items()),
            *({"key": key, "value": 0.0, "remove": True} for key in checked.texts(remove, "remove")),
        ]
        request = {"entries": [{"entity": parts, "ops": changes}], "validate_only": validate_only}
        (result,) = self._change(ApiKey.ALTER_CLIENT_QUOTAS, request)["entries"]
        raise_error(result, _described_entity(entity), "quota")

    # --- the cluster ------------------------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterDescription:
        answer = self._ask(ApiKey.DESCRIBE_CLUSTER, {})
        raise_error(answer, answer["cluster_id"], "cluster")
        nodes = [Node(one["broker_id"], one["host"], one["port"], one["rack"]) for one in answer["brokers"]]
        return ClusterDescription(
            answer["cluster_id"], answer["controller_id"], tuple(sorted(nodes, key=lambda node: node.node_id))
        )

    def describe_features(self, node: Node | None = None) -> dict[str, int]:
        """The finalized feature levels, as one broker tells them: `admin.describe_features()["transaction.version"]`.

        Of the given broker, or of whichever answers. Raises ConnectionLost.
        """
        return self._client.features_of(node)

    # --- partitions, through their leaders --------------------------------------------------------------------

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, int | str] | Mapping[tuple[str, int], int | str],
        *,
        isolation_level: IsolationLevel | str = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset of each partition at an `OffsetSpec` (or its name, such as "latest"), or of its first record at or
        after a timestamp: `list_offsets({("orders", 0): "latest"})`."""
        wanted = checked.by_partition(specs, "an OffsetSpec or a timestamp in milliseconds")
        asked = {partition: spec_of(spec) for partition, spec in wanted.items()}
        return list_offsets(self._client, asked, checked.isolation_level(isolation_level))

    def list_lags(
        self,
        offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        *,
        isolation_level: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
        exact: bool = False,
        on_read: OnRead | None = None,
    ) -> dict[TopicPartition, Lag]:
        """What is left to read from each offset on: records that a reader of this isolation level is shown, without
        markers and, if it reads committed records, aborted ones. It takes reading them: where that is more than a few
        megabytes the result is a bound and says so (`Lag.is_exact`), unless `exact` is wanted at any price.

        Raises UnknownTopicOrPartition.
        """
        budget = Budget(None, None) if exact else Budget()
        wanted = checked.by_partition(offsets, "an offset")
        begins = {partition: checked.offset(offset).offset for partition, offset in wanted.items()}
        return measure_lags(self._client, begins, checked.isolation_level(isolation_level), budget, on_read)

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int]:
        """Delete what lies before the given offsets (or `ALL_RECORDS`); the new first offset of each partition:
        `delete_records({("orders", 0): 6})`. Raises OffsetOutOfRange, PolicyViolation.
        """
        wanted = checked.by_partition(before_offsets, "the offset of the first record to keep")
        before = {partition: _first_kept(offset) for partition, offset in wanted.items()}

        def request(partitions: list[TopicPartition]) -> Message:
            return {
                "timeout_ms": self._config.request_timeout_ms,
                "topics": by_topic(partitions, lambda partition: {"offset": before[partition]}),
            }

        # Repeating this is harmless: what is deleted stays deleted.
        answers = ask_leaders(self._client, ApiKey.DELETE_RECORDS, before, request)
        return {partition: one["low_watermark"] for partition, one in answers.items()}

    # --- asking -----------------------------------------------------------------------------------------------

    def _ask(self, api_key: ApiKey, request: Message, node: Node | None = None) -> Message:
        answer: Message = self._client.retrying(lambda: self._client.request(api_key, request, node=node))
        return answer

    def _change(self, api_key: ApiKey, request: Message, node: Node | None = None) -> Message:
        timed = request if api_key in _UNTIMED else {**request, "timeout_ms": self._config.request_timeout_ms}
        answer: Message = self._client.request(api_key, timed, node=node)
        return answer


def _first_kept(offset: Any) -> int:
    if isinstance(offset, int) and offset == ALL_RECORDS:
        return ALL_RECORDS
    return checked.offset(offset).offset


def _described(topic: TopicMetadata) -> TopicDescription:
    return TopicDescription(topic.name, topic.topic_id, topic.is_internal, topic.partitions)


def _config_entry(message: Message) -> ConfigEntry:
    return ConfigEntry(
        name=message["name"],
        value=message["value"],
        source=ConfigSource(message["config_source"]),
        read_only=message["read_only"],
        is_sensitive=message["is_sensitive"],
        documentation=message.get("documentation"),
    )


def _quota_filter(kind: str, name: EntityMatch) -> Message:
    if name is ANY_NAME:
        return {"entity_type": kind, "match_type": _ANY, "match": None}
    return {"entity_type": kind, "match_type": _DEFAULT if name is None else _EXACT, "match": name}


def _client_quota(entry: Message) -> ClientQuota:
    return ClientQuota(
        entity={part["entity_type"]: part["entity_name"] for part in entry["entity"]},
        limits={one["key"]: one["value"] for one in entry["values"]},
    )


def _described_entity(entity: Mapping[str, EntityMatch]) -> str:
    return " ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in sorted(entity.items()))
