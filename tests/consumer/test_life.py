"""The life of a `Consumer`: one thread at a time, wakeups, forks, signals, closing; and brokers that are not there."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from oncelog.client.consumer_errors import ConsumerClosed, ConsumerInUse, ConsumerTimedOut, WokenUp
from oncelog.consumer.consumer import Consumer
from oncelog.errors import InvalidConfig
from oncelog.types import TopicPartition
from tests.consumer.scene import PROTOCOLS, Topics, create, join, numbered, poll_until, read, values_of, write
from tests.support.broker import OncelogBroker
from tests.support.patience import PATIENCE_S, eventually
from tests.support.ports import refusing_port
from tests.support.process import BrokerProcess


@pytest.fixture
def partition(broker: BrokerProcess, new_topic: Topics) -> TopicPartition:
    return create(broker, new_topic())[0]


@pytest.fixture
def consumer(broker: BrokerProcess, partition: TopicPartition) -> Iterator[Consumer]:
    with Consumer(broker.bootstrap, group_id=partition.topic, auto_offset_reset="earliest") as made:
        made.assign([partition])
        yield made


def in_thread(work: object) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


# --- threads --------------------------------------------------------------------------------------------------------


def test_wakeup_ends_a_poll_that_waits(broker: BrokerProcess, consumer: Consumer, partition: TopicPartition) -> None:
    timer = threading.Timer(0.2, consumer.wakeup)
    timer.start()
    with pytest.raises(WokenUp):
        consumer.poll(PATIENCE_S)
    timer.join()
    write(broker, partition.topic, [b"1"])
    assert values_of(read(consumer, 1)) == [b"1"], "nothing was lost"


def test_wakeup_before_a_poll_ends_the_next_one_that_would_wait(
    broker: BrokerProcess, consumer: Consumer, partition: TopicPartition
) -> None:
    write(broker, partition.topic, [b"1", b"2"])
    assert len(consumer.poll(PATIENCE_S, max_records=1)) == 1
    consumer.wakeup()
    assert len(consumer.poll(PATIENCE_S)) == 1, "it need not wait"
    with pytest.raises(WokenUp):
        consumer.poll(PATIENCE_S)
    assert consumer.poll(0) == []


def test_wakeup_does_not_keep_from_closing(broker: BrokerProcess, partition: TopicPartition) -> None:
    write(broker, partition.topic, numbered(0, 5))
    with Consumer(broker.bootstrap, group_id=partition.topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(partition.topic)
        read(consumer, 5)
        consumer.wakeup()
    with Consumer(broker.bootstrap, group_id=partition.topic) as looking:
        found = looking.committed(partition)[partition]
    assert found is not None
    assert found.offset == 5


def test_one_thread_at_a_time(broker: BrokerProcess, consumer: Consumer, partition: TopicPartition) -> None:
    ended: list[BaseException | None] = []

    def wait() -> None:
        try:
            while True:
                with suppress(ConsumerInUse):  # by the other thread, which asks whether it is
                    consumer.poll(PATIENCE_S)
        except BaseException as error:
            ended.append(error)

    thread = in_thread(wait)

    def is_in_use() -> bool:
        try:
            consumer.pause()
        except ConsumerInUse:
            return True
        return False

    eventually(is_in_use, "the other thread polls")
    with pytest.raises(ConsumerInUse, match="give each thread its own"):
        consumer.close()
    assert consumer.assignment() == {partition}, "what does not wait may be asked"
    consumer.wakeup()
    thread.join(PATIENCE_S)
    assert [type(error) for error in ended] == [WokenUp]
    write(broker, partition.topic, [b"1"])
    assert values_of(read(consumer, 1)) == [b"1"], "and it is not closed"


# --- the end --------------------------------------------------------------------------------------------------------


def test_after_the_end(broker: BrokerProcess, partition: TopicPartition) -> None:
    consumer = Consumer(broker.bootstrap, group_id=partition.topic)
    consumer.assign([partition])
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.commit, consumer.commit_async, consumer.read_table, consumer.unsubscribe):
        with pytest.raises(ConsumerClosed, match="make a new one"):
            call()
    assert list(consumer) == []
    assert not thread_of(consumer).is_alive()


def thread_of(consumer: Consumer) -> threading.Thread:
    return consumer._thread


def test_closing_ends_an_iteration(broker: BrokerProcess, consumer: Consumer, partition: TopicPartition) -> None:
    write(broker, partition.topic, numbered(0, 10))
    seen = []
    for record in consumer:
        seen.append(record.value)
        if len(seen) == 3:
            consumer.close()
    assert seen == numbered(0, 3)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_forgotten_consumer_warns_and_its_thread_ends(broker: BrokerProcess, partition: TopicPartition) -> None:
    consumer = Consumer(broker.bootstrap, group_id=partition.topic)
    consumer.subscribe(partition.topic)
    join(consumer, 1)
    thread = thread_of(consumer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del consumer
        gc.collect()
    assert any("was not closed" in str(warning.message) for warning in caught)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_fork_leaves_the_consumer_to_the_parent(
    broker: BrokerProcess, consumer: Consumer, partition: TopicPartition
) -> None:
    write(broker, partition.topic, [b"1"])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            consumer.poll(0)
        except ConsumerClosed as error:
            os.write(writer, str(error).encode())
        consumer.close()
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert b"belongs to the parent process" in pipe.read()
    assert values_of(read(consumer, 1)) == [b"1"]


INTERRUPTED = """
import sys
from oncelog.consumer.consumer import Consumer
settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "session_timeout_ms": 300_000}
with Consumer(sys.argv[1], group_id=sys.argv[2], **settings) as consumer:
    consumer.subscribe(sys.argv[2])
    while True:
        print(len(consumer.poll(300)), flush=True)
