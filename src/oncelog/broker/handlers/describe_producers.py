"""DescribeProducers (key 61), version 0: the producers that a partition remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Request
from oncelog.controller.topic_names import check_topic_name
from oncelog.errors import KafkaError
from oncelog.log.producer_state import ProducerEntry
from oncelog.types import NO_OFFSET, NO_SEQUENCE
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_PRODUCERS


def handle(broker: BrokerState, request: Request) -> Message:
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [_answer(broker, topic["name"], index) for index in topic["partition_indexes"]],
            }
            for topic in request.body["topics"]
        ]
    }


def _answer(broker: BrokerState, name: str, index: int) -> Message:
    try:
        check_topic_name(name)
        entries = broker.partition(name, index).producers.entries()
    except KafkaError as error:
        return {"partition_index": index, "error_code": error.code, "error_message": error.message}
    return {"partition_index": index, "active_producers": [_describe(entry) for entry in entries]}


def _describe(entry: ProducerEntry) -> Message:
    first_offset = entry.current_transaction_first_offset
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.epoch,
        "last_sequence": entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": NO_OFFSET if first_offset is None else first_offset,
    }
