"""The options of a table sink, read and held against each other once, before anything is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.spark.options import BadOption, Options
from oncelog.spark.table.columns import ORDERED, Column, Kind
from oncelog.spark.table.errors import UnfitTable
from oncelog.spark.table.names import TableName

WHAT: Final = "the oncelog.table sink"
POSTGRES: Final = ("postgresql://", "postgres://")
SQLITE: Final = "sqlite:///"
JDBC: Final = "jdbc:"
KNOWN: Final = (
    "url", "user", "password", "dbtable", "table", "write", "key", "version", "delete.when", "message.id", "sink.name",
    "create", "new.query", "nul.replacement", "run.id", "checkpointLocation", "queryName",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Upsert:
    """One row for each key: the newest `version`, or without one whatever came last. A row in which the column
    `delete_when` is true leaves none; that column is not the table's."""

    key: tuple[str, ...]
    version: str | None
    delete_when: str | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """Every row, except that of those with equal `message_id`, the first alone."""

    message_id: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    url: str = field(repr=False)  # may hold a password as well
    user: str | None
    password: str | None = field(repr=False)
    table: TableName
    write: Upsert | Insert
    sink: str
    create: bool
    accept_new_query: bool
    nul_replacement: str | None
    run_id: str | None
    checkpoint: str | None

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith(POSTGRES)

    @property
    def repeats_are_harmless(self) -> bool:
        """Whether rows that come again under another query change nothing: by key or message id."""
        return isinstance(self.write, Upsert) or bool(self.write.message_id)


def read_settings(options: Options) -> Settings:
    options.refuse_unknown(KNOWN)
    if "table" in options and "dbtable" in options:
        raise BadOption(f"{WHAT} has the options 'table' and 'dbtable': they mean the same, give one of them")
    return Settings(
        url=_url(options),
        user=options.optional("user"),
        password=options.optional("password"),
        table=TableName.parse(options.text("dbtable" if "dbtable" in options else "table")),
        write=_write(options),
        sink=options.text("sink.name"),
        create=options.flag("create", False),
        accept_new_query=options.choice("new.query", ("refuse", "accept"), "refuse") == "accept",
        nul_replacement=options.optional("nul.replacement"),
        run_id=options.optional("run.id"),
        checkpoint=options.optional("checkpointLocation"),
    )


def _url(options: Options) -> str:
    url = options.text("url")
    if url.startswith(POSTGRES):
        return url
    if url.lower().startswith(JDBC):
        raise BadOption(
            f"{WHAT} is no JDBC: leave out {JDBC!r} ({_without_jdbc(url)}); user and password are options of their own"
        )
    if not url.startswith(SQLITE):
        raise BadOption(
            f"{WHAT} knows no database {url.partition('://')[0]!r}: give postgresql://user@host:port/database or "
            "sqlite:///path"
        )
    if url.removeprefix(SQLITE) in {"", ":memory:"}:
        raise BadOption(f"{WHAT} needs a file of SQLite, which its processes share: sqlite:///path, not memory")
    return url


def _without_jdbc(url: str) -> str:
    """Without what follows a question mark: JDBC's parameters are not libpq's, and a password may be among them."""
    plain = url[len(JDBC) :].partition("?")[0]
    kind, _, path = plain.partition(":")
    return f"{SQLITE}{path}" if kind == "sqlite" else plain


def _write(options: Options) -> Upsert | Insert:
    mode = options.choice("write", ("upsert", "insert"), "upsert" if "key" in options else "insert")
    key, version, message_id = options.names("key"), options.optional("version"), options.names("message.id")
    delete_when = options.optional("delete.when")
    if mode == "upsert":
        if message_id:
            raise BadOption(f"{WHAT} upserts by 'key'; 'message.id' belongs to write=insert")
        if not key:
            raise BadOption(f"{WHAT} needs the option 'key' to upsert: the columns that name a row")
        if version in key:
            raise BadOption(f"{WHAT} has {version!r} as version and in its key: each version would be another row")
        if delete_when is not None and delete_when in (*key, version):
            raise BadOption(
                f"{WHAT} has {delete_when!r} as 'delete.when' and as key or version: it needs its own column"
            )
        return Upsert(key, version, delete_when)
    if key or version:
        raise BadOption(f"{WHAT} inserts, and 'key' and 'version' belong to write=upsert; did you mean 'message.id'?")
    if delete_when is not None:
        raise BadOption(f"{WHAT} deletes by key: 'delete.when' needs the option 'key', the columns that name a row")
    return Insert(message_id)


def check_streaming(settings: Settings) -> None:
    if settings.run_id is not None:
        raise BadOption(f"{WHAT} has the option 'run.id', which names a batch write; a stream's batches have names")


def required_columns(write: Upsert | Insert) -> tuple[str, ...]:
    """Those that must be in every row: rows without them are equal to none."""
    if isinstance(write, Insert):
        return write.message_id
    return (*write.key, *(one for one in (write.version, write.delete_when) if one is not None))


def check_columns(write: Upsert | Insert, columns: Sequence[Column]) -> None:
    by_name = {column.name: column for column in columns}
    for name in required_columns(write):
        if name not in by_name:
            raise UnfitTable(f"the query has no column {name!r}, which its options name: it has {', '.join(by_name)}")
    if isinstance(write, Insert):
        return
    if write.delete_when is not None and by_name[write.delete_when].kind is not Kind.BOOLEAN:
        raise UnfitTable(
            f"'delete.when' names the column {write.delete_when!r}, which is of type "
            f'{by_name[write.delete_when].type}: make it a boolean, such as "value IS NULL AS gone" for tombstones'
        )
    if write.version is not None and by_name[write.version].kind not in ORDERED:
        raise UnfitTable(
            f"the version {write.version!r} is of type {by_name[write.version].type}: make it a whole number, a "
            "decimal, a date or a timestamp"
        )
