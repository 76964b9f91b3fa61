"""DescribeTransactions (key 65), version 0: what coordinators know of transactional ids, in the order asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.coordinated.in_steps import Told, answered
from oncelog.broker.request import Answer, AnswerSteps, Request, Stepwise
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_TRANSACTIONS

IDS_PER_STEP: Final = 25
"""So many are asked for at once: about a millisecond."""


def handle(broker: BrokerState, request: Request) -> Answer:
    asked = request.body["transactional_ids"]
    return Stepwise(_in_steps(broker, request, asked)) if len(asked) > IDS_PER_STEP else _few(broker, request, asked)


def _in_steps(broker: BrokerState, request: Request, asked: list[str]) -> AnswerSteps:
    told = Told(broker.metrics, request, "transaction_states")
    for start in range(0, len(asked), IDS_PER_STEP):
        answer = yield from answered(_few(broker, request, asked[start : start + IDS_PER_STEP]))
        if not isinstance(answer, dict):
            return answer
        for state in answer["transaction_states"]:
            told.add(state)
            yield None
    return {"transaction_states": told.encoded}


def _few(broker: BrokerState, request: Request, asked: list[str]) -> Answer:
    return broker.transactions.serve_many(request, [(each, {"transactional_ids": [each]}) for each in asked], _merge)


def _merge(answers: list[Message]) -> Message:
    return {"transaction_states": [state for answer in answers for state in answer["transaction_states"]]}
