"""InitProducerId (key 22), versions 0-5.

Versions: 2 is flexible; 3 lets a producer name the id and epoch that it had; 4 may answer PRODUCER_FENCED; 5 may answer
TRANSACTION_ABORTABLE. An idempotent producer always gets a fresh id with epoch 0, as with Kafka: its old one tells the
broker nothing.

Left out: transactions. A transactional id is answered with UNSUPPORTED_VERSION, which clients do not retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Request
from oncelog.errors import InvalidRequest, InvalidTransactionTimeout, KafkaError, UnsupportedVersion
from oncelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.INIT_PRODUCER_ID
FIRST_EPOCH = 0


def handle(broker: BrokerState, request: Request) -> Message:
    try:
        _check(broker, request.body)
        producer_id = broker.controller.next_producer_id(request.now_ms)
    except KafkaError as error:
        return {"error_code": error.code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}
    return {"producer_id": producer_id, "producer_epoch": FIRST_EPOCH}


def _check(broker: BrokerState, body: Message) -> None:
    if (body["producer_id"] == NO_PRODUCER_ID) != (body["producer_epoch"] == NO_PRODUCER_EPOCH):
        raise InvalidRequest("a producer names both the id and the epoch that it had, or neither")
    transactional_id = body["transactional_id"]
    if transactional_id is None:
        return
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty")
    if not 0 < body["transaction_timeout_ms"] <= broker.config.transaction_max_timeout_ms:
        raise InvalidTransactionTimeout(
            f"transaction timeout {body['transaction_timeout_ms']} ms is not within "
            f"transaction.max.timeout.ms, {broker.config.transaction_max_timeout_ms}"
        )
    raise UnsupportedVersion("transactions are not served by this version of oncelog")
