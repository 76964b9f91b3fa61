"""What the tools are asked to do, checked before Spark sees it: columns, and lengths of time.

Errors name what was found and the nearest thing that exists. Nothing here needs a running Spark.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from oncelog.errors import OncelogError

LIKENESS: Final = 0.5
HELPER: Final = "__oncelog_"
"""Columns that a tool adds for itself, and takes away again, begin like this."""
WATERMARK_DELAY: Final = "spark.watermarkDelayMs"
"""Where Spark notes, in a column's metadata, that it has a watermark."""
EVENT_TIMES: Final = (TimestampType, TimestampNTZType)
WHOLE_NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType)
VERSIONS: Final = (*WHOLE_NUMBERS, *EVENT_TIMES, DateType)

_UNIT_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_LENGTH: Final = re.compile(r"\s*(\d+)\s*([a-z]+?)s?\s*", re.IGNORECASE)


class BadArgument(OncelogError):
    """A tool was given something that it cannot work with. No query was made."""


def named(names: str | Sequence[str], what: str) -> tuple[str, ...]:
    """One name or several, each once."""
    found = (names,) if isinstance(names, str) else tuple(names)
    if not found or not all(isinstance(name, str) and name for name in found):
        raise BadArgument(f"{what} is a column's name, or a list of names, not {names!r}")
    if len(set(found)) != len(found):
        raise BadArgument(f"{what} names a column twice: {', '.join(found)}")
    return found


def field_of(schema: StructType, name: str, what: str) -> StructField:
    """The column of that name, as Spark finds it: whatever the case of its letters."""
    found = [field for field in schema.fields if field.name.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadArgument(f"{what} is {name!r}, and several columns are called so: rename all but one")
    outer = name.partition(".")[0]
    if outer != name and outer in schema.names:
        raise BadArgument(
            f"{what} is {name!r}, a field inside the column {outer!r}: make it a column first, such as with "
            f"df.select('*', {name!r})"
        )
    raise BadArgument(f"{what}: there is no column {name!r}{nearest(name, schema.names)}")


def fields_of(schema: StructType, names: Iterable[str], what: str) -> list[StructField]:
    return [field_of(schema, name, what) for name in names]


def typed_field(
    schema: StructType, name: str, what: str, types: tuple[type[DataType], ...], expected: str
) -> StructField:
    field = field_of(schema, name, what)
    if not isinstance(field.dataType, types):
        raise BadArgument(f"{what} {name!r} is {field.dataType.simpleString()}; it must be {expected}")
    return field


def free_name(schema: StructType, name: str, what: str) -> str:
    """A column to add must not hide one that is there."""
    if name.lower() in (taken.lower() for taken in schema.names):
        raise BadArgument(f"{what} would be called {name!r}, and there is a column of that name: choose another")
    return name


def watermark_ms(schema: StructType, event_time: str) -> int | None:
    delay = field_of(schema, event_time, "event_time").metadata.get(WATERMARK_DELAY)
    return None if delay is None else int(delay)


def quoted(name: str) -> str:
    """For Spark, which takes a dot in a name for a field of a struct."""
    return f"`{name.replace('`', '``')}`"


def one_of(value: str, allowed: Collection[str], what: str) -> str:
    if value not in allowed:
        raise BadArgument(f"{what} is one of {', '.join(sorted(allowed))}, not {value!r}{nearest(value, allowed)}")
    return value


def milliseconds(length: str, what: str) -> int:
    """Of "90 seconds", "1 hour", "7 days"."""
    match = _LENGTH.fullmatch(length) if isinstance(length, str) else None
    unit = _UNIT_MS.get(match[2].lower()) if match else None
    if match is None or unit is None or int(match[1]) == 0:
        raise BadArgument(f"{what} is a length of time such as '90 seconds', '1 hour' or '7 days', not {length!r}")
    return int(match[1]) * unit


def nearest(name: str, known: Collection[str]) -> str:
    """The end of an error: what was probably meant, or all there is."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=LIKENESS)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
