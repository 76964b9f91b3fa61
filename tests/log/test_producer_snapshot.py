"""The snapshot file: Kafka's own bytes are read and written back unchanged, and Kafka reads what we write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.log.producer_snapshot import CorruptSnapshot, decode, encode
from oncelog.log.producer_state import KEPT_BATCHES, BatchMetadata, ProducerEntry
from oncelog.records.kernel import crc32c
from oncelog.types import MAX_SEQUENCE, advance_sequence
from tests.support import parts
from tests.support.kafka import run_tool

# Written by Apache Kafka 4.3.1: an idempotent producer after four batches, then three transactional ones of three
# records each, the first committed, the second aborted, the third still open.
BY_KAFKA = bytes.fromhex(
    "00015e53e64b00000004"
    "0000000000000000000000000003000000000000000300000000000001a1e16b2090ffffffffffffffffffffffff"
    "0000000000000001000000000002000000000000000600000002000001a1e16b22f800000000ffffffffffffffff"
    "0000000000000002000000000002000000000000000a00000002000001a1e16b232b00000000ffffffffffffffff"
    "0000000000000003000000000002000000000000000e00000002000001a1e16b2365ffffffff000000000000000c"
)


def as_values(entries: list[ProducerEntry]) -> list[str]:
    return [repr(entry) for entry in entries]


def entry_with_batches(count: int, *, producer_id: int = 9, first_sequence: int = 0) -> ProducerEntry:
    batches = []
    for i in range(count):
        sequence = advance_sequence(first_sequence, 3 * i)
        last_sequence = advance_sequence(sequence, 2)
        batches.append(BatchMetadata(sequence, last_sequence, 10 + 4 * i, 12 + 4 * i, 1_000 + i))
    return ProducerEntry(producer_id, 4, batches=batches, last_timestamp=999 + count, coordinator_epoch=2)


def test_kafkas_bytes_are_understood() -> None:
    entries = decode(BY_KAFKA, 70)
    assert [(entry.producer_id, entry.epoch, entry.coordinator_epoch) for entry in entries] == [
        (0, 0, -1),
        (1, 0, 0),
        (2, 0, 0),
        (3, 0, -1),
    ]
    assert list(entries[0].batches) == [BatchMetadata(3, 3, 3, 3, 1794783256720)]
    assert list(entries[1].batches) == [BatchMetadata(0, 2, 4, 6, 1794783257336)]
    assert [entry.current_transaction_first_offset for entry in entries] == [None, None, None, 12]
    assert entries[3].last_timestamp == 1794783257445
    assert {entry.last_appended_ms for entry in entries} == {70}, "Kafka's file does not say: it has just written"


def test_kafkas_bytes_are_written_back_unchanged() -> None:
    assert encode(decode(BY_KAFKA, 70), 70) == BY_KAFKA


def test_all_five_batches_survive() -> None:
    entries = [entry_with_batches(KEPT_BATCHES, producer_id=1), entry_with_batches(1, producer_id=2)]
    assert as_values(decode(encode(entries, 0), 0)) == as_values(entries)


def test_a_wrapped_sequence_survives() -> None:
    entries = [entry_with_batches(3, first_sequence=MAX_SEQUENCE - 3)]
    assert as_values(decode(encode(entries, 0), 0)) == as_values(entries)


def test_a_batch_keeps_its_timestamp_though_a_marker_came_later() -> None:
    entry = entry_with_batches(1)
    entry.last_timestamp = 5_000
    assert as_values(decode(encode([entry], 0), 0)) == as_values([entry])


def test_a_coordinators_batch_has_no_sequence() -> None:
    entry = ProducerEntry(1, 0, batches=[BatchMetadata(-1, -1, 5, 7, 10)], last_timestamp=10)
    assert as_values(decode(encode([entry], 0), 0)) == as_values([entry])


def test_the_silence_of_a_producer_goes_on_whatever_time_it_is_by_then() -> None:
    long_silent, just_heard = entry_with_batches(2, producer_id=1), entry_with_batches(1, producer_id=2)
    long_silent.last_appended_ms, just_heard.last_appended_ms = 1_000, 8_000
    data = encode([long_silent, just_heard], 8_000)
    for mono_ms in (100, 9_000, 10**12):
        assert [entry.silent_ms(mono_ms) for entry in decode(data, mono_ms)] == [7_000, 0]
        assert [entry.silent_ms(mono_ms + 5) for entry in decode(data, mono_ms)] == [7_005, 5]


def test_a_clock_that_went_back_makes_nobody_silent() -> None:
    entry = entry_with_batches(1)
    entry.last_appended_ms = 8_000
    assert [each.silent_ms(50) for each in decode(encode([entry], 10), 50)] == [0]


def test_a_tail_from_before_silences_were_written_is_read() -> None:
    batches, entries = entry_with_batches(3), [entry_with_batches(3), entry_with_batches(1, producer_id=2)]
    whole = encode(entries, 0)
    assert b"once" in whole
    assert b"idle" not in whole
    assert [entry.silent_ms(600) for entry in decode(whole, 600)] == [0, 0]
    assert list(decode(whole, 600)[0].batches) == list(batches.batches)


def test_a_tail_of_silences_alone() -> None:
    data = encode([entry_with_batches(1)], 90)
    assert b"once" not in data
    assert [entry.silent_ms(5) for entry in decode(data, 5)] == [90]


def test_what_follows_and_is_not_ours_is_left_alone() -> None:
    body = encode([entry_with_batches(3)], 90)[6:] + b"something else"
    data = (1).to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body
    assert [entry.silent_ms(5) for entry in decode(data, 5)] == [90]


@pytest.mark.parametrize("count", [2, 2**31 - 1, -1])
def test_a_part_that_does_not_fit_is_corrupt(count: int) -> None:
    body = encode([entry_with_batches(1)], 90)[6:-20] + count.to_bytes(4, "big", signed=True) + bytes(16)
    data = (1).to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body
    with pytest.raises(CorruptSnapshot, match="do not fit"):
        decode(data, 0)


def test_no_producers() -> None:
    assert encode([], 0) == bytes.fromhex("0001 48674bc7 00000000")
    assert decode(encode([], 0), 0) == []


@given(st.integers(0, len(BY_KAFKA) * 8 - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    damaged = bytearray(BY_KAFKA)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptSnapshot):
        decode(bytes(damaged), 0)


def test_every_truncation_is_noticed() -> None:
    whole = encode([entry_with_batches(3)], 0)
    for size in range(len(whole)):
        with pytest.raises(CorruptSnapshot):
            decode(whole[:size], 0)


def test_a_file_of_zeros_is_corrupt() -> None:
    with pytest.raises(CorruptSnapshot, match="unknown version 0"):
        decode(bytes(100), 0)


@pytest.mark.kafka
def test_kafkas_own_tool_reads_our_file_with_its_tail(tmp_path: Path) -> None:
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    path = tmp_path / "00000000000000000031.snapshot"
    opened = ProducerEntry(11, 1, last_timestamp=50, current_transaction_first_offset=30)
    path.write_bytes(encode([entry_with_batches(KEPT_BATCHES), opened], 5_000))
    printed = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(path)).stdout
    assert (
        "producerId: 9 producerEpoch: 4 coordinatorEpoch: 2 currentTxnFirstOffset: OptionalLong.empty "
        "lastTimestamp: 1004 firstSequence: 12 lastSequence: 14 lastOffset: 28 offsetDelta: 2 timestamp: 1004"
    ) in printed
    assert "producerId: 11 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[30]" in printed


def test_an_entry_is_unpacked_once() -> None:
    """Its batches are packed, and a snapshot of thousands of producers is written while everybody waits."""
    asked = 0

    class Counting:
        def __init__(self, entry: ProducerEntry) -> None:
            self._entry = entry

        def __getattr__(self, name: str) -> object:
            nonlocal asked
            asked += name == "batches"
            return getattr(self._entry, name)

    entry = entry_with_batches(KEPT_BATCHES)
    assert encode([Counting(entry)], 70) == encode([entry], 70)  # type: ignore[list-item]
    assert asked == 1
