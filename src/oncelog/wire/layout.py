"""Which fields a version of a message has, in which order and encoding, and how small they can be."""

from __future__ import annotations

import struct
from itertools import groupby

from oncelog.wire.schema import Field

FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
}
"""Types of fixed size, with their letter in `struct`."""

UUID_BYTES = 16


def plain_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    return [field for field in fields if field.versions.includes(version) and not field.tagged.includes(version)]


def tagged_fields(fields: tuple[Field, ...], version: int) -> list[Field]:
    tagged = [field for field in fields if field.versions.includes(version) and field.tagged.includes(version)]
    return sorted(tagged, key=lambda field: field.tag)


def fixed_runs(fields: list[Field]) -> list[tuple[bool, list[Field]]]:
    """Neighbours of fixed size together, every other field alone."""
    runs: list[tuple[bool, list[Field]]] = []
    for fixed, group in groupby(fields, key=lambda field: field.type in FIXED):
        members = list(group)
        runs += [(True, members)] if fixed else [(False, [field]) for field in members]
    return runs


def is_flexible(field: Field, version: int, flexible: bool) -> bool:
    return flexible if field.flexible is None else field.flexible.includes(version)


def least_bytes(fields: tuple[Field, ...], version: int, flexible: bool) -> int:
    """The size of a struct whose strings and arrays are all empty: what one more array element costs at least."""
    size = sum(least_field_bytes(field, version, flexible) for field in plain_fields(fields, version))
    return size + 1 if flexible else size


def least_field_bytes(field: Field, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.type in FIXED:
        return struct.calcsize(">" + FIXED[field.type])
    if field.is_struct:
        nullable = field.nullable.includes(version)
        return 1 if nullable else least_bytes(field.fields, version, flexible)
    if field.type == "uuid":
        return UUID_BYTES
    return 1 if flexible else {"string": 2, "bytes": 4, "records": 4}[field.type]
