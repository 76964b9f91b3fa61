"""A user's thread in the place of the sender's: what it does, what it leaves alone, and that nothing interrupts it."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from oncelog.client import selecting
from oncelog.client.producer_errors import DeliveryFailed
from oncelog.client.selecting import SelectingDriver
from oncelog.client.sockets import monotonic_ms
from oncelog.client.standing_in import LoneWaiter, StandIn
from oncelog.client.turn import PollWatch
from oncelog.errors import InvalidTopicException, NotEnoughReplicas, NotLeaderOrFollower
from oncelog.producer.producer import Producer
from tests.producer.scripted_broker import ScriptedBroker
from tests.support.confluent import create_topic, read
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess

TOPIC = "orders"


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({TOPIC: 1}) as broker:
        yield broker


@contextlib.contextmanager
def producer_for(bootstrap: str, topic: str = TOPIC, **settings: Any) -> Iterator[Producer]:
    """One whose partition has stored a record, so that others may go alone."""
    with Producer(bootstrap, linger_ms=0, **settings) as producer:
        producer.send(topic, b"first").result(PATIENCE_S)
        yield producer


def stand_in_of(producer: Producer) -> StandIn:
    stand_in = producer._news.stand_in
    assert stand_in is not None, "run `make native`"
    return stand_in


def begin(producer: Producer, topic: str, value: bytes) -> Any:
    """A record in a batch of its own that nobody was told of, once the sender's thread sleeps."""
    eventually(lambda: producer._driver.turn.can_be_lent and not producer._driver.turn.is_wanted, "the scene is set")
    queue = producer._accumulator.topics[topic].queues[0]
    return producer._accumulator.append_anew(queue, 0, None, value, (), None, monotonic_ms())


