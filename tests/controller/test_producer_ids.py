from __future__ import annotations

import pytest

from oncelog.controller.producer_ids import BLOCK_SIZE, LAST_PRODUCER_ID, ProducerIds, reserve_block
from oncelog.controller.records import MetadataRecord, RecordType
from oncelog.controller.state import ControllerState
from oncelog.errors import KafkaError
from tests.controller.support import apply


def test_ids_come_from_durable_blocks_one_by_one() -> None:
    state = ControllerState()
    ids = ProducerIds()
    reserved = []
    for _ in range(2):
        outcome = reserve_block(state, node_id=1)
        apply(state, outcome)
        reserved.append(outcome.response)
        ids.add(outcome.response)
    assert reserved == [range(1000), range(1000, 2000)]
    assert [ids.take() for _ in range(BLOCK_SIZE + 2)] == list(range(BLOCK_SIZE + 2))
    assert ids.left == BLOCK_SIZE - 2


def test_a_restart_wastes_ids_and_repeats_none() -> None:
    state = ControllerState()
    outcome = reserve_block(state, node_id=1)
    state.replay(outcome.records[0])
    assert reserve_block(state, node_id=1).response.start > outcome.response[-1]


def test_the_end_of_all_ids() -> None:
    state = ControllerState()
    body = {"broker_id": 1, "broker_epoch": -1, "next_producer_id": LAST_PRODUCER_ID - BLOCK_SIZE + 1}
    state.replay(MetadataRecord(RecordType.PRODUCER_IDS, body))
    with pytest.raises(KafkaError, match="all producer ids"):
        reserve_block(state, node_id=1)
