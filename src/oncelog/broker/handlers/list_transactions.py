"""ListTransactions (key 66), versions 0-2.

Versions: 1 filters by how long a transaction has been open; 2 by a pattern of its id. While some coordinators are still
being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS, as Kafka's: a list with holes would be taken for the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.coordinator.transactions.listing import list_transactions
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.LIST_TRANSACTIONS


def handle(broker: BrokerState, request: Request) -> Answer:
    nothing = list_transactions({}, request.body, request.version, request.now_ms)

    def merge(answers: list[Message]) -> Message:
        for answer in (nothing, *answers):
            if answer["error_code"]:
                return answer
        return {
            **nothing,
            "transaction_states": [state for answer in answers for state in answer["transaction_states"]],
        }

    return broker.transactions.serve_all(request, merge)
