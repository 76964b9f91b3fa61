"""Transactions of `Producer` and `AsyncProducer`: the suite of every client, and what only ours promise."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

import oncelog
from oncelog import (
    AbortNeeded,
    Admin,
    AsyncProducer,
    Consumer,
    Ended,
    GroupMetadata,
    OutcomeUnknown,
    Producer,
    TopicPartition,
    TransactionalProducerFenced,
    TransactionMisuse,
)
from oncelog.errors import MessageTooLarge
from oncelog.faults import FaultProxy, Rule
from tests.support.broker import OncelogBroker
from tests.support.confluent import create_topic
from tests.support.oncelog_transactions import AsyncOncelog, Oncelog
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.transaction_suite import OffsetSuite
from tests.support.transactions import committed, end_offset, last_stable_offset, seen

Found = TypeVar("Found")

both = pytest.mark.on_both_brokers


class TestProducer(OffsetSuite):
    @pytest.fixture
    def client(self, broker: BrokerProcess) -> Oncelog:
        return Oncelog(broker)


class TestAsyncProducer(OffsetSuite):
    @pytest.fixture
    def client(self, broker: BrokerProcess) -> AsyncOncelog:
        return AsyncOncelog(broker)


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    create_topic(broker, name)
    return name


@pytest.fixture
def producer(broker: BrokerProcess, topic: str) -> Producer:
    return Producer(broker.bootstrap, transactional_id=f"of-{topic}")


# --- blocks -----------------------------------------------------------------------------------------------------------


@both
def test_a_block_is_committed_at_its_end_and_aborted_if_it_raises(
    broker: BrokerProcess, topic: str, producer: Producer
) -> None:
    def raising() -> None:
        with producer.transaction():
            producer.send(topic, b"lost").result(PATIENCE_S)
            raise ZeroDivisionError

    with producer:
        with producer.transaction():
            producer.send(topic, b"kept")
        with pytest.raises(ZeroDivisionError):
            raising()
        with producer.transaction() as same:
            assert same is producer
            producer.send(topic, b"kept too")
        metrics = producer.metrics()
        assert (metrics["txn-commit-total"], metrics["txn-abort-total"]) == (2, 1)
        assert all(metrics[f"txn-{call}-time-ns-total"] > 0 for call in ("init", "commit", "abort"))
    assert seen(broker, topic) == [b"kept", b"kept too"]


@both
def test_a_block_of_asyncio(broker: BrokerProcess, topic: str) -> None:
    async def raising(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"lost")
            raise ZeroDivisionError

    async def scene() -> None:
        async with AsyncProducer(broker.bootstrap, transactional_id=f"of-{topic}") as producer:
            async with producer.transaction():
                producer.send(topic, b"kept")
            with pytest.raises(ZeroDivisionError):
                await raising(producer)
            async with producer.transaction():
                producer.send(topic, b"kept too")

    asyncio.run(scene())
    assert seen(broker, topic) == [b"kept", b"kept too"]


@both
def test_a_record_that_fails_takes_its_transaction_with_it(broker: BrokerProcess, topic: str) -> None:
    def too_large(producer: Producer) -> None:
        with producer.transaction():
            producer.send(topic, b"with it")
            producer.send(topic, b"x" * 1_100_000)

    with Producer(broker.bootstrap, transactional_id=f"of-{topic}", max_request_size=2_000_000) as producer:
        with pytest.raises(AbortNeeded) as lost:
            too_large(producer)
        assert isinstance(lost.value.__cause__, MessageTooLarge)
        with producer.transaction():
            producer.send(topic, b"the next one")
    assert seen(broker, topic) == [b"the next one"]


@both
def test_after_a_failure_every_call_says_to_abort(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap, transactional_id=f"of-{topic}", max_request_size=2_000_000) as producer:
        producer.init_transactions(PATIENCE_S)
        producer.begin()
        producer.send(topic, b"x" * 1_100_000).exception(PATIENCE_S)
        eventually(lambda: _raises(AbortNeeded, lambda: producer.send(topic, b"more")), "send() to say so")
        with pytest.raises(AbortNeeded, match=r"Call abort\(\), then begin again") as told:
            producer.commit()
        assert told.value.what_to_do == "abort"
        with pytest.raises(AbortNeeded):
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, "group")
        producer.abort(PATIENCE_S)
        producer.begin()
        producer.send(topic, b"again")
        producer.commit(PATIENCE_S)
    assert seen(broker, topic) == [b"again"]


def _raises(expected: type[Exception], call: Callable[[], object]) -> bool:
    try:
        call()
    except expected:
        return True
    return False


# --- calls at the wrong time ------------------------------------------------------------------------------------------


@both
def test_calls_at_the_wrong_time_change_nothing(broker: BrokerProcess, topic: str, producer: Producer) -> None:
    with producer:
        for call in (producer.begin, producer.commit, producer.abort, producer.prepare):
            with pytest.raises(TransactionMisuse, match="call init_transactions"):
                call()
        with pytest.raises(TransactionMisuse, match=r"call begin\(\) first"):
            producer.send(topic, b"too early")
        producer.init_transactions(PATIENCE_S)
        with pytest.raises(TransactionMisuse, match="called once"):
            producer.init_transactions()
        with pytest.raises(TransactionMisuse, match="no transaction was begun"):
            producer.commit()
        producer.begin()
        with pytest.raises(TransactionMisuse, match="is open"):
            producer.begin()
        producer.send(topic, b"kept")
        producer.commit(PATIENCE_S)
        with pytest.raises(TransactionMisuse, match="no transaction was begun"):
            producer.abort()
        with pytest.raises(TransactionMisuse, match="need a transaction"):
            producer.send(topic, b"too late")
    assert seen(broker, topic) == [b"kept"]


@both
def test_what_is_no_part_of_a_transaction_works_without_one(topic: str, producer: Producer) -> None:
    def all_of_it() -> None:
        assert producer.partitions_for(topic) == 1
        assert producer.flush() == 0
        assert producer.metrics()["record-send-total"] == 0
        assert producer.client_id in repr(producer)
        assert producer.is_connected

    with producer:
        all_of_it()
        producer.init_transactions()
        all_of_it()
        producer.begin()
        producer.abort()
        all_of_it()


def test_a_producer_without_a_transactional_id_says_so(oncelog_broker: BrokerProcess) -> None:
    with Producer(oncelog_broker.bootstrap) as producer:
        for call in (producer.begin, producer.init_transactions, producer.commit, producer.abort, producer.prepare):
            with pytest.raises(TransactionMisuse, match="make one with transactional_id"):
                call()


def test_offsets_that_make_no_sense_are_refused_at_once(oncelog_broker: BrokerProcess) -> None:
    with Producer(oncelog_broker.bootstrap, transactional_id="senseless") as producer:
        producer.init_transactions(PATIENCE_S)
        producer.begin()
        with pytest.raises(ValueError, match="an offset is 0 or more, not -1"):
            producer.send_offsets_to_transaction({TopicPartition("t", 0): -1}, "group")
        with pytest.raises(TypeError, match="group_metadata"):
            producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, 7)  # type: ignore[arg-type]
        producer.abort(PATIENCE_S)


# --- ends that are hard to come by ------------------------------------------------------------------------------------


@both
def test_a_commit_whose_answer_is_lost_is_resolved(broker: BrokerProcess, topic: str) -> None:
    """The first two answers never come; the third attempt learns what the first one did."""
    lost_answers = Rule.drop_response("EndTxn", cut_after_ms=20, limit=2)
    with (
        FaultProxy(broker.bootstrap, [lost_answers]) as proxy,
        Producer(proxy.bootstrap_servers, transactional_id=f"of-{topic}") as producer,
    ):
        producer.init_transactions(PATIENCE_S)
        producer.begin()
        producer.send(topic, b"once")
        producer.commit(PATIENCE_S)
        assert proxy.report().responses["EndTxn"].dropped == 2
        with producer.transaction():
            producer.send(topic, b"and another")
    assert seen(broker, topic) == [b"once", b"and another"]


@both
def test_who_stopped_waiting_hears_the_outcome_later(broker: BrokerProcess, topic: str) -> None:
    silence = Rule.drop_response("EndTxn", cut_after_ms=20)
    with (
        FaultProxy(broker.bootstrap, [silence]) as proxy,
        Producer(proxy.bootstrap_servers, transactional_id=f"of-{topic}") as producer,
    ):
        producer.init_transactions(PATIENCE_S)
        producer.begin()
        producer.send(topic, b"late").result(PATIENCE_S)
        with pytest.raises(OutcomeUnknown, match="call it again") as unknown:
            producer.commit(timeout=0.05)
        assert unknown.value.what_to_do == "retry"
        with pytest.raises(TransactionMisuse, match=r"call commit\(\) again to hear how it ended"):
            producer.abort()
        with pytest.raises(TransactionMisuse, match=r"call commit\(\) again first"):
            producer.begin()
        proxy.heal()
        producer.commit(PATIENCE_S)
        producer.begin()
        producer.abort(PATIENCE_S)
    assert seen(broker, topic) == [b"late"]


@both
def test_closing_aborts_what_is_open(broker: BrokerProcess, topic: str, producer: Producer) -> None:
    with producer:
        producer.init_transactions(PATIENCE_S)
        producer.begin()
        producer.send(topic, b"never").result(PATIENCE_S)
    assert seen(broker, topic) == []


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_broker_that_is_gone_keeps_nobody_from_closing(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The open transaction is aborted later, by its coordinator. An hour of waiting would change nothing."""
    patient = {"transactional_id": "t", **dict.fromkeys(("delivery_timeout_ms", "max_block_ms"), 3_600_000)}

    def in_threads(broker: BrokerProcess) -> None:
        producer = Producer(broker.bootstrap, **patient)
        producer.init_transactions()
        producer.begin()
        producer.send("orders", b"1").result()
        broker.kill()
        producer.close()

    async def in_a_loop(broker: BrokerProcess) -> None:
        producer = AsyncProducer(broker.bootstrap, **patient)
        await producer.init_transactions()
        producer.begin()
        await producer.send("orders", b"1")
        broker.kill()
        await producer.close()

    with OncelogBroker(tmp_path) as broker:
        create_topic(broker, "orders")
        if kind == "threads":
            in_threads(broker)
        else:
            asyncio.run(asyncio.wait_for(in_a_loop(broker), PATIENCE_S))
    assert [record for record in caplog.records if "could not be aborted now" in record.getMessage()]


