"""Producer ids: reserved in blocks, handed out one by one, never twice.

A block is a record in the metadata log that says where the next block begins. Reserve it durably before handing out
any of its ids: a crash may waste the rest of a block, but never issue an id again.
"""

from __future__ import annotations

from collections import deque

from oncelog.controller.records import MetadataRecord, RecordType
from oncelog.controller.state import ControllerState, Outcome
from oncelog.errors import UnknownServerError

BLOCK_SIZE = 1000
RESERVE_AT = BLOCK_SIZE // 2
"""When so many ids are left the next block is reserved."""
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
    """The ids that are left of the blocks that were reserved."""

    def __init__(self) -> None:
        self._blocks: deque[range] = deque()

    @property
    def left(self) -> int:
        return sum(map(len, self._blocks))

    def add(self, block: range) -> None:
        """A block that is durable already."""
        self._blocks.append(block)

    def take(self) -> int:
        first, rest = self._blocks[0][0], self._blocks[0][1:]
        if rest:
            self._blocks[0] = rest
        else:
            self._blocks.popleft()
        return first
