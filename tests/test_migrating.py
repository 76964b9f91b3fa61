"""docs/migrating.md, row by row: what it says of other libraries exists there, and what it says of ours runs, against a
broker, in the order of the page."""

from __future__ import annotations

import ast
import asyncio
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import oncelog

PAGE = (Path(__file__).parent.parent / "docs/migrating.md").read_text()
LEAVE_OUT = "leave it out"
OWN_NAMES = {"servers", "on_assign", "on_revoke", "on_success", "offsets", "metadata", "message"}


class Row(NamedTuple):
    theirs: str
    ours: str


def table(name: str) -> list[Row]:
    lines = PAGE.partition(f"<!-- table: {name} -->\n")[2].partition("<!-- end -->")[0].splitlines()[2:]
    return [Row(*(cell.strip().strip("`") for cell in line.strip("| ").split(" | ")[:2])) for line in lines]


TABLES = {name: table(name) for name in re.findall(r"<!-- table: (\w+) -->", PAGE)}
ROWS = [(name, row) for name, rows in TABLES.items() for row in rows]

THEIRS: dict[str, dict[str, tuple[str, str]]] = {
    "confluent_kafka": {
        "producer": ("confluent_kafka", "Producer"),
        "transactional": ("confluent_kafka", "Producer"),
        "consumer": ("confluent_kafka", "Consumer"),
        "message": ("confluent_kafka", "Message"),
        "admin": ("confluent_kafka.admin", "AdminClient"),
    },
    "kafka": {
        "producer": ("kafka", "KafkaProducer"),
        "consumer": ("kafka", "KafkaConsumer"),
        "admin": ("kafka", "KafkaAdminClient"),
        "future": ("kafka.producer.future", "FutureRecordMetadata"),
        "record": ("kafka.consumer.fetcher", "ConsumerRecord"),
    },
    "aiokafka": {"producer": ("aiokafka", "AIOKafkaProducer"), "consumer": ("aiokafka", "AIOKafkaConsumer")},
}
MODULES = {
    "confluent_kafka": ("confluent_kafka", "confluent_kafka.admin"),
    "kafka": ("kafka", "kafka.admin", "kafka.structs"),
    "aiokafka": ("aiokafka", "aiokafka.structs"),
}
OURS = {"producer": oncelog.Producer, "message": oncelog.ConsumerRecord}

# What comes of a row, where that can be told beforehand; the names are what the rows before it left.
PARTITION = oncelog.TopicPartition("orders", 0)
EXPECTED: dict[str, Any] = {
    "left = producer.flush(10)": lambda value, names: names["left"] == 0,
    "left = await producer.flush()": lambda value, names: names["left"] == 0,
    "records = consumer.poll(10.0)": lambda value, names: names["records"][0].value == b"paid",
    "records = await consumer.poll(10.0)": lambda value, names: names["records"][0].value == b"paid",
    "record.value": lambda value, names: value == b"paid",
    "future.result(timeout=10)": lambda value, names: value.topic == "orders",
    "producer.partitions_for(\"orders\")": lambda value, names: value == 1,
    "consumer.topics()": lambda value, names: value == {"orders"},
    "await consumer.topics()": lambda value, names: value == {"orders"},
    'consumer.partitions_for_topic("orders")': lambda value, names: value == {0},
    'await consumer.partitions_for_topic("orders")': lambda value, names: value == {0},
    'consumer.beginning_offsets([("orders", 0)])': lambda value, names: value == {PARTITION: 0},
    'await consumer.beginning_offsets([("orders", 0)])': lambda value, names: value == {PARTITION: 0},
    'consumer.end_offsets([("orders", 0)])': lambda value, names: value[PARTITION] >= 2,
    'await consumer.end_offsets([("orders", 0)])': lambda value, names: value[PARTITION] >= 2,
    'consumer.committed([("orders", 0)])': lambda value, names: value[PARTITION].offset > 0,
    'consumer.committed(("orders", 0))': lambda value, names: value[PARTITION].offset == 1,
    'await consumer.committed(("orders", 0))': lambda value, names: value[PARTITION].offset == 1,
    'admin.describe_configs("topic", "bills")["retention.ms"].value': lambda value, names: value == "60000",
    'admin.list_offsets({("orders", 0): "latest"})': lambda value, names: value[PARTITION].offset >= 4,
    'admin.list_group_offsets("reports")': lambda value, names: value[PARTITION].offset == 1,
    'admin.delete_records({("orders", 0): 1})': lambda value, names: value == {PARTITION: 1},
    "consumer.group_metadata()": lambda value, names: value.group_id == "billing",
}  # fmt: skip


