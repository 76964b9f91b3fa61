"""Processes of a table sink die at each of its moments, and the rows are there once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from oncelog.spark.moments import Moment
from tests.spark.support.driver import session_members
from tests.spark.support.moments import Moments
from tests.spark.table.shop import LIMIT_S, Shop
from tests.support import spark as support
from tests.support.patience import eventually
from tests.support.sizes import only_at_full_size

ROWS = 30


class Orders:
    """Plain inserts: nothing but the ledger keeps rows from being there twice."""

    def __init__(self, spark: SparkSession, folder: Path, url: str) -> None:
        self.url = url
        self.options = {"url": url, "table": "orders", "sink.name": "shop"}
        self.shop = Shop(spark, folder, **self.options)
        self.sent = 0

    def feed(self) -> None:
        self.shop.put(*[(self.sent + n, 1, "new") for n in range(ROWS)])
        self.sent += ROWS

    def run(self) -> None:
        self.shop.run(self.shop.stream().repartition(2))

    def found(self) -> list[int]:
        with psycopg.connect(self.url) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM orders ORDER BY id")]

    def areas(self) -> int:
        with psycopg.connect(self.url) as connection:
            found = connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'oncelog_stage%'").fetchone()
        assert found is not None
        return int(found[0])

    def check(self) -> None:
        assert self.found() == list(range(self.sent))
        assert self.areas() == 0


def test_workers_die_at_every_moment(tables: SparkSession, moments: Moments, postgres_url: str, tmp_path: Path) -> None:
    """A task, whose second attempt goes on; committers before and after COMMIT, whose query is started again."""
    orders = Orders(tables, tmp_path, postgres_url)
    orders.feed()
    moments.arm(Moment.TABLE_STAGED, "kill")
    orders.run()
    assert moments.reached(Moment.TABLE_STAGED)
    orders.check()
    for moment, is_published in ((Moment.TABLE_COMMITTING, False), (Moment.TABLE_PUBLISHED, True)):
        orders.feed()
        moments.arm(moment, "kill")
        with pytest.raises(StreamingQueryException):
            orders.run()
        assert len(orders.found()) == orders.sent - (0 if is_published else ROWS)
        orders.feed()
        orders.run()
        orders.check()


@only_at_full_size("two drivers")
def test_a_committer_outlives_its_driver(tables: SparkSession, postgres_url: str, tmp_path: Path) -> None:
    """The driver dies while its committer is inside the open transaction. The next driver waits for it, and when it has
    published the batch after all, recognises the replay."""
    orders = Orders(tables, tmp_path, postgres_url)
    orders.feed()
    moments = Moments(tmp_path / "moments")
    moments.arm(Moment.TABLE_COMMITTING, "hold")
    folder = tmp_path / "driver"
    folder.mkdir()
    settings = {**support.local_settings(folder), "spark.python.use.daemon": "false"}
    command = [sys.executable, "-m", "tests.spark.table.shop", json.dumps(settings), str(tmp_path)]
    environment = {**os.environ, **support.environment(), **moments.environment}
    with open(folder / "log", "wb") as log:
        driver = subprocess.Popen(
            [*command, json.dumps(orders.options)], stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        committer = moments.await_reached(Moment.TABLE_COMMITTING)
        for pid in session_members(driver.pid):
            if pid != committer:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        driver.wait(LIMIT_S)
        orders.feed()
        query = orders.shop.start()
        eventually(lambda: _waits_for_the_sink(postgres_url), "the next driver waits for the sink's row", LIMIT_S)
        assert orders.found() == []
        moments.release(Moment.TABLE_COMMITTING)
        assert query.awaitTermination(LIMIT_S)
        orders.check()
    finally:
        moments.clear()
        for pid in session_members(driver.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.wait(LIMIT_S)


def _waits_for_the_sink(url: str) -> bool:
    with psycopg.connect(url) as connection:
        waiting = (
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'oncelog.table shop' AND wait_event_type = 'Lock'"
        )
        return connection.execute(waiting).fetchone() is not None


def test_two_drivers_on_one_sink(tables: SparkSession, moments: Moments, postgres_url: str, tmp_path: Path) -> None:
    """The first has staged its rows when the second takes over. It is told so, and writes nothing."""
    sink = {"url": postgres_url, "table": "orders", "sink.name": "shop", "key": "id"}
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = Shop(tables, tmp_path / "one", **sink), Shop(tables, tmp_path / "other", **sink)
    one.put((1, 1, "of the first"))
    other.put((2, 1, "of the second"))
    moments.arm(Moment.TABLE_STAGED, "hold")
    query = one.start()
    moments.await_reached(Moment.TABLE_STAGED)
    other.run()
    moments.release(Moment.TABLE_STAGED)
    with pytest.raises(StreamingQueryException, match="two queries run with one sink"):
        query.awaitTermination(LIMIT_S)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT id FROM orders").fetchall() == [(2,)]
