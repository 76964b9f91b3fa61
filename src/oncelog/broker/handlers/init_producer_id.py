"""InitProducerId (key 22), versions 0-5.

Versions: 2 is flexible; 3 lets a producer name the id and epoch that it had; 4 may answer PRODUCER_FENCED, which older
clients know as INVALID_PRODUCER_EPOCH; 5 may answer TRANSACTION_ABORTABLE. An idempotent producer always gets a fresh
id with epoch 0, as with Kafka: its old one tells the broker nothing. With a transactional id the rules are its
coordinator's.

Left out: version 6, the two-phase commit of KIP-939, which Kafka does not advertise either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request, promised
from oncelog.errors import InvalidRequest, KafkaError
from oncelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.INIT_PRODUCER_ID
FIRST_EPOCH = 0


def handle(broker: BrokerState, request: Request) -> Answer:
    def begin(deliver: Callable[[Callable[[], Answer]], None]) -> None:
        # Where there is no id the coordinator finds that out as well, if it needs one.
        broker.controller.when_producer_ids(request.now_ms, lambda _: deliver(lambda: _serve(broker, request)))

    return promised(request, begin)


def _serve(broker: BrokerState, request: Request) -> Answer:
    if request.body["transactional_id"]:
        return broker.transactions.serve(request, request.body["transactional_id"])
    try:
        _check(request.body)
        producer_id = broker.controller.next_producer_id(request.now_ms)
    except KafkaError as error:
        return {"error_code": error.code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}
    return {"producer_id": producer_id, "producer_epoch": FIRST_EPOCH}


def _check(body: Message) -> None:
    if (body["producer_id"] == NO_PRODUCER_ID) != (body["producer_epoch"] == NO_PRODUCER_EPOCH):
        raise InvalidRequest("a producer names both the id and the epoch that it had, or neither")
    if body["transactional_id"] is not None:
        raise InvalidRequest("the transactional id is empty")
