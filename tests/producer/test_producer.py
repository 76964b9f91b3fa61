"""`Producer` as its users meet it: results, waiting, mistakes and ends. What its broker answers, the test decides."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import oncelog
from oncelog.client.accumulator import RecordTooLarge
from oncelog.client.delivery import NotDeliveredYet, RecordFuture
from oncelog.client.dispatch import CROWD
from oncelog.client.partitioner import PartitionerError
from oncelog.client.producer_errors import BufferExhausted, ProducerClosed, TopicUnavailable
from oncelog.errors import (
    ClusterAuthorizationFailed,
    InvalidTopicException,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from oncelog.producer.producer import Producer
from oncelog.producer.serializers import SerializationError
from oncelog.wire.api import ApiKey
from tests.client.fake_broker import HANG_UP, SILENCE
from tests.producer.scripted_broker import ScriptedBroker
from tests.support.patience import PATIENCE_S, eventually, once_heard

TOPIC = "orders"
PARTITIONS = 3
SMALL_MEMORY = {"buffer_memory": 10_000, "max_request_size": 10_000, "batch_size": 1_000, "linger_ms": 0}


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({TOPIC: PARTITIONS, "other": 1}) as scripted:
        yield scripted
        scripted.gate.set()


@pytest.fixture
def producer(scripted: ScriptedBroker) -> Iterator[Producer]:
    with Producer(scripted.bootstrap, linger_ms=0) as producer:
        yield producer


def small(scripted: ScriptedBroker, **settings: Any) -> Producer:
    """A producer whose memory is full after a few records, and which knows its topics."""
    producer = Producer(scripted.bootstrap, **{**SMALL_MEMORY, "max_block_ms": 100, **settings})
    for topic in scripted.topics:
        once_heard(lambda topic=topic: producer.partitions_for(topic))  # type: ignore[misc]
    return producer


def fill(producer: Producer, topic: str = TOPIC) -> list[RecordFuture]:
    """Until nothing more is accepted. Its broker must hold back."""
    accepted = []
    try:
        while True:
            accepted.append(producer.send(topic, b"x" * 500, partition=0))
    except BufferExhausted:
        return accepted


def test_a_quiet_partition_among_many_does_not_wait_for_a_busy_one() -> None:
    """With so many partitions, records are left to gather while the broker is busy: but not for ever."""
    with ScriptedBroker({TOPIC: CROWD}) as scripted, Producer(scripted.bootstrap, linger_ms=0) as producer:
        producer.send(TOPIC, b"first", partition=0).result(PATIENCE_S)
        before = producer.metrics()["request-total"]
        scripted.hold()
        try:
            sent = [producer.send(TOPIC, b"busy", partition=0)]
            eventually(lambda: producer.metrics()["request-total"] == before + 1, "the broker is busy")
            sent.append(producer.send(TOPIC, b"quiet", partition=1))
            eventually(lambda: producer.metrics()["request-total"] == before + 2, "the quiet one was sent all the same")
        finally:
            scripted.gate.set()
        assert [future.result(PATIENCE_S).partition for future in sent] == [0, 1]


class TestResults:
    def test_a_future_tells_where_the_record_is(self, producer: Producer) -> None:
        first = producer.send(TOPIC, "paid", partition=1, timestamp_ms=5).result(PATIENCE_S)
        second = producer.send(TOPIC, "sent", partition=1).result(PATIENCE_S)
        assert first == oncelog.RecordMetadata(TOPIC, 1, 0, 5)
        assert second.offset == 1
        assert abs(second.timestamp_ms - time.time() * 1000) < 60_000

    def test_callbacks_run_in_partition_order_once_each(self, scripted: ScriptedBroker, producer: Producer) -> None:
        told: list[Any] = []
        for number in range(500):
            producer.send(TOPIC, b"%d" % number, partition=0, on_delivery=lambda *outcome: told.append(outcome))
        producer.flush(PATIENCE_S)
        assert [metadata.offset for metadata, _ in told] == list(range(500))
        assert {error for _, error in told} == {None}
        assert scripted.log[TOPIC, 0] == [b"%d" % number for number in range(500)]

    def test_a_callback_gets_the_error_and_no_metadata(self, scripted: ScriptedBroker, producer: Producer) -> None:
        scripted.produce_codes = [29]
        told: list[Any] = []
        future = producer.send(TOPIC, b"", on_delivery=lambda *outcome: told.append(outcome))
        error = future.exception(PATIENCE_S)
        assert isinstance(error, TopicAuthorizationFailed)
        assert told == [(None, error)]

    def test_results_are_known_after_the_callback_ran(self, producer: Producer) -> None:
        told: list[bool] = []
        future = producer.send(TOPIC, b"", on_delivery=lambda *_: told.append(True))
        future.result(PATIENCE_S)
        assert told == [True]

    def test_a_result_that_is_late_can_be_asked_for_again(self, scripted: ScriptedBroker, producer: Producer) -> None:
        scripted.hold()
        future = producer.send(TOPIC, b"")
        with pytest.raises(NotDeliveredYet):
            future.result(0.05)
        scripted.gate.set()
        assert future.result(PATIENCE_S).offset == 0

    @pytest.mark.parametrize("exit_by", [lambda *_: 1 / 0, lambda *_: sys.exit(3)], ids=["raises", "exits"])
    def test_a_callback_that_raises_breaks_nothing(
        self, producer: Producer, exit_by: Callable[..., Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.ERROR):
            future = producer.send(TOPIC, b"", on_delivery=exit_by)
            assert future.result(PATIENCE_S).offset == 0
            producer.send(TOPIC, b"").add_done_callback(exit_by)
            producer.flush(PATIENCE_S)
        assert len(caplog.records) == 2
        producer.send(TOPIC, b"").result(PATIENCE_S)

    @pytest.mark.parametrize("kind", ["on_delivery", "done"])
    def test_flush_returns_after_callbacks_have_run(
        self, scripted: ScriptedBroker, producer: Producer, kind: str
    ) -> None:
        begun, may_end = threading.Event(), threading.Event()
        ended: list[bool] = []

        def linger(*_: Any) -> None:
            begun.set()
            ended.append(may_end.wait(PATIENCE_S))

        scripted.hold()
        if kind == "on_delivery":
            producer.send(TOPIC, b"", on_delivery=linger)
        else:
            producer.send(TOPIC, b"").add_done_callback(linger)
        scripted.gate.set()
        assert begun.wait(PATIENCE_S)
        assert producer.flush(0.05) == 1
        threading.Timer(0.05, may_end.set).start()
        producer.flush(PATIENCE_S)
        assert ended == [True]

    def test_a_callback_may_send(self, scripted: ScriptedBroker, producer: Producer) -> None:
        seconds: list[RecordFuture] = []
        firsts = [
            producer.send(TOPIC, b"1", partition=0, on_delivery=lambda *_: seconds.append(producer.send(TOPIC, b"2")))
            for _ in range(50)
        ]
        for future in firsts:
            future.result(PATIENCE_S)
        for future in seconds:
            future.result(PATIENCE_S)
        assert sum(len(log) for log in scripted.log.values()) == 100

    @pytest.mark.parametrize("wait", ["flush", "result"])
    def test_a_callback_that_would_wait_for_itself_is_told_so(self, producer: Producer, wait: str) -> None:
        failures: list[BaseException] = []

        def on_delivery(*_: Any) -> None:
            try:
                if wait == "flush":
                    producer.flush()
                else:
                    producer.send(TOPIC, b"").result()
            except RuntimeError as error:
                failures.append(error)

        producer.send(TOPIC, b"", on_delivery=on_delivery).result(PATIENCE_S)
        assert "in a delivery callback would wait for itself" in str(failures[0])

    def test_an_interceptor_that_raises_breaks_nothing(self, scripted: ScriptedBroker) -> None:
        class Broken:
            def on_send(self, record: Any) -> Any:
                raise ValueError("no")

            def on_acknowledgement(self, metadata: Any, error: Any) -> Any:
                raise ValueError("no")

        with Producer(scripted.bootstrap, interceptors=[Broken()]) as producer:
            assert producer.send(TOPIC, b"", partition=0).result(PATIENCE_S).offset == 0

    def test_interceptors_hear_of_records_that_were_not_accepted(self, scripted: ScriptedBroker) -> None:
        heard: list[Any] = []

        class Listener:
            def on_acknowledgement(self, metadata: Any, error: Any) -> None:
                heard.append((metadata, type(error)))

        with Producer(scripted.bootstrap, interceptors=[Listener()]) as producer, pytest.raises(TypeError):
            producer.send(TOPIC, b"", partition="1")
        assert heard == [(None, TypeError)]

    @pytest.mark.parametrize("part", ["partitioner", "value_serializer"])
    def test_what_the_users_own_code_raises_comes_out_of_send(self, scripted: ScriptedBroker, part: str) -> None:
        is_broken = True

        def own(*arguments: Any) -> Any:
            if is_broken:
                raise ZeroDivisionError("mine")
            return 0 if part == "partitioner" else b"v"

        with Producer(scripted.bootstrap, **{part: own}) as producer:
            with pytest.raises((ZeroDivisionError, SerializationError), match="mine"):
                producer.send(TOPIC, b"")
            is_broken = False
            producer.send(TOPIC, b"").result(PATIENCE_S)

    def test_a_partitioner_that_names_no_partition(self, scripted: ScriptedBroker) -> None:
        with Producer(scripted.bootstrap, partitioner=lambda *_: 99) as producer:
            for _ in range(2):
                with pytest.raises(PartitionerError, match="99 is not a partition of orders, which has 3"):
                    producer.send(TOPIC, b"")


class TestFlush:
    def test_does_not_wait_for_linger(self, scripted: ScriptedBroker) -> None:
        with Producer(scripted.bootstrap, linger_ms=60_000) as producer:
            future = producer.send(TOPIC, b"")
            producer.flush(PATIENCE_S)
            assert future.done()

    def test_tells_how_many_are_left(self, scripted: ScriptedBroker, producer: Producer) -> None:
        scripted.hold()
        futures = [producer.send(TOPIC, b"") for _ in range(3)]
        assert producer.flush(0.05) == 3
        assert producer.flush(0) == 3
        scripted.gate.set()
        assert producer.flush(PATIENCE_S) == 0
        assert all(future.done() for future in futures)

    def test_waits_for_failures_and_does_not_raise_them(self, scripted: ScriptedBroker, producer: Producer) -> None:
        scripted.produce_codes = [29]
        future = producer.send(TOPIC, b"")
        producer.flush(PATIENCE_S)
        assert future.exception(0) is not None

    def test_by_many_threads_leaves_linger_as_it_was(self, scripted: ScriptedBroker) -> None:
        with Producer(scripted.bootstrap, linger_ms=60_000) as producer:
            threads = [threading.Thread(target=producer.flush, args=(PATIENCE_S,)) for _ in range(8)]
            for thread in threads:
                producer.send(TOPIC, b"")
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            future = producer.send(TOPIC, b"")
            with pytest.raises(NotDeliveredYet):
                future.result(0.2)


class TestMemoryFull:
    def test_blocks_for_max_block_ms_then_says_what_to_do(self, scripted: ScriptedBroker) -> None:
        scripted.hold()
        with small(scripted, max_block_ms=300) as producer:
            fill(producer)
            began = time.monotonic()
            with pytest.raises(BufferExhausted, match=r"buffer\.memory \(10000 bytes\) is full.*raise it"):
                producer.send(TOPIC, b"x" * 500)
            assert time.monotonic() - began >= 0.3
            assert producer.metrics()["buffer-exhausted-total"] == 2
            scripted.gate.set()

    def test_goes_on_when_memory_comes_free(self, scripted: ScriptedBroker) -> None:
        scripted.hold()
        with small(scripted, max_block_ms=PATIENCE_S * 1000) as producer:

            def open_when_full() -> None:
                eventually(lambda: producer.metrics()["waiting-threads"] > 0, "memory is full")
                scripted.gate.set()

            opener = threading.Thread(target=open_when_full)
            opener.start()
            futures = [producer.send(TOPIC, b"x" * 500, partition=0) for _ in range(60)]
            offsets = [future.result(PATIENCE_S).offset for future in futures]
            assert offsets == list(range(60))
            metrics = producer.metrics()
            assert metrics["buffer-exhausted-total"] == 0
            assert metrics["bufferpool-wait-time-ns-total"] > 0
            assert metrics["buffer-available-bytes"] == 10_000
            opener.join()

    def test_does_not_wait_for_linger(self, scripted: ScriptedBroker) -> None:
        with small(scripted, max_block_ms=PATIENCE_S * 1000, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
            for _ in range(60):
                producer.send(TOPIC, b"x" * 500, partition=0)

    def test_with_acks_0_goes_on_as_soon_as_bytes_have_left(self, scripted: ScriptedBroker) -> None:
        with small(scripted, acks=0, max_block_ms=PATIENCE_S * 1000, linger_ms=60_000) as producer:
            began = time.monotonic()
            for _ in range(60):
                producer.send(TOPIC, b"x" * 500, partition=0)
            assert time.monotonic() - began < PATIENCE_S

    def test_comes_free_when_records_expire(self, scripted: ScriptedBroker) -> None:
        scripted.hold()
        times = {"delivery_timeout_ms": 300, "request_timeout_ms": 250, "max_block_ms": PATIENCE_S * 1000}
        with small(scripted, **times) as producer:
            for _ in range(40):
                producer.send(TOPIC, b"x" * 500, partition=0)
            scripted.gate.set()

    def test_fails_at_once(self, scripted: ScriptedBroker) -> None:
        scripted.hold()
        with small(scripted, buffer_full="fail", max_block_ms=60_000) as producer:
            accepted = fill(producer)
            scripted.gate.set()
            assert all(future.exception(PATIENCE_S) is None for future in accepted)
            producer.send(TOPIC, b"").result(PATIENCE_S)

    def test_drops_and_counts(self, scripted: ScriptedBroker) -> None:
        scripted.hold()
        told: list[Any] = []
        with small(scripted, buffer_full="drop", max_block_ms=60_000) as producer:
            futures = [
                producer.send(TOPIC, b"x" * 500, partition=0, on_delivery=lambda *outcome: told.append(outcome))
                for _ in range(60)
            ]
            dropped = [future for future in futures if future.done()]
            assert dropped
            assert all(isinstance(future.exception(0), BufferExhausted) for future in dropped)
            assert [(metadata, type(error)) for metadata, error in told] == [(None, BufferExhausted)] * len(dropped)
            assert producer.metrics()["records-dropped-total"] == len(dropped)
            scripted.gate.set()
            producer.flush(PATIENCE_S)
            assert len(scripted.log[TOPIC, 0]) == 60 - len(dropped)
            assert len(told) == 60

    def test_a_callback_that_raises_for_a_dropped_record_breaks_nothing(self, scripted: ScriptedBroker) -> None:
        scripted.hold()
        with small(scripted, buffer_full="drop") as producer:
            futures = [producer.send(TOPIC, b"x" * 500, on_delivery=lambda *_: 1 / 0) for _ in range(60)]
            assert any(future.done() for future in futures)
            scripted.gate.set()

    def test_in_a_callback_fails_at_once(self, scripted: ScriptedBroker) -> None:
        failures: list[BaseException] = []

        def send_much(*_: Any) -> None:
            try:
                while True:
                    producer.send(TOPIC, b"x" * 500, partition=0)
            except BufferExhausted as error:
                failures.append(error)

        with small(scripted, max_block_ms=60_000) as producer:
            producer.send(TOPIC, b"", on_delivery=send_much).result(PATIENCE_S)
            assert len(failures) == 1

    def test_of_many_threads_all_go_on_and_nothing_is_lost(self, scripted: ScriptedBroker) -> None:
        with small(scripted, max_block_ms=PATIENCE_S * 1000) as producer:
            futures: list[RecordFuture] = []

            def send_many(number: int) -> None:
                for count in range(100):
                    futures.append(producer.send(TOPIC, b"%d:%d" % (number, count) + bytes(300), partition=number % 3))

            threads = [threading.Thread(target=send_many, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            producer.flush(PATIENCE_S)
            assert len(futures) == 800
            assert all(future.exception(0) is None for future in futures)
            assert producer.metrics()["waiting-threads"] == 0
            stored = [value for log in scripted.log.values() for value in log if value is not None]
        for number in range(8):
            own = [int(value.rstrip(b"\0").split(b":")[1]) for value in stored if value.startswith(b"%d:" % number)]
            assert own == list(range(100))

    def test_keeps_no_lock_while_a_thread_waits(self, scripted: ScriptedBroker) -> None:
        scripted.hold()
        with small(scripted, max_block_ms=PATIENCE_S * 1000) as producer:
            large = b"x" * 4_000  # there is room for one, and for something small
            waiting = threading.Thread(target=lambda: [producer.send(TOPIC, large, partition=0) for _ in range(3)])
            waiting.start()
            eventually(lambda: producer.metrics()["waiting-threads"] > 0, "memory is full")
            # What needs no memory, or little of it, goes on meanwhile.
            assert producer.partitions_for(TOPIC) == PARTITIONS
            small_record = producer.send("other", b"")
            with pytest.raises(RecordTooLarge):
                producer.send("other", b"x" * 20_000)
            scripted.gate.set()
            assert small_record.result(PATIENCE_S).offset == 0
            waiting.join(PATIENCE_S)


class TestClose:
    def test_delivers_what_was_accepted(self, scripted: ScriptedBroker) -> None:
        producer = Producer(scripted.bootstrap, linger_ms=60_000)
        futures = [producer.send(TOPIC, b"%d" % number) for number in range(100)]
        producer.close()
        assert all(future.exception(0) is None for future in futures)

    def test_gives_up_after_its_timeout_and_says_so(self, scripted: ScriptedBroker) -> None:
        scripted.hold()
        told: list[Any] = []
        producer = Producer(scripted.bootstrap, linger_ms=0)
        producer.partitions_for(TOPIC)
        future = producer.send(TOPIC, b"", on_delivery=lambda *outcome: told.append(outcome))
        producer.close(0.1)
        producer._sender.thread.join(PATIENCE_S)
        error = future.exception(0)
        assert error is not None
        assert "closed before the records could be sent" in str(error)
        assert told == [(None, error)]

    def test_twice_is_harmless(self, scripted: ScriptedBroker) -> None:
        producer = Producer(scripted.bootstrap)
        producer.close()
        producer.close()

    def test_in_a_callback_ends_the_producer(self, scripted: ScriptedBroker) -> None:
        producer = Producer(scripted.bootstrap, linger_ms=0)
        producer.send(TOPIC, b"", on_delivery=lambda *_: producer.close()).result(PATIENCE_S)
        producer._sender.thread.join(PATIENCE_S)
        assert not producer._sender.thread.is_alive()
        with pytest.raises(ProducerClosed):
            producer.send(TOPIC, b"")

    def test_makes_every_later_use_an_error(self, scripted: ScriptedBroker) -> None:
        producer = Producer(scripted.bootstrap)
        producer.send(TOPIC, b"").result(PATIENCE_S)
        producer.close()
        for use in (lambda: producer.send(TOPIC, b""), lambda: producer.partitions_for(TOPIC)):
            with pytest.raises(ProducerClosed, match="closed; make a new one"):
                use()
        producer.flush()

    def test_sends_those_who_wait_away(self, scripted: ScriptedBroker) -> None:
        scripted.hold()
        producer = small(scripted, max_block_ms=PATIENCE_S * 1000)
        failures: list[BaseException] = []

        def send_many() -> None:
            try:
                while True:
                    producer.send(TOPIC, b"x" * 500, partition=0)
            except ProducerClosed as error:
                failures.append(error)

        waiting = threading.Thread(target=send_many)
        waiting.start()
        eventually(lambda: producer.metrics()["waiting-threads"] > 0, "memory is full")
        closing = threading.Thread(target=producer.close)
        closing.start()
        waiting.join(PATIENCE_S)
        scripted.gate.set()
        closing.join(PATIENCE_S)
        assert len(failures) == 1

    def test_leaves_no_record_without_a_result_however_it_races_with_send(self, scripted: ScriptedBroker) -> None:
        for _ in range(10):
            producer = Producer(scripted.bootstrap, linger_ms=0, batch_size=0)
            producer.partitions_for(TOPIC)
            futures: list[RecordFuture] = []

            def send_many(producer: Producer = producer, futures: list[RecordFuture] = futures) -> None:
                try:
                    while True:
                        futures.append(producer.send(TOPIC, b""))
                except ProducerClosed:
                    pass

            threads = [threading.Thread(target=send_many) for _ in range(3)]
            for thread in threads:
                thread.start()
            producer.close()
            for thread in threads:
                thread.join(PATIENCE_S)
            assert all(future.exception(PATIENCE_S) is None for future in futures)

    def test_waits_for_a_body_that_raised(self, scripted: ScriptedBroker) -> None:
        with contextlib.suppress(KeyError), Producer(scripted.bootstrap, linger_ms=60_000) as producer:
            future = producer.send(TOPIC, b"")
            raise KeyError
        assert future.result(0).offset == 0


class TestForgotten:
    def test_producers_warn_deliver_and_end_their_threads(self, scripted: ScriptedBroker) -> None:
        producer = Producer(scripted.bootstrap, linger_ms=100)
        thread = producer._sender.thread
        gone = weakref.ref(producer)
        futures = [producer.send(TOPIC, b"") for _ in range(10)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del producer
            gc.collect()
        assert gone() is None
        assert [warning.category for warning in caught if "was not closed" in str(warning.message)] == [ResourceWarning]
        assert all(future.exception(PATIENCE_S) is None for future in futures)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    def test_closed_ones_do_not_warn(self, scripted: ScriptedBroker) -> None:
        producer = Producer(scripted.bootstrap)
        producer.close()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del producer
            gc.collect()

    def test_producers_that_could_not_be_made_leave_nothing(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(oncelog.OncelogError):
                Producer("127.0.0.1:1", acks=5)
            gc.collect()


class TestAfterAFork:
    def in_child(self, check: Callable[[], None]) -> None:
        """Run `check` in a forked child; fails if it raises there, or hangs."""
        child = os.fork()
        if child == 0:
            try:
                check()
                os._exit(0)
            except BaseException:
                logging.getLogger(__name__).exception("in the child")
                os._exit(1)
        deadline = time.monotonic() + PATIENCE_S
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(child, 9)
                os.waitpid(child, 0)
                pytest.fail("the child hangs")
            time.sleep(0.01)
        assert ended[1] == 0

    def test_the_child_is_told_and_the_parent_goes_on(self, scripted: ScriptedBroker, producer: Producer) -> None:
        scripted.hold()
        pending = producer.send(TOPIC, b"1")

        def check() -> None:
            for use in (lambda: producer.send(TOPIC, b""), producer.flush, pending.result):
                with pytest.raises(ProducerClosed, match=r"made before a fork.*make a new one in the child"):
                    use()
            producer.close()

        self.in_child(check)
        scripted.gate.set()
        assert pending.result(PATIENCE_S).offset == 0
        assert producer.send(TOPIC, b"2").exception(PATIENCE_S) is None

    def test_the_child_can_have_a_producer_of_its_own(self, scripted: ScriptedBroker, producer: Producer) -> None:
        producer.send(TOPIC, b"1", partition=0).result(PATIENCE_S)

        def check() -> None:
            with Producer(scripted.bootstrap) as own:
                own.send(TOPIC, b"2", partition=0).result(PATIENCE_S)

        self.in_child(check)
        assert scripted.log[TOPIC, 0] == [b"1", b"2"]


class TestBadRecords:
    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            ({"topic": 5}, TypeError, "the topic is a name"),
            ({"topic": [TOPIC]}, TypeError, "the topic is a name"),
            ({"topic": None}, TypeError, "the topic is a name"),
            ({"topic": ""}, InvalidTopicException, "the empty string"),
            ({"topic": "no such/name"}, InvalidTopicException, "contains one or more characters"),
            ({"topic": "\ud800"}, InvalidTopicException, "contains one or more characters"),
            ({"value": 5}, TypeError, 'value_serializer="int"'),
            ({"value": {"a": 1}}, TypeError, 'value_serializer="json"'),
            ({"value": "\ud800"}, SerializationError, "the value of a record for orders"),
            ({"key": 1.5}, TypeError, 'key_serializer="float"'),
            ({"key": "\ud800"}, SerializationError, "the key of a record for orders"),
            ({"partition": "1"}, TypeError, "partition is a whole number"),
            ({"partition": True}, TypeError, "partition is a whole number"),
            ({"partition": 1.0}, TypeError, "partition is a whole number"),
            ({"partition": -1}, PartitionerError, "-1 is not a partition of orders, which has 3"),
            ({"timestamp_ms": -1}, ValueError, "since 1970"),
            ({"timestamp_ms": "now"}, TypeError, "timestamp_ms is a whole number"),
            ({"timestamp_ms": 1.5}, TypeError, "timestamp_ms is a whole number"),
            ({"timestamp_ms": 2**63}, ValueError, "since 1970"),
            ({"headers": "ab"}, TypeError, "headers are pairs"),
            ({"headers": [("a", 1)]}, TypeError, "encode it first"),
            ({"headers": [(b"a", b"1")]}, TypeError, "name is text"),
            ({"headers": ["ab"]}, TypeError, "a header is a pair"),
            ({"headers": [("\ud800", b"1")]}, ValueError, "UTF-8"),
            ({"on_delivery": "print"}, TypeError, "on_delivery is a function"),
            ({"value": b"x" * 2_000_000}, RecordTooLarge, r"larger than max\.request\.size \(1048576\)"),
            ({"headers": [("a", b"x" * 2_000_000)]}, RecordTooLarge, "raise max.request.size"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    @pytest.mark.parametrize("is_known", [True, False])
    def test_are_refused_where_the_mistake_is_made_and_harm_nothing(
        self,
        scripted: ScriptedBroker,
        producer: Producer,
        arguments: dict[str, Any],
        error: type[Exception],
        words: str,
        is_known: bool,
    ) -> None:
        in_flight = None
        if is_known:
            scripted.hold()
            producer.partitions_for(TOPIC)
            in_flight = producer.send(TOPIC, b"before", partition=0)
        with pytest.raises(error, match=words):
            producer.send(**{"topic": TOPIC, "value": b"", **arguments})
        scripted.gate.set()
        if in_flight is not None:
            assert in_flight.result(PATIENCE_S).offset == 0
        producer.send(TOPIC, b"after", partition=0).result(PATIENCE_S)
        assert scripted.log[TOPIC, 0] == [b"before", b"after"][not is_known :]

    def test_records_of_any_plain_kind_are_taken(self, producer: Producer) -> None:
        for value in (None, b"", bytearray(b"1"), memoryview(b"22"), "ü"):
            producer.send(TOPIC, value, key=value, headers=(("ü", memoryview(b"1")),)).result(PATIENCE_S)


class TestTopics:
    def test_that_nobody_creates_are_named_within_max_block_ms(self, scripted: ScriptedBroker) -> None:
        with Producer(scripted.bootstrap, max_block_ms=300) as producer:
            with pytest.raises(UnknownTopicOrPartition, match=r"'missing' does not exist.*`oncelog topics create"):
                once_heard(lambda: producer.send("missing", b""))
            once_heard(lambda: producer.send(TOPIC, b"")).result(PATIENCE_S)

    def test_that_are_created_meanwhile_are_found(self, scripted: ScriptedBroker, producer: Producer) -> None:
        creation = threading.Timer(0.2, lambda: scripted.topics.update(late=1))
        creation.start()
        assert producer.send("late", b"").result(PATIENCE_S).topic == "late"
        creation.join()

    def test_that_brokers_refuse_are_refused_at_once_and_asked_for_again(
        self, scripted: ScriptedBroker, producer: Producer
    ) -> None:
        scripted.topic_code = 29
        with pytest.raises(TopicAuthorizationFailed, match="'secret'"):
            producer.send("secret", b"")
        scripted.topics["secret"] = 1
        producer.send("secret", b"").result(PATIENCE_S)

    def test_that_grew_take_records_for_their_new_partitions(
        self, scripted: ScriptedBroker, producer: Producer
    ) -> None:
        producer.send(TOPIC, b"").result(PATIENCE_S)
        with pytest.raises(PartitionerError, match="5 is not a partition of orders, which has 3"):
            producer.send(TOPIC, b"", partition=5)
        scripted.topics[TOPIC] = 6
        assert producer.send(TOPIC, b"", partition=5).result(PATIENCE_S).partition == 5
        assert producer.partitions_for(TOPIC) == 6

    def test_asked_for_by_many_threads_at_once(self, scripted: ScriptedBroker) -> None:
        for _ in range(10):
            with Producer(scripted.bootstrap, linger_ms=0) as producer:
                futures: list[RecordFuture] = []
                threads = [
                    threading.Thread(target=lambda told=futures: told.append(producer.send(TOPIC, b"")))
                    for _ in range(16)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(PATIENCE_S)
                assert all(future.exception(PATIENCE_S) is None for future in futures)
                assert len(futures) == 16
                assert producer._core.awaited_topics == {}

    def test_is_not_asked_for_any_more_after_an_interruption(
        self, scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Producer(scripted.bootstrap) as producer, monkeypatch.context() as interrupting:

            def interrupted() -> None:
                raise KeyboardInterrupt

            interrupting.setattr(producer, "_driver", SimpleNamespace(wake=interrupted))
            with pytest.raises(KeyboardInterrupt):
                producer.send(TOPIC, b"")
            assert producer._core.awaited_topics == {}
            interrupting.undo()

    def test_not_known_yet_cannot_be_waited_for_in_a_callback(self, producer: Producer) -> None:
        failures: list[BaseException] = []

        def on_delivery(*_: Any) -> None:
            try:
                producer.send("other", b"")
            except TopicUnavailable as error:
                failures.append(error)

        producer.send(TOPIC, b"", on_delivery=on_delivery).result(PATIENCE_S)
        assert "a callback cannot wait for it" in str(failures[0])


class TestBadBrokers:
    def test_none_at_all(self) -> None:
        with (
            Producer("127.0.0.1:1", max_block_ms=300) as producer,
            pytest.raises(TopicUnavailable, match=r"within max\.block\.ms \(300\).*Connection refused") as caught,
        ):
            once_heard(lambda: producer.send(TOPIC, b""), "Connection refused")
        assert str(caught.value).endswith(
            ": 127.0.0.1:1: Connection refused; check bootstrap.servers and the brokers"  # which are named already
        )

    def test_a_name_that_nobody_knows(self) -> None:
        with (
            Producer("no-such-host.invalid:9092", max_block_ms=300) as producer,
            pytest.raises(TopicUnavailable, match=r"unknown host.*check bootstrap\.servers"),
        ):
            once_heard(lambda: producer.send(TOPIC, b""), "unknown host")

    def test_one_that_never_answers(self) -> None:
        with ScriptedBroker({}) as silent:
            silent._answer = lambda frame: SILENCE  # type: ignore[method-assign]
            with (
                Producer(silent.bootstrap, max_block_ms=300) as producer,
                pytest.raises(TopicUnavailable, match=r"no broker answered; check bootstrap\.servers"),
            ):
                producer.send(TOPIC, b"")

    @pytest.mark.parametrize("rubbish", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x04\0\0\0\x63", b"\xff" * 64])
    def test_one_that_answers_rubbish(self, rubbish: bytes) -> None:
        with ScriptedBroker({}) as liar:
            liar._answer = lambda frame: rubbish  # type: ignore[method-assign]
            with (
                Producer(liar.bootstrap, max_block_ms=300) as producer,
                pytest.raises(TopicUnavailable, match="does not speak Kafka's protocol"),
            ):
                once_heard(lambda: producer.send(TOPIC, b""), "does not speak Kafka's protocol")

    def test_one_that_begins_to_answer_rubbish_harms_only_what_it_had(
        self, scripted: ScriptedBroker, producer: Producer
    ) -> None:
        producer.send(TOPIC, b"1", partition=0).result(PATIENCE_S)
        answer = scripted._answer
        spoiled = [b"\xff" * 64]

        def spoil(frame: memoryview) -> object:
            given = answer(frame)
            return spoiled.pop() if spoiled else given

        scripted._answer = spoil  # type: ignore[method-assign]
        # Stored, and the answer spoiled: this broker does not know idempotence, so that one sees the retry.
        assert producer.send(TOPIC, b"2", partition=0).result(PATIENCE_S).offset == 2
        assert scripted.log[TOPIC, 0] == [b"1", b"2", b"2"]

    @pytest.mark.parametrize(
        "indexes", [[0, 2], [2**31 - 1], [-1], [0, 0], []], ids=["gap", "huge", "negative", "twice", "none"]
    )
    def test_one_that_miscounts_partitions_is_not_believed(self, scripted: ScriptedBroker, indexes: list[int]) -> None:
        def miscount() -> object:
            answer = scripted.describe([TOPIC])
            one = answer["topics"][0]["partitions"][0]
            answer["topics"][0]["partitions"] = [{**one, "partition_index": index} for index in indexes]
            return answer

        scripted.metadata_answers = [miscount]
        with Producer(scripted.bootstrap, linger_ms=0) as producer:
            producer.send(TOPIC, b"").result(PATIENCE_S)
            assert producer.partitions_for(TOPIC) == PARTITIONS

    def test_a_leader_that_is_no_broker_is_asked_for_again(self, scripted: ScriptedBroker) -> None:
        def misname() -> object:
            answer = scripted.describe([TOPIC])
            for partition in answer["topics"][0]["partitions"]:
                partition["leader_id"] = 99
            return answer

        scripted.metadata_answers = [misname, misname]
        with Producer(scripted.bootstrap, linger_ms=0) as producer:
            producer.send(TOPIC, b"").result(PATIENCE_S)
        assert scripted.asked[ApiKey.METADATA] >= 3

    def test_one_that_hangs_up_while_asked_is_asked_again(self, scripted: ScriptedBroker) -> None:
        scripted.metadata_answers = [lambda: HANG_UP, lambda: HANG_UP]
        with Producer(scripted.bootstrap, linger_ms=0) as producer:
            producer.send(TOPIC, b"").result(PATIENCE_S)

    def test_one_that_gives_no_producer_id_ends_the_producer(self, scripted: ScriptedBroker) -> None:
        scripted.id_code = 31
        with Producer(scripted.bootstrap, linger_ms=0) as producer:
            error = producer.send(TOPIC, b"").exception(PATIENCE_S)
            assert isinstance(error, ClusterAuthorizationFailed)
            with pytest.raises(ProducerClosed, match="gave up"):
                producer.send(TOPIC, b"")
