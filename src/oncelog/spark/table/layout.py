"""Where rows go: the target's columns, how each is kept while staged, and whether the table can take them. Pure.

Staged columns are named by their place (c0, c1, ...): no name of the user's can collide with what staging adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oncelog.spark.table.columns import Column, Kind
from oncelog.spark.table.errors import UnfitTable
from oncelog.spark.table.names import TableName
from oncelog.spark.table.settings import Insert, Upsert


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of the table as the database describes it."""

    name: str
    type: str
    sql_type: str
    """The same, as a cast must write it."""
    is_required: bool = False
    """Neither null nor a default is possible: every row must bring it."""
    is_computed: bool = False
    is_free: bool = False
    """PostgreSQL: an enumeration and the like, which text can be cast to."""
    precision: int | None = None
    scale: int | None = None
    collation: str | None = None
    """PostgreSQL: of text, as COLLATE writes it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A table as the database describes it. `name` says in which schema it was found."""

    name: TableName
    columns: Mapping[str, FoundColumn]
    unique: frozenset[frozenset[str]]


@dataclass(frozen=True, slots=True)
class Layout:
    """`columns` are those that are staged. `casts`: by column, the type of the target that the staged value is cast to,
    where it must be said; `collations` likewise, where a value is compared with the target's."""

    target: TableName
    columns: tuple[Column, ...]
    write: Upsert | Insert
    overwrite: bool = False
    casts: tuple[str | None, ...] = ()
    collations: tuple[str | None, ...] = ()

    @property
    def delete_when(self) -> str | None:
        return self.write.delete_when if isinstance(self.write, Upsert) else None

    @property
    def written(self) -> tuple[Column, ...]:
        """The columns that the target has."""
        return tuple(column for column in self.columns if column.name != self.delete_when)

    def place(self, name: str) -> int:
        return next(place for place, column in enumerate(self.columns) if column.name == name)

    @property
    def unique(self) -> tuple[str, ...]:
        return self.write.key if isinstance(self.write, Upsert) else self.write.message_id

    @property
    def has_ordinals(self) -> bool:
        """Of rows with one key the last or the first counts, so their order within a task is kept."""
        return isinstance(self.write, Upsert)


def check_fit(layout: Layout, found: Found, misfits: Sequence[str]) -> None:
    """`misfits`: what the dialect says of single columns."""
    told = list(misfits)
    for column in layout.written:
        if column.name not in found.columns:
            told.append(f"it has no column {column.name!r} ({_near(column.name, found)})")
        elif found.columns[column.name].is_computed:
            told.append(f"its column {column.name!r} is computed by the database; leave it out")
    names = {column.name for column in layout.written}
    told += [
        f"its column {one.name!r} is NOT NULL and has no default, and the query does not write it"
        for one in found.columns.values()
        if one.is_required and one.name not in names
    ]
    if layout.unique and frozenset(layout.unique) not in found.unique:
        columns = ", ".join(layout.unique)
        told.append(f"no primary key or unique index is on exactly ({columns}), which makes a row be found; create one")
    if told:
        raise UnfitTable(f"the table {found.name} cannot take the query's rows: {'; '.join(told)}")


def _near(name: str, found: Found) -> str:
    same = [other for other in found.columns if other.lower() == name.lower()]
    return f"but {same[0]!r}: names are compared exactly" if same else f"it has {', '.join(found.columns)}"


def check_creatable(columns: Sequence[Column]) -> None:
    for column in columns:
        if column.kind is Kind.NOTHING:
            raise UnfitTable(f"column {column.name!r} is of type void, which no column can be made from: cast it")
