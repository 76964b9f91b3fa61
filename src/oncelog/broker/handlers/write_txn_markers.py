"""WriteTxnMarkers (key 27), versions 1-2.

Sent by coordinators of other brokers, and by tools that end a transaction which its coordinator has forgotten (`abort`
of Kafka's `kafka-transactions.sh`). Versions: 1 is flexible; 2 tells by which protocol the transaction was made, and
with it how strictly epochs are judged. Answered when each marker is as durable as its topic promises.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Pending, Request
from oncelog.broker.transactions.markers import Outcome, write_marker
from oncelog.errors import NONE, KafkaError
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.WRITE_TXN_MARKERS


def handle(broker: BrokerState, request: Request) -> Answer:
    writing = _Writing(broker, request.now_ms)
    answer: Message = {"markers": [writing.write(marker) for marker in request.body["markers"]]}
    return writing.result(answer)


class _Writing:
    """The markers of one request; the answer leaves when all of them are written or refused."""

    def __init__(self, broker: BrokerState, now_ms: int) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._unwritten = 0
        self._answer: Message = {}
        self._pending: Pending | None = None

    def write(self, marker: Message) -> Message:
        outcome = Outcome(
            marker["producer_id"],
            marker["producer_epoch"],
            marker["coordinator_epoch"],
            marker["transaction_result"],
            marker["transaction_version"],
        )
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    self._write(TopicPartition(topic["name"], index), outcome) for index in topic["partition_indexes"]
                ],
            }
            for topic in marker["topics"]
        ]
        return {"producer_id": outcome.producer_id, "topics": topics}

    def _write(self, topic_partition: TopicPartition, outcome: Outcome) -> Message:
        result: Message = {"partition_index": topic_partition.partition, "error_code": NONE}
        self._unwritten += 1
        write_marker(self._broker, topic_partition, outcome, self._now_ms, partial(self._written, result))
        return result

    def _written(self, result: Message, error: KafkaError | None) -> None:
        self._unwritten -= 1
        if error is not None:
            result["error_code"] = error.code
        if self._pending is not None and not self._unwritten:
            self._pending.complete(self._answer)

    def result(self, answer: Message) -> Answer:
        if not self._unwritten:
            return answer
        self._answer = answer
        self._pending = Pending()
        return self._pending
