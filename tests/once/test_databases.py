"""What a runner is given as its database: a path, a URL or an engine. What would become a file is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.once.database import Database, without_password
from oncelog.once.errors import UnsupportedDatabase


def test_a_url_is_sqlalchemys(tmp_path: Path) -> None:
    database = Database.of(f"sqlite:///{tmp_path}/shop.db")
    with database.transaction() as transaction:
        transaction.run("CREATE TABLE bookings (customer TEXT)")
        transaction.run("INSERT INTO bookings VALUES (:customer)", {"customer": "alice"})
    database.close()
    with Database.of(f"{tmp_path}/shop.db") as again, again.transaction() as transaction:
        assert transaction.run("SELECT customer FROM bookings") == [("alice",)]


@pytest.mark.parametrize("url", ["postgresql://me:secret@db/shop", "postgres://me:secret@db/shop"])
def test_postgresql_is_spoken_to_through_psycopg(url: str) -> None:
    database = Database.of(url)
    assert database._engine.url.drivername == "postgresql+psycopg"  # type: ignore[attr-defined]
    database.close()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("jdbc:postgresql://db/shop?user=me&password=secret", "write postgresql://user:password@host/name instead"),
        ("host=db dbname=shop password=secret", "write it as a URL"),
        ("mysql://me:secret@db/shop", "only SQLite and PostgreSQL are known here"),
        ("postgresql+nothing://me:secret@db/shop", "cannot be used"),
        ("", "the path of the database is empty"),
        (5, "give a path of SQLite, a URL such as"),
    ],
)
def test_others_are_refused_without_telling_the_password(target: object, said: str) -> None:
    with pytest.raises(UnsupportedDatabase) as refused:
        Database.of(target)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


def test_passwords_are_hidden() -> None:
    assert without_password("postgresql://me:a:b@db/shop") == "postgresql://me:***@db/shop"
