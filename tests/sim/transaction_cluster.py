"""The model cluster with transactions: the real coordinator's pure core with a log in memory, leaders that ask it, and
markers that are written when the test says so.

Groups are as simple as they can be: offsets of a transaction wait for its marker, nobody checks members.
"""

from __future__ import annotations

from typing import Any

from oncelog.coordinator.transactions.effects import Markers, TransactionSettings
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.coordinator.support import START_MS
from tests.coordinator.transactions.support import Rig
from tests.sim.model_cluster import FIRST_PORT, FIRST_STRICT_PRODUCE, NONE, VERSIONS, ModelCluster
from tests.sim.model_partition import Batch, ModelPartition

NOT_COORDINATOR = 16
TOPIC_AUTHORIZATION_FAILED = 29
OPERATION_NOT_ATTEMPTED = 55
COORDINATED = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
)
Offsets = dict[TopicPartition, int]
OFFSETS = TopicPartition("__consumer_offsets", 0)
FIRST_IMPLICIT_OFFSETS = 5
BETWEEN_BROKERS = 5
"""The version of AddPartitionsToTxn in which leaders ask."""

TRANSACTION_VERSIONS = {
    **VERSIONS,
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
}


class TransactionCluster(ModelCluster):
    def __init__(self, topics: dict[str, int], *, protocol: int, timeout_check_ms: int = 100, **settings: Any) -> None:
        super().__init__(topics, versions=TRANSACTION_VERSIONS, **settings)
        self.protocol = protocol
        self.coordinator_node = 0
        self.rig = Rig(
            TransactionSettings(transaction_abort_timed_out_transaction_cleanup_interval_ms=timeout_check_ms)
        )
        self.offsets: dict[str, Offsets] = {}
        """What groups have committed."""
        self.forbidden: set[TopicPartition] = set()
        """What this producer may not write to, by the word of the coordinator."""
        self.refused_to_add = 0
        """How often it was asked all the same."""
        self._pending: dict[int, list[tuple[str, Offsets]]] = {}
        """Offsets of open transactions, by producer id."""

    # --- what the test may do to it ---

    def tick(self, now_ms: int) -> None:
        self.rig.pass_time(START_MS + now_ms - self.rig.now_ms)

    def write_markers(self, limit: int = 1_000_000) -> None:
        """The oldest markers that are due are written."""
        for _ in range(min(limit, len(self.rig.markers))):
            markers = self.rig.markers.pop(0)
            self._mark(markers)
            self.rig.apply(self.rig.coordinator.markers_written(markers, markers.partitions, self.rig.now_ms))

    def write_markers_unheard(self) -> None:
        """They are in the logs, but the coordinator dies before it knows, and writes them again."""
        for markers in self.rig.markers:
            self._mark(markers)
        self.crash_coordinator()

    def crash_coordinator(self) -> None:
        self.rig.crash()

    def move_coordinator(self, node_id: int) -> None:
        self.coordinator_node = node_id
        self.rig.crash()

    @property
    def open_transactions(self) -> int:
        return self.rig.coordinator.open_count

    # --- serving ---

    def _mark(self, markers: Markers) -> None:
        for name in markers.partitions:
            if name == OFFSETS:
                for group, offsets in self._pending.pop(markers.producer_id, ()):
                    if markers.is_commit:
                        self.offsets.setdefault(group, {}).update(offsets)
                continue
            self.partitions[name].end_transaction(
                markers.producer_id, markers.producer_epoch, is_commit=markers.is_commit
            )

    def _answer(self, node_id: int, api_key: ApiKey, version: int, asked: Message) -> Message:
        if api_key == ApiKey.FIND_COORDINATOR:
            return self._find(asked, version)
        if api_key not in COORDINATED:
            return super()._answer(node_id, api_key, version, asked)
        refusals = self._refusals[api_key]
        if node_id != self.coordinator_node or refusals:
            return _refused(api_key, version, asked, refusals.popleft() if refusals else NOT_COORDINATOR)
        if api_key == ApiKey.TXN_OFFSET_COMMIT:
            return self._commit_offsets(asked, version)
        if api_key == ApiKey.ADD_PARTITIONS_TO_TXN and self.forbidden.intersection(_added_by(asked)):
            return self._forbid(asked)
        return self.rig.ask(api_key, asked, version)

    def _forbid(self, asked: Message) -> Message:
        """None is added where one is forbidden; the others are said not to have been tried."""
        self.refused_to_add += 1
        codes = {
            name: TOPIC_AUTHORIZATION_FAILED if name in self.forbidden else OPERATION_NOT_ATTEMPTED
            for name in _added_by(asked)
        }
        topics = [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": one, "partition_error_code": codes[TopicPartition(topic["name"], one)]}
                    for one in topic["partitions"]
                ],
            }
            for topic in asked["v3_and_below_topics"]
        ]
        return {"results_by_topic_v3_and_below": topics}

    def _api_versions(self, asked: Message) -> Message:
        feature = {
            "name": "transaction.version",
            "max_version_level": self.protocol,
            "min_version_level": self.protocol,
        }
        return {**super()._api_versions(asked), "finalized_features_epoch": 1, "finalized_features": [feature]}

    def _find(self, asked: Message, version: int) -> Message:
        one = self.coordinator_node
        place: Message = {"node_id": one, "host": f"node{one}", "port": FIRST_PORT + one}
        if version < 4:
            return place
        return {"coordinators": [{"key": key, **place} for key in asked["coordinator_keys"]]}

    def _check_transaction(self, name: TopicPartition, partition: ModelPartition, batch: Batch) -> int:
        if not batch.is_transactional or partition.has_open_transaction(batch.producer_id, batch.epoch):
            return NONE
        request, version = self._producing
        return self._join(request.transactional_id or "", batch, name, verify_only=version < FIRST_STRICT_PRODUCE)

    def _join(self, transactional_id: str, who: Any, name: TopicPartition, *, verify_only: bool) -> int:
        """What a leader does before it lets a producer in."""
        transaction = {
            "transactional_id": transactional_id,
            "producer_id": who.producer_id,
            "producer_epoch": who.epoch,
            "verify_only": verify_only,
            "topics": [{"name": name.topic, "partitions": [name.partition]}],
        }
        answer = self.rig.ask(ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": [transaction]}, BETWEEN_BROKERS)
        (topic,) = answer["results_by_transaction"][0]["topic_results"]
        code: int = topic["results_by_partition"][0]["partition_error_code"]
        return code

    def _commit_offsets(self, asked: Message, version: int) -> Message:
        who = Batch(asked["producer_id"], asked["producer_epoch"], 0, ())
        code = self._join(asked["transactional_id"], who, OFFSETS, verify_only=version < FIRST_IMPLICIT_OFFSETS)
        if code == NONE:
            offsets = {
                TopicPartition(topic["name"], one["partition_index"]): one["committed_offset"]
                for topic in asked["topics"]
                for one in topic["partitions"]
            }
            self._pending.setdefault(who.producer_id, []).append((asked["group_id"], offsets))
        return _refused(ApiKey.TXN_OFFSET_COMMIT, version, asked, code)


def _added_by(asked: Message) -> list[TopicPartition]:
    return [TopicPartition(topic["name"], one) for topic in asked["v3_and_below_topics"] for one in topic["partitions"]]


def _refused(api_key: ApiKey, version: int, asked: Message, code: int) -> Message:
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        topics = [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": one, "partition_error_code": code} for one in topic["partitions"]
                ],
            }
            for topic in asked["v3_and_below_topics"]
        ]
        return {"results_by_topic_v3_and_below": topics}
    if api_key == ApiKey.TXN_OFFSET_COMMIT:
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        {"partition_index": one["partition_index"], "error_code": code} for one in topic["partitions"]
                    ],
                }
                for topic in asked["topics"]
            ]
        }
    if api_key == ApiKey.DESCRIBE_TRANSACTIONS:
        states = [{"transactional_id": one, "error_code": code} for one in asked["transactional_ids"]]
        return {"transaction_states": states}
    if api_key == ApiKey.ADD_OFFSETS_TO_TXN:
        return {"error_code": code}
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
