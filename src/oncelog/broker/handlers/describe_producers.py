"""DescribeProducers (key 61), version 0: the producers that a partition remembers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Piecewise, Request
from oncelog.controller.topic_names import check_topic_name
from oncelog.errors import KafkaError
from oncelog.log.producer_state import ProducerEntry
from oncelog.types import NO_OFFSET, NO_SEQUENCE
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_PRODUCERS

MAX_PRODUCERS_IN_PART = 1_000
"""How many producers are described at one go, but for those of one partition: a few milliseconds of work."""


def handle(broker: BrokerState, request: Request) -> Answer:
    return Piecewise({}, "topics", _topics(broker, request.body["topics"]))


def _topics(broker: BrokerState, topics: list[Message]) -> Iterator[Message]:
    """A topic whose partitions have very many producers comes in parts, each under its name; Kafka's never does."""
    for topic in topics:
        part: list[Message] = []
        described = 0
        for index in topic["partition_indexes"]:
            answer = _answer(broker, topic["name"], index)
            part.append(answer)
            described += len(answer.get("active_producers", ()))
            if described > MAX_PRODUCERS_IN_PART:
                yield {"name": topic["name"], "partitions": part}
                part, described = [], 0
        if part or not topic["partition_indexes"]:
            yield {"name": topic["name"], "partitions": part}


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
