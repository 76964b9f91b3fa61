from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.consumer_config import DESERIALIZER_NAMES
from oncelog.consumer.deserializers import BUILT_IN, deserializer_for
from oncelog.errors import InvalidConfig
from oncelog.producer.serializers import serializer_for

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": st.text(st.characters(exclude_categories=["Cs"])),
    "int": st.integers(-(2**63), 2**63 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "float": st.floats(allow_nan=False),
    "float32": st.floats(allow_nan=False, width=32),
    "json": st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
        max_leaves=5,
    ),
}


def read(chosen: Any, data: bytes, topic: str = "orders") -> Any:
    deserialize = deserializer_for(chosen, "value")(topic)
    assert deserialize is not None
    return deserialize(data)


def test_the_names_are_those_that_the_config_takes() -> None:
    assert tuple(BUILT_IN) == DESERIALIZER_NAMES
    assert set(VALUES) | {"bytes"} == set(BUILT_IN)


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_what_a_serializer_wrote_is_read_as_it_was(name: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[name])
    written = serializer_for(name, "value")("orders", value)
    if written is None:
        assert value is None
    else:
        assert read(name, bytes(written)) == value


def test_bytes_need_no_deserializer() -> None:
    assert deserializer_for("bytes", "key")("orders") is None


@pytest.mark.parametrize(("name", "size"), [("int", 8), ("int32", 4), ("int16", 2), ("float", 8), ("float32", 4)])
def test_a_number_of_another_size_is_an_error(name: str, size: int) -> None:
    for wrong in {0, 1, 3, 9} - {size}:
        with pytest.raises(ValueError, match=f"{wrong} bytes.* is no .*{8 * size} bits"):
            read(name, bytes(wrong))


def test_what_is_no_text_or_no_json_is_an_error() -> None:
    with pytest.raises(UnicodeDecodeError):
        read("str", b"\xff")
    for bad in (b"", b"{", b"\xff\xfe\xfd"):
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            read("json", bad)


def test_nan_survives() -> None:
    assert math.isnan(read("float", bytes(serializer_for("float", "value")("t", math.nan) or b"")))


def test_a_function_is_given_the_bytes_and_an_object_the_topic_too() -> None:
    class Registry:
        def deserialize(self, topic: str, data: bytes) -> str:
            return f"{topic}/{data.decode()}"

    assert read(bytes.upper, b"abc") == b"ABC"
    assert read(Registry(), b"abc") == "orders/abc"
    assert read(Registry(), b"abc", "paid") == "paid/abc"


def test_a_coroutine_function_is_refused() -> None:
    async def read_later(data: bytes) -> bytes:
        return data

    class Later:
        async def deserialize(self, topic: str, data: bytes) -> bytes:
            return data

    for chosen in (read_later, Later()):
        with pytest.raises(InvalidConfig, match=r"key\.deserializer .* is asynchronous"):
            deserializer_for(chosen, "key")
