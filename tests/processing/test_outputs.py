"""What a function may return, and how it is sent."""

from __future__ import annotations

from typing import Any

import pytest

import oncelog
from oncelog.processing.job import FeedsItself
from oncelog.processing.outputs import checked_table, listed, send_all


def sent(outputs: list[Any], target: str | None = "bills") -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    send_all(lambda *arguments: found.append(arguments), target, outputs, lambda topic: topic == "source")
    return found


def test_values_and_pairs_go_to_the_target() -> None:
    assert sent([b"v", "text", (b"k", b"v"), (b"k", None), {"any": "thing"}]) == [
        ("bills", b"v"),
        ("bills", "text"),
        ("bills", b"v", b"k"),
        ("bills", None, b"k"),
        ("bills", {"any": "thing"}),
    ]


def test_records_say_for_themselves() -> None:
    record = oncelog.ProducerRecord("elsewhere", b"v", b"k", 3, [("h", b"x")], 7)
    assert sent([record], None) == [("elsewhere", b"v", b"k", [("h", b"x")], 3, 7)]
    assert sent([oncelog.ProducerRecord("", b"v")])[0][0] == "bills"


@pytest.mark.parametrize("output", [None, (), (b"k",), (b"k", b"v", b"more")])
def test_what_is_no_output(output: Any) -> None:
    with pytest.raises(TypeError, match="ProducerRecord"):
        sent([output])


def test_an_output_without_a_topic() -> None:
    with pytest.raises(TypeError, match="target"):
        sent([b"v"], None)


def test_whatever_can_be_iterated_is_a_list_of_outputs() -> None:
    assert listed([1]) == listed(iter([1])) == listed({1}) == [1]


@pytest.mark.parametrize("returned", [{"a": 1}, None, b"one value", "text", (b"k", b"v"), 7])
def test_one_output_alone_is_a_mistake(returned: Any) -> None:
    with pytest.raises(TypeError, match="list"):
        listed(returned)


def test_tables_are_tables() -> None:
    assert checked_table(None) is None
    with pytest.raises(TypeError, match=r"pyarrow\.Table"):
        checked_table([b"v"])


def test_a_record_for_a_topic_that_is_read_is_refused() -> None:
    with pytest.raises(FeedsItself, match="would not end"):
        sent([b"v", oncelog.ProducerRecord("source", b"v")])
