"""DescribeTransactions (key 65), version 0: what coordinators know of transactional ids, in the order asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_TRANSACTIONS


def handle(broker: BrokerState, request: Request) -> Answer:
    parts = [(each, {"transactional_ids": [each]}) for each in request.body["transactional_ids"]]
    return broker.transactions.serve_many(request, parts, _merge)


def _merge(answers: list[Message]) -> Message:
    return {"transaction_states": [state for answer in answers for state in answer["transaction_states"]]}
