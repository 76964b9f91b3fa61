"""Options that contradict each other, or name what is not there."""

from __future__ import annotations

import pytest

from oncelog.errors import OncelogError
from oncelog.spark.options import BadOption, Options
from oncelog.spark.table.columns import columns_of
from oncelog.spark.table.settings import WHAT, Insert, Upsert, check_columns, read_settings

GIVEN = {"url": "postgresql://me:secret@db:5432/shop", "table": "orders", "sink.name": "shop"}


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(read_settings(Options({**GIVEN, "password": "more secrets"}, "it")))


def test_what_is_written_follows_from_what_is_given() -> None:
    assert read_settings(Options(GIVEN, "it")).write == Insert(())
    assert read_settings(Options({**GIVEN, "message.id": "a, b"}, "it")).write == Insert(("a", "b"))
    assert read_settings(Options({**GIVEN, "key": "a", "version": "v"}, "it")).write == Upsert(("a",), "v")


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("jdbc:postgresql://db:5432/shop", r"\(postgresql://db:5432/shop\)"),
        ("JDBC:postgresql://db/shop?user=me&password=secret", r"\(postgresql://db/shop\)"),
        ("jdbc:sqlite:/data/shop.db", r"\(sqlite:////data/shop.db\)"),
    ],
)
def test_an_address_of_jdbc_is_refused_with_what_to_write_instead(given: str, remedy: str) -> None:
    with pytest.raises(BadOption, match=f"leave out 'jdbc:' {remedy}; user and password"):
        read_settings(Options({"url": given, "table": "t", "sink.name": "s"}, WHAT))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"url": "mysql://db/shop"}, "no database 'mysql'"),
        ({"url": "sqlite:///:memory:"}, "needs a file of SQLite"),
        ({"dbtable": "orders"}, "'table' and 'dbtable'"),
        ({"write": "upsert"}, "needs the option 'key'"),
        ({"write": "insert", "key": "id"}, "did you mean 'message.id'"),
        ({"version": "v"}, "'version' belong to write=upsert"),
        ({"key": "id", "message.id": "id"}, "'message.id' belongs to write=insert"),
        ({"key": "id,v", "version": "v"}, "as version and in its key"),
        ({"key": "id", "delete.when": "id"}, "needs its own column"),
        ({"key": "id", "version": "v", "delete.when": "v"}, "needs its own column"),
        ({"delete.when": "gone"}, "'delete.when' needs the option 'key'"),
        ({"write": "append"}, "one of upsert, insert"),
        ({"new.query": "yes"}, "one of refuse, accept"),
        ({"sink.nam": "x"}, "did you mean 'sink.name'"),
        ({"sink.name": " "}, "is empty"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], expected: str) -> None:
    with pytest.raises(OncelogError, match=expected) as failed:
        read_settings(Options({**GIVEN, **options}, "it"))
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("missing", GIVEN)
def test_needed_options(missing: str) -> None:
    with pytest.raises(OncelogError, match=f"needs the option '{missing}'"):
        read_settings(Options({name: value for name, value in GIVEN.items() if name != missing}, "it"))


def test_columns_that_options_name_are_there_and_in_order() -> None:
    columns = columns_of([("id", "int"), ("name", "string"), ("at", "timestamp")])
    check_columns(Upsert(("id",), "at"), columns)
    with pytest.raises(OncelogError, match="no column 'nr'"):
        check_columns(Insert(("nr",)), columns)
    with pytest.raises(OncelogError, match="'name' is of type string"):
        check_columns(Upsert(("id",), "name"), columns)
