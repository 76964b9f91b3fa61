"""AddOffsetsToTxn (key 25), versions 0-4, which differ in form (3 is flexible) and in what an error may be: 2 adds
PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE. The rules are the coordinator's: it adds the partition of `__consumer_offsets`
that keeps the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.ADD_OFFSETS_TO_TXN


def handle(broker: BrokerState, request: Request) -> Answer:
    return broker.transactions.serve(request, request.body["transactional_id"])
