"""The questions that a transactional producer asks its coordinators: their bodies, and the codes of the answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.client.idempotence import Identity
from oncelog.client.transaction.verdict import TransactionVerdict, verdict_of
from oncelog.errors import NONE, KafkaError, error_for_code
from oncelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

PROTOCOL_2 = 2
LAST_PRODUCE_BY_PROTOCOL_1 = 11


class Question(NamedTuple):
    api_key: ApiKey
    last_by_protocol_1: int | None = None
    """From the next version on the coordinator answers by protocol 2."""


INIT = Question(ApiKey.INIT_PRODUCER_ID)
ADD_PARTITIONS = Question(ApiKey.ADD_PARTITIONS_TO_TXN, 3)  # newer versions are for brokers
ADD_OFFSETS = Question(ApiKey.ADD_OFFSETS_TO_TXN)
COMMIT_OFFSETS = Question(ApiKey.TXN_OFFSET_COMMIT, 4)
END = Question(ApiKey.END_TXN, 4)


def init(transactional_id: str, timeout_ms: int, had: Identity | None) -> Message:
    """With the identity that the producer had, the next epoch of it is asked for."""
    producer_id, epoch = had or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


def add_partitions(transactional_id: str, identity: Identity, partitions: Collection[TopicPartition]) -> Message:
    indexes: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        indexes[partition.topic].append(partition.partition)
    return {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": identity.producer_id,
        "v3_and_below_producer_epoch": identity.producer_epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": found} for topic, found in indexes.items()],
    }


def add_offsets(transactional_id: str, identity: Identity, group_id: str) -> Message:
    return {"transactional_id": transactional_id, **identity._asdict(), "group_id": group_id}


def commit_offsets(
    transactional_id: str,
    identity: Identity,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> Message:
    topics: dict[str, list[Message]] = defaultdict(list)
    for partition, committed in sorted(offsets.items()):
        topics[partition.topic].append(
            {
                "partition_index": partition.partition,
                "committed_offset": committed.offset,
                "committed_leader_epoch": committed.leader_epoch,
                "committed_metadata": committed.metadata,
            }
        )
    return {
        "transactional_id": transactional_id,
        "group_id": group.group_id,
        **identity._asdict(),
        "generation_id": group.generation_id,
        "member_id": group.member_id,
        "group_instance_id": group.group_instance_id,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }


def end(transactional_id: str, identity: Identity, *, commit: bool) -> Message:
    return {"transactional_id": transactional_id, **identity._asdict(), "committed": commit}


def look(transactional_id: str) -> Message:
    return {"transactional_ids": [transactional_id]}


def state_seen(answer: Message) -> str:
    """Empty if the coordinator does not tell."""
    states: list[Any] = answer["transaction_states"]
    return "".join(one["transaction_state"] for one in states[:1] if one["error_code"] == NONE)


def refused_partitions(body: Message) -> dict[TopicPartition, KafkaError]:
    """Of an answer to AddPartitionsToTxn: those that are the reason why none was added."""
    return {
        TopicPartition(topic["name"], one["partition_index"]): error_for_code(one["partition_error_code"])
        for topic in body["results_by_topic_v3_and_below"]
        for one in topic["results_by_partition"]
        if verdict_of(one["partition_error_code"]) is TransactionVerdict.ABORT
    }


_GRAVITY = {verdict: place for place, verdict in enumerate(TransactionVerdict)}


def worst_code(api_key: ApiKey, body: Message) -> int:
    """The one of an answer's codes that decides."""
    return max(_codes(api_key, body), key=lambda code: _GRAVITY[verdict_of(code)], default=NONE)


def _codes(api_key: ApiKey, body: Message) -> list[int]:
    topics: list[Any]
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        topics = body["results_by_topic_v3_and_below"]
        return [one["partition_error_code"] for topic in topics for one in topic["results_by_partition"]]
    if api_key == ApiKey.TXN_OFFSET_COMMIT:
        topics = body["topics"]
        return [one["error_code"] for topic in topics for one in topic["partitions"]]
    return [body["error_code"]]
