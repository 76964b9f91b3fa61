"""Every public call checks what it is given before it does anything: no broker is there, and none is needed.

Each row would raise one of Python's own errors from somewhere inside, or wait for ever, if nobody looked.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import oncelog
from oncelog import once
from oncelog.client.transaction.prepared import PreparedTransaction

NOWHERE = "127.0.0.1:1"
ORDERS = ("orders", 0)

TIME = r"timeout is a number of seconds, or None to wait without end; not"
PARTITION = r'a partition is a TopicPartition or a pair of topic and number, such as \("orders", 0\)'

Row = tuple[Callable[[Any], Any], str]


@pytest.fixture(scope="module")
def consumer() -> Iterator[oncelog.Consumer]:
    with oncelog.Consumer(NOWHERE, group_id="billing") as consumer:
        consumer.assign([ORDERS])
        yield consumer
        consumer._close(0, is_failing=True)


@pytest.fixture(scope="module")
def producer() -> Iterator[oncelog.Producer]:
    with oncelog.Producer(NOWHERE) as producer:
        yield producer
        producer.close(0)


@pytest.fixture(scope="module")
def transactional() -> Iterator[oncelog.Producer]:
    with oncelog.Producer(NOWHERE, transactional_id="shop") as producer:
        yield producer
        producer.close(0)


@pytest.fixture(scope="module")
def admin() -> Iterator[oncelog.Admin]:
    with oncelog.Admin(NOWHERE) as admin:
        yield admin


CONSUMER: dict[str, Row] = {
    'poll("1")': (lambda c: c.poll("1"), TIME),
    "poll(nan)": (lambda c: c.poll(math.nan), TIME),
    "poll(True)": (lambda c: c.poll(True), TIME),
    'poll(max_records="5")': (lambda c: c.poll(1, max_records="5"), "max_records is a whole number"),
    'read_table("1")': (lambda c: c.read_table("1"), TIME),
    'seek(tp, "2")': (lambda c: c.seek(ORDERS, "2"), "an offset is a whole number, or an OffsetAndMetadata, not '2'"),
    "seek(tp, None)": (lambda c: c.seek(ORDERS, None), "an offset is a whole number"),
    'seek("orders", 2)': (lambda c: c.seek("orders", 2), PARTITION),
    "seek_to_beginning(0)": (lambda c: c.seek_to_beginning(0), PARTITION),
    "seek_to_end(0)": (lambda c: c.seek_to_end(0), PARTITION),
    'seek_to_timestamp("1")': (lambda c: c.seek_to_timestamp("1"), "timestamp_ms is a whole number of milliseconds"),
    "subscribe(None)": (lambda c: c.subscribe(None), r'topics are names or a pattern, such as \["orders"\]'),
    "subscribe(5)": (lambda c: c.subscribe(5), r'topics are names or a pattern, such as \["orders"\]'),
    "subscribe(on_assigned=5)": (lambda c: c.subscribe("t", on_assigned=5), "on_assigned is a function of"),
    'assign("orders")': (lambda c: c.assign("orders"), PARTITION),
    "assign(None)": (lambda c: c.assign(None), PARTITION),
    "pause(0)": (lambda c: c.pause(0), PARTITION),
    "resume(0)": (lambda c: c.resume(0), PARTITION),
    "position(0)": (lambda c: c.position(0), PARTITION),
    'position(tp, "1")': (lambda c: c.position(ORDERS, "1"), TIME),
    "lag(0)": (lambda c: c.lag(0), PARTITION),
    "end_offsets(0)": (lambda c: c.end_offsets(0), PARTITION),
    'end_offsets(tp, timeout="1")': (lambda c: c.end_offsets(ORDERS, timeout="1"), TIME),
    "beginning_offsets(0)": (lambda c: c.beginning_offsets(0), PARTITION),
    "offsets_for_times([])": (lambda c: c.offsets_for_times([]), "timestamps in milliseconds by partition are wanted"),
    "commit(5)": (lambda c: c.commit(5), "offsets to commit are a mapping"),
    "commit([tp])": (lambda c: c.commit([ORDERS]), "offsets to commit are a mapping"),
    'commit({tp: "5"})': (lambda c: c.commit({ORDERS: "5"}), "an offset is a whole number"),
    'commit(timeout="1")': (lambda c: c.commit({ORDERS: 5}, timeout="1"), TIME),
    "commit_async(5)": (lambda c: c.commit_async(5), "offsets to commit are a mapping"),
    "commit_async(on_commit)": (
        lambda c: c.commit_async({ORDERS: 5}, lambda err, partitions: None),
        r"on_commit is called as \(offsets, error\), but this one takes \(err, partitions\), the other way round",
    ),
    "committed(0)": (lambda c: c.committed(0), PARTITION),
    'close("1")': (lambda c: c.close("1"), TIME),
}


async def called(name: str, call: Callable[[Any], Any], client: Any) -> None:
    result = call(client)
    if asyncio.iscoroutine(result):
        await result
    pytest.fail(f"{name} was taken")


@pytest.mark.parametrize("name", CONSUMER)
def test_consumer(consumer: oncelog.Consumer, name: str) -> None:
    call, said = CONSUMER[name]
    with pytest.raises((TypeError, ValueError), match=said):
        call(consumer)


def test_async_consumer() -> None:
    async def refuse_all() -> None:
        consumer = oncelog.AsyncConsumer(NOWHERE, group_id="billing")
        await consumer.assign([ORDERS])
        for name, (call, said) in CONSUMER.items():
            with pytest.raises((TypeError, ValueError), match=said):
                await called(name, call, consumer)
        await consumer._close(0, is_failing=True)

    asyncio.run(refuse_all())


PRODUCER: dict[str, Row] = {
    "send(5)": (lambda p: p.send(5, b"v"), r"the topic is a name \(str\), not 5"),
    'send(partition="0")': (lambda p: p.send("t", b"v", partition="0"), "partition is a whole number"),
    'send(timestamp_ms="0")': (lambda p: p.send("t", b"v", timestamp_ms="0"), "timestamp_ms is a whole number"),
    "send(headers=5)": (lambda p: p.send("t", b"v", headers=5), "headers are pairs of name and value"),
    "send(on_delivery=5)": (lambda p: p.send("t", b"v", on_delivery=5), "on_delivery is a function of"),
    "send(on_delivery=(err, msg))": (
        lambda p: p.send("t", b"v", on_delivery=lambda err, msg: None),
        r"on_delivery is called as \(metadata, error\), but this one takes \(err, msg\), the other way round",
    ),
    "send_table(on_delivery=(err, msg))": (
        lambda p: p.send_table("t", None, on_delivery=lambda err, msg: None),
        r"on_delivery is called as \(metadata, error\), but this one takes \(err, msg\), the other way round",
    ),
    "send_table({})": (
        lambda p: p.send_table("t", {}),
        r"send_table takes a pyarrow\.Table, or what can be read as one",
    ),
    'flush("1")': (lambda p: p.flush("1"), TIME),
    'close("1")': (lambda p: p.close("1"), TIME),
}
TRANSACTIONS: dict[str, Row] = {
    'init_transactions("1")': (lambda p: p.init_transactions("1"), TIME),
    'commit("1")': (lambda p: p.commit("1"), TIME),
    'abort("1")': (lambda p: p.abort("1"), TIME),
    'prepare("1")': (lambda p: p.prepare("1"), TIME),
    'flush_transaction("1")': (lambda p: p.flush_transaction("1"), TIME),
    "send_offsets_to_transaction([])": (
        lambda p: p.send_offsets_to_transaction([ORDERS], "billing"),
        "offsets to commit are a mapping",
    ),
    "send_offsets_to_transaction(group)": (
        lambda p: p.send_offsets_to_transaction({ORDERS: 5}, object()),
        r"the group is consumer\.group_metadata\(\) or a group's name, not",
    ),
}
PRODUCER_OF_THREADS: dict[str, Row] = {
    'send_many("abc")': (lambda p: p.send_many("t", "abc"), r"records are many values or \(key, value\) pairs"),
    "send_many(5)": (lambda p: p.send_many("t", 5), r"records are many values or \(key, value\) pairs"),
    "partitions_for(5)": (lambda p: p.partitions_for(5), r"the topic is a name \(str\), not 5"),
}
SHARED: dict[str, Row] = {
    "join(5)": (lambda p: p.join(5), r"a transaction that another producer has shared \(Producer.share\) is wanted"),
}


@pytest.mark.parametrize("name", PRODUCER | PRODUCER_OF_THREADS)
def test_producer(producer: oncelog.Producer, name: str) -> None:
    call, said = (PRODUCER | PRODUCER_OF_THREADS)[name]
    with pytest.raises((TypeError, ValueError), match=said):
        call(producer)


@pytest.mark.parametrize("name", TRANSACTIONS | SHARED)
def test_transactions(transactional: oncelog.Producer, name: str) -> None:
    call, said = (TRANSACTIONS | SHARED)[name]
    with pytest.raises((TypeError, ValueError), match=said):
        call(transactional)


@pytest.mark.parametrize(("settings", "rows"), [({}, PRODUCER), ({"transactional_id": "shop"}, TRANSACTIONS)])
def test_async_producer(settings: dict[str, str], rows: dict[str, Row]) -> None:
    async def refuse_all() -> None:
        producer = oncelog.AsyncProducer({"bootstrap.servers": NOWHERE, **settings})
        await producer.start()
        for name, (call, said) in rows.items():
            with pytest.raises((TypeError, ValueError), match=said):
                await called(name, call, producer)
        await producer.close(0)

    asyncio.run(refuse_all())


PREPARED = r"what Producer\.prepare\(\) returned, a PreparedTransaction, is wanted"
ADMIN: dict[str, Row] = {
    "create_topic(5)": (lambda a: a.create_topic(5), r"the name of the topic is a string, not 5"),
    'create_topic(partitions="3")': (lambda a: a.create_topic("t", partitions="3"), "partitions is a whole number"),
    'create_topic(replication_factor="3")': (
        lambda a: a.create_topic("t", replication_factor="3"),
        "replication_factor is a whole number",
    ),
    "create_topic(configs=[])": (
        lambda a: a.create_topic("t", configs=["retention.ms"]),
        r'configs is a mapping of keys to values, such as \{"retention.ms": 60000\}',
    ),
    "create_topic(configs={key: None})": (
        lambda a: a.create_topic("t", configs={"retention.ms": None}),
        r"the config retention\.ms is a string, a number, true or false, or a list",
    ),
    "delete_topic(None)": (lambda a: a.delete_topic(None), "the name of the topic is a string"),
    "describe_topic(None)": (lambda a: a.describe_topic(None), "the name of the topic is a string"),
    'create_partitions("t", "3")': (lambda a: a.create_partitions("t", "3"), "total_count is a whole number"),
    'describe_configs("tpic", "t")': (
        lambda a: a.describe_configs("tpic", "t"),
        r'resource_type is a ResourceType, or one of "topic", "broker", "group"',
    ),
    'describe_configs("topic", 5)': (lambda a: a.describe_configs("topic", 5), "the name of the topic is a string"),
    "alter_configs(assign=[])": (
        lambda a: a.alter_configs("topic", "t", assign=["x"]),
        "assign is a mapping of keys to values",
    ),
    "alter_configs(remove=5)": (lambda a: a.alter_configs("topic", "t", remove=5), "remove is a string or a list"),
    "describe_client_quotas(5)": (lambda a: a.describe_client_quotas(5), "an entity is a mapping such as"),
    "alter_client_quotas(5)": (lambda a: a.alter_client_quotas(5), "an entity is a mapping such as"),
    'alter_client_quotas(assign={key: "1"})': (
        lambda a: a.alter_client_quotas({"user": "alice"}, assign={"producer_byte_rate": "1"}),
        "producer_byte_rate is a number",
    ),
    "list_offsets([])": (lambda a: a.list_offsets([ORDERS]), "by partition are wanted"),
    'list_offsets({tp: "newest"})': (
        lambda a: a.list_offsets({ORDERS: "newest"}),
        "or as latest, earliest, max_timest",
    ),
    "list_offsets(isolation_level)": (
        lambda a: a.list_offsets({ORDERS: 0}, isolation_level="committed"),
        "isolation_level is read_uncommitted or read_committed",
    ),
    'list_lags({tp: "5"})': (lambda a: a.list_lags({ORDERS: "5"}), "an offset is a whole number"),
    'delete_records({tp: "6"})': (lambda a: a.delete_records({ORDERS: "6"}), "an offset is a whole number"),
    'delete_records({"orders": 6})': (lambda a: a.delete_records({"orders": 6}), PARTITION),
    "list_groups(states=5)": (lambda a: a.list_groups(states=5), "states is a string or a list"),
    "describe_group(None)": (lambda a: a.describe_group(None), "group_id is a string"),
    "list_group_offsets(5)": (lambda a: a.list_group_offsets(5), "group_id is a string"),
    'alter_group_offsets("g", [])': (lambda a: a.alter_group_offsets("g", [5]), "offsets to commit are a mapping"),
    'delete_group_offsets("g", "t")': (lambda a: a.delete_group_offsets("g", "t"), PARTITION),
    "delete_group(None)": (lambda a: a.delete_group(None), "group_id is a string"),
    'remove_static_members("g", 5)': (lambda a: a.remove_static_members("g", 5), "instance_ids is a string or a list"),
    'describe_producers("orders")': (lambda a: a.describe_producers("orders"), PARTITION),
    "list_transactions(states=5)": (lambda a: a.list_transactions(states=5), "states is a string or a list"),
    "describe_transactions(5)": (lambda a: a.describe_transactions(5), "transactional_ids is a string or a list"),
    "find_hanging_transactions(5)": (lambda a: a.find_hanging_transactions(5), PARTITION),
    "abort_hanging(tp, None)": (lambda a: a.abort_hanging(ORDERS, None, 0, 0), "producer_id is a whole number"),
    "fence_producers(5)": (lambda a: a.fence_producers(5), "transactional_ids is a string or a list"),
    "end_transaction(5)": (lambda a: a.end_transaction(5, commit=True), PREPARED),
    "end_transaction(timeout)": (
        lambda a: a.end_transaction(PreparedTransaction("shop", 1, 0), commit=True, timeout="1"),
        TIME,
    ),
    "commit_transactions([5])": (lambda a: a.commit_transactions([5]), PREPARED),
}


@pytest.mark.parametrize("name", ADMIN)
def test_admin(admin: oncelog.Admin, name: str) -> None:
    call, said = ADMIN[name]
    with pytest.raises((TypeError, ValueError), match=said):
        call(admin)


class TestRunner:
    def book(self, connection: Any, record: Any) -> None: ...

    @pytest.mark.parametrize("library", ["confluent_kafka", "kafka", "aiokafka"])
    def test_other_libraries_consumers_are_refused(self, library: str) -> None:
        theirs = type("Consumer", (), {"__module__": library, "poll": lambda self: None})()
        with pytest.raises(TypeError, match=re.escape("once.Runner takes an oncelog.Consumer, not <")):
            once.Runner(theirs, "shop.db", self.book)

    def test_a_consumer_of_confluent_kafka(self) -> None:
        confluent_kafka = pytest.importorskip("confluent_kafka")
        theirs = confluent_kafka.Consumer({"bootstrap.servers": NOWHERE, "group.id": "g"})
        try:
            with pytest.raises(TypeError, match=r"oncelog\.Consumer, not .* make it with oncelog\.Consumer\("):
                once.Runner(theirs, "shop.db", self.book)
        finally:
            theirs.close()

    def test_one_of_asyncio(self) -> None:
        with pytest.raises(TypeError, match=r"oncelog\.Consumer, not .* there is none for asyncio"):
            once.Runner(oncelog.AsyncConsumer(NOWHERE), "shop.db", self.book)

    def test_effects_and_numbers(self, consumer: oncelog.Consumer) -> None:
        with oncelog.Consumer(NOWHERE, group_id="g", enable_auto_commit=False) as own:
            with pytest.raises(TypeError, match=r"the effect is a function of \(connection, record\), not 'book'"):
                once.Runner(own, ":memory:", "book")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="attempts is a whole number"):
                once.Runner(own, ":memory:", self.book, attempts="3")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="batch_size is 1 or more"):
                once.Runner(own, ":memory:", self.book, batch_size=0)
            own._close(0, is_failing=True)
