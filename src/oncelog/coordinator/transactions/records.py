"""The records of `__transaction_state`, as Kafka writes them.

A key is its type (int16) and the transactional id, a value is its version (int16) and what is known of the id; a null
value takes the id back. Owns the bytes; never knows what follows from a record. Version 1 is written, as by Kafka 4.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from oncelog.coordinator.transactions.state import AT_REST, State
from oncelog.coordinator.transactions.transaction import PROTOCOL_1, Transaction, epoch_before
from oncelog.errors import OncelogError, UnsupportedVersion
from oncelog.types import NO_PRODUCER_ID, TopicPartition
from oncelog.wire.codec import MalformedMessage, Message, decode_exactly
from oncelog.wire.primitives import compact_string, string, uvarint

KEY_TYPE: Final = 0
MAX_PLAUSIBLE_TYPE: Final = 255
"""Above it a type is not a newer one: the key is text, or something else that no coordinator has written."""
WRITTEN_VALUE_VERSION: Final = 1

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")

_NULL = b"\x00"
_NO_TAGS = b"\x00"
_PREVIOUS_PRODUCER_ID_TAG = b"\x00\x08"
_NEXT_PRODUCER_ID_TAG = b"\x01\x08"
_PROTOCOL_TAG = b"\x02\x02"
"""The number of a tagged field, and how many bytes follow."""

_KEY_HEAD = struct.Struct(">hh")
_AT_REST = struct.Struct(">hqhibBqqB")
"""A whole value without partitions, up to how many tagged fields it has."""
_NO_TOPICS = 1
"""A compact array is null as 0, empty as 1."""
_TAGS = {0: struct.Struct(">"), 1: struct.Struct(">2sq"), 2: struct.Struct(">2sq2sh")}
"""None, the previous producer id, or also the protocol."""
_STATES_AT_REST = {int(state): state for state in AT_REST}


class UnreadableTransactionRecord(OncelogError):
    """A record of `__transaction_state` cannot be decoded; what became of a transaction cannot be known."""


class TransactionRecord(NamedTuple):
    transactional_id: str
    transaction: Transaction | None
    """None is a tombstone."""


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """By hand: every transaction writes three of them."""
    transactional_id, transaction = record
    key = _INT16.pack(KEY_TYPE) + string(transactional_id)
    return key, None if transaction is None else _value_of(transaction)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """None for a type that is not known, as a newer broker may have written it."""
    if value is not None and len(value) >= _AT_REST.size and len(key) >= _KEY_HEAD.size:
        transaction = _transaction_at_rest(value)
        if transaction is not None and _KEY_HEAD.unpack_from(key) == (KEY_TYPE, len(key) - _KEY_HEAD.size):
            try:
                return TransactionRecord(str(key[_KEY_HEAD.size :], "utf-8"), transaction)
            except UnicodeDecodeError:
                pass  # told in full below
    return decode_by_schema(key, value)


def decode_by_schema(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Every record there can be, at leisure."""
    try:
        key_type = _version_of(key)
        if key_type != KEY_TYPE:
            if not 0 <= key_type <= MAX_PLAUSIBLE_TYPE:
                raise UnreadableTransactionRecord("its key is none that a transaction coordinator writes")
            return None
        transactional_id = decode_exactly("TransactionLogKey", 0, key, _INT16.size)["transactional_id"]
        if value is None:
            return TransactionRecord(transactional_id, None)
        message = decode_exactly("TransactionLogValue", _version_of(value), value, _INT16.size)
        return TransactionRecord(transactional_id, _transaction_of(message))
    except (MalformedMessage, UnsupportedVersion, ValueError) as error:
        raise UnreadableTransactionRecord(f"a record of a transaction cannot be decoded: {error}") from error


def _transaction_at_rest(value: bytes) -> Transaction | None:
    """Nearly all ids of a log have no open transaction: no partitions, and one of few sets of tagged fields. By hand,
    as the start of a broker waits for it; None for any other."""
    version, producer_id, epoch, timeout_ms, number, topics, updated_ms, start_ms, tags = _AT_REST.unpack_from(value)
    if version != WRITTEN_VALUE_VERSION or topics > _NO_TOPICS:
        return None
    state = _STATES_AT_REST.get(number)
    shape = _TAGS.get(tags)
    if state is None or shape is None or len(value) != _AT_REST.size + shape.size:
        return None
    previous_producer_id, protocol = NO_PRODUCER_ID, PROTOCOL_1
    if tags:
        head, previous_producer_id, *rest = shape.unpack_from(value, _AT_REST.size)
        if head != _PREVIOUS_PRODUCER_ID_TAG:
            return None
        if rest:
            head, protocol = rest
            if head != _PROTOCOL_TAG:
                return None
    last_epoch = epoch_before(state, epoch, protocol)
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        state,
        (),
        start_ms,
        updated_ms,
        protocol,
        previous_producer_id,
        NO_PRODUCER_ID,
        last_epoch,
    )


def _version_of(data: bytes | memoryview) -> int:
    if len(data) < _INT16.size:
        raise MalformedMessage(f"{len(data)} bytes have no version")
    version: int = _INT16.unpack_from(data)[0]
    return version


def _value_of(transaction: Transaction) -> bytes:
    head = _HEAD.pack(
        WRITTEN_VALUE_VERSION,
        transaction.producer_id,
        transaction.epoch,
        transaction.timeout_ms,
        transaction.state,
    )
    times = _TIMES.pack(transaction.last_update_ms, transaction.start_ms)
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_PREVIOUS_PRODUCER_ID_TAG + _INT64.pack(transaction.previous_producer_id))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append(_NEXT_PRODUCER_ID_TAG + _INT64.pack(transaction.next_producer_id))
    if transaction.protocol != PROTOCOL_1:
        tags.append(_PROTOCOL_TAG + _INT16.pack(transaction.protocol))
    return b"".join((head, _partitions_of(transaction), times, uvarint(len(tags)), *tags))


def _partitions_of(transaction: Transaction) -> bytes:
    if transaction.state is State.EMPTY:
        return _NULL
    topics = by_topic(transaction.partitions)
    out = [uvarint(len(topics) + 1)]
    for topic in topics:
        ids = topic["partition_ids"]
        out += compact_string(topic["topic"]), uvarint(len(ids) + 1), struct.pack(f">{len(ids)}i", *ids), _NO_TAGS
    return b"".join(out)


def by_topic(partitions: tuple[TopicPartition, ...]) -> list[Message]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partition_ids": ids} for topic, ids in topics.items()]


def _transaction_of(message: Message) -> Transaction:
    return Transaction(
        producer_id=message["producer_id"],
        epoch=message["producer_epoch"],
        timeout_ms=message["transaction_timeout_ms"],
        state=State(message["transaction_status"]),
        partitions=tuple(
            TopicPartition(topic["topic"], partition)
            for topic in message["transaction_partitions"] or ()
            for partition in topic["partition_ids"]
        ),
        start_ms=message["transaction_start_timestamp_ms"],
        last_update_ms=message["transaction_last_update_timestamp_ms"],
        protocol=message["client_transaction_version"],
        previous_producer_id=message["previous_producer_id"],
        next_producer_id=message["next_producer_id"],
    ).as_read()
