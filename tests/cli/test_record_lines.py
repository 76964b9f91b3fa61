"""What `oncelog produce` makes of its input."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli.consume import as_json
from oncelog.cli.record_lines import JsonLines, Record, TextLines
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition

PLACE = TopicPartition("orders", 2)


def printed(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> bytes:
    """As `consume --json` prints such a record."""
    return as_json(PLACE, ConsumerRecord("orders", 2, 7, 1_000, 0, key, value, headers, -1)).rstrip(b"\n")


DATA = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)


@given(DATA, DATA, st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3))
def test_what_consume_printed_is_read_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    lines = JsonLines(3, keep_partitions=True)
    (record,) = lines.records([printed(key, value, headers)])
    assert record == Record(2, key, value, headers, 1_000)
    assert lines.refused is None


def test_partitions_are_chosen_anew_unless_they_are_kept() -> None:
    keyed, plain = printed(b"k", b"v", []), printed(None, b"v", [])
    assert [one.partition for one in JsonLines(3).records([keyed, plain])] == [None, 0]
    assert [one.partition for one in JsonLines(3, keep_partitions=True).records([keyed, plain])] == [2, 2]
    assert [one.partition for one in JsonLines(3, partition=1).records([keyed, plain])] == [1, 1]


def test_what_may_be_left_out() -> None:
    lines = JsonLines(1, headers=[("source", b"import")])
    (record,) = lines.records([b'{"value": null}', b"", b"  "])
    assert record == Record(0, None, None, [("source", b"import")])
    (record,) = lines.records([b'{"key": "k", "value": "v", "timestamp_ms": -1}'])
    assert record == Record(None, b"k", b"v", [("source", b"import")])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('"text"', "is not a JSON object"),
        ('{"key": "k"}', 'has neither "value" nor "value_base64"; a tombstone is "value": null'),
        ('{"valeu": "v"}', "has an unknown field 'valeu'; did you mean 'value'?"),
        ('{"value": 7}', "has a 'value' that is neither text nor null"),
        ('{"value": {"a": 1}}', "has a 'value' that is neither text nor null"),
        ('{"value": "v", "value_base64": "dg=="}', "has both 'value' and 'value_base64'"),
        ('{"value_base64": "%"}', "has a 'value_base64' that is not base64"),
        ('{"value_base64": 7}', "has a 'value_base64' that is not base64"),
        ('{"value": "\\ud800"}', "has half a character in 'value'"),
        ('{"value": "v", "headers": {"a": "b"}}', 'has "headers" that are not a list'),
        ('{"value": "v", "headers": ["a"]}', "has a header that is not a JSON object"),
        ('{"value": "v", "headers": [{"value": "b"}]}', 'has a header without a "key"'),
        ('{"value": "v", "partition": true}', "has a 'partition' that is not a whole number"),
        ('{"value": "v", "timestamp_ms": 1e3}', "has a 'timestamp_ms' that is not a whole number"),
    ],
)
def test_a_line_that_is_not_a_record_is_named(line: str, problem: str) -> None:
    lines = JsonLines(1)
    good = json.dumps({"value": "v"}).encode()
    assert len(list(lines.records([good, line.encode(), good]))) == 1
    assert lines.refused is not None
    assert str(lines.refused).startswith("line 2 ")
    assert problem in str(lines.refused)


def test_text_with_keys_and_tombstones() -> None:
    lines = TextLines(2, key_separator=b":", null_marker=b"NULL")
    assert list(lines.records([b"a:1", b"a:NULL", b"NULL:2", b":", b"b:x:NULL"])) == [
        Record(None, b"a", b"1", ()),
        Record(None, b"a", None, ()),
        Record(0, None, b"2", ()),
        Record(None, b"", b"", ()),
        Record(None, b"b", b"x:NULL", ()),
    ]
    (record,) = TextLines(2, null_marker=b"").records([b""])
    assert record.value is None


def test_lines_that_arrive_together_share_a_partition() -> None:
    lines = TextLines(2)
    assert [[one.partition for one in lines.records([b"a", b"b"])] for _ in range(3)] == [[0, 0], [1, 1], [0, 0]]
