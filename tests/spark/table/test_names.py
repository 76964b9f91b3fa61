"""Names of tables and of staging areas."""

from __future__ import annotations

import pytest

from oncelog.spark.options import BadOption
from oncelog.spark.table.names import TableName, is_swept, stage_family, stage_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", TableName("orders")),
        ("Orders 2", TableName("Orders 2")),
        ("shop.orders", TableName("orders", "shop")),
        ('"shop.x"."a ""b"""', TableName('a "b"', "shop.x")),
        ('shop."select"', TableName("select", "shop")),
    ],
)
def test_each_part_means_what_it_says(text: str, expected: TableName) -> None:
    assert TableName.parse(text) == expected
    assert TableName.parse(expected.sql) == expected


@pytest.mark.parametrize("text", ["", "a.b.c", '"a', 'a"b', "a.", ".a", '"a"b', "a\0b", '""'])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(BadOption, match="is no name of a table"):
        TableName.parse(text)


def test_a_name_that_postgresql_would_cut_off() -> None:
    with pytest.raises(BadOption, match="63 bytes"):
        TableName.parse("ä" * 32)


def test_a_plan_sweeps_earlier_areas_of_its_own_sink_only() -> None:
    assert is_swept("shop", stage_name("shop", 6), 7)
    assert not is_swept("shop", stage_name("shop", 7), 7)
    assert not is_swept("shop", stage_name("shop", 8), 7)
    assert not is_swept("shop", stage_name("shop 2", 6), 7)
    assert not is_swept("shop", stage_family("shop") + "6-wal", 7)
    assert len(stage_name("x" * 500, 2**62)) <= 63
