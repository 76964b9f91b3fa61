"""Names: how a table is written, and which staging areas belong to a sink. Pure text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.spark.options import BadOption

STAGE_PREFIX: Final = "oncelog_stage_"
SINK_DIGEST_BYTES: Final = 8
MAX_NAME_BYTES: Final = 63
"""PostgreSQL cuts longer names off without a word."""

ABANDONED_MS: Final = 3 * 24 * 3600 * 1000
"""After which a staging area counts as left behind, though its sink has not come again: no batch takes this long."""

_PART: Final = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class TableName:
    name: str
    schema: str | None = None

    @staticmethod
    def parse(text: str) -> TableName:
        """`orders`, `shop.orders` or `"My Shop"."Orders, all"`: each part means exactly what it says, in its case."""
        parts, rest = [], text.strip()
        while True:
            found = _PART.match(rest)
            if found is None:
                raise _wrong(text)
            parts.append(found[1].replace('""', '"') if found[1] is not None else found[2].strip())
            if not (rest := rest[found.end() :]):
                break
            if not rest.startswith("."):
                raise _wrong(text)
            rest = rest[1:]
        if len(parts) > 2 or not all(parts) or any("\0" in part for part in parts):
            raise _wrong(text)
        if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
            raise BadOption(f"the table's name {text!r} is longer than {MAX_NAME_BYTES} bytes")
        return TableName(parts[-1], parts[0] if len(parts) == 2 else None)

    def beside(self, name: str) -> TableName:
        """Another table in the same schema."""
        return TableName(name, self.schema)

    @property
    def sql(self) -> str:
        return quote(self.name) if self.schema is None else f"{quote(self.schema)}.{quote(self.name)}"

    def __str__(self) -> str:
        return self.sql


def _wrong(text: str) -> BadOption:
    return BadOption(f'{text!r} is not the name of a table: give table, schema.table, or "quoted"."parts"')


def stage_family(sink: str) -> str:
    """What the names of all staging areas of a sink begin with; no other sink's do."""
    return f"{STAGE_PREFIX}{hashlib.blake2b(sink.encode(), digest_size=SINK_DIGEST_BYTES).hexdigest()}_"


def stage_name(sink: str, epoch: int) -> str:
    return f"{stage_family(sink)}{epoch}"


@dataclass(frozen=True, slots=True)
class PlannedSink:
    """A sink as the ledger knows it: its last plan, and how long ago that was by the clock of the database."""

    name: str
    epoch: int
    age_ms: int


def to_sweep(names: Iterable[str], sinks: Iterable[PlannedSink]) -> list[str]:
    """The staging areas that nobody needs: of a plan that another one of its sink has followed, or of one so old that
    whoever made it is gone. Areas of sinks that the ledger does not know are left alone."""
    planned = {stage_family(one.name): one for one in sinks}
    return [name for name in names if _is_left_behind(name, planned)]


def _is_left_behind(name: str, planned: Mapping[str, PlannedSink]) -> bool:
    family, separator, number = name.rpartition("_")
    sink = planned.get(family + separator)
    if sink is None or not (number.isascii() and number.isdigit()):
        return False
    return int(number) < sink.epoch or (int(number) == sink.epoch and sink.age_ms >= ABANDONED_MS)
