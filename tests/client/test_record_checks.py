"""Every mistake in a record is named before anything is done with it."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client import record_checks as checks
from oncelog.errors import InvalidTopicException


class Whole:
    """A whole number of another library."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize("name", ["orders", "a.b_c-9", "x" * 249])
def test_legal_topics(name: str) -> None:
    checks.check_topic(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "\ud800", "x" * 250, "a\n"])
def test_names_that_no_topic_can_have(name: str) -> None:
    with pytest.raises(InvalidTopicException, match="Topic name is invalid"):
        checks.check_topic(name)


@pytest.mark.parametrize("topic", [None, 5, b"orders", ["orders"], True])
def test_topics_that_are_no_names(topic: Any) -> None:
    with pytest.raises(TypeError, match=r"the topic is a name \(str\)"):
        checks.check_topic(topic)


@pytest.mark.parametrize(("given", "number"), [(None, None), (0, 0), (3, 3), (-1, -1), (Whole(), 7)])
def test_partition_numbers(given: Any, number: int | None) -> None:
    assert checks.checked_partition_number(given) == number


@pytest.mark.parametrize("given", [True, False, "1", 1.0, b"1", [1]])
def test_partitions_that_are_no_numbers(given: Any) -> None:
    with pytest.raises(TypeError, match="partition is a whole number, not"):
        checks.checked_partition_number(given)


@pytest.mark.parametrize(("given", "number"), [(None, None), (0, 0), (2**63 - 1, 2**63 - 1), (Whole(), 7)])
def test_timestamps(given: Any, number: int | None) -> None:
    assert checks.checked_timestamp(given) == number


@pytest.mark.parametrize("given", [True, "1", 1.5, 1.0])
def test_timestamps_that_are_no_numbers(given: Any) -> None:
    with pytest.raises(TypeError, match="timestamp_ms is a whole number"):
        checks.checked_timestamp(given)


@pytest.mark.parametrize("given", [-1, -(2**63), 2**63])
def test_timestamps_that_no_record_can_have(given: int) -> None:
    with pytest.raises(ValueError, match="milliseconds since 1970"):
        checks.checked_timestamp(given)


@pytest.mark.parametrize("given", [None, (), [], [("a", b"1"), ("a", None)], (("ü", bytearray(b"2")),), [["a", b"1"]]])
def test_headers(given: Any) -> None:
    assert checks.checked_headers(given) == tuple((name, value) for name, value in given or ())


def test_headers_of_a_generator_are_kept() -> None:
    assert checks.checked_headers((name, b"") for name in "ab") == (("a", b""), ("b", b""))


@pytest.mark.parametrize("given", ["ab", b"ab", 5, ["ab"], [("a",)], [("a", b"1", b"2")], [{"a", b"1"}]])
def test_headers_that_are_no_pairs(given: Any) -> None:
    with pytest.raises(TypeError, match="pair"):
        checks.checked_headers(given)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ([(b"a", b"1")], "name is text"),
        ([("a", 1.5)], "value of header 'a' is bytes, text or None"),
        ([("a", 5)], "encode it"),
    ],
)
def test_headers_of_wrong_types(given: Any, fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        checks.checked_headers(given)


def test_header_names_that_utf8_cannot_hold() -> None:
    with pytest.raises(ValueError, match="UTF-8"):
        checks.checked_headers([("\ud800", b"1")])


@pytest.mark.parametrize(
    "given", [{"trace": "1", "none": None}, [("trace", "1"), ("none", None)]], ids=["dict", "pairs"]
)
def test_headers_as_a_mapping_and_with_text(given: Any) -> None:
    assert checks.checked_headers(given) == (("trace", b"1"), ("none", None))


def test_a_header_that_is_no_utf_8() -> None:
    with pytest.raises(ValueError, match="header 'trace' has text that UTF-8 cannot hold"):
        checks.checked_headers({"trace": "\ud800"})


@pytest.mark.parametrize("given", [b"abc", "abc", {"a": b"1"}, 3, None], ids=repr)
def test_one_record_in_the_place_of_many(given: Any) -> None:
    with pytest.raises(TypeError, match=r"records are many values or \(key, value\) pairs"):
        checks.checked_records(given)
