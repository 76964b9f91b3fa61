from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.spool.entry import SpooledRecord, decode_entry, decode_place, encode_entry

CONTENT = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), CONTENT), max_size=3).map(tuple)


PLACE = st.tuples(st.text(min_size=1, max_size=9), st.integers(0, 2**31 - 1), st.integers(0, 2**62))


@given(PLACE, st.integers(-(2**63), 2**63 - 1), CONTENT, CONTENT, HEADERS)
def test_a_record_comes_back_as_it_was(
    place: tuple[str, int, int], timestamp_ms: int, key: bytes | None, value: bytes | None, headers: tuple[()]
) -> None:
    topic, partition, entry = place
    body = memoryview(encode_entry(topic.encode(), partition, entry, timestamp_ms, key, value, headers))
    assert decode_entry(body) == SpooledRecord(topic, partition, entry, timestamp_ms, key, value, headers)
    assert decode_place(body) == (topic.encode(), partition, entry)


def test_a_header_name_that_is_no_utf8_keeps_its_bytes() -> None:
    name = b"\xff".decode("utf-8", "surrogateescape")
    record = decode_entry(memoryview(encode_entry(b"t", 0, 0, 0, None, None, [(name, b"1")])))
    assert record.headers == ((name, b"1"),)


def test_views_are_taken_byte_by_byte() -> None:
    numbers = array("i", [1, 2])
    record = decode_entry(memoryview(encode_entry(b"t", 0, 0, 0, bytearray(b"key"), memoryview(numbers), ())))
    assert (record.key, record.value) == (b"key", numbers.tobytes())


@pytest.mark.parametrize("value", ["text", 7, [1, 2]])
def test_what_is_not_bytes_is_refused(value: object) -> None:
    for arguments in ((value, None, ()), (None, value, ()), (None, None, [("name", value)])):
        with pytest.raises(TypeError):
            encode_entry(b"t", 0, 0, 0, *arguments)


@pytest.mark.parametrize("timestamp_ms", [2**63, 1.5])
def test_a_timestamp_out_of_range_is_refused(timestamp_ms: int) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        encode_entry(b"t", 0, 0, timestamp_ms, None, None, ())
