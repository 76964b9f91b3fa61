"""The table sink under Spark: streams and batch writes, replays, and what is refused when a query starts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.spark.table.shop import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_stream_into_postgresql(tables: SparkSession, postgres_url: str, tmp_path: Path) -> None:
    """Versions out of order, a batch that comes again, and one without rows."""
    sink = {"url": postgres_url, "dbtable": "public.orders", "key": "id", "version": "version", "sink.name": "shop"}
    shop = Shop(tables, tmp_path, **sink)
    shop.put((1, 5, "paid"), (2, 1, "new"), (1, 4, "late"))
    shop.put((1, 3, "later still"), (2, 2, "paid"))
    shop.run()
    last = shop.forget_last_commit()
    shop.run()
    shop.put()
    shop.put((3, 1, "new"))
    shop.run()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT * FROM orders ORDER BY id").fetchall() == [
            (1, 5, "paid"),
            (2, 2, "paid"),
            (3, 1, "new"),
        ]
        lines = connection.execute("SELECT batch, rows, applied, digest FROM oncelog_batches ORDER BY batch").fetchall()
        assert [line[:3] for line in lines] == [(0, 3, 2), (last, 2, 1), (last + 2, 1, 1)]
        assert all(line[3] for line in lines)
        areas = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'oncelog_stage%'").fetchall()
        assert areas == []


def test_a_stream_into_sqlite(tables: SparkSession, tmp_path: Path) -> None:
    """Plain inserts: the replay has its rows in other slots; a new checkpoint is refused."""
    sink = {"url": f"sqlite:///{tmp_path}/shop.db", "table": "orders", "sink.name": "shop"}
    shop = Shop(tables, tmp_path, **sink)
    shop.put(*[(n, 1, "new") for n in range(20)])
    shop.run(shop.stream().repartition(3))
    shop.forget_last_commit()
    shop.run(shop.stream().repartition(2))
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchall() == [(20, 20)]
    assert sorted(path.name for path in tmp_path.iterdir() if "oncelog_stage" in path.name) == []
    with pytest.raises(Exception, match="is new to the sink 'shop'"):
        shop.run(checkpointLocation=str(tmp_path / "another"))


def test_complete_mode_and_batch_writes(tables: SparkSession, postgres_url: str, tmp_path: Path) -> None:
    shop = Shop(tables, tmp_path, url=postgres_url, table="totals", **{"sink.name": "totals"})
    shop.put((1, 1, "new"), (2, 1, "new"), (3, 1, "paid"))
    shop.put((4, 1, "new"))
    shop.run(shop.stream().groupBy("state").count(), mode="complete")
    frame = tables.range(1000).selectExpr("id", "cast(id AS string) AS name")
    writer = frame.write.format("oncelog.table").option("url", postgres_url).option("table", "numbers")
    writer = writer.option("sink.name", "numbers").option("create", "true")
    for _ in range(2):
        writer.mode("append").option("run.id", "monday").save()
    with psycopg.connect(postgres_url) as connection:
        assert sorted(connection.execute("SELECT * FROM totals").fetchall()) == [("new", 3), ("paid", 1)]
        assert connection.execute("SELECT count(*), max(id) FROM numbers").fetchall() == [(1000, 999)]
        writer.mode("overwrite").option("run.id", "tuesday").save()
        assert connection.execute("SELECT count(*), max(id) FROM numbers").fetchall() == [(1000, 999)]


def test_what_does_not_fit_is_said_when_the_query_starts(
    tables: SparkSession, postgres_url: str, tmp_path: Path
) -> None:
    shop = Shop(tables, tmp_path, url=postgres_url, table="orders", **{"sink.name": "shop"})
    shop.put((1, 1, "new"))
    with pytest.raises(Exception, match="did you mean 'version'"):
        shop.run(versoin="x")
    with pytest.raises(Exception, match="there is no table"):
        shop.run(create="false")
    with pytest.raises(Exception, match="cannot be reached"):
        shop.run(url="postgresql://me@127.0.0.1:1/shop")
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT to_regclass('orders')").fetchall() == [(None,)]


def test_a_batch_write_that_fails_leaves_no_staging_area(tables: SparkSession, tmp_path: Path) -> None:
    def write(frame: DataFrame) -> None:
        writer = frame.write.format("oncelog.table").option("url", f"sqlite:///{tmp_path}/shop.db")
        writer.option("table", "numbers").option("sink.name", "numbers").option("create", "true").mode("append").save()

    with pytest.raises(Exception, match="NaN"):
        write(tables.sql("SELECT double('NaN') AS x"))  # its only task fails: none has anything to report
    write(tables.createDataFrame([], "x double"))
    write(tables.sql("SELECT 1.5D AS x"))
    assert [path.name for path in tmp_path.iterdir() if "stage" in path.name] == []
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        assert connection.execute("SELECT x FROM numbers").fetchall() == [(1.5,)]


def test_reading_is_refused_in_words(tables: SparkSession) -> None:
    for reader in (tables.read, tables.readStream):
        with pytest.raises(Exception, match=r"the oncelog.table sink only writes: read the table with"):
            reader.format("oncelog.table").option("url", "sqlite:///shop.db").option("table", "orders").load()