@pytest.mark.parametrize(("library", "row"), ROWS, ids=[f"{name}-{number}" for number, (name, _) in enumerate(ROWS)])
@pytest.mark.deterministic
def test_what_is_said_of_the_other_library_exists_there(library: str, row: Row) -> None:
    known = {
        name: value for module in MODULES[library] for name, value in vars(importlib.import_module(module)).items()
    }
    tree = ast.parse(row.theirs, mode="exec") if "await" not in row.theirs else ast.parse(row.theirs[len("await ") :])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in THEIRS[library]:
            module, kind = THEIRS[library][node.value.id]
            owner = getattr(importlib.import_module(module), kind)
            assert hasattr(owner, node.attr), f"{kind} of {library} has no {node.attr}"
        elif isinstance(node, ast.Name) and node.id not in {*THEIRS[library], *OWN_NAMES, "next", "err", "msg"}:
            assert node.id in known, f"{library} has no {node.id}"


def test_every_expectation_is_of_a_row() -> None:
    assert {*EXPECTED} <= {row.ours for _, row in ROWS}
    assert len(ROWS) > 90


@pytest.fixture
def alone() -> Iterator[oncelog.Broker]:
    with oncelog.Broker() as broker, oncelog.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=1)
        yield broker


def namespace(broker: oncelog.Broker, admin: oncelog.Admin) -> dict[str, Any]:
    return {
        "oncelog": oncelog,
        "servers": broker.bootstrap_servers,
        "admin": admin,
        "on_assign": lambda consumer, partitions: None,
        "on_revoke": lambda consumer, partitions: None,
    }


async def run(row: Row, names: dict[str, Any]) -> Any:
    """What the row's statements come to; the last one may be an expression."""
    code = compile(row.ours, f"<{row.ours}>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    *before, last = code.body
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for part in (ast.Module(before, []), *([] if isinstance(last, ast.Expr) else [ast.Module([last], [])])):
        result = eval(compile(part, row.ours, "exec", flags=flags), names)
        if asyncio.iscoroutine(result):
            await result
    if not isinstance(last, ast.Expr):
        return None
    value = eval(compile(ast.Expression(last.value), row.ours, "eval", flags=flags), names)
    return await value if asyncio.iscoroutine(value) else value


async def follow(library: str, names: dict[str, Any]) -> None:
    for row in TABLES[library]:
        if row.ours == LEAVE_OUT:
            owner, call = re.match(r"(\w+)\.(\w+)", row.theirs).groups()  # type: ignore[union-attr]
            assert not hasattr(OURS[owner], call), f"there is {call}() after all"
            continue
        try:
            value = await run(row, names)
        except Exception as error:
            pytest.fail(f"{row.ours}: {error!r}")
        assert EXPECTED.get(row.ours, lambda value, names: True)(value, names), f"{row.ours} gave {value!r}"
        if names.get("records"):
            names["record"] = names["records"][0]


@pytest.mark.parametrize("library", TABLES)
@pytest.mark.real
def test_what_is_said_of_ours_runs(alone: oncelog.Broker, library: str) -> None:
    with (
        oncelog.Admin(alone.bootstrap_servers) as admin,
        oncelog.Producer(alone.bootstrap_servers, transactional_id="shop") as transactional,
    ):
        names = {**namespace(alone, admin), "transactional": transactional}
        asyncio.run(follow(library, names))
