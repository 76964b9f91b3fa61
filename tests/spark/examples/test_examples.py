"""The two examples, run as they are: what they leave behind is what plain Python makes of the same records."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import oncelog
from oncelog.types import TopicPartition
from tests.support.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LIMIT_S = 120
PARTITIONS = "spark.sql.shuffle.partitions"


def example(name: str) -> ModuleType:
    spec = util.spec_from_file_location(name, EXAMPLES / name / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(broker: BrokerProcess, topic: str) -> list[oncelog.ConsumerRecord]:
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with oncelog.Consumer(broker.bootstrap, **settings) as consumer:
        with oncelog.Admin(broker.bootstrap) as admin:
            count = len(admin.describe_topic(topic).partitions)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(*partitions)
        found: list[oncelog.ConsumerRecord] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += consumer.poll(1.0)
        return found


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as database:
        return database.execute(query).fetchall()


@pytest.fixture
def small(spark: SparkSession, patient_starts: object) -> Iterator[SparkSession]:
    """One partition of state for each operator: the examples have few rows, and many operators."""
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, "1")
    yield spark
    assert before is not None
    spark.conf.set(PARTITIONS, before)


def test_orders_are_joined_and_counted_once(
    small: SparkSession, broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    orders, prefix = example("orders"), f"{new_topic()}-"
    words = ["-b", broker.bootstrap, "--prefix", prefix, "--checkpoint", str(tmp_path / "checkpoint")]
    arguments = orders.parse([*words, "--database", f"sqlite:///{tmp_path / 'shop.db'}"])
    orders.send_sample(broker.bootstrap, prefix)
    orders.run(small, arguments)
    orders.send_sample(broker.bootstrap, prefix)  # as who runs the example twice

    sample = orders.sample()
    placed = {order["order_id"]: order for _, order in sample["orders"]}
    homes: dict[int, tuple[int, str]] = {}
    for _, one in sample["customers"]:
        homes[one["customer_id"]] = max(homes.get(one["customer_id"], (0, "")), (one["version"], one["country"]))
    expected: dict[str, tuple[datetime, Decimal, str]] = {}
    for _, payment in sample["payments"]:
        order = placed[payment["order_id"]]
        paid_at, ordered_at = (datetime.fromisoformat(text) for text in (payment["paid_at"], order["ordered_at"]))
        if ordered_at <= paid_at <= ordered_at + timedelta(hours=1):
            country = homes.get(order["customer_id"], (0, "unknown"))[1]
            expected[str(order["order_id"])] = (paid_at, Decimal(str(order["amount"])), country)
    assert 100 < len(expected) < len(placed)

    records = committed(broker, f"{prefix}paid-orders")
    found = {
        record.key.decode(): (datetime.fromisoformat(paid["paid_at"]), Decimal(str(paid["amount"])), paid["country"])
        for record in records
        for paid in [json.loads(record.value)]
    }
    assert found == expected
    assert len(records) == len(expected), "an order is there twice"

    totals: dict[tuple[datetime, str], list[Decimal]] = defaultdict(list)
    for paid_at, amount, country in expected.values():
        totals[paid_at.replace(minute=paid_at.minute // 10 * 10, second=0), country].append(amount)
    closed_before = max(paid_at for paid_at, _, _ in expected.values()) - timedelta(minutes=30)
    windows = {
        (start, country): (len(amounts), sum(amounts))
        for (start, country), amounts in totals.items()
        if start + timedelta(minutes=10) <= closed_before
    }
    turnover = rows(tmp_path / "shop.db", "SELECT starts_at, country, orders, amount FROM turnover")
    assert {
        (datetime.fromisoformat(start), country): (count, Decimal(str(amount)))
        for start, country, count, amount in turnover
    } == windows
    assert len(windows) > 10


def test_changes_become_the_latest_state_and_dead_letters(
    small: SparkSession, broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    changes, prefix = example("changes"), f"{new_topic()}-"
    words = ["-b", broker.bootstrap, "--prefix", prefix, "--checkpoint", str(tmp_path / "checkpoint")]
    arguments = changes.parse([*words, "--database", f"sqlite:///{tmp_path / 'state.db'}"])
    changes.send_sample(broker.bootstrap, prefix)
    changes.run(small, arguments)

    latest: dict[int, dict[str, Any]] = {}
    bad: list[bytes] = []
    for _, value in changes.sample():
        try:
            change = json.loads(value)
            assert isinstance(change["customer_id"], int)
            assert change["operation"] in {"create", "update", "delete"}
        except (ValueError, KeyError, AssertionError):
            bad.append(value)
            continue
        if change["version"] > latest.get(change["customer_id"], {"version": 0})["version"]:
            latest[change["customer_id"]] = change
    state = rows(tmp_path / "state.db", "SELECT customer_id, version, deleted, name, email FROM customers")
    assert sorted(state) == [
        (who, change["version"], change["operation"] == "delete", change["name"], change.get("email"))
        for who, change in sorted(latest.items())
    ]
    assert any(change["operation"] == "delete" for change in latest.values())

    letters = committed(broker, f"{prefix}changes-dead")
    assert sorted(letter.value for letter in letters) == sorted(bad)
    original = {(record.partition, record.offset): record for record in committed(broker, f"{prefix}changes")}
    for letter in letters:
        told = {name.removeprefix("dead-letter."): value.decode() for name, value in letter.headers}
        assert told["topic"] == f"{prefix}changes"
        record = original[int(told["partition"]), int(told["offset"])]
        assert (record.key, record.value) == (letter.key, letter.value)
        assert told["error"]


@pytest.mark.parametrize("name", ["orders", "changes"])
def test_what_they_need_is_said(name: str) -> None:
    script = EXAMPLES / name / f"{name}.py"
    done = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2
    assert "--checkpoint, --database" in done.stderr
