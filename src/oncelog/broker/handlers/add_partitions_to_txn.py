"""AddPartitionsToTxn (key 24), versions 0-5.

Versions: 0-3 come from clients of protocol 1, for one transaction (2 adds PRODUCER_FENCED, 3 is flexible); from 4 on
brokers ask for many, to add partitions or only to verify them. A partition that does not exist is answered with
UNKNOWN_TOPIC_OR_PARTITION, and to a client one of the broker's own topics with TOPIC_AUTHORIZATION_FAILED; then the
others of its transaction are not added either and say OPERATION_NOT_ATTEMPTED. The rest of the rules are the
coordinators'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.controller.topic_names import is_internal
from oncelog.coordinator.transactions.answers import FIRST_BATCHED_ADD, partitions_of, topic_results
from oncelog.errors import NONE, OperationNotAttempted, TopicAuthorizationFailed, UnknownTopicOrPartition
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.ADD_PARTITIONS_TO_TXN


def handle(broker: BrokerState, request: Request) -> Answer:
    if request.version >= FIRST_BATCHED_ADD:
        return _of_many(broker, request)
    refused = _refused_partitions(broker, request.body["v3_and_below_topics"], is_client=True)
    if refused is not None:
        return {"results_by_topic_v3_and_below": refused}
    return broker.transactions.serve(request, request.body["v3_and_below_transactional_id"])


def _of_many(broker: BrokerState, request: Request) -> Answer:
    """Each transaction on its own: which of them are refused says nothing about the others."""
    refused: list[Message] = []
    parts: list[tuple[str, Message]] = []
    for transaction in request.body["transactions"]:
        transactional_id = transaction["transactional_id"]
        results = _refused_partitions(broker, transaction["topics"], is_client=False)
        if results is None:
            parts.append((transactional_id, {"transactions": [transaction]}))
        else:
            refused.append({"transactional_id": transactional_id, "topic_results": results})

    def merge(answers: list[Message]) -> Message:
        answered = [result for answer in answers for result in answer["results_by_transaction"]]
        return {"error_code": NONE, "results_by_transaction": refused + answered}

    return broker.transactions.serve_many(request, parts, merge)


def _refused_partitions(broker: BrokerState, topics: list[Message], *, is_client: bool) -> list[Message] | None:
    """The results of all partitions, if one of them may not be added."""
    known = broker.controller.state.topics
    partitions = partitions_of(topics)
    refused: dict[TopicPartition, int] = {}
    for partition in partitions:
        if is_client and is_internal(partition.topic):
            refused[partition] = TopicAuthorizationFailed.code
        elif partition.topic not in known or partition.partition not in known[partition.topic].partitions:
            refused[partition] = UnknownTopicOrPartition.code
    if not refused:
        return None
    return topic_results(partitions, lambda each: refused.get(each, OperationNotAttempted.code))
