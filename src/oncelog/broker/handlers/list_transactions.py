"""ListTransactions (key 66), versions 0-2.

Versions: 1 filters by how long a transaction has been open; 2 by a pattern of its id. While some coordinators are still
being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS, as Kafka's: a list with holes would be taken for the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.coordinated.in_steps import Told, answered
from oncelog.broker.request import Answer, AnswerSteps, Request, Stepwise
from oncelog.coordinator.transactions.listing import list_transactions
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.LIST_TRANSACTIONS


def handle(broker: BrokerState, request: Request) -> Answer:
    nothing = list_transactions({}, request.body, request.version, request.now_ms)

    return nothing if nothing["error_code"] else Stepwise(_in_steps(broker, request, nothing))


def _in_steps(broker: BrokerState, request: Request, nothing: Message) -> AnswerSteps:
    """One coordinator after the other; what it tells is encoded at once."""
    told = Told(broker.metrics, request, "transaction_states")
    for asked in broker.transactions.ask_each(request):
        answer = yield from answered(asked)
        if not isinstance(answer, dict) or answer["error_code"]:
            return answer
        for state in answer["transaction_states"]:
            told.add(state)
            yield None
        yield None
    return {**nothing, "transaction_states": told.encoded}
