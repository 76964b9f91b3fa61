from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from oncelog.coordinator.transactions.records import (
    TransactionRecord,
    UnreadableTransactionRecord,
    by_topic,
    decode_by_schema,
    decode_record,
    encode_record,
)
from oncelog.coordinator.transactions.state import State
from oncelog.coordinator.transactions.transaction import LAST_CLIENT_EPOCH, PROTOCOL_1, PROTOCOL_2, Transaction
from oncelog.types import TopicPartition
from oncelog.wire.codec import encode

ONGOING = Transaction(
    5,
    3,
    60_000,
    State.ONGOING,
    (TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)),
    start_ms=100,
    last_update_ms=200,
    protocol=PROTOCOL_2,
    previous_producer_id=5,
)

MANY = tuple(TopicPartition("t" * 200 if index % 2 else "t", index) for index in range(300))


def round_trip(transaction: Transaction) -> Transaction:
    record = decode_record(*encode_record(TransactionRecord("id", transaction)))
    assert record is not None
    assert record.transactional_id == "id"
    assert record.transaction is not None
    assert record == decode_by_schema(*encode_record(TransactionRecord("id", transaction)))
    return record.transaction


def test_what_is_written_is_read() -> None:
    grouped = (TopicPartition("b", 1), TopicPartition("b", 0), TopicPartition("a", 0))
    assert round_trip(ONGOING) == ONGOING._replace(partitions=grouped)


def test_the_producer_id_that_comes_next_survives() -> None:
    prepared = ONGOING._replace(state=State.PREPARE_COMMIT, epoch=LAST_CLIENT_EPOCH + 1, next_producer_id=9)
    assert round_trip(prepared).identity == (9, 0)


@pytest.mark.parametrize("next_producer_id", [-1, 9])
@pytest.mark.parametrize("protocol", [PROTOCOL_1, PROTOCOL_2])
@pytest.mark.parametrize(
    ("state", "partitions"), [(State.EMPTY, ()), (State.COMPLETE_ABORT, ()), (State.ONGOING, MANY)]
)
def test_the_bytes_are_those_of_the_schema(
    state: State, partitions: tuple[TopicPartition, ...], protocol: int, next_producer_id: int
) -> None:
    transaction = ONGOING._replace(state=state, partitions=partitions, protocol=protocol)
    transaction = transaction._replace(next_producer_id=next_producer_id)
    topics = None if state is State.EMPTY else by_topic(partitions)
    message = {
        "producer_id": 5,
        "previous_producer_id": 5,
        "next_producer_id": next_producer_id,
        "producer_epoch": 3,
        "transaction_timeout_ms": 60_000,
        "transaction_status": int(state),
        "transaction_partitions": topics,
        "transaction_last_update_timestamp_ms": 200,
        "transaction_start_timestamp_ms": 100,
        "client_transaction_version": protocol,
    }
    key, value = encode_record(TransactionRecord("ü" * 200, transaction))
    assert key == b"\x00\x00" + encode("TransactionLogKey", 0, {"transactional_id": "ü" * 200})
    assert value == b"\x00\x01" + encode("TransactionLogValue", 1, message)


def test_a_tombstone() -> None:
    key, value = encode_record(TransactionRecord("id", None))
    assert value is None
    assert decode_record(key, None) == TransactionRecord("id", None)


@pytest.mark.parametrize(
    ("state", "protocol", "epoch", "last_epoch"),
    [
        (State.COMPLETE_COMMIT, PROTOCOL_2, 3, 2),
        (State.PREPARE_ABORT, PROTOCOL_2, 3, 2),
        (State.COMPLETE_ABORT, PROTOCOL_2, 0, LAST_CLIENT_EPOCH),
        (State.COMPLETE_COMMIT, PROTOCOL_1, 3, -1),
        (State.EMPTY, PROTOCOL_2, 3, -1),
        (State.ONGOING, PROTOCOL_2, 3, -1),
    ],
)
def test_the_epoch_before_is_known_where_the_end_of_a_transaction_raised_it(
    state: State, protocol: int, epoch: int, last_epoch: int
) -> None:
    transaction = ONGOING._replace(state=state, protocol=protocol, epoch=epoch, partitions=())
    assert round_trip(transaction).last_epoch == last_epoch


def test_version_0_of_a_value_is_read() -> None:
    value = bytes.fromhex("0000000000000000000500030000ea6000ffffffff" + "00" * 7 + "c8" + "ff" * 8)
    record = decode_record(bytes.fromhex("00000002") + b"id", value)
    assert record == TransactionRecord("id", Transaction(5, 3, 60_000, last_update_ms=200))


def test_a_type_that_is_not_known_is_skipped() -> None:
    assert decode_record(b"\x00\x07anything", None) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00\x00\x00\x09id", None),
        (b"\x00\x00\x00\x02id", b"\x00"),
        (b"\x00\x00\x00\x02id", b"\x00\x63"),
        (b"\x00\x00\x00\x02id", b"\x00\x01\x00\x00"),
        (b"\x00\x00\x00\x02id", bytes.fromhex("0000" + "0000000000000005" + "0003" + "0000ea60" + "63" + "ff" * 20)),
    ],
)
def test_what_cannot_be_read_is_said_not_skipped(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnreadableTransactionRecord):
        decode_record(key, value)


@pytest.mark.parametrize("protocol", [PROTOCOL_1, PROTOCOL_2])
@pytest.mark.parametrize("previous", [-1, 5])
@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_what_is_at_rest_is_read_by_hand_as_by_the_schema(
    state: State, epoch: int, previous: int, protocol: int
) -> None:
    resting = ONGOING._replace(state=state, partitions=(), epoch=epoch, previous_producer_id=previous)
    resting = resting._replace(protocol=protocol)
    found = round_trip(resting)
    assert found.hard_state() == resting
    by_rules = resting.as_read()
    assert found == by_rules


def test_records_that_are_cut_or_changed_are_read_by_hand_as_by_the_schema() -> None:
    """Every prefix, and every single byte changed: the same record, or refused by both."""
    resting = ONGOING._replace(state=State.COMPLETE_COMMIT, partitions=())
    key, value = encode_record(TransactionRecord("mover", resting))
    assert value is not None
    spoiled = [(key, value[:end]) for end in range(len(value))]
    spoiled += [(key[:end], value) for end in range(len(key))]
    spoiled += [(key, changed) for changed in _with_one_byte_changed(value)]
    spoiled += [(changed, value) for changed in _with_one_byte_changed(key)]
    spoiled += [(key, value + b"\x00"), (key + b"\x00", value)]
    for pair in spoiled:
        assert _read(decode_record, *pair) == _read(decode_by_schema, *pair), pair


def _with_one_byte_changed(data: bytes) -> Iterator[bytes]:
    for at in range(len(data)):
        for byte in (0, 1, 2, 128, 255):
            yield data[:at] + bytes([byte]) + data[at + 1 :]


def _read(decode: Callable[[bytes, bytes | None], TransactionRecord | None], key: bytes, value: bytes) -> object:
    try:
        return decode(key, value)
    except UnreadableTransactionRecord:
        return "unreadable"
