from __future__ import annotations

import json

import pytest

from oncelog.spark.source.offsets import from_json, parse, parse_assignment, to_json
from oncelog.types import TopicPartition


def test_offsets_are_written_as_sparks_connector_writes_them() -> None:
    offsets = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 2, TopicPartition("a", 2): 1}
    assert json.dumps(to_json(offsets)) == '{"a": {"2": 1, "10": 2}, "b": {"0": 3}}'
    assert from_json(to_json(offsets)) == offsets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earlyest", "JSON"),
        ("[1]", "object by topic"),
        ('{"t": [0]}', "object by partition"),
        ('{"t": {"zero": 1}}', "numbers of partitions"),
        ('{"t": {"-1": 1}}', "numbers of partitions"),
        ('{"t": {"0": "1"}}', "whole number"),
        ('{"t": {"0": true}}', "whole number"),
        ('{"t": {"0": 1.5}}', "whole number"),
    ],
)
def test_what_is_wrong_is_named(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        parse(text)


def test_an_assignment_lists_partitions() -> None:
    assert parse_assignment('{"t": [0, 2]}') == {TopicPartition("t", 0), TopicPartition("t", 2)}


@pytest.mark.parametrize("text", ["{}", "[]", '{"t": []}', '{"t": 0}', '{"t": [1.5]}', '{"t": [true]}', "t"])
def test_an_assignment_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|list|numbers"):
        parse_assignment(text)
