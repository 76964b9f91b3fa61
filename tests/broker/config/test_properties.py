from __future__ import annotations

import pytest

from oncelog.broker.config.properties import parse_properties
from oncelog.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\nb = 2 \nc:3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# comment\n! another\n\n  a=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x,\\\n   y,\\\n   z\nb=1", {"a": "x,y,z", "b": "1"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=tab\\there \\u0041", {"a": "tab\there A"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("flag", {"flag": ""}),
        ("a=#not a comment", {"a": "#not a comment"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_lines(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings


def test_a_value_without_a_key() -> None:
    with pytest.raises(InvalidConfig, match="line 2"):
        parse_properties("a=1\n=2")
