"""The statements of a table sink, and where the two databases say them differently. Pure text: opens nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from oncelog.spark.table.columns import Column, Kind
from oncelog.spark.table.layout import Found, Layout
from oncelog.spark.table.ledger import KEPT_BATCHES
from oncelog.spark.table.names import TableName, quote
from oncelog.spark.table.settings import Upsert

SINKS: Final = "oncelog_sinks"
BATCHES: Final = "oncelog_batches"
LEDGER: Final = (SINKS, BATCHES)
ATTEMPT: Final = "attempt"
ORDINAL: Final = "ordinal"


class Dialect(ABC):
    now_ms: ClassVar[str]
    for_update: ClassVar[str]
    staged_types: ClassVar[Mapping[Kind, str]]

    # --- what differs ------------------------------------------------------------------------------------------

    @abstractmethod
    def value(self, name: str) -> str:
        """Where the value of that name is filled in."""

    @abstractmethod
    def escaped(self, identifiers: str) -> str:
        """Quoted identifiers, safe against what the driver takes for the place of a value."""

    @abstractmethod
    def among_attempts(self) -> str: ...

    @abstractmethod
    def newest(self, layout: Layout, stage: str) -> str:
        """The staged rows to upsert, in an order and number that the database's upsert can take."""

    @abstractmethod
    def newest_alone(self, layout: Layout, stage: str) -> str:
        """One staged row for each key, as `newest`."""

    @abstractmethod
    def delete_known(self, layout: Layout, newest: str, condition: str) -> str:
        """Deletes rows of the target, as `known`, for which there is one of `newest` with that condition."""

    def collations(self, layout: Layout, found: Found) -> tuple[str | None, ...]:
        """For each column by which collation it is compared with the target's, where it must be said."""
        return (None,) * len(layout.columns)

    @abstractmethod
    def created_type(self, column: Column) -> str: ...

    @abstractmethod
    def casts(self, layout: Layout, found: Found) -> tuple[tuple[str | None, ...], list[str]]:
        """For each column what to cast to; and what does not fit, in words."""

    def order_of_newest(self, layout: Layout) -> str:
        """Of rows with one key: the highest version, and of equal ones the first; without versions the last."""
        assert isinstance(layout.write, Upsert)
        if layout.write.version is None:
            return f"{ATTEMPT} DESC, {ORDINAL} DESC"
        return f"{self.staged(layout, layout.place(layout.write.version))} DESC, {ATTEMPT}, {ORDINAL}"

    # --- the target --------------------------------------------------------------------------------------------

    def create_target(self, layout: Layout) -> str:
        lines = [f"{quote(column.name)} {self.created_type(column)}" for column in layout.written]
        if layout.unique:
            lines.append(f"PRIMARY KEY ({_names(layout.unique)})")
        return f"CREATE TABLE IF NOT EXISTS {self.escaped(layout.target.sql)} ({self.escaped(', '.join(lines))})"

    def clear(self, layout: Layout) -> str:
        return f"DELETE FROM {self.escaped(layout.target.sql)}"

    def publish(self, layout: Layout, stage: str) -> str:
        names = self.escaped(_names(column.name for column in layout.written))
        values = ", ".join(self.staged(layout, layout.place(column.name)) for column in layout.written)
        if layout.delete_when is not None:
            source = f"{self.newest_alone(layout, stage)} WHERE NOT c{layout.place(layout.delete_when)}"
        else:
            source = self.newest(layout, stage) if isinstance(layout.write, Upsert) else self._all(stage)
        return (
            f"INSERT INTO {self.escaped(layout.target.sql)} AS target ({names}) SELECT {values} FROM {source} "
            + self._on_conflict(layout)
        )

    def delete(self, layout: Layout, stage: str) -> str:
        """Of the keys whose newest staged row deletes; those are not among the rows that `publish` writes."""
        assert isinstance(layout.write, Upsert)
        assert layout.delete_when is not None
        same = [f"known.{quote(name)} = {self._compared(layout, name)}" for name in layout.write.key]
        if layout.write.version is not None:
            version = f"known.{quote(layout.write.version)}"
            same.append(f"({version} IS NULL OR {self._compared(layout, layout.write.version)} > {version})")
        return self.delete_known(
            layout,
            self.newest_alone(layout, stage),
            f"newest.c{layout.place(layout.delete_when)} AND {self.escaped(' AND '.join(same))}",
        )

    def _compared(self, layout: Layout, name: str) -> str:
        place = layout.place(name)
        collation = layout.collations[place] if layout.collations else None
        value = f"newest.c{place}" if layout.casts[place] is None else f"CAST(newest.c{place} AS {layout.casts[place]})"
        return value if collation is None else f"{value} COLLATE {collation}"

    def _all(self, stage: str) -> str:
        return f"{stage} WHERE {self.among_attempts()}"

    def _on_conflict(self, layout: Layout) -> str:
        if not layout.unique:
            return ""
        conflict = f"ON CONFLICT ({self.escaped(_names(layout.unique))}) DO "
        others = [quote(column.name) for column in layout.written if column.name not in layout.unique]
        if not isinstance(layout.write, Upsert) or not others:
            return conflict + "NOTHING"
        settings = ", ".join(f"{name} = excluded.{name}" for name in others)
        update = f"UPDATE SET {settings}"
        if layout.write.version is not None:
            version = quote(layout.write.version)
            update += f" WHERE target.{version} IS NULL OR excluded.{version} > target.{version}"
        return conflict + self.escaped(update)

    def staged(self, layout: Layout, place: int) -> str:
        cast = layout.casts[place]
        return f"c{place}" if cast is None else f"CAST(c{place} AS {self.escaped(cast)})"

    # --- the staging area --------------------------------------------------------------------------------------

    def stage_columns(self, layout: Layout) -> str:
        lines = [f"{ATTEMPT} BIGINT NOT NULL"]
        if layout.has_ordinals:
            lines.append(f"{ORDINAL} BIGINT NOT NULL")
        lines += [f"c{place} {self.staged_types[column.kind]}" for place, column in enumerate(layout.columns)]
        return ", ".join(lines)

    def counts(self, stage: str) -> str:
        return f"SELECT {ATTEMPT}, count(*) FROM {stage} WHERE {self.among_attempts()} GROUP BY {ATTEMPT}"

    # --- the ledger --------------------------------------------------------------------------------------------

    def create_ledger(self, target: TableName) -> list[str]:
        return [
            f"CREATE TABLE IF NOT EXISTS {self._ledger(target, SINKS)} (sink TEXT PRIMARY KEY, epoch BIGINT NOT NULL, "
            "target TEXT NOT NULL, at_ms BIGINT NOT NULL)",
            f"CREATE TABLE IF NOT EXISTS {self._ledger(target, BATCHES)} (sink TEXT NOT NULL, query TEXT NOT NULL, "
            "batch BIGINT NOT NULL, digest TEXT, rows BIGINT NOT NULL, applied BIGINT NOT NULL, at_ms BIGINT NOT NULL, "
            "PRIMARY KEY (sink, query, batch))",
        ]

    def _ledger(self, target: TableName, name: str) -> str:
        return self.escaped(target.beside(name).sql)

    def take_over(self, target: TableName) -> str:
        """Gives the new epoch, and the table that the sink has filled so far."""
        return (
            f"INSERT INTO {self._ledger(target, SINKS)} AS known (sink, epoch, target, at_ms) "
            f"VALUES ({self.value('sink')}, 1, {self.value('target')}, {self.now_ms}) ON CONFLICT (sink) DO UPDATE "
            "SET epoch = known.epoch + 1, at_ms = excluded.at_ms RETURNING epoch, target"
        )

    def has_lines(self, target: TableName) -> str:
        """Gives a row if the sink has published anything."""
        return f"SELECT 1 FROM {self._ledger(target, BATCHES)} WHERE sink = {self.value('sink')} LIMIT 1"

    def retarget(self, target: TableName) -> str:
        return (
            f"UPDATE {self._ledger(target, SINKS)} SET target = {self.value('target')} "
            f"WHERE sink = {self.value('sink')}"
        )

    def sinks(self, target: TableName) -> str:
        """Each sink with its epoch, and how many milliseconds ago it was planned."""
        return f"SELECT sink, epoch, {self.now_ms} - at_ms FROM {self._ledger(target, SINKS)}"

    def lock(self, target: TableName) -> str:
        return f"SELECT epoch FROM {self._ledger(target, SINKS)} WHERE sink = {self.value('sink')}{self.for_update}"

    def last_line(self, target: TableName) -> str:
        return (
            f"SELECT batch, digest FROM {self._ledger(target, BATCHES)} WHERE sink = {self.value('sink')} "
            f"AND query = {self.value('query')} ORDER BY batch DESC LIMIT 1"
        )

    def queries(self, target: TableName) -> str:
        return (
            f"SELECT query FROM {self._ledger(target, BATCHES)} WHERE sink = {self.value('sink')} "
            f"AND substr(query, 1, 4) <> {self.value('runs')} GROUP BY query ORDER BY max(at_ms)"
        )

    def other_sink(self, target: TableName) -> str:
        """As which other sink the query has filled the same table."""
        return (
            f"SELECT sinks.sink FROM {self._ledger(target, SINKS)} AS sinks JOIN {self._ledger(target, BATCHES)} AS "
            f"batches ON batches.sink = sinks.sink WHERE batches.query = {self.value('query')} "
            f"AND sinks.sink <> {self.value('sink')} AND sinks.target = {self.value('target')} LIMIT 1"
        )

    def add_line(self, target: TableName) -> str:
        values = ", ".join(self.value(name) for name in ("sink", "query", "batch", "digest", "rows", "applied"))
        return (
            f"INSERT INTO {self._ledger(target, BATCHES)} (sink, query, batch, digest, rows, applied, at_ms) "
            f"VALUES ({values}, {self.now_ms})"
        )

    def forget_lines(self, target: TableName) -> str:
        return (
            f"DELETE FROM {self._ledger(target, BATCHES)} WHERE sink = {self.value('sink')} "
            f"AND query = {self.value('query')} AND batch <= {self.value('batch')} - {KEPT_BATCHES}"
        )


def _names(names: Iterable[str]) -> str:
    return ", ".join(quote(name) for name in names)
