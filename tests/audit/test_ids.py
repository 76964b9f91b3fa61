import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.audit.ids import ID_HEADER, MAX_ID_BYTES, RecordId, id_of_record, parse_id


def test_an_id_survives_the_way_into_a_value_and_back() -> None:
    record_id = RecordId("shop-3/orders-0", 17)
    assert record_id.to_bytes() == b"shop-3/orders-0/17"
    assert parse_id(record_id.to_bytes() + b' {"total": 5}') == record_id


@given(st.text(min_size=1, max_size=50).filter(lambda name: " " not in name), st.integers(0, 10**18 - 1))
def test_any_stream_name_without_a_space_works(stream: str, number: int) -> None:
    try:
        text = RecordId(stream, number).to_bytes()
    except UnicodeEncodeError:
        return
    assert parse_id(text) == RecordId(stream, number)


@pytest.mark.parametrize(
    "text",
    [b"", b"17", b"/17", b"shop/", b"shop/x", b"shop/-1", b"shop/1_0", b"shop/ 1", b"shop/" + b"9" * 19,
     b"\xff\xfe/1", b"s" * MAX_ID_BYTES + b"/1", b'{"a": 1}'],
)  # fmt: skip
def test_anything_else_is_no_id(text: bytes) -> None:
    assert parse_id(text) is None


def test_the_header_goes_before_the_value() -> None:
    assert id_of_record(b"a/1", [("other", b"b/2"), (ID_HEADER, b"c/3")]) == RecordId("c", 3)
    assert id_of_record(b"a/1", [("other", b"b/2")]) == RecordId("a", 1)
    assert id_of_record(None) is None
