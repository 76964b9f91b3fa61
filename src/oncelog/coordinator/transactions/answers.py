"""What the answers of the transactional APIs look like, and what old clients are told instead of PRODUCER_FENCED.

TRANSACTION_ABORTABLE needs no such care: only brokers that verify a partition hear it from a coordinator, and they know
what their own client understands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from oncelog.coordinator.transactions.transaction import Identity
from oncelog.errors import NONE, InvalidProducerEpoch, ProducerFenced
from oncelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

FIRST_BATCHED_ADD: Final = 4
"""From here on AddPartitionsToTxn comes from brokers, for many transactions at once."""

FIRST_WITH_PRODUCER_FENCED: Final = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
NOBODY: Final = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def told(code: int, api_key: ApiKey, version: int) -> int:
    """The code under which a client of this version knows the error."""
    if code == ProducerFenced.code and version < FIRST_WITH_PRODUCER_FENCED[api_key]:
        return InvalidProducerEpoch.code
    return code


def with_identity(code: int, identity: Identity = NOBODY) -> Message:
    """Of InitProducerId and EndTxn."""
    return {"error_code": code, "producer_id": identity.producer_id, "producer_epoch": identity.epoch}


def partitions_of(topics: list[Message]) -> list[TopicPartition]:
    return [TopicPartition(topic["name"], index) for topic in topics for index in topic["partitions"]]


def topic_results(partitions: Collection[TopicPartition], code_of: Callable[[TopicPartition], int]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for partition in partitions:
        result = {"partition_index": partition.partition, "partition_error_code": code_of(partition)}
        topics.setdefault(partition.topic, []).append(result)
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]


def refusal(api_key: ApiKey, body: Message, version: int, code: int) -> Message:
    """The whole request is refused: nothing was appended, or the coordinator is loading, or it is elsewhere."""
    if api_key is ApiKey.ADD_PARTITIONS_TO_TXN:
        return _refused_partitions(body, version, code)
    if api_key is ApiKey.DESCRIBE_TRANSACTIONS:
        ids = body["transactional_ids"]
        return {"transaction_states": [{"error_code": code, "transactional_id": each} | _BLANK for each in ids]}
    if api_key is ApiKey.LIST_TRANSACTIONS:
        return {"error_code": code, "unknown_state_filters": [], "transaction_states": []}
    if api_key is ApiKey.ADD_OFFSETS_TO_TXN:
        return {"error_code": code}
    return with_identity(code)


def _refused_partitions(body: Message, version: int, code: int) -> Message:
    def results(topics: list[Message]) -> list[Message]:
        return topic_results(partitions_of(topics), lambda _: code)

    if version < FIRST_BATCHED_ADD:
        return {"results_by_topic_v3_and_below": results(body["v3_and_below_topics"])}
    by_transaction = [
        {"transactional_id": each["transactional_id"], "topic_results": results(each["topics"])}
        for each in body["transactions"]
    ]
    return {"error_code": NONE, "results_by_transaction": by_transaction}


_BLANK: Final[Message] = {
    "transaction_state": "",
    "transaction_timeout_ms": 0,
    "transaction_start_time_ms": 0,
    "producer_id": 0,
    "producer_epoch": 0,
    "topics": [],
}
"""Of a DescribeTransactions that found nothing; Kafka sends zeroes as well."""
