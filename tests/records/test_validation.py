"""What a client may send: each rule, its code, and the order in which they are applied. On both kernels."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import KafkaError
from oncelog.records.batch import HEADER_SIZE, build_batch
from oncelog.records.validation import MAX_RECORD_ERRORS, BatchRules, ValidatedBatch, validate_client_batch
from oncelog.types import TimestampType, TopicPartition
from tests.records.strategies import BATCHES_OF_ROWS, damaged, quick

NOW_MS = 1_700_000_000_000
RULES = BatchRules(max_message_bytes=10_000, max_decompressed_bytes=20_000, now_ms=NOW_MS)
ROWS = [(NOW_MS - 5, b"a", b"1", ()), (NOW_MS, b"b", b"2", ()), (NOW_MS - 9, b"c", b"3", ())]

MESSAGE_TOO_LARGE, CORRUPT, INVALID_TIMESTAMP, UNSUPPORTED_CODEC, INVALID = 10, 2, 32, 76, 87


def code_of(batch: bytes | bytearray | memoryview, rules: BatchRules = RULES) -> int:
    with pytest.raises(KafkaError) as caught:
        validate_client_batch(batch, rules=rules)
    return caught.value.code


def patched(kernel: ModuleType, change: Callable[[bytearray], object], **fields: Any) -> bytearray:
    """A batch changed after it was built, with its CRC put right."""
    batch = build_batch(ROWS, **fields)
    change(batch)
    struct.pack_into(">I", batch, 17, kernel.crc32c(bytes(batch[21:])))
    return batch


def poke(layout: str, at: int, value: int) -> Callable[[bytearray], object]:
    return lambda batch: struct.pack_into(layout, batch, at, value)


class TestAccepted:
    @pytest.mark.parametrize("codec", range(5))
    def test_a_good_batch(self, kernel: ModuleType, codec: int) -> None:
        batch = build_batch(ROWS, codec=codec, producer_id=4, producer_epoch=0, base_sequence=0)
        before = bytes(batch)
        validated = validate_client_batch(memoryview(batch), rules=RULES)
        unfolded = len(build_batch(ROWS)) - HEADER_SIZE
        assert validated == ValidatedBatch(kernel.parse_header(batch), NOW_MS, 1, unfolded)
        assert batch == before

    @quick
    @given(BATCHES_OF_ROWS, st.integers(0, 4))
    def test_whatever_a_builder_builds(self, kernel: ModuleType, rows: list[Any], codec: int) -> None:
        topic_stamps = RULES._replace(timestamp_type=TimestampType.LOG_APPEND_TIME)
        validated = validate_client_batch(build_batch(rows, codec=codec), rules=topic_stamps)
        assert validated.header.record_count == len(rows)

    def test_the_records_not_the_header_tell_the_greatest_timestamp(self, kernel: ModuleType) -> None:
        validated = validate_client_batch(build_batch(ROWS, max_timestamp=123), rules=RULES)
        assert (validated.header.max_timestamp, validated.max_timestamp) == (123, NOW_MS)

    def test_records_without_a_timestamp(self, kernel: ModuleType) -> None:
        validated = validate_client_batch(build_batch([(-1, b"k", b"v", ())]), rules=RULES)
        assert (validated.max_timestamp, validated.offset_of_max_timestamp_delta) == (-1, -1)

    def test_transactional_batches_and_sequences_without_an_id(self, kernel: ModuleType) -> None:
        validate_client_batch(build_batch(ROWS, producer_id=1, base_sequence=0, transactional=True), rules=RULES)
        validate_client_batch(build_batch(ROWS, producer_id=-1, base_sequence=-1), rules=RULES)


class TestRefused:
    def test_no_batch_several_or_part_of_one(self, kernel: ModuleType) -> None:
        batch = bytes(build_batch(ROWS))
        for data in (b"", batch[:20], batch[:61], batch[:-1], batch + batch, batch + b"x"):
            assert code_of(data) == INVALID

    @pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
    def test_other_formats(self, kernel: ModuleType, magic: int) -> None:
        assert code_of(patched(kernel, poke(">B", 16, magic))) == INVALID

    @pytest.mark.parametrize("length", [-1, 0, 48])
    def test_impossible_lengths(self, kernel: ModuleType, length: int) -> None:
        assert code_of(patched(kernel, poke(">i", 8, length))) == CORRUPT

    def test_a_base_offset(self, kernel: ModuleType) -> None:
        assert code_of(build_batch(ROWS, base_offset=1)) == INVALID

    def test_too_large(self, kernel: ModuleType) -> None:
        batch = build_batch(ROWS)
        validate_client_batch(batch, rules=RULES._replace(max_message_bytes=len(batch)))
        assert code_of(batch, RULES._replace(max_message_bytes=len(batch) - 1)) == MESSAGE_TOO_LARGE

    def test_every_damaged_byte_under_the_crc(self, kernel: ModuleType) -> None:
        batch = build_batch(ROWS)
        for at in range(17, len(batch)):
            broken = bytearray(batch)
            broken[at] ^= 0x10
            assert code_of(broken) == CORRUPT

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_unknown_codecs(self, kernel: ModuleType, codec: int) -> None:
        assert code_of(patched(kernel, poke(">h", 21, codec))) == UNSUPPORTED_CODEC

    @pytest.mark.parametrize(
        ("at", "value"),
        [(57, 0), (57, -1), (57, 2), (57, 4), (57, 2**31 - 1), (23, 0), (23, 3), (23, -1), (23, 2**31 - 1)],
    )
    def test_counts_that_do_not_agree(self, kernel: ModuleType, at: int, value: int) -> None:
        assert code_of(patched(kernel, poke(">i", at, value))) == INVALID

    @pytest.mark.parametrize("count", [1, 2, 4, 2**31 - 1])
    def test_counts_that_agree_with_each_other_but_not_with_the_records(self, kernel: ModuleType, count: int) -> None:
        def lie(batch: bytearray) -> None:
            struct.pack_into(">i", batch, 57, count)
            struct.pack_into(">i", batch, 23, count - 1)

        assert code_of(patched(kernel, lie)) == INVALID

    def test_control_batches(self, kernel: ModuleType) -> None:
        assert code_of(build_batch(ROWS, control=True)) == INVALID

    @pytest.mark.parametrize("sequence", [-1, -5])
    def test_a_producer_id_without_a_sequence(self, kernel: ModuleType, sequence: int) -> None:
        assert code_of(build_batch(ROWS, producer_id=0, base_sequence=sequence)) == INVALID

    def test_bombs_and_garbage(self, kernel: ModuleType) -> None:
        bomb = build_batch([(NOW_MS, b"k", bytes(30_000), ())], codec=4)
        assert len(bomb) < 200
        assert code_of(bomb) == INVALID
        validate_client_batch(bomb, rules=RULES._replace(max_decompressed_bytes=31_000))
        for codec in range(1, 5):
            assert code_of(patched(kernel, poke(">h", 21, codec))) == CORRUPT

    def test_missing_keys_in_a_compacted_topic(self, kernel: ModuleType) -> None:
        batch = build_batch([(NOW_MS, b"k", b"v", ()), (NOW_MS, None, b"v", ())])
        validate_client_batch(batch, rules=RULES)
        assert code_of(batch, RULES._replace(require_keys=True)) == INVALID
        validate_client_batch(build_batch([(NOW_MS, b"", b"v", ())]), rules=RULES._replace(require_keys=True))


class TestTimestamps:
    @pytest.mark.parametrize(
        ("timestamps", "accepted"),
        [
            ((NOW_MS - 100, NOW_MS + 50), True),
            ((NOW_MS - 101, NOW_MS), False),
            ((NOW_MS, NOW_MS - 101), False),
            ((NOW_MS, NOW_MS + 51), False),
            ((-1, NOW_MS), True),
            ((-1, -1), True),
            ((-2, -1), False),
            ((NOW_MS, 0), False),
        ],
    )
    def test_range(self, kernel: ModuleType, timestamps: tuple[int, ...], accepted: bool) -> None:
        rules = RULES._replace(timestamp_before_max_ms=100, timestamp_after_max_ms=50)
        batch = build_batch([(timestamp, b"k", b"v", ()) for timestamp in timestamps])
        if accepted:
            validate_client_batch(batch, rules=rules)
        else:
            assert code_of(batch, rules) == INVALID_TIMESTAMP
        validate_client_batch(batch, rules=rules._replace(timestamp_type=TimestampType.LOG_APPEND_TIME))

    def test_defaults_allow_any_past_and_an_hour_of_future(self, kernel: ModuleType) -> None:
        validate_client_batch(build_batch([(0, b"k", b"v", ())]), rules=RULES)
        validate_client_batch(build_batch([(NOW_MS + 3_600_000, b"k", b"v", ())]), rules=RULES)
        assert code_of(build_batch([(NOW_MS + 3_600_001, b"k", b"v", ())])) == INVALID_TIMESTAMP

    def test_only_the_broker_stamps_append_time(self, kernel: ModuleType) -> None:
        assert code_of(build_batch(ROWS, timestamp_type=1)) == INVALID_TIMESTAMP


class TestRecordErrors:
    """Which records are at fault, in Kafka's words."""

    STRICT = RULES._replace(require_keys=True, timestamp_before_max_ms=100)
    PARTITION = TopicPartition("orders", 7)
    NO_KEY = "Compacted topic cannot accept message without key in topic partition orders-7"

    def refusal(self, rows: list[tuple[int, bytes | None]], rules: BatchRules = STRICT, codec: int = 0) -> KafkaError:
        batch = build_batch([(timestamp, key, b"v", ()) for timestamp, key in rows], codec=codec)
        with pytest.raises(KafkaError) as caught:
            validate_client_batch(batch, rules, self.PARTITION)
        return caught.value

    @pytest.mark.parametrize("codec", range(5))
    def test_each_one_is_named(self, kernel: ModuleType, codec: int) -> None:
        error = self.refusal([(NOW_MS, None), (NOW_MS - 101, b"k"), (-1, b"k"), (NOW_MS - 101, None)], codec=codec)
        within = f"The timestamp should be within [{NOW_MS - 100}, {NOW_MS + 3_600_000}]"
        late = f"Timestamp {NOW_MS - 101} of message with offset 1 is out of range. {within}"
        assert error.record_errors == [(0, self.NO_KEY), (1, late), (3, self.NO_KEY)]
        assert error.code == INVALID_TIMESTAMP
        assert error.message == "One or more records have been rejected due to invalid timestamp"

    def test_the_message_shows_three(self, kernel: ModuleType) -> None:
        error = self.refusal([(NOW_MS, None)] * 5)
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{self.NO_KEY}')" for index in range(3))
        assert error.message == (
            "One or more records have been rejected due to 5 record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
        assert error.code == INVALID

    def test_no_more_are_named_than_a_batch_of_default_size_can_hold(self, kernel: ModuleType) -> None:
        roomy = self.STRICT._replace(max_message_bytes=100_000)
        error = self.refusal([(NOW_MS, None)] * (MAX_RECORD_ERRORS + 5), roomy)
        assert [index for index, _ in error.record_errors] == list(range(MAX_RECORD_ERRORS))
        assert f"due to {MAX_RECORD_ERRORS + 5} record errors in total" in error.message

    @quick
    @given(st.lists(st.tuples(st.integers(-3, 200), st.sampled_from([None, b"", b"k"])), min_size=1), st.booleans())
    def test_as_one_by_one(self, kernel: ModuleType, rows: list[tuple[int, bytes | None]], compacted: bool) -> None:
        """A batch is refused for exactly the records that would be refused alone."""
        rules = self.STRICT._replace(now_ms=100, timestamp_before_max_ms=50, require_keys=compacted)
        rules = rules._replace(timestamp_after_max_ms=50)
        alone = []
        for index, row in enumerate(rows):
            try:
                validate_client_batch(build_batch([(*row, b"v", ())]), rules=rules)
            except KafkaError as error:
                alone.append((index, error.code))
        if not alone:
            validate_client_batch(build_batch([(*row, b"v", ()) for row in rows]), rules=rules)
            return
        refused = self.refusal(rows, rules)
        assert [index for index, _ in refused.record_errors] == [index for index, _ in alone]
        assert refused.code == min(code for _, code in alone)


class TestOrder:
    """A batch that breaks several rules is answered with the first, as Kafka answers it."""

    def test_each_flaw_hides_those_after_it(self, kernel: ModuleType) -> None:
        strict = RULES._replace(max_message_bytes=70, require_keys=True)
        keyless = {"producer_id": 1, "base_sequence": -1, "timestamp_type": 1}
        batch = build_batch([(NOW_MS, None, b"v" * 20, ())], base_offset=5, **keyless)
        batch[30] ^= 1
        answers = [code_of(batch, strict)]
        kernel.stamp(batch, 0, 0, -1)
        answers.append(code_of(batch, strict))
        roomy = strict._replace(max_message_bytes=1_000)
        answers.append(code_of(batch, roomy))
        batch[30] ^= 1
        answers.append(code_of(batch, roomy))
        batch = build_batch([(NOW_MS, None, b"v" * 20, ())], timestamp_type=1)
        answers.append(code_of(batch, roomy))
        answers.append(code_of(batch, roomy._replace(require_keys=False)))
        assert answers == [INVALID, MESSAGE_TOO_LARGE, CORRUPT, INVALID, INVALID, INVALID_TIMESTAMP]


@quick
@given(BATCHES_OF_ROWS, st.integers(0, 4), st.data())
def test_damaged_batches_raise_coded_errors_only(
    kernel: ModuleType, rows: list[Any], codec: int, data: st.DataObject
) -> None:
    batch = bytearray(data.draw(damaged(bytes(build_batch(rows, codec=codec)))))
    if len(batch) >= 61:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">I", batch, 17, kernel.crc32c(bytes(batch[21:])))
    try:
        validate_client_batch(batch, rules=RULES)
    except KafkaError as error:
        code = error.code
    else:
        code = 0
    assert code in (0, INVALID, CORRUPT, UNSUPPORTED_CODEC, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE)
