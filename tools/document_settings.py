"""Writes the tables of docs/*-settings.md from the code: `python -m tools.document_settings`.

The pages are written by hand around them. Each table stands between two comments that name it; a test holds the pages
to what this module makes.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.foreign_settings import remedies
from oncelog.client.producer_config import ACKS_ALL, ProducerConfig
from oncelog.client.settings import dotted, kinds_of

DOCS = Path(__file__).parent.parent / "docs"


@dataclass(frozen=True)
class Page:
    path: Path
    config: type[Any]
    client: str

    def filled_in(self, text: str) -> str:
        """The page with its tables as the code says."""
        for name, content in {
            "settings": settings_table(self.config),
            "refused": refused_table(remedies(self.client)),
        }.items():
            begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
            before, _, rest = text.partition(begin)
            _, found, after = rest.partition(end)
            assert found, f"the page has no place for the table of {name}"
            text = f"{before}{begin}\n{content}\n{end}{after}"
        return text


PAGES = (
    Page(DOCS / "producer-settings.md", ProducerConfig, "producer"),
    Page(DOCS / "consumer-settings.md", ConsumerConfig, "consumer"),
)


def settings_table(config: type[Any]) -> str:
    meanings, kinds = field_docstrings(config), kinds_of(config)
    rows = [
        (f"`{dotted(each.name)}`", default_text(each.name, each.default), kinds[each.name].allowed, meanings[each.name])
        for each in fields(config)
    ]
    return table(("key", "default", "allowed", "meaning"), rows)


def refused_table(remedies: Mapping[str, str]) -> str:
    keys: dict[str, list[str]] = {}
    for key, remedy in remedies.items():
        keys.setdefault(remedy, []).append(f"`{key}`")
    return table(("key", "what to do"), [(", ".join(alike), remedy) for remedy, alike in keys.items()])


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
    if value in (None, (), ""):
        return ""
    if name == "acks" and value == ACKS_ALL:
        return "`all`"
    if isinstance(value, Enum):
        return f"`{value.name.lower()}`"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    for page in PAGES:
        page.path.write_text(page.filled_in(page.path.read_text()))
