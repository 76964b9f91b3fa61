"""The runtime of the transaction coordinators: where an id lives, records before answers, leaders that ask."""

from __future__ import annotations

import pytest

from oncelog.errors import KafkaError
from oncelog.types import TopicPartition
from tests.broker.support import Desk, FailingStorage
from tests.broker.transactions.support import (
    BILLS,
    ID,
    ORDERS,
    TRANSACTIONS,
    V1,
    V2,
    add,
    end,
    find,
    init,
    init_request,
    markers_in,
    open_desk,
    state_of,
    write,
)

NOT_COORDINATOR = 16


@pytest.fixture
def storage() -> FailingStorage:
    return FailingStorage()


@pytest.fixture
def desk(storage: FailingStorage) -> Desk:
    desk = open_desk(storage)
    find(desk, ID)
    desk.create("orders")
    desk.create("bills", 2)
    return desk


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_every_partition(desk: Desk, version: int, commit: bool) -> None:
    producer = init(desk)
    assert add(desk, producer, ORDERS, BILLS) == [0, 0]
    write(desk, producer, ORDERS)
    log = desk.broker.partition(*ORDERS)
    assert log.last_stable_offset == 0
    answer = end(desk, producer, commit=commit, version=version)
    assert answer["error_code"] == 0
    epoch = producer.epoch + (version == V2)
    assert markers_in(log) == markers_in(desk.broker.partition(*BILLS)) == [(producer.producer_id, epoch, commit)]
    assert log.last_stable_offset == 2
    assert state_of(desk) == ("CompleteCommit" if commit else "CompleteAbort")


def test_join(desk: Desk) -> None:
    producer = init(desk)
    answers: list[dict[TopicPartition, KafkaError]] = []
    for _ in range(2):
        desk.broker.transactions.join(
            ID, *producer, [ORDERS], verify_only=False, now_ms=0, done=lambda refused: answers.append(dict(refused))
        )
    assert answers == [{}, {}]
    assert state_of(desk) == "Ongoing"


def test_before_anybody_asked_there_is_no_coordinator(storage: FailingStorage) -> None:
    desk = open_desk(storage)
    assert desk.ask("init_producer_id", 5, init_request())["error_code"] == NOT_COORDINATOR
    assert desk.broker.controller.state.topic(TRANSACTIONS) is None
