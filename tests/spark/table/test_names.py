"""Names of tables and of staging areas."""

from __future__ import annotations

import pytest

from oncelog.spark.options import BadOption
from oncelog.spark.table.names import ABANDONED_MS, PlannedSink, TableName, stage_family, stage_name, to_sweep


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
    with pytest.raises(BadOption, match="is not the name of a table"):
        TableName.parse(text)


def test_a_name_that_postgresql_would_cut_off() -> None:
    with pytest.raises(BadOption, match="63 bytes"):
        TableName.parse("ä" * 32)


def test_areas_that_nobody_needs_are_swept_whoever_left_them() -> None:
    sinks = [PlannedSink("shop", 7, 0), PlannedSink("gone", 3, ABANDONED_MS), PlannedSink("busy", 3, ABANDONED_MS - 1)]
    left = [stage_name("shop", 6), stage_name("gone", 3), stage_name("busy", 2)]
    needed = [stage_name("shop", 7), stage_name("shop", 8), stage_name("busy", 3)]
    others = [stage_name("not in the ledger", 1), stage_family("shop") + "6-wal", "oncelog_stage_", "oncelog_stage_7"]
    assert to_sweep([*needed, *left, *others], sinks) == left
    assert len(stage_name("x" * 500, 2**62)) <= 63
