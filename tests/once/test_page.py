"""docs/effects-once.md cannot show what does not run: every example is run, in order, against real servers."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.once.tables import COLUMNS
from tests.support.postgres import PostgresServer
from tests.support.process import BrokerProcess
from tests.support.redis import RedisServer

PAGE = (Path(__file__).parent.parent.parent / "docs" / "effects-once.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ORDERS = 3


@pytest.fixture
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: PostgresServer) -> None:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("shop.db") as shop:
        shop.execute("CREATE TABLE bookings (customer BLOB, item BLOB)")
        shop.execute("CREATE TABLE prices (item BLOB PRIMARY KEY, price BLOB)")
    shop.close()
    with postgres.connect() as connection:
        connection.execute("CREATE TABLE bookings (customer BYTEA, item BYTEA)")


@pytest.mark.usefixtures("_shop")
def test_the_examples_run(oncelog_broker: BrokerProcess, postgres: PostgresServer, redis_server: RedisServer) -> None:
    with oncelog.Producer(oncelog_broker.bootstrap) as producer:
        for number in range(ORDERS):
            producer.send("orders", value="book", key=f"customer-{number}", headers=[("order-id", b"%d" % number)])
    names: dict[str, Any] = {}
    for number, example in enumerate(EXAMPLES):
        source = example.replace("127.0.0.1:9092", oncelog_broker.bootstrap).replace("6379", str(redis_server.port))
        source = source.replace("127.0.0.1:5432", f"127.0.0.1:{postgres.port}")
        settings = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
        with oncelog.Consumer(oncelog_broker.bootstrap, group_id=f"page-{number}", **settings) as consumer:
            if number > 0:
                names["consumer"] = consumer
            if "consumer.poll" in source:
                consumer.subscribe(["orders"])
            names.pop("runner", None)
            exec(compile(source, f"effects-once.md, example {number}", "exec"), names)
            if number > 0 and "runner" in names and "run(" not in source:
                assert names["runner"].run(max_records=ORDERS).done == ORDERS, example


def test_there_are_examples_of_every_strategy() -> None:
    for name in (
        "MessageTable",
        "StateGuard",
        "Token",
        "RedisLeases",
        "Version",
        "DatabaseOffsets",
        "DeadLetter",
        "Worker",
    ):
        assert any(f"once.{name}(" in example for example in EXAMPLES), name


def test_every_column_is_named() -> None:
    for table, columns in COLUMNS.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{table}`"))
        for column in re.findall(r"(?:^|, )([a-z_]+) (?:\{|[A-Z])", columns):
            assert column in row, f"{table}.{column}"
