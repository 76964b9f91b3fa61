"""Tables: real ones, with a caption, headings, names of rows, and numbers that line up. Pure."""

from __future__ import annotations

from oncelog.report.markup import Markup, element
from oncelog.report.numbers import exact
from oncelog.report.values import MAX_ROWS, Cell, Table, Toned


def draw_table(table: Table) -> Markup:
    numeric = [_is_numeric(table, column) for column in range(len(table.columns))]
    heads = [
        element("th", {"scope": "col", "class": "number" if numeric[at] else None}, name)
        for at, name in enumerate(table.columns)
    ]
    parts = [
        element("caption", {}, table.title),
        element("thead", {}, element("tr", {}, *heads)),
        element("tbody", {}, *(_row(row, numeric) for row in table.rows[:MAX_ROWS])),
    ]
    if table.total is not None:
        parts.append(element("tfoot", {}, _row(table.total, numeric)))
    reach = {"class": "wide", "tabindex": "0", "role": "group", "aria-label": table.title}
    drawn = element("div", reach, element("table", {}, *parts))
    notes = [element("p", {"class": "note"}, note) for note in (table.note, _left_out(table)) if note]
    whole = element("div", {"class": "table"}, drawn, *notes)
    if not table.folded:
        return whole
    return element("details", {}, element("summary", {}, table.title), whole)


def _row(cells: tuple[Cell, ...], numeric: list[bool]) -> Markup:
    if len(cells) != len(numeric):
        raise ValueError(f"a row has {len(cells)} cells, the table {len(numeric)} columns: {cells}")
    drawn = []
    for at, cell in enumerate(cells):
        tag, scope = ("th", "row") if at == 0 else ("td", None)
        kinds = [name for name, is_so in (("number", numeric[at]), (_tone(cell), bool(_tone(cell)))) if is_so]
        drawn.append(element(tag, {"scope": scope, "class": " ".join(kinds) or None}, _words(cell)))
    return element("tr", {}, *drawn)


def _words(cell: Cell) -> str:
    value = cell.value if isinstance(cell, Toned) else cell
    if value is None:
        return ""
    return value if isinstance(value, str) else exact(value)


def _tone(cell: Cell) -> str:
    return f"tone-{cell.tone}" if isinstance(cell, Toned) else ""


def _is_numeric(table: Table, column: int) -> bool:
    """Whether the column's cells are numbers, as values or in words such as "1.5 s"; names of rows are not."""
    if column == 0:
        return False
    cells = [_words(row[column]) for row in table.rows[:MAX_ROWS] if column < len(row)]
    return bool(cells) and all(cell[:1].isdigit() or cell[:1] in "-" for cell in cells)


def _left_out(table: Table) -> str:
    beyond = len(table.rows) - MAX_ROWS
    return f"The first {MAX_ROWS:,} rows; {beyond:,} more are left out." if beyond > 0 else ""
