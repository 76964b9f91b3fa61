"""Writes the tables of docs/producer-settings.md from the code: `python -m tools.document_settings`.

The page is written by hand around them. Each table stands between two comments that name it; a test holds the page to
what this module makes.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from oncelog.client.producer_config import ACKS_ALL, ELSEWHERE, ProducerConfig
from oncelog.client.settings import dotted, kinds_of

PAGE = Path(__file__).parent.parent / "docs" / "producer-settings.md"


def settings_table() -> str:
    meanings, kinds = field_docstrings(ProducerConfig), kinds_of(ProducerConfig)
    rows = [
        (f"`{dotted(each.name)}`", default_text(each.name, each.default), kinds[each.name].allowed, meanings[each.name])
        for each in fields(ProducerConfig)
    ]
    return table(("key", "default", "allowed", "meaning"), rows)


def refused_table() -> str:
    rows = [(f"`{dotted(key)}{'*' if key.endswith('_') else ''}`", remedy) for key, remedy in ELSEWHERE.items()]
    return table(("key", "what to do"), rows)


def field_docstrings(config: type[Any]) -> dict[str, str]:
    """The text under each field, on one line. Python itself throws it away."""
    (definition,) = ast.parse(inspect.getsource(config)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(about))):
                found[name] = " ".join(about.split())
    return found


def default_text(name: str, value: Any) -> str:
    if value is MISSING:
        return "required"
    if value in (None, ()):
        return ""
    if name == "acks" and value == ACKS_ALL:
        return "`all`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def filled_in(page: str) -> str:
    for name, content in {"settings": settings_table(), "refused": refused_table()}.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"the page has no place for the table of {name}"
        page = f"{before}{begin}\n{content}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled_in(PAGE.read_text()))