@pytest.mark.usefixtures("without_collector")
def test_no_python_code_runs_while_a_user_stands_in(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    """Between two of its steps a signal's handler could raise, and leave the core half way."""
    topic = new_topic()
    create_topic(broker, topic)
    called: list[str] = []
    alone = 0

    def note(frame: Any, event: str, argument: object) -> None:
        if event == "call":
            called.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    deadline = time.monotonic() + PATIENCE_S
    with producer_for(broker.bootstrap, topic) as producer:
        stand_in, queue = stand_in_of(producer), producer._accumulator.topics[topic].queues[0]
        for number in itertools.count(1):
            if alone == 50:
                break
            assert time.monotonic() < deadline, f"only {alone} of {number} had nobody but the user"
            future = begin(producer, topic, b"%d" % number)
            waiter = LoneWaiter(stand_in)
            future.delivery.wake(waiter)
            called.clear()
            sys.setprofile(note)
            has_sent = stand_in.send(queue)
            stand_in.attend(waiter, PATIENCE_S)
            sys.setprofile(None)
            if has_sent and waiter.is_set:
                alone += 1
                assert called == []
            else:  # the sender's thread happened to wake
                producer._driver.wake()
            assert future.result(PATIENCE_S).offset == number


def test_who_waits_again_has_what_is_left_of_the_time(scripted: ScriptedBroker) -> None:
    with producer_for(scripted.bootstrap) as producer:
        waiter = LoneWaiter(stand_in_of(producer))
        assert not waiter.wait(0.01)
        waiter.set()
        assert waiter.wait(3_600)
        waiter.clear()
        assert not waiter.wait(3_600), "an hour from its beginning on, which was a moment ago"


class Interrupted(Exception):
    pass


def test_signals_that_raise_at_any_moment_break_nothing(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    acknowledged, interruptions = [], 0
    is_over = threading.Event()
    is_armed = False

    def raise_it(number: int, frame: object) -> None:
        """Only where the test catches it, not between its own steps."""
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise Interrupted

    def storm() -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not is_over.wait(0.0007):
            signal.pthread_kill(main, signal.SIGUSR1)

    with producer_for(broker.bootstrap, topic) as producer:
        stand_in_of(producer)
        previous = signal.signal(signal.SIGUSR1, raise_it)
        thread = threading.Thread(target=storm)
        thread.start()
        try:
            for number in range(1, 2_001):
                try:
                    is_armed = True
                    producer.send(topic, b"%d" % number).result(PATIENCE_S)
                    acknowledged.append(number)
                    is_armed = False
                except Interrupted:
                    interruptions += 1
        finally:
            is_armed = False
            is_over.set()
            thread.join()
            signal.signal(signal.SIGUSR1, previous)
        last = producer.send(topic, b"2001").result(PATIENCE_S)
    stored = [int(message.value() or b"") for message in read(broker, topic, last.offset + 1)[1:]]
    assert interruptions > 20
    assert stored == sorted(set(stored)), "twice, or out of order"
    assert set(acknowledged) <= set(stored)
    assert stored[-1] == 2_001


@pytest.mark.parametrize("error", [NotEnoughReplicas, NotLeaderOrFollower])
def test_an_answer_that_is_not_plain_is_left_to_the_sender(scripted: ScriptedBroker, error: Any) -> None:
    with producer_for(scripted.bootstrap, retry_backoff_ms=1) as producer:
        for number in range(5):
            scripted.produce_codes.append(error.code)
            producer.send(TOPIC, b"%d" % number).result(PATIENCE_S)
            producer.send(TOPIC, b"again").result(PATIENCE_S)
    assert scripted.log[TOPIC, 0][1::2] == [b"%d" % number for number in range(5)]
    assert len(scripted.log[TOPIC, 0]) == 11


def test_an_error_is_raised_and_the_next_record_goes_on(scripted: ScriptedBroker) -> None:
    with producer_for(scripted.bootstrap) as producer:
        scripted.produce_codes.append(InvalidTopicException.code)
        with pytest.raises(InvalidTopicException):
            producer.send(TOPIC, b"refused").result(PATIENCE_S)
        producer.send(TOPIC, b"taken").result(PATIENCE_S)
    assert scripted.log[TOPIC, 0] == [b"first", b"taken"]


def test_a_request_that_the_socket_does_not_take_at_once(scripted: ScriptedBroker) -> None:
    large = {"send_buffer_bytes": 4_096}
    with producer_for(scripted.bootstrap, **large) as producer:
        for _ in range(3):
            producer.send(TOPIC, b"v" * 900_000).result(PATIENCE_S)
            producer.send(TOPIC, b"small").result(PATIENCE_S)
    assert [len(value or b"") for value in scripted.log[TOPIC, 0]] == [5, *[900_000, 5] * 3]


def test_batches_for_a_broker_that_can_take_no_more_wake_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """They leave with its next answer. The sender looks by itself now and then: one that is just awake is told."""
    one_at_a_time = {"max_in_flight_requests_per_connection": 1}
    attempts = [(2 * number + 1, 2 * number + 2) for number in range(5)]  # a record in an open batch wakes nobody
    wake = SelectingDriver.wake
    woken: list[SelectingDriver] = []

    def wake_and_tell(driver: SelectingDriver) -> None:
        woken.append(driver)
        wake(driver)

    with ScriptedBroker({TOPIC: 11}) as scripted, producer_for(scripted.bootstrap, **one_at_a_time) as producer:
        scripted.hold()
        under_way = producer.send(TOPIC, b"held", partition=0)
        eventually(lambda: producer._core.network.is_occupied(1), "the broker has what it may have")
        turn, later = producer._driver.turn, {}
        try:
            monkeypatch.setattr(SelectingDriver, "wake", wake_and_tell)
            for partitions in attempts:
                eventually(lambda: turn.can_be_lent and not turn.is_wanted, "the sender sleeps")
                woken.clear()
                later |= {one: producer.send(TOPIC, b"later", partition=one) for one in partitions}
                if not woken:
                    break
            assert woken == [], "each time"
        finally:
            scripted.gate.set()
        for future in (under_way, *later.values()):
            future.result(PATIENCE_S)
    assert [scripted.log[TOPIC, partition][-1] for partition in later] == [b"later"] * len(later)


def test_answers_that_arrive_in_pieces(scripted: ScriptedBroker) -> None:
    with in_pieces(scripted) as bootstrap, producer_for(bootstrap) as producer:
        for number in range(50):
            assert producer.send(TOPIC, b"%d" % number).result(PATIENCE_S).offset == number + 1
    assert len(scripted.log[TOPIC, 0]) == 51


@contextlib.contextmanager
def in_pieces(scripted: ScriptedBroker) -> Iterator[str]:
    """The same broker, at whose own address somebody listens who passes answers on a few bytes at a time."""
    listener = socket.create_server(("127.0.0.1", 0))
    behind, scripted.port = scripted.port, listener.getsockname()[1]

    def pass_on(source: socket.socket, sink: socket.socket, size: int) -> None:
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(65_536):
                for start in range(0, len(data), size):
                    sink.sendall(data[start : start + size])
                    time.sleep(0)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", behind))
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=pass_on, args=(client, server, 65_536), daemon=True).start()
                threading.Thread(target=pass_on, args=(server, client, 7), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{scripted.port}"
    finally:
        scripted.port = behind
        listener.close()


def test_many_threads_that_wait_beside_one_that_is_told(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    threads, each = 5, 200
    told_in: set[int | None] = set()
    told: list[int] = []

    def wait_for_each(name: int) -> None:
        for number in range(each):
            producer.send(topic, b"%d-%d" % (name, number)).result(PATIENCE_S)

    def hear(metadata: Any, error: Exception | None) -> None:
        assert error is None
        told_in.add(threading.get_ident())
        told.append(metadata.offset)

    with producer_for(broker.bootstrap, topic) as producer:
        waiting = [threading.Thread(target=wait_for_each, args=(name,)) for name in range(threads)]
        for thread in waiting:
            thread.start()
        for number in range(each):
            producer.send(topic, b"%d-%d" % (threads, number), on_delivery=hear)
        for thread in waiting:
            thread.join(PATIENCE_S)
        producer.flush(PATIENCE_S)
        last = producer.send(topic, b"last").result(PATIENCE_S)
        assert told_in == {producer._sender.thread.ident}
    assert last.offset == (threads + 1) * each + 1
    assert told == sorted(set(told))
    stored = [(message.value() or b"").split(b"-") for message in read(broker, topic, last.offset)[1:]]
    for name in range(threads + 1):
        assert [int(number) for who, number in stored if who == b"%d" % name] == list(range(each))


def test_a_callback_that_is_added_while_somebody_waits_runs_in_the_sender(scripted: ScriptedBroker) -> None:
    told_in: list[int] = []
    with producer_for(scripted.bootstrap) as producer:
        scripted.hold()
        future = producer.send(TOPIC, b"1")
        waiting = threading.Thread(target=lambda: future.result(PATIENCE_S))
        waiting.start()
        eventually(lambda: future.delivery.awaits_one_thread, "the scene is set")
        future.add_done_callback(lambda _: told_in.append(threading.get_ident()))
        scripted.gate.set()
        waiting.join(PATIENCE_S)
        producer.send(TOPIC, b"2").result(PATIENCE_S)
        assert told_in == [producer._sender.thread.ident]


def test_a_callback_of_a_table_runs_in_the_sender(scripted: ScriptedBroker) -> None:
    """Whoever waits for a table cannot stand in: its code would run where nothing may interrupt it."""
    told_in: list[int] = []
    refused: list[BaseException] = []
    with producer_for(scripted.bootstrap) as producer:

        def on_delivery(*_: Any) -> None:
            told_in.append(threading.get_ident())
            try:
                producer.flush(1)
            except RuntimeError as error:
                refused.append(error)

        for number in range(10):
            scripted.hold()
            future = producer.send_table(TOPIC, pa.table({"value": [b"%d" % number]}), on_delivery=on_delivery)
            threading.Timer(0.01, scripted.gate.set).start()
            assert future.result(PATIENCE_S).row_count == 1
        assert told_in == [producer._sender.thread.ident] * 10
    assert len(refused) == 10, "it would wait for itself"


def test_closing_while_somebody_waits(scripted: ScriptedBroker) -> None:
    raised: list[BaseException] = []
    with producer_for(scripted.bootstrap) as producer:
        scripted.hold()
        future = producer.send(TOPIC, b"1")

        def wait() -> None:
            try:
                future.result(PATIENCE_S)
            except DeliveryFailed as error:
                raised.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: future.delivery.awaits_one_thread, "the scene is set")
        producer.close(0.1)
        waiting.join(PATIENCE_S)
    scripted.gate.set()
    assert len(raised) == 1


def test_where_there_is_no_gate_nobody_stands_in(scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selecting, "new_watch", PollWatch)
    with producer_for(scripted.bootstrap) as producer:
        assert producer._news.stand_in is None
        for number in range(20):
            assert producer.send(TOPIC, b"%d" % number).result(PATIENCE_S).offset == number + 1
