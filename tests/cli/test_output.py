"""Tables that fit, errors as people and scripts get them, questions."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli import output
from oncelog.cli.output import confirm, print_table, show_error
from oncelog.cli.table import ASCII, Table, display_width, fitting_lines
from oncelog.errors import OncelogError, UnknownTopicOrPartition
from tests.cli.conftest import Typed

ROWS = [("orders", 3, (1, 2), None), ("a.long.name", 12, (), "x")]


def test_in_a_pipe_tables_are_plain_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "partitions", "isr", "rack"), ROWS, title="all topics")
    assert capsys.readouterr().out == (
        "all topics\n"
        "TOPIC        PARTITIONS  ISR  RACK\n"
        "orders                3  1,2  -\n"
        "a.long.name          12  -    x\n"
    )


def test_on_a_terminal_tables_have_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_table(("topic", "partitions"), [("[bold]not markup[/bold]", 3)])
    out = capsys.readouterr().out
    assert "┃" in out or "│" in out
    assert "[bold]not markup[/bold]" in out


def test_an_empty_table_has_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic",), [])
    assert capsys.readouterr().out == "TOPIC\n"


# --- tables in the width of a terminal --------------------------------------------------------------------------------


def lines_of(columns: tuple[str, ...], *rows: tuple[str, ...], width: int = 80) -> list[str]:
    return list(fitting_lines(Table.of(columns, rows), width, ASCII))


def test_what_fits_stands_on_one_line() -> None:
    assert lines_of(("topic", "count"), ("orders", "3")) == [
        "+--------+-------+",
        "| topic  | count |",
        "+--------+-------+",
        "| orders |     3 |",
        "+--------+-------+",
    ]


def test_what_does_not_fit_is_wrapped_between_words() -> None:
    lines = lines_of(("id", "partitions"), ("7", "orders-0 orders-1 orders-2"), width=26)
    assert lines[3:5] == ["|  7 | orders-0 orders-1 |", "|    | orders-2          |"]


def test_lines_around_cells_go_before_a_word_is_broken() -> None:
    row = ("orders", "0", "consumer-1-" + "x" * 20)
    assert lines_of(("topic", "partition", "member"), row, width=50) == [
        "TOPIC   PARTITION  MEMBER",
        f"orders          0  {row[2]}",
    ]


def test_rows_too_wide_for_any_table_become_lists() -> None:
    member = "consumer-1-" + "x" * 60
    rows = [("orders", "0", member), ("orders", "1", member)]
    assert lines_of(("topic", "partition", "member"), *rows, width=40) == [
        "topic      orders", "partition  0", f"member     {member}",
        "",
        "topic      orders", "partition  1", f"member     {member}",
    ]  # fmt: skip


def test_columns_that_can_be_spared_go_before_the_table_does() -> None:
    member = "consumer-1-" + "x" * 60
    table = Table.of(("topic", "lag", "member", "host"), [("orders", "3", member, "/127.0.0.1")])
    assert list(fitting_lines(table, 40, ASCII, ("member", "host")))[1:] == [
        "| topic  | lag | host       |",
        "+--------+-----+------------+",
        "| orders |   3 | /127.0.0.1 |",
        "+--------+-----+------------+",
        "(too narrow for: member)",
    ]
    assert list(fitting_lines(table, 18, ASCII, ("member", "host")))[-1] == "(too narrow for: member, host)"
    assert next(fitting_lines(table, 5, ASCII, ("member", "host"))) == "topic   orders"


WORDS = st.text("abc-0世", min_size=1, max_size=30)
CELLS = st.lists(WORDS, max_size=4).map(" ".join)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4), st.integers(20, 120))
def test_no_word_is_ever_broken_and_no_table_is_too_wide(rows: list[tuple[str, ...]], width: int) -> None:
    columns = ("producer id", "topic", "transactional id")
    lines = lines_of(columns, *rows, width=width)
    text = "\n".join(lines)
    for word in (word for row in rows for cell in row for word in cell.split()):
        assert word in text
    if any(display_width(line) > width for line in lines):
        assert lines[0].startswith(columns[0]), "only a list of fields may be wider than the terminal"


def test_audit_colours_and_totals_are_for_terminals() -> None:
    table = Table.of(("what", "lost"), [("a", "0"), ("total", "2")])
    table = table._replace(has_total=True, colour_of=lambda column, text: "31" if column and text != "0" else None)
    assert list(fitting_lines(table, 80, ASCII))[3:6] == [
        "| a     |    0 |",
        "+-------+------+",
        "| total | \x1b[31m   2\x1b[0m |",
    ]


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UnknownTopicOrPartition("topic 'a\x1bb' is gone"), r"topic 'a\x1bb' is gone (UNKNOWN_TOPIC_OR_PARTITION)"),
        (OncelogError("two\nlines"), r"two\nlines"),
        (FileNotFoundError(2, "No such file or directory", "x.toml"), "x.toml: No such file or directory"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (OSError("plain"), "plain"),
    ],
)
def test_an_error_is_one_line_without_numbers(capsys: pytest.CaptureFixture[str], error: Exception, line: str) -> None:
    show_error(error)
    assert capsys.readouterr().err == f"oncelog: {line}\n"


@pytest.mark.parametrize(
    ("error", "shape"),
    [
        (
            UnknownTopicOrPartition("no topic"),
            {"type": "UnknownTopicOrPartition", "name": "UNKNOWN_TOPIC_OR_PARTITION", "code": 3, "message": "no topic"},
        ),
        (OncelogError("no"), {"type": "OncelogError", "name": None, "code": None, "message": "no"}),
    ],
)
def test_the_shape_of_an_error_for_scripts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, shape: dict[str, object]
) -> None:
    monkeypatch.setattr(output._speech, "is_json", True)
    show_error(error)
    output.note("still waiting")
    first, second = capsys.readouterr().err.splitlines()
    assert json.loads(first) == {"error": shape}
    assert json.loads(second) == {"note": "still waiting"}


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["y\n", "YES\n", "perhaps\nyes\n"])
def test_whoever_agrees_goes_on(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(sys, "stdin", Typed(answer))
    confirm("delete it", yes=False)


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "maybe\nno\n"])
def test_whoever_does_not_agree_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Typed(answer))
    with pytest.raises(OncelogError, match="nothing was done"):
        confirm("delete a\x1bb", yes=False)
    assert r"delete a\x1bb? [y/N] " in capsys.readouterr().err


def test_nobody_is_asked_with_yes_or_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Typed("n\n"))
    confirm("delete it", yes=True)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    confirm("delete it", yes=False)
    with pytest.raises(OncelogError, match="add --yes"):
        confirm("abort it", yes=False, alone="nothing was done: add --yes")
