"""Lays out a table in the width of a terminal without ever breaking a word. Values in, lines out.

The first of these that fits is taken: with lines around the cells; the same, with cells wrapped at spaces; without
lines; without lines and wrapped; all of that without columns that can be spared; each row as a list of its fields.
Where even a word is wider than the terminal, the terminal wraps it: what is copied from there is whole.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

GAP = "  "


class Style(NamedTuple):
    """What stands around the cells. A rule is (left, fill, between, right); None where there is none."""

    left: str
    between: str
    right: str
    head: tuple[str, str, str]
    top: tuple[str, str, str, str] | None = None
    below_head: tuple[str, str, str, str] | None = None
    bottom: tuple[str, str, str, str] | None = None
    between_rows: tuple[str, str, str, str] | None = None

    def width_of(self, columns: int) -> int:
        """All that is not cells."""
        return len(self.left) + len(self.between) * (columns - 1) + len(self.right.rstrip())


PLAIN = Style("", GAP, "", ("", GAP, ""))
BOXED = Style(
    "│ ",
    " │ ",
    " │",
    ("┃ ", " ┃ ", " ┃"),
    ("┏━", "━", "━┳━", "━┓"),
    ("┡━", "━", "━╇━", "━┩"),
    ("└─", "─", "─┴─", "─┘"),
    ("├─", "─", "─┼─", "─┤"),
)
_DASHES = ("+-", "-", "-+-", "-+")
ASCII = Style("| ", " | ", " |", ("| ", " | ", " |"), _DASHES, _DASHES, _DASHES, _DASHES)


class Table(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    to_the_right: Sequence[bool]
    has_total: bool = False
    """Whether the last row is the sum of the others."""
    colour_of: Callable[[int, str], str | None] | None = None
    """The colour of a cell by its column's number and its text, as a terminal's code; for terminals only."""

    @classmethod
    def of(cls, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        """Columns whose cells are all numbers are aligned to the right."""
        right = [bool(rows) and all(_is_number(row[index]) for row in rows) for index in range(len(columns))]
        return cls(columns, rows, right)


def _is_number(text: str) -> bool:
    return text.replace(",", "").lstrip("-").isdigit()


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def plain_lines(table: Table) -> Iterator[str]:
    """For a pipe: as wide as it takes, headings in capitals."""
    table = table._replace(columns=[name.upper() for name in table.columns], colour_of=None)
    return _drawn(table, PLAIN, _natural_widths(table))


def fitting_lines(table: Table, width: int, style: Style = BOXED, expendable: Sequence[str] = ()) -> Iterator[str]:
    """For a terminal so many columns wide. Columns that are expendable are left out, one after the other, and named,
    before rows become lists."""
    for count in range(len(expendable) + 1):
        lines = _as_table(_without(table, expendable[:count]), width, style)
        if lines is not None:
            yield from lines
            if count:
                yield f"(too narrow for: {', '.join(expendable[:count])})"
            return
    yield from _records(table)


def _without(table: Table, names: Sequence[str]) -> Table:
    kept = [index for index, name in enumerate(table.columns) if name not in names]
    return table._replace(
        columns=[table.columns[index] for index in kept],
        rows=[[row[index] for index in kept] for row in table.rows],
        to_the_right=[table.to_the_right[index] for index in kept],
    )


def _as_table(table: Table, width: int, style: Style) -> Iterator[str] | None:
    for chosen in (style, PLAIN):
        names = [name.upper() for name in table.columns] if chosen is PLAIN else table.columns
        drawn = table._replace(columns=names)
        widths = _fitted(drawn, width - chosen.width_of(len(names)))
        if widths is not None:
            return _drawn(drawn, chosen, widths)
    return None


def _natural_widths(table: Table) -> list[int]:
    return [max(map(display_width, cells)) for cells in _by_column(table)]


def _by_column(table: Table) -> Iterator[tuple[str, ...]]:
    return zip(table.columns, *table.rows, strict=True)


def _fitted(table: Table, available: int) -> list[int] | None:
    """How wide each column is to be; None if a word would have to be broken."""
    natural = _natural_widths(table)
    if sum(natural) <= available:
        return natural
    widths = [max(display_width(word) for cell in cells for word in cell.split(" ")) for cells in _by_column(table)]
    left = available - sum(widths)
    if left < 0:
        return None
    # Whoever lacks least gets it first: as many columns as possible stay on one line.
    for index in sorted(range(len(widths)), key=lambda index: natural[index] - widths[index]):
        more = min(left, natural[index] - widths[index])
        widths[index] += more
        left -= more
    return widths


def _drawn(table: Table, style: Style, widths: Sequence[int]) -> Iterator[str]:
    if style.top:
        yield _rule(style.top, widths)
    yield from _line_of_cells(table.columns, widths, table.to_the_right, style.head)
    if style.below_head:
        yield _rule(style.below_head, widths)
    for number, row in enumerate(table.rows):
        if table.has_total and number == len(table.rows) - 1 and style.between_rows:
            yield _rule(style.between_rows, widths)
        yield from _line_of_cells(row, widths, table.to_the_right, style[:3], table.colour_of)
    if style.bottom:
        yield _rule(style.bottom, widths)


def _rule(rule: tuple[str, str, str, str], widths: Sequence[int]) -> str:
    left, fill, between, right = rule
    return left + between.join(fill * width for width in widths) + right


def _line_of_cells(
    cells: Iterable[str],
    widths: Sequence[int],
    to_the_right: Sequence[bool],
    around: tuple[str, str, str],
    colour_of: Callable[[int, str], str | None] | None = None,
) -> Iterator[str]:
    """One line, or several if a cell is wrapped."""
    left, between, right = around
    wrapped = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, wrapped), default=0)):
        parts = [
            _padded(lines[number] if number < len(lines) else "", width, right_aligned)
            for lines, width, right_aligned in zip(wrapped, widths, to_the_right, strict=True)
        ]
        if colour_of is not None:
            colours = [colour_of(index, lines[0]) for index, lines in enumerate(wrapped)]
            parts = [
                f"\x1b[{colour}m{part}\x1b[0m" if colour else part for part, colour in zip(parts, colours, strict=True)
            ]
        yield (left + between.join(parts) + right).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    if display_width(text) <= width:
        return [text]
    lines: list[str] = []
    for word in text.split(" "):
        if lines and display_width(lines[-1]) + 1 + display_width(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _padded(text: str, width: int, right_aligned: bool) -> str:
    space = " " * (width - display_width(text))
    return space + text if right_aligned else text + space


def _records(table: Table) -> Iterator[str]:
    """A row after the other, each field on a line of its own."""
    widest = max(map(display_width, table.columns))
    for number, row in enumerate(table.rows):
        if number:
            yield ""
        for name, cell in zip(table.columns, row, strict=True):
            yield f"{name}{' ' * (widest - display_width(name))}{GAP}{cell}".rstrip()
    if not table.rows:
        yield GAP.join(table.columns)
