from __future__ import annotations

import pytest

from oncelog.controller.producer_ids import BLOCK_SIZE, LAST_PRODUCER_ID, ProducerIds, reserve_block
from oncelog.controller.records import MetadataRecord, RecordType
from oncelog.controller.state import ControllerState
from oncelog.errors import KafkaError, KafkaStorageError


def test_ids_come_from_durable_blocks_one_by_one() -> None:
    state = ControllerState()
    ids = ProducerIds()
    reserved = []

    def reserve() -> range:
        outcome = reserve_block(state, node_id=1)
        state.replay(outcome.records[0])
        reserved.append(outcome.response)
        return outcome.response

    assert [ids.next(reserve) for _ in range(BLOCK_SIZE + 2)] == list(range(BLOCK_SIZE + 2))
    assert reserved == [range(1000), range(1000, 2000)]


def test_a_restart_wastes_ids_and_repeats_none() -> None:
    state = ControllerState()
    outcome = reserve_block(state, node_id=1)
    state.replay(outcome.records[0])
    assert reserve_block(state, node_id=1).response.start > outcome.response[-1]


def test_no_id_without_a_durable_block() -> None:
    ids = ProducerIds()

    def refuse() -> range:
        raise KafkaStorageError("the disk is full")

    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            ids.next(refuse)
    assert ids.next(lambda: range(7, 8)) == 7


def test_the_end_of_all_ids() -> None:
    state = ControllerState()
    body = {"broker_id": 1, "broker_epoch": -1, "next_producer_id": LAST_PRODUCER_ID - BLOCK_SIZE + 1}
    state.replay(MetadataRecord(RecordType.PRODUCER_IDS, body))
    with pytest.raises(KafkaError, match="all producer ids"):
        reserve_block(state, node_id=1)