def test_a_block_that_is_interrupted_does_not_wait_long_for_its_abort(tmp_path: Path) -> None:
    """Ctrl-C ends the block although the broker is away; what happens is said by the next call."""
    with OncelogBroker(tmp_path) as broker, Producer(broker.bootstrap, transactional_id="t") as producer:
        create_topic(broker, "orders")
        producer.init_transactions()
        producer._transactions._patience_s = 3_600  # type: ignore[union-attr]  # as max.block.ms=3600000 would

        def interrupted() -> None:
            with producer.transaction():
                producer.send("orders", b"1").result()
                broker.kill()
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        with pytest.raises(TransactionMisuse, match=r"call abort\(\) again first"):
            producer.begin()


def test_the_outcome_of_a_commit_that_was_interrupted_is_heard_by_the_next_call(tmp_path: Path) -> None:
    """Ctrl-C, or a time limit that a signal's handler raises: the commit goes on, and nobody is told how it ended."""
    with OncelogBroker(tmp_path) as broker, Producer(broker.bootstrap, transactional_id="t") as producer:
        create_topic(broker, "orders")
        producer.init_transactions()
        producer.begin()
        producer.send("orders", b"1").result()
        news = producer._transactions._news  # type: ignore[union-attr]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(news, "wait_for", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.commit()
        producer.commit()
        assert seen(broker, "orders") == [b"1"]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


