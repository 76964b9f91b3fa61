"""OffsetForLeaderEpoch (key 23), versions 2-4.

Versions: 3 tells consumers from replicas, which get the same answer here; 4 is flexible. Says where an epoch ended, so
that a reader notices a log that was truncated under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Request
from oncelog.errors import KafkaError
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH


def handle(broker: BrokerState, request: Request) -> Message:
    return {
        "topics": [
            {
                "topic": topic["topic"],
                "partitions": [_answer(broker, topic["topic"], partition) for partition in topic["partitions"]],
            }
            for topic in request.body["topics"]
        ]
    }


def _answer(broker: BrokerState, name: str, partition: Message) -> Message:
    index, asked_epoch = partition["partition"], partition["leader_epoch"]
    try:
        log = broker.partition(name, index)
        broker.check_leader_epoch(name, index, partition["current_leader_epoch"])
        if asked_epoch == broker.leader_epoch(name, index):
            # The current epoch ends where the log ends, even if nothing was written in it yet.
            return {"partition": index, "leader_epoch": asked_epoch, "end_offset": log.log_end_offset}
        epoch, end_offset = log.end_offset_for_epoch(asked_epoch)
        return {"partition": index, "leader_epoch": epoch, "end_offset": end_offset}
    except KafkaError as error:
        return {"partition": index, "error_code": error.code}
