"""The records of `__consumer_offsets`: Kafka's bytes, and what is not known."""

from __future__ import annotations

from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oncelog.coordinator import records
from oncelog.coordinator.records import (
    CoordinatorRecord,
    RecordType,
    UnreadableCoordinatorRecord,
    decode_record,
    encode_record,
    offset_commit,
    offset_tombstone,
)
from oncelog.wire.codec import decode_exactly, encode
from oncelog.wire.quick import load
from oncelog.wire.schema import ZERO_UUID

text = st.text(max_size=40)
int64 = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.just(ZERO_UUID) | st.just(UUID(int=0)) | st.uuids()


@given(text, text, st.integers(0, 2**31 - 1), int64, st.integers(-1, 2**31 - 1), text, int64, st.booleans(), topic_ids)
def test_an_offset_by_hand_is_as_by_its_definition(
    group: str,
    topic: str,
    partition: int,
    offset: int,
    epoch: int,
    metadata: str,
    timestamp: int,
    expires: bool,
    topic_id: UUID,
) -> None:
    record = offset_commit(
        group, topic, partition, offset, epoch, metadata, timestamp, 5_000 if expires else -1, topic_id
    )
    key, value = encode_record(record)
    assert record.value is not None
    version = 1 if expires else 4
    assert key == b"\x00\x01" + encode("OffsetCommitKey", 0, record.key)
    assert value == bytes((0, version)) + encode("OffsetCommitValue", version, record.value)
    with patch.object(records, "offset_record", load(native=False).offset_record):
        assert encode_record(record) == (key, value), "with and without the native parts"
    decoded = decode_record(key, value)
    assert decoded is not None
    assert decoded.key == record.key
    assert decoded.value == decode_exactly("OffsetCommitValue", version, value, 2)


@given(st.binary(max_size=3), st.integers(0, 60), st.integers(0, 60), st.booleans())
def test_a_damaged_offset_by_hand_is_as_by_its_definition(damage: bytes, at: int, end: int, in_key: bool) -> None:
    key, value = encode_record(offset_commit("gruppe", "thema", 3, 7, 1, "m", 5, topic_id=UUID(int=2**100)))
    assert value is not None
    damaged = key if in_key else value
    damaged = damaged[: 2 + at] + damage + damaged[2 + at + len(damage) :]
    damaged = damaged[: len(damaged) - max(0, end - 30)]
    key, value = (damaged, value) if in_key else (key, damaged)
    assume(len(key) > 2)
    with patch.object(records, "_plain_offset", lambda *_: None):
        expected = outcome(key, value)
    assert outcome(key, value) == expected


def outcome(key: bytes, value: bytes) -> object:
    try:
        return decode_record(key, value)
    except UnreadableCoordinatorRecord as error:
        return str(error)


def test_tombstones_have_no_value() -> None:
    record = offset_tombstone("g", "t", 3)
    key, value = encode_record(record)
    assert value is None
    assert decode_record(key, value) == record


def test_a_group_goes_there_and_back() -> None:
    member = {"member_id": "m", "group_instance_id": None, "client_id": "c", "client_host": "/h"}
    member |= {"rebalance_timeout": 1, "session_timeout": 2, "subscription": b"s", "assignment": b"a"}
    value = {"protocol_type": "consumer", "generation": 3, "protocol": "range", "leader": "m"}
    value |= {"current_state_timestamp": 9, "members": [member]}
    record = CoordinatorRecord(RecordType.GROUP_METADATA, {"group": "g"}, value)
    assert decode_record(*encode_record(record)) == record


def test_types_of_other_brokers_are_skipped() -> None:
    assert decode_record(b"\x00\x0b\x00\x01g", b"\x00\x00whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00", None),
        (b"\x00\x02\x00\x05g", None),
        (b"\x00\x02\x00\x01g", b""),
        (b"\x00\x02\x00\x01g", b"\x00\x63"),
        (b"\x00\x02\x00\x01g", b"\x00\x03\x00"),
    ],
)
def test_what_cannot_be_read_is_never_guessed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnreadableCoordinatorRecord):
        decode_record(key, value)