INTERRUPTED_CLOSE = """
import os, signal, sys, threading, time
from oncelog import Producer
producer = Producer(sys.argv[1], delivery_timeout_ms=3_600_000, max_block_ms=3_600_000)
producer.send("orders", b"1").result()
print("sent", flush=True)
sys.stdin.readline()
failed = []
producer.send("orders", b"2", on_delivery=lambda metadata, error: failed.append(error))
def interrupt():
    while producer._core.close_at_ms is None:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    producer.close()
except KeyboardInterrupt:
    while not failed:  # in Python 3.11 a join that was interrupted takes the thread for ended
        time.sleep(0.01)
    print(*failed)
"""


def test_ctrl_c_ends_a_close_that_waits(tmp_path: Path) -> None:
    """For a broker that is away, and is to have records: neither `close()` nor the end of the program waits on."""
    with OncelogBroker(tmp_path) as broker:
        create_topic(broker, "orders")
        command = [sys.executable, "-c", INTERRUPTED_CLOSE, broker.bootstrap]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
        assert process.stdout.readline() == "sent\n"
        broker.kill()
        out, errors = process.communicate("go on\n", timeout=PATIENCE_S)
    assert out == "the producer was closed before the records could be sent\n", errors
    assert process.returncode == 0, errors


@both
def test_a_fenced_producer_stays_fenced(broker: BrokerProcess, topic: str, producer: Producer) -> None:
    with producer, Producer(broker.bootstrap, transactional_id=f"of-{topic}") as successor:
        producer.init_transactions(PATIENCE_S)
        producer.begin()
        producer.send(topic, b"of a zombie").result(PATIENCE_S)
        successor.init_transactions(PATIENCE_S)
        with pytest.raises(TransactionalProducerFenced, match="has started") as fenced:
            producer.commit(PATIENCE_S)
        assert fenced.value.what_to_do == "give up"
        for call in (producer.begin, producer.commit, producer.abort, lambda: producer.send(topic, b"x")):
            with pytest.raises(TransactionalProducerFenced):
                call()
        with successor.transaction():
            successor.send(topic, b"of the successor")
    assert seen(broker, topic) == [b"of the successor"]


