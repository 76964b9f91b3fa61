"""TxnOffsetCommit (key 28), versions 0-5.

Versions: 2 adds leader epochs, and knows COORDINATOR_LOAD_IN_PROGRESS (older clients hear COORDINATOR_NOT_AVAILABLE); 3
is flexible, and says which member of the group asks; 4 may answer TRANSACTION_ABORTABLE; by 5 the group's partition of
`__consumer_offsets` becomes part of the transaction, which AddOffsetsToTxn had to do before. The transaction's
coordinator is asked first, the group's then; the rules are theirs. Partitions that there are not are refused for
themselves, and concern neither of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Pending, Request
from oncelog.errors import UnknownTopicOrPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.TXN_OFFSET_COMMIT


def handle(broker: BrokerState, request: Request) -> Answer:
    body: Message = request.body
    known: list[Message] = []
    unknown: list[Message] = []
    for topic in body["topics"]:
        count = _partition_count(broker, topic["name"])
        kept = [part for part in topic["partitions"] if 0 <= part["partition_index"] < count]
        if kept:
            known.append({**topic, "partitions": kept})
        if len(kept) < len(topic["partitions"]):
            unknown.append(_refused(topic, count))
    if not unknown:
        return broker.coordination.serve_in_transaction(request)
    if not known:
        return {"topics": unknown}
    answer = broker.coordination.serve_in_transaction(request._replace(body={**body, "topics": known}))
    if isinstance(answer, Pending):
        answer.amend = partial(_add, unknown)
    elif isinstance(answer, dict):
        _add(unknown, answer)
    return answer


def _add(refused: list[Message], answer: Message) -> None:
    answered = {topic["name"]: topic for topic in answer["topics"]}
    for topic in refused:
        if topic["name"] in answered:
            answered[topic["name"]]["partitions"].extend(topic["partitions"])
        else:
            answer["topics"].append(topic)


def _partition_count(broker: BrokerState, name: str) -> int:
    topic = broker.controller.state.topic(name)
    return 0 if topic is None else len(topic.partitions)


def _refused(topic: Message, count: int) -> Message:
    indexes = (part["partition_index"] for part in topic["partitions"])
    code = UnknownTopicOrPartition.code
    return {
        "name": topic["name"],
        "partitions": [{"partition_index": index, "error_code": code} for index in indexes if not 0 <= index < count],
    }
