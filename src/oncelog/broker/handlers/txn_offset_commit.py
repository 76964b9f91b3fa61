"""TxnOffsetCommit (key 28), versions 0-5.

Versions: 2 adds leader epochs, and knows COORDINATOR_LOAD_IN_PROGRESS (older clients hear COORDINATOR_NOT_AVAILABLE); 3
is flexible, and says which member of the group asks; 4 may answer TRANSACTION_ABORTABLE; by 5 the group's partition of
`__consumer_offsets` becomes part of the transaction, which AddOffsetsToTxn had to do before. The transaction's
coordinator is asked first, the group's then; the rules are theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.TXN_OFFSET_COMMIT


def handle(broker: BrokerState, request: Request) -> Answer:
    return broker.coordination.serve_in_transaction(request)
