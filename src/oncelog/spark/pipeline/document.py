"""A pipeline file as sections of flat keys, each with the place it came from, overrides applied.

Owns the step from text to sections, and what a problem looks like. `kafka.bootstrap.servers = "h"`, the same key in
quotes, and a table `[source.kafka]` all become one key. Never judges which keys there are: that is the schema's.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.client.settings import nearest
from oncelog.errors import OncelogError
from oncelog.spark.pipeline.toml_lines import Path, Spot, locate

KINDS: Final = ("pipeline", "source", "step", "sink")
ARGUMENTS: Final = "with"
"""The arguments of a function: their values stay as they are written, tables included."""

_SYNTAX_ERROR = re.compile(r"(?P<text>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Where:
    """A line of the file, or the option of the command that set the key."""

    origin: str
    line: int | None = None

    def __str__(self) -> str:
        return self.origin if self.line is None else f"{self.origin}:{self.line}"


@dataclass(frozen=True, slots=True)
class Problem:
    where: Where
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class InvalidPipeline(OncelogError):
    """The pipeline cannot run as it is written. Nothing was started."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Of the file; each once."""
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.where.line or 0)


@dataclass(frozen=True, slots=True)
class Entry:
    value: Any
    where: Where
    text_lines: tuple[int, ...] = ()

    def line_of(self, index: int) -> Where:
        """The place of a line inside a text, counted from 0."""
        if not self.text_lines:
            return self.where
        return replace(self.where, line=self.text_lines[min(index, len(self.text_lines) - 1)])


@dataclass(frozen=True, slots=True)
class Section:
    kind: str
    where: Where
    entries: Mapping[str, Entry]

    @property
    def name(self) -> str | None:
        entry = self.entries.get("name")
        return entry.value if entry is not None and isinstance(entry.value, str) else None

    @property
    def label(self) -> str:
        return f"[{self.kind}]" if self.name is None or self.kind == "pipeline" else f"[{self.kind} {self.name}]"

    def at(self, *keys: str) -> Where:
        """Where the first of these keys stands that is there, else where the section begins."""
        return next((self.entries[key].where for key in keys if key in self.entries), self.where)

    def problem(self, text: str, *keys: str) -> Problem:
        return Problem(self.at(*keys), f"{self.label} {text}")


@dataclass(frozen=True, slots=True)
class Document:
    file: str
    pipeline: Section
    sources: tuple[Section, ...]
    steps: tuple[Section, ...]
    sinks: tuple[Section, ...]


def read_document(text: str, file: str, overrides: Iterable[tuple[str, str]] = ()) -> Document:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidPipeline([_syntax_problem(str(error), text, file)]) from None
    problems: list[Problem] = []
    sections = _sections(tables, locate(text), file, problems)
    for key, value in overrides:
        _override(sections, key, value, problems)
    if not sections["pipeline"]:
        sections["pipeline"] = [Section("pipeline", Where(file, 1), {})]
    elif len(sections["pipeline"]) > 1:
        problems.append(Problem(sections["pipeline"][1].where, "a file describes one [pipeline]"))
    if problems:
        raise InvalidPipeline(problems)
    return Document(
        file, sections["pipeline"][0], tuple(sections["source"]), tuple(sections["step"]), tuple(sections["sink"])
    )


def _syntax_problem(message: str, text: str, file: str) -> Problem:
    found = _SYNTAX_ERROR.fullmatch(message)
    if found is None:
        return Problem(Where(file), f"this is no TOML: {message}")
    line = int(found["line"]) if found["line"] else text.count("\n") + 1
    return Problem(Where(file, line), f"this is no TOML: {found['text']}")


def _sections(
    tables: Mapping[str, Any], spots: Mapping[Path, Spot], file: str, problems: list[Problem]
) -> dict[str, list[Section]]:
    sections: dict[str, list[Section]] = {kind: [] for kind in KINDS}
    for kind, value in tables.items():
        where = Where(file, spots[kind,].line)
        listed = isinstance(value, list)
        members = value if listed else [value]
        if kind not in KINDS:
            problems.append(Problem(where, f'"{kind}": {_did_you_mean(kind)}'))
        elif not all(isinstance(member, dict) for member in members):
            problems.append(Problem(where, f'"{kind}" is a table: write [{kind}]'))
        else:
            for index, member in enumerate(members):
                path: Path = (kind, index) if listed else (kind,)
                sections[kind].append(_section(kind, member, path, spots, file, problems))
    return sections


def _did_you_mean(kind: str) -> str:
    near = nearest(kind, KINDS)
    return f'did you mean "{near}"?' if near else f"a pipeline has [{'], ['.join(KINDS)}] and nothing else"


def _section(
    kind: str, table: Mapping[str, Any], path: Path, spots: Mapping[Path, Spot], file: str, problems: list[Problem]
) -> Section:
    section = Section(kind, Where(file, spots[path].line), {})
    entries: dict[str, Entry] = {}
    for inner, value in _flat(table):
        spot = spots[path + inner]
        key = ".".join(inner)
        if key in entries:
            problems.append(Problem(Where(file, spot.line), f'{section.label} "{key}" is given twice'))
        entries[key] = Entry(value, Where(file, spot.line), spot.text_lines)
    return replace(section, entries=entries)


def _flat(table: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        path = (*prefix, key)
        if isinstance(value, dict) and (ARGUMENTS not in prefix):
            yield from _flat(value, path)
        else:
            yield path, value


def _override(sections: dict[str, list[Section]], key: str, text: str, problems: list[Problem]) -> None:
    where = Where(f"-o {key}")
    kind, _, rest = key.partition(".")
    if kind not in KINDS or not rest:
        problems.append(Problem(where, f"write SECTION.KEY=VALUE, where SECTION is one of {', '.join(KINDS)}"))
        return
    if kind == "pipeline" and not sections[kind]:
        sections[kind].append(Section(kind, where, {}))
    name, _, rest_after_name = rest.partition(".")
    members = sections[kind]
    index = next((i for i, section in enumerate(members) if section.name == name and rest_after_name), None)
    if index is not None:
        rest = rest_after_name
    elif len(members) == 1:
        index = 0
    else:
        names = ", ".join(section.name or "(unnamed)" for section in members) or "none"
        problems.append(Problem(where, f"which {kind}? Write {kind}.NAME.KEY=VALUE; there is {names}"))
        return
    section = members[index]
    members[index] = replace(section, entries={**section.entries, rest: Entry(_override_value(text), where)})


def _override_value(text: str) -> Any:
    """As in the file, where quotes around a text may be left out."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str | list) else text
