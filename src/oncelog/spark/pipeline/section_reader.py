"""What reading every kind of section needs: values by key, names in use, defaults for clients, problems so far.

Knows no section in particular. Collects problems rather than raise them, so that a file is fixed in one go.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.client.settings import nearest
from oncelog.spark.pipeline import schema
from oncelog.spark.pipeline.document import Document, Problem, Section
from oncelog.spark.pipeline.values import BOOTSTRAP

MISSING: Final = "missing"
"""Stands for a text that is not there, in a pipeline that is refused in the end."""

_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(slots=True)
class SectionReader:
    document: Document
    folder: str
    bootstrap_servers: str
    problems: list[Problem] = field(default_factory=list)
    spoiled: list[Section] = field(default_factory=list)
    """Those with a problem: what was read from them is not what was meant."""
    views: dict[str, str] = field(default_factory=dict)
    """Names that SQL may use so far, by their lower-case form: Spark does not tell them apart by case."""

    def client_settings(self, section: Section) -> dict[str, str]:
        """Those of the pipeline count for all that do not say otherwise."""
        everywhere = schema.below(self.document.pipeline.entries, schema.KAFKA, keep_prefix=True)
        own = schema.below(section.entries, schema.KAFKA, keep_prefix=True)
        return as_options({BOOTSTRAP: self.bootstrap_servers, **everywhere, **own})

    def options_of(self, section: Section, keys: schema.Keys) -> dict[str, str]:
        """Those of the data source, by its own names."""
        found = ((keys.find(key), entry.value) for key, entry in section.entries.items())
        return {
            key.name: schema.option_text(value)
            for key, value in found
            if key is not None and key.kind is schema.Kind.OPTION and key not in keys.below
        }

    def name(self, section: Section, default: str, *, alone: bool) -> str:
        if section.name is None and not alone:
            self.wrong(section, f'needs "name": there are several {default}s, and each is known by its own')
        return section.name or default

    def new_view(self, section: Section, name: str, *keys: str) -> str:
        if _VIEW_NAME.fullmatch(name) is None:
            self.wrong(
                section, f'"{name}" is not a name for SQL: letters, digits and "_", no digit first', *keys, "name"
            )
        elif name.lower() in self.views:
            self.wrong(section, f'"{name}" is the name of another source or step', *keys, "name")
        self.views[name.lower()] = name
        return name

    def path(self, path: str) -> str:
        return path if "://" in path else posixpath.normpath(posixpath.join(self.folder, path))

    def required(self, section: Section, key: str, meaning: str) -> str:
        value = self.text(section, key)
        if value is None and key not in section.entries:
            self.wrong(section, f'needs "{key}": {meaning}')
        return value or MISSING

    def text(self, section: Section, key: str) -> str | None:
        value = self.value(section, key)
        return value if isinstance(value, str) else None

    def value(self, section: Section, key: str) -> Any:
        entry = section.entries.get(key)
        return None if entry is None else entry.value

    def check_keys(self, section: Section, keys: schema.Keys) -> bool:
        """False: it makes no sense to look at the section as a whole."""
        found = schema.problems_of(section, keys)
        for problem in found:
            self.note(section, problem)
        return not found

    def file_name(self, section: Section, name: str) -> str:
        if _FILE_NAME.fullmatch(name) is not None:
            return name
        self.wrong(section, f'"name" has letters, digits, ".", "_" and "-", not {name!r}', "name")
        return MISSING

    def note(self, section: Section, problem: Problem | None) -> None:
        if problem is not None:
            self.problems.append(problem)
            self.spoiled.append(section)

    def wrong(self, section: Section, text: str, *keys: str) -> None:
        self.note(section, section.problem(text, *keys))

    def inputs(self, section: Section, latest: Sequence[str]) -> tuple[str, ...]:
        named = schema.listed(self.value(section, "from"))
        for name in named:
            self.check_reference(section, name)
        if not named and len(latest) > 1:
            self.wrong(section, f'needs "from": which of {", ".join(latest)} does it take?')
        return named or tuple(latest[:1])

    def check_reference(self, section: Section, name: str) -> None:
        if name.lower() in self.views:
            return
        near = nearest(name.lower(), self.views)
        hint = f'; did you mean "{self.views[near]}"?' if near else f"; there are {', '.join(self.views.values())}"
        self.wrong(section, f'"from": no source or earlier step is named "{name}"{hint}', "from")


def as_options(values: dict[str, Any]) -> dict[str, str]:
    return {key: schema.option_text(value) for key, value in values.items()}
