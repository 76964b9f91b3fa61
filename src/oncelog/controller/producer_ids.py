"""Producer ids: reserved in blocks, handed out one by one, never twice.

A block is a record in the metadata log that says where the next block begins. Reserve it durably before handing out
any of its ids: a crash may waste the rest of a block, but never issue an id again.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.controller.records import MetadataRecord, RecordType
from oncelog.controller.state import ControllerState, Outcome
from oncelog.errors import UnknownServerError

BLOCK_SIZE = 1000
LAST_PRODUCER_ID = 2**63 - 1
NO_BROKER = -1
NO_BROKER_EPOCH = -1


def reserve_block(state: ControllerState, node_id: int) -> Outcome[range]:
    first = state.next_producer_id
    if first > LAST_PRODUCER_ID - BLOCK_SIZE:
        raise UnknownServerError("all producer ids have been handed out")
    record = MetadataRecord(
        RecordType.PRODUCER_IDS,
        {"broker_id": node_id, "broker_epoch": NO_BROKER_EPOCH, "next_producer_id": first + BLOCK_SIZE},
    )
    return Outcome([record], range(first, first + BLOCK_SIZE))


class ProducerIds:
    """The ids of the current block that are left."""

    def __init__(self) -> None:
        self._left = iter(range(0))

    def next(self, reserve: Callable[[], range]) -> int:
        """`reserve` returns a block that is durable already, or raises."""
        for producer_id in self._left:
            return producer_id
        self._left = iter(reserve())
        return next(self._left)
