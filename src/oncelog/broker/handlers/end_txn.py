"""EndTxn (key 26), versions 0-5.

Versions: 2 may answer PRODUCER_FENCED, which older clients know as INVALID_PRODUCER_EPOCH; 3 is flexible; 4 may answer
TRANSACTION_ABORTABLE; 5 is protocol 2: the answer brings the epoch of the next transaction. Answered once the outcome
is durable, before the markers are. The rules are the coordinator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.END_TXN


def handle(broker: BrokerState, request: Request) -> Answer:
    return broker.transactions.serve(request, request.body["transactional_id"])