"""


def test_ctrl_c(broker: BrokerProcess, partition: TopicPartition) -> None:
    """It ends a poll that waits, and the process leaves its group in order: nobody waits for its session to end."""
    write(broker, partition.topic, numbered(0, 5))
    command = [sys.executable, "-c", INTERRUPTED, broker.bootstrap, partition.topic]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "5\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")
    with Consumer(broker.bootstrap, group_id=partition.topic, auto_offset_reset="earliest") as heir:
        heir.subscribe(partition.topic)
        assert len(read(heir, 5)) == 5


# --- brokers that are not there -------------------------------------------------------------------------------------


def test_nobody_listens(new_topic: Topics) -> None:
    partition = TopicPartition(new_topic(), 0)
    with Consumer(f"127.0.0.1:{refusing_port()}", group_id="nobody", default_api_timeout_ms=500) as consumer:
        consumer.assign([partition])
        assert consumer.poll(0.2) == []
        for call in (consumer.position, consumer.committed, consumer.end_offsets):
            with pytest.raises(ConsumerTimedOut):
                call(partition)
        with pytest.raises(ConsumerTimedOut, match=r"(?i)refused|reach|connect"):
            consumer.end_offsets(partition, timeout=0.3)
        with pytest.raises(ConsumerTimedOut):
            consumer.commit({partition: 1})
        consumer.close(timeout=0.5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_broker_that_is_gone_keeps_nobody_from_closing(tmp_path: Path, protocol: str) -> None:
    """There is nothing to commit, so nothing that an hour of waiting could bring."""
    with OncelogBroker(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        create(broker, "orders")
        patient = dict.fromkeys(("request_timeout_ms", "default_api_timeout_ms"), 1_800_000)
        settings = {**PROTOCOLS[protocol], **patient}
        if protocol == "classic":
            settings["session_timeout_ms"] = 1_800_000
        consumer = Consumer(broker.bootstrap, group_id="billing", **settings)
        consumer.subscribe("orders")
        join(consumer, 1)
        broker.kill()
        consumer.close(timeout=3_600)
    assert not thread_of(consumer).is_alive()


def test_closing_says_what_was_not_committed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING each, however it was asked for."""
    with OncelogBroker(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        one, two = create(broker, "orders", partitions=2)
        write(broker, "orders", numbered(0, 5))
        told: list[object] = []
        consumer = Consumer(broker.bootstrap, group_id="billing", auto_offset_reset="earliest")
        consumer.subscribe("orders")
        read(consumer, 5)
        broker.kill()
        consumer.commit_async({two: 3})
        consumer.commit_async({two: 4}, lambda offsets, error: told.append(error))
        consumer.close(timeout=0.5)
    warnings = [record.getMessage() for record in caplog.records if "offset" in record.getMessage()]
    assert [(str(one) in text, str(two) in text) for text in warnings] == [(True, False), (False, True)]
    (error,) = told
    assert isinstance(error, ConsumerClosed)


CLOSED_TWICE = """
import os, signal, sys, threading, time
from oncelog.consumer.consumer import Consumer
def interrupt():
    while consumer._calls.limits.closes_by_ms is None:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
with Consumer(sys.argv[1], group_id="billing", auto_offset_reset="earliest") as consumer:
    consumer.subscribe("orders")
    while not consumer.poll(1):
        pass
    print("read", flush=True)
    sys.stdin.readline()
    threading.Thread(target=interrupt).start()
    try:
        consumer.close(timeout=3_600)
    finally:
        print([thread.name for thread in threading.enumerate() if thread.name.endswith("-consumer")], flush=True)
"""


def test_ctrl_c_ends_a_close_that_waits(tmp_path: Path) -> None:
    """For a broker that is away and is to have offsets."""
    with OncelogBroker(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        create(broker, "orders")
        write(broker, "orders", [b"1"])
        command = [sys.executable, "-c", CLOSED_TWICE, broker.bootstrap]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
        assert process.stdout.readline() == "read\n"
        broker.kill()
        out, errors = process.communicate("go on\n", timeout=PATIENCE_S)
    assert out == "[]\n", errors
    assert process.returncode == -signal.SIGINT, errors


def test_settings_that_cannot_be() -> None:
    with pytest.raises(InvalidConfig, match=r"auto.offset.reset"):
        Consumer("127.0.0.1:9092", auto_ofset_reset="earliest")
    with pytest.raises(InvalidConfig):
        Consumer()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_that_restarts(tmp_path: Path, protocol: str, how: str) -> None:
    """Members, positions and committed offsets are there again: nothing is read twice, nothing is missed."""
    with OncelogBroker(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
        (partition,) = create(broker, "orders")
        written = write(broker, "orders", numbered(0, 10))
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **PROTOCOLS[protocol]}
        lost: list[object] = []
        with Consumer(broker.bootstrap, group_id="billing", **settings) as consumer:
            consumer.subscribe("orders", on_lost=lambda _, partitions: lost.append(partitions))
            seen = values_of(read(consumer, 10))
            consumer.commit()
            assert getattr(broker, how)() is not None
            consumer.poll(0.1)
            broker.start()
            written += write(broker, "orders", numbered(10, 10))
            seen += values_of(poll_until(consumer, lambda: consumer.position(partition) == 20, "the rest"))
            consumer.commit()
            found = consumer.committed(partition)[partition]
        assert found is not None
        assert found.offset == 20
        assert seen == written
        assert lost == []


def test_metrics(broker: BrokerProcess, consumer: Consumer, partition: TopicPartition) -> None:
    write(broker, partition.topic, numbered(0, 10))
    read(consumer, 10)
    consumer.commit()
    metrics = consumer.metrics()
    assert metrics["records-consumed-total"] == 10
    assert metrics["commit-total"] == 1
    assert metrics[f"records-lag{{{partition}}}"] == 0
    assert metrics["fetch-total"] >= 1
    deadline = time.monotonic() + PATIENCE_S
    while consumer.metrics()["last-poll-seconds-ago"] < 0.01:
        assert time.monotonic() < deadline
