"""The columns that a query writes: what Spark calls their types, and what those are here. Pure; imports no Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from oncelog.spark.table.errors import UnfitTable


class Kind(StrEnum):
    """Named as Spark's SQL names them."""

    TEXT = "string"
    BYTES = "binary"
    INT8 = "tinyint"
    INT16 = "smallint"
    INT32 = "int"
    INT64 = "bigint"
    FLOAT32 = "float"
    FLOAT64 = "double"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    LOCAL_TIMESTAMP = "timestamp_ntz"
    DATE = "date"
    NOTHING = "void"


INTEGERS: Final = {Kind.INT8: 3, Kind.INT16: 5, Kind.INT32: 10, Kind.INT64: 19}
"""With the digits that each may have."""
ORDERED: Final = frozenset({*INTEGERS, Kind.DECIMAL, Kind.TIMESTAMP, Kind.LOCAL_TIMESTAMP, Kind.DATE})
"""Kinds of which a version may be: all values compare, and alike in every database."""

_TYPE: Final = re.compile(r"(?P<name>[a-z_]+)(?: collate \S+|\((?P<first>\d+)(?:,\s*(?P<second>\d+))?\))?")
_SAME: Final = {"varchar": Kind.TEXT, "char": Kind.TEXT}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    precision: int = 0
    scale: int = 0

    @property
    def type(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.kind is Kind.DECIMAL else self.kind.value


def columns_of(fields: Iterable[tuple[str, str]]) -> tuple[Column, ...]:
    """From names and Spark's simple names of types."""
    found = tuple(_column(name, type_name) for name, type_name in fields)
    names = [column.name for column in found]
    if not names:
        raise UnfitTable("the query has no columns: there is nothing to write")
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise UnfitTable(f"the query has two columns of one name: {', '.join(doubled)}; rename one")
    return found


def _column(name: str, type_name: str) -> Column:
    found = _TYPE.fullmatch(type_name)
    kind = None if found is None else _SAME.get(found["name"]) or _kind(found["name"])
    if found is None or kind is None:
        raise UnfitTable(
            f"column {name!r} is of type {type_name}, which a table cannot hold as it is: select its parts as columns "
            "of their own, or to_json() of it"
        )
    if kind is Kind.DECIMAL:
        return Column(name, kind, int(found["first"]), int(found["second"] or 0))
    return Column(name, kind)


def _kind(name: str) -> Kind | None:
    try:
        return Kind(name)
    except ValueError:
        return None
