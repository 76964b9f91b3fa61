"""Transactions as raw requests to a broker without a socket."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.log.partition_log import PartitionLog
from oncelog.records import kernel
from oncelog.records.batch import build_batch, decode_records, read_control_marker
from oncelog.types import TopicPartition
from tests.broker.support import NOW_MS, Desk
from tests.support.faulty_storage import FaultyStorage
from tests.support.raw import Message

DATA = "/data"
TRANSACTIONS = "__transaction_state"
PARTITIONS = 4
ID = "mover"
ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 1)
V1, V2 = 4, 5
"""Versions of EndTxn by which clients of either protocol are known."""


EVERYTHING: Message = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}


class Producer(NamedTuple):
    producer_id: int
    epoch: int


def open_desk(storage: FaultyStorage, **settings: str) -> Desk:
    return Desk(storage, DATA, transaction_state_log_num_partitions=str(PARTITIONS), **settings)


def find(desk: Desk, *ids: str) -> list[Message]:
    found: list[Message] = desk.ask("find_coordinator", 4, {"key_type": 1, "coordinator_keys": ids})["coordinators"]
    return found


def init_request(
    transactional_id: str | None = ID, *, timeout_ms: int = 60_000, had: Producer | None = None
) -> Message:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": -1 if had is None else had.producer_id,
        "producer_epoch": -1 if had is None else had.epoch,
    }


def init(desk: Desk, transactional_id: str = ID, *, timeout_ms: int = 60_000) -> Producer:
    answer = desk.ask("init_producer_id", 5, init_request(transactional_id, timeout_ms=timeout_ms))
    assert answer["error_code"] == 0, answer
    return Producer(answer["producer_id"], answer["producer_epoch"])


def add_request(producer: Producer, *partitions: TopicPartition, transactional_id: str = ID) -> Message:
    return {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": [index]} for topic, index in partitions],
    }


def add(desk: Desk, producer: Producer, *partitions: TopicPartition, transactional_id: str = ID) -> list[int]:
    answer = desk.ask("add_partitions_to_txn", 3, add_request(producer, *partitions, transactional_id=transactional_id))
    results = [each for topic in answer["results_by_topic_v3_and_below"] for each in topic["results_by_partition"]]
    return [each["partition_error_code"] for each in results]


def end_request(producer: Producer, *, commit: bool, transactional_id: str = ID) -> Message:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "committed": commit,
    }


def end(desk: Desk, producer: Producer, *, commit: bool, version: int = V2, transactional_id: str = ID) -> Message:
    return desk.ask("end_txn", version, end_request(producer, commit=commit, transactional_id=transactional_id))


def state_of(desk: Desk, transactional_id: str = ID) -> str:
    (state,) = (state for name, state in listed(desk) if name == transactional_id)
    return state


def listed(desk: Desk, **filters: object) -> list[tuple[str, str]]:
    """Every id and its state."""
    answer = desk.ask("list_transactions", 2, {**EVERYTHING, **filters})
    assert answer["error_code"] == 0, answer
    return sorted((each["transactional_id"], each["transaction_state"]) for each in answer["transaction_states"])


def write(desk: Desk, producer: Producer, partition: TopicPartition, sequence: int = 0) -> None:
    """A batch of the transaction, as if a client had sent it and it had been verified."""
    log = desk.broker.partition(*partition)
    batch = build_batch(
        [(NOW_MS, None, b"x", ())],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    log.append(batch, kernel.parse_header(batch), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)


def markers_in(log: PartitionLog) -> list[tuple[int, int, bool]]:
    """Producer id, epoch and outcome of every marker, in the order of the log."""
    found = []
    data = log.read(0, 1 << 20, upper_bound=log.log_end_offset).read_all()
    position = 0
    for header in kernel.scan(data, 0, len(data), True)[0]:
        batch = memoryview(data)[position : position + header.size_bytes]
        position += header.size_bytes
        if header.is_control:
            found.append((header.producer_id, header.producer_epoch, read_control_marker(batch).commit))
        else:
            decode_records(batch)
    return found