@both
def test_offsets_that_nobody_waits_for_are_committed(broker: BrokerProcess, topic: str, producer: Producer) -> None:
    partition = TopicPartition(topic, 0)
    with producer, Consumer(broker.bootstrap, group_id=f"group-of-{topic}") as consumer:
        with producer.transaction():
            producer.send_offsets_to_transaction({partition: 3}, consumer.group_metadata(), wait=False)
            producer.send_many(topic, [b"a", ("k", "b"), (None, b"c")])
        committed = eventually_found(lambda: consumer.committed(partition)[partition])
        assert committed.offset == 3
        stale = GroupMetadata(f"group-of-{topic}", 7, "nobody")
        with pytest.raises(AbortNeeded):
            commit_with(producer, {partition: 9}, stale)
    assert seen(broker, topic) == [b"a", b"b", b"c"]


@both
def test_a_transaction_is_flushed_before_its_end_is_known(
    broker: BrokerProcess, topic: str, producer: Producer
) -> None:
    partition = TopicPartition(topic, 0)
    with producer:
        producer.init_transactions()
        producer.begin()
        producer.send_offsets_to_transaction({partition: 3}, f"group-of-{topic}", wait=False)
        stored = producer.send(topic, b"a")
        producer.commit(wait=False)
        producer.flush_transaction()
        assert stored.done()
        producer.commit()
    assert seen(broker, topic) == [b"a"]


def commit_with(producer: Producer, offsets: dict[TopicPartition, int], group: GroupMetadata) -> None:
    with producer.transaction():
        producer.send_offsets_to_transaction(offsets, group, wait=False)


def eventually_found(find: Callable[[], Found | None]) -> Found:
    found: list[Found] = []

    def is_found() -> bool:
        found.extend(one for one in [find()] if one is not None)
        return bool(found)

    eventually(is_found, "the offset")
    return found[0]


@both
def test_many_at_once_are_as_each_alone(broker: BrokerProcess, topic: str) -> None:
    """Also where some of them need the long way: a topic that is not known yet, a serializer."""
    with Producer(broker.bootstrap, value_serializer="json") as producer:
        producer.send_many(topic, ({"n": number} for number in range(3)))
    with Producer(broker.bootstrap) as producer:
        producer.send_many(topic, [(b"k", b"v"), "text", (None, None)])
        with pytest.raises(TypeError):
            producer.send_many(topic, [b"before", 7, b"never"])
    with RawClient(broker.address) as raw:
        assert committed(raw, topic, 0) == [b'{"n":0}', b'{"n":1}', b'{"n":2}', b"v", b"text", None, b"before"]


# --- ended elsewhere --------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_prepared_transaction_is_ended_by_somebody_else(broker: BrokerProcess, topic: str, is_commit: bool) -> None:
    with Producer(broker.bootstrap, transactional_id=f"of-{topic}") as producer:
        producer.init_transactions(PATIENCE_S)
        producer.begin()
        producer.send(topic, b"prepared")
        prepared = producer.prepare(PATIENCE_S)
        assert prepared is not None
        with pytest.raises(TransactionMisuse, match="another process ends it"):
            producer.commit()
        with pytest.raises(TransactionMisuse, match="is being ended"):
            producer.send(topic, b"too late")
    with RawClient(broker.address) as raw:
        assert (end_offset(raw, topic, 0), last_stable_offset(raw, topic, 0)) == (1, 0), "still open"
    with Admin(broker.bootstrap) as admin:
        ended = admin.end_transaction(prepared, commit=is_commit)
        assert ended is (Ended.COMMITTED if is_commit else Ended.ABORTED)
        assert admin.end_transaction(prepared, commit=is_commit) is ended, "as often as it takes"
    assert seen(broker, topic) == ([b"prepared"] if is_commit else [])


@both
def test_nothing_is_prepared_where_nothing_was_sent(broker: BrokerProcess, topic: str, producer: Producer) -> None:
    with producer:
        producer.init_transactions(PATIENCE_S)
        producer.begin()
        assert producer.prepare(PATIENCE_S) is None
        producer.send(topic, b"sent after all")
        producer.commit(PATIENCE_S)
    assert seen(broker, topic) == [b"sent after all"]


def test_everything_is_exported() -> None:
    for name in ("AbortNeeded", "OutcomeUnknown", "TransactionError", "TransactionFailed", "PreparedTransaction"):
        assert name in oncelog.__all__
