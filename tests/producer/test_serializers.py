from __future__ import annotations

import struct
from typing import Any

import pytest

from oncelog.client.producer_config import SERIALIZER_NAMES
from oncelog.errors import OncelogError
from oncelog.producer.serializers import BUILT_IN, SerializationError, UnserializableType, serializer_for


def test_every_name_that_a_config_takes_is_built_in() -> None:
    assert tuple(BUILT_IN) == SERIALIZER_NAMES


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("auto", b"\x00\xff", b"\x00\xff"),
        ("auto", bytearray(b"ab"), b"ab"),
        ("auto", memoryview(b"abcd")[1:3], b"bc"),
        ("auto", memoryview(b"abcd")[::2], b"ac"),
        ("auto", memoryview(struct.pack("2i", 1, 2)).cast("i"), struct.pack("2i", 1, 2)),
        ("auto", "é", "é".encode()),
        ("auto", "", b""),
        ("bytes", b"ab", b"ab"),
        ("str", "ab", b"ab"),
        ("int", 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        ("int", -(2**63), b"\x80" + bytes(7)),
        ("int32", -2, b"\xff\xff\xff\xfe"),
        ("int16", 258, b"\x01\x02"),
        ("float", 1.5, b"\x3f\xf8" + bytes(6)),
        ("float", 1, b"\x3f\xf0" + bytes(6)),
        ("float32", 1.5, b"\x3f\xc0\x00\x00"),
        ("json", {"b": "é", "a": [1, None]}, '{"b":"é","a":[1,null]}'.encode()),
        ("json", "text", b'"text"'),
    ],
)
def test_built_in(name: str, value: object, data: bytes) -> None:
    serialized = serializer_for(name, "value")("orders", value)
    assert serialized is not None
    flat = memoryview(serialized)
    assert (flat.format, flat.c_contiguous) == ("B", True)  # what the kernel reads
    assert flat == data


@pytest.mark.parametrize("chosen", [*SERIALIZER_NAMES, str.encode])
def test_none_stays_none_and_reaches_no_serializer(chosen: Any) -> None:
    assert serializer_for(chosen, "value")("orders", None) is None


def test_bytes_are_not_copied() -> None:
    value = b"as it is"
    assert serializer_for("auto", "value")("orders", value) is value


def test_equal_keys_become_equal_bytes() -> None:
    serialize = serializer_for("json", "key")
    assert serialize("orders", {"a": 1, "b": 2}) == serialize("orders", {"b": 2, "a": 1}) == b'{"a":1,"b":2}'


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("auto", 7, '7 (int) is neither bytes nor text; try value_serializer="int"'),
        ("auto", 7.5, '7.5 (float) is neither bytes nor text; try value_serializer="float"'),
        ("auto", True, 'True (bool) is neither bytes nor text; try value_serializer="json"'),
        ("auto", {"a": 1}, "{'a': 1} (dict) is neither bytes nor text; try value_serializer=\"json\""),
        ("auto", object, "<class 'object'> (type) is neither bytes nor text"),
        ("bytes", "ab", "'ab' (str) is not bytes; try value_serializer=\"str\""),
        ("str", b"ab", "b'ab' (bytes) is not text; try value_serializer=\"bytes\""),
        ("int", "7", "'7' is no whole number of 64 bits; try value_serializer=\"str\""),
    ],
)
def test_a_wrong_type_is_named_with_the_serializer_that_takes_it(name: str, value: object, said: str) -> None:
    with pytest.raises(UnserializableType) as caught:
        serializer_for(name, "value")("orders", value)
    assert str(caught.value) == f"the value of a record for orders cannot be serialized: {said}"
    assert isinstance(caught.value, TypeError)


def test_a_long_value_is_not_shown_whole() -> None:
    with pytest.raises(UnserializableType) as caught:
        serializer_for("auto", "value")("orders", list(range(100_000)))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("name", "value"),
    [("int", 2**63), ("int32", 2**31), ("int16", 2**15), ("int", 0.5), ("float32", 1e300), ("json", float("nan"))],
)
def test_a_value_that_does_not_fit_is_refused(name: str, value: object) -> None:
    with pytest.raises(SerializationError, match="the key of a record for orders cannot be serialized"):
        serializer_for(name, "key")("orders", value)


def test_a_users_function_is_given_the_value() -> None:
    assert serializer_for(str.encode, "value")("orders", "ab") == b"ab"


class Tagging:
    def serialize(self, topic: str, value: Any) -> bytes:
        return f"{topic}:{value}".encode()


def test_a_users_serializer_is_given_the_topic_too() -> None:
    assert serializer_for(Tagging(), "value")("orders", 7) == b"orders:7"


def test_a_serializer_that_raises() -> None:
    def broken(value: object) -> bytes:
        raise ZeroDivisionError("too bad")

    with pytest.raises(SerializationError, match="the value of a record for orders cannot be serialized: too bad") as c:
        serializer_for(broken, "value")("orders", b"x")
    assert isinstance(c.value, OncelogError)
    assert isinstance(c.value.__cause__, ZeroDivisionError)


def test_a_serializer_that_returns_something_else() -> None:
    def broken(value: object) -> Any:
        return "text"

    with pytest.raises(UnserializableType, match=r"'text' \(str\) is not bytes"):
        serializer_for(broken, "value")("orders", object())


def test_a_serializer_may_make_a_tombstone() -> None:
    def nothing(value: object) -> None:
        return None

    assert serializer_for(nothing, "value")("orders", b"x") is None
