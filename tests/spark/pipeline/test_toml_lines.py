from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark.pipeline.toml_lines import Path, locate

TEXT = '''\
# a comment = "with a key"
title = "x" # [not.a.table]

[pipeline]
name = "a"
kafka.bootstrap.servers = "h:1"
"kafka.security.protocol" = 'PLAINTEXT'
[pipeline.spark]
sql.shuffle.partitions = 8

[[sink]]
topic = "one"
columns = [
  "a",  # with a comment ]
  "b",
]
[sink.options]
header = true
[[sink]]
with = { first = 1, "se cond" = [2, 3], third = { deep = "}" } }
[[sink]]
sql = """
SELECT "a" \\
   , b
FROM t
WHERE c = '\\n' """
after = 1
raw = \'\'\'
one
two\'\'\'
quoted = """say "yes""""
last = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("pipeline",), 4),
        (("pipeline", "name"), 5),
        (("pipeline", "kafka", "bootstrap", "servers"), 6),
        (("pipeline", "kafka.security.protocol"), 7),
        (("pipeline", "spark"), 8),
        (("pipeline", "spark", "sql", "shuffle", "partitions"), 9),
        (("sink", 0), 11),
        (("sink", 0, "topic"), 12),
        (("sink", 0, "columns", 1), 15),
        (("sink", 0, "options"), 17),
        (("sink", 0, "options", "header"), 18),
        (("sink", 1), 19),
        (("sink", 1, "with", "se cond", 1), 20),
        (("sink", 1, "with", "third", "deep"), 20),
        (("sink", 2), 21),
        (("sink", 2, "sql"), 22),
        (("sink", 2, "after"), 27),
        (("sink", 2, "last"), 32),
    ],
)
def test_every_key_has_its_line(path: Path, line: int) -> None:
    assert locate(TEXT)[path].line == line


def test_a_string_tells_the_line_of_each_of_its_lines() -> None:
    """A line that goes on after a backslash is one line; an escaped newline is two lines on one."""
    found = locate(TEXT)
    assert found["sink", 2, "sql"].text_lines == (23, 25, 26, 26)
    assert found["sink", 2, "raw"].text_lines == (29, 30)
    assert found["title",].text_lines == (2,)
    sql = tomllib.loads(TEXT)["sink"][2]["sql"]
    assert len(sql.split("\n")) == 4


def test_lines_of_windows_count_once() -> None:
    assert locate('a = 1\r\nb = """\r\nx\r\ny"""\r\nc = 1\r\n')["c",].line == 5


names = st.text(st.sampled_from("ab_-1 .\"'\\é"), min_size=1, max_size=4)


def every_path(value: Any, path: Path = ()) -> set[Path]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path} | {found for key, part in parts for found in every_path(part, (*path, key))}


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


values = st.recursive(
    st.one_of(
        st.integers(),
        st.booleans(),
        st.text(st.sampled_from("ab#[]{}=\"'\\ \n"), max_size=6),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)


def written(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{quoted(key)} = {written(part)}" for key, part in value.items()) + "}"
    return str(value)


@given(st.lists(st.dictionaries(names, values, max_size=3), min_size=1, max_size=3))
def test_whatever_the_parser_finds_has_a_line(tables: list[dict[str, Any]]) -> None:
    lines = []
    expected: dict[Path, int] = {}
    for index, table in enumerate(tables):
        lines.append("[[table]]  # begins")
        expected["table", index] = len(lines)
        for key, value in table.items():
            lines.append(f"{quoted(key)} = {written(value)}")
            expected["table", index, key] = len(lines)
    text = "\n".join(lines)
    found = locate(text)
    assert every_path(tomllib.loads(text)) - {()} == set(found)
    assert {path: found[path].line for path in expected} == expected
