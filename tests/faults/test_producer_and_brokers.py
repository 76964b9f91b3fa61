"""The producer while brokers die, refuse, answer that they do not know, or have no leader to name; and its own end."""

from __future__ import annotations

import queue
import random
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.admin import OffsetSpec, ResourceType
from oncelog.audit.account import AuditReport
from oncelog.audit.numbered_load import NumberedLoad
from oncelog.client.metadata import NO_LEADER
from oncelog.errors import (
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from oncelog.faults import FaultProxy, Rule
from oncelog.faults.core import Link
from oncelog.faults.frames import read_request_head
from oncelog.faults.rewrite import rewrite_response
from oncelog.types import NO_OFFSET
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import decode_response_header
from oncelog.wire.produce import ProduceResponse, decode_produce_response
from tests.faults.cell import PARTITIONS, PATIENT, Outcome, audit_of, run_cell
from tests.support.confluent import create_topic
from tests.support.ports import unused_port
from tests.support.process import BrokerProcess

KILLS = 4
RECORDS_PER_LIFE = 5_000
WAIT_S = 120.0
REFUSALS = 10
EPOCHS = 5

LOST_AND_DOUBLED = [Rule.drop_response("Produce", probability=0.1), Rule.duplicate_request("Produce", probability=0.1)]
SETTINGS = {**PATIENT, "batch_size": 1_024}
PLAIN = {"enable_idempotence": False}
ONE_AT_A_TIME = {**PLAIN, "in_flight": 1}


def assert_exactly_once(report: AuditReport, load: NumberedLoad) -> None:
    examples = [example for entry in report.partitions for example in entry.examples]
    assert report.clean, f"{report.total} {examples[:5]}"
    assert not load.failures, load.failures[:3]
    assert report.total.sent == report.total.stored == load.sent


class SteadyLoad:
    """Sends in a thread of its own until the block ends; then everything has its result."""

    def __init__(self, producer: oncelog.Producer, topic: str, *, records: int = 50, pause_s: float = 0.001) -> None:
        self.load = NumberedLoad(producer, topic)
        self._producer = producer
        self._records = records
        self._pause_s = pause_s
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> SteadyLoad:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_ending.set()
        self._thread.join()
        self._producer.flush(WAIT_S)

    def _run(self) -> None:
        while not self._is_ending.wait(self._pause_s):
            self.load.send(self._records)


@pytest.mark.parametrize("in_flight", [1, 5])
def test_kill_9_in_the_middle(tmp_path: Path, rng: random.Random, in_flight: int) -> None:
    config = {"num.partitions": PARTITIONS}
    with (
        oncelog.Broker(tmp_path, port=unused_port(), config=config) as broker,
        FaultProxy(broker.bootstrap_servers, LOST_AND_DOUBLED, seed=rng.getrandbits(32)) as proxy,
        oncelog.Producer(
            proxy.bootstrap_servers, **SETTINGS, max_in_flight_requests_per_connection=in_flight
        ) as producer,
    ):
        load = NumberedLoad(producer, "survivors")
        for _ in range(KILLS):
            load.send(RECORDS_PER_LIFE)
            must_get_there(lambda: load.acknowledged > load.sent - rng.randrange(RECORDS_PER_LIFE))
            broker.kill()
            load.send_table(RECORDS_PER_LIFE)  # accepted while there is no broker
            broker.start()
        producer.flush(WAIT_S)
        assert proxy.report().responses["Produce"].dropped, proxy.report()
        assert_exactly_once(audit_of(load, broker.bootstrap_servers, "survivors"), load)


def must_get_there(condition: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(int(WAIT_S / 0.005)):
        if condition():
            return
        tick.wait(0.005)
    raise AssertionError(f"it did not happen in {WAIT_S:.0f} seconds")


# --- brokers that refuse --------------------------------------------------------------------------------------------


class OneByOne(Link):
    """Passes a request on when the broker has answered the one before, and first calls `between`."""

    between: Callable[[ProduceResponse, int], None]
    """With the answer to a Produce request, and how many of these are in flight behind it."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._behind: deque[bytes] = deque()

    def _take_request(self, frame: memoryview, now_ms: int) -> None:
        self._behind.append(bytes(frame))
        self._pass_next(now_ms)

    def _take_response(self, frame: memoryview, now_ms: int) -> None:
        head = self._asked[0].head
        super()._take_response(frame, now_ms)
        if head.api_key == ApiKey.PRODUCE:
            _, start = decode_response_header(head.api_key, head.version, frame)
            behind = sum(read_request_head(memoryview(each)).api_key == ApiKey.PRODUCE for each in self._behind)
            type(self).between(decode_produce_response(frame, start, head.version), behind)
        self._pass_next(now_ms)

    def _pass_next(self, now_ms: int) -> None:
        if self._behind and not self._asked:
            super()._take_request(memoryview(self._behind.popleft()), now_ms)


def send_while_the_broker_refuses_now_and_then(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch, *, in_flight: int = 5, **settings: Any
) -> tuple[AuditReport, NumberedLoad]:
    """Too few replicas for `min.insync.replicas`, and enough of them as soon as one request was refused and before the
    next one arrives; again and again, until often enough that one was in flight already, if there may be any. (Apache
    Kafka asks for no more replicas than a topic has, and so refuses nothing where there is one node.)"""
    create_topic(broker, topic)
    is_flowing, are_mended = threading.Event(), queue.SimpleQueue[bool]()
    with (
        oncelog.Admin(broker.bootstrap) as admin,
        oncelog.Admin(broker.bootstrap) as mender,
        FaultProxy(broker.bootstrap) as proxy,
    ):

        def mend(answer: ProduceResponse, behind: int) -> None:
            ((outcome,),) = [answered.partitions for answered in answer.topics]
            is_full = behind > 0 or in_flight == 1
            if outcome.error_code == NotEnoughReplicas.code:
                mender.alter_configs(ResourceType.TOPIC, topic, assign={"min.insync.replicas": "1"})
                are_mended.put(is_full)
            elif outcome.error_code == 0 and is_full:
                is_flowing.set()

        monkeypatch.setattr("oncelog.faults.proxy.Link", type("Mending", (OneByOne,), {"between": staticmethod(mend)}))
        settings = {**SETTINGS, "max_in_flight_requests_per_connection": in_flight, **settings}
        with oncelog.Producer(proxy.bootstrap_servers, **settings) as producer:
            with SteadyLoad(producer, topic) as steady:
                wanted = REFUSALS
                while wanted:
                    is_flowing.clear()
                    assert is_flowing.wait(WAIT_S)
                    admin.alter_configs(ResourceType.TOPIC, topic, assign={"min.insync.replicas": "2"})
                    wanted -= are_mended.get(timeout=WAIT_S)
            assert producer.metrics()["record-retry-total"] > 0
        return audit_of(steady.load, broker.bootstrap, topic), steady.load


@pytest.mark.parametrize("settings", [{}, ONE_AT_A_TIME], ids=["idempotent", "plain, one in flight"])
def test_refusals_change_nothing(
    oncelog_broker: BrokerProcess,
    new_topic: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
) -> None:
    report, load = send_while_the_broker_refuses_now_and_then(oncelog_broker, new_topic(), monkeypatch, **settings)
    assert_exactly_once(report, load)


def test_refusals_turn_the_order_round_without_idempotence_and_five_in_flight(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report, load = send_while_the_broker_refuses_now_and_then(oncelog_broker, new_topic(), monkeypatch, **PLAIN)
    assert report.total.out_of_order, report.total
    assert not report.total.lost, report.total
    assert not load.failures, load.failures[:3]


# --- brokers that answer what they would in a cluster -----------------------------------------------------------------


@contextmanager
def doctored_answers(
    monkeypatch: pytest.MonkeyPatch, api: ApiKey, doctor: Callable[[Message], None]
) -> Iterator[threading.Event]:
    """What passes the proxy says what `doctor` makes of it, while the event is set."""
    is_on = threading.Event()

    def rewrite(api_key: int, version: int, frame: memoryview, *others: Any) -> bytes | memoryview:
        frame = memoryview(rewrite_response(api_key, version, frame, *others))
        if api_key != api or not is_on.is_set():
            return frame
        _, start = decode_response_header(api_key, version, frame)
        message = codec.decode_exactly(f"{api.schema_prefix}Response", version, frame, start)
        doctor(message)
        return bytes(frame[:start]) + codec.encode(f"{api.schema_prefix}Response", version, message)

    monkeypatch.setattr("oncelog.faults.core.rewrite_response", rewrite)
    yield is_on
    monkeypatch.undo()


@pytest.mark.on_both_brokers
def test_a_moment_without_leaders(
    broker: BrokerProcess, new_topic: Callable[[], str], rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, leaderless_answers = new_topic(), []
    create_topic(broker, topic, partitions=PARTITIONS)

    def hold_elections(message: Message) -> None:
        leaderless_answers.append(message)
        for described in message["topics"]:
            for partition in described["partitions"]:
                partition["error_code"] = LeaderNotAvailable.code
                partition["leader_id"] = NO_LEADER

    with (
        doctored_answers(monkeypatch, ApiKey.METADATA, hold_elections) as are_without_leaders,
        FaultProxy(broker.bootstrap, seed=rng.getrandbits(32)) as proxy,
        oncelog.Producer(proxy.bootstrap_servers, **SETTINGS) as producer,
    ):
        load = NumberedLoad(producer, topic)
        for moment in range(1, 4):
            load.send(RECORDS_PER_LIFE)
            are_without_leaders.set()
            proxy.cut()  # whether or not anything was in flight, the producer asks who leads now
            must_get_there(lambda moment=moment: len(leaderless_answers) >= 3 * moment)  # type: ignore[misc]
            load.send_table(RECORDS_PER_LIFE)
            are_without_leaders.clear()
        producer.flush(WAIT_S)
        assert_exactly_once(audit_of(load, broker.bootstrap, topic), load)


def send_to_brokers_that_do_not_know(
    broker: BrokerProcess, topic: str, seed: int, code: int, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[AuditReport, NumberedLoad]:
    """Every fifth answer says that the records may not be stored, although they are."""
    create_topic(broker, topic, partitions=PARTITIONS)
    answers = iter(range(1_000_000))

    def doubt(message: Message) -> None:
        if next(answers) % 5:
            return
        for answered in message["responses"]:
            for partition in answered["partition_responses"]:
                partition.update(error_code=code, base_offset=NO_OFFSET)

    with (
        doctored_answers(monkeypatch, ApiKey.PRODUCE, doubt) as is_in_doubt,
        FaultProxy(broker.bootstrap, seed=seed) as proxy,
        oncelog.Producer(proxy.bootstrap_servers, **{**SETTINGS, **settings}) as producer,
    ):
        is_in_doubt.set()
        load = NumberedLoad(producer, topic)
        load.send(RECORDS_PER_LIFE)
        producer.flush(WAIT_S)
    return audit_of(load, broker.bootstrap, topic), load


UNCERTAIN = pytest.mark.parametrize(
    "error", [NotLeaderOrFollower, RequestTimedOut, NotEnoughReplicasAfterAppend], ids=lambda error: error.__name__
)


@pytest.mark.on_both_brokers
@UNCERTAIN
def test_answers_that_leave_it_open_are_asked_again(
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    error: type[oncelog.KafkaError],
) -> None:
    report, load = send_to_brokers_that_do_not_know(broker, new_topic(), rng.getrandbits(32), error.code, monkeypatch)
    assert_exactly_once(report, load)


@pytest.mark.on_both_brokers
@UNCERTAIN
@pytest.mark.parametrize("in_flight", [1, 5])
def test_answers_that_leave_it_open_double_without_idempotence(
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    error: type[oncelog.KafkaError],
    in_flight: int,
) -> None:
    settings = {**PLAIN, "max_in_flight_requests_per_connection": in_flight}
    report, load = send_to_brokers_that_do_not_know(
        broker, new_topic(), rng.getrandbits(32), error.code, monkeypatch, **settings
    )
    assert report.total.duplicated, report.total
    assert not report.total.lost, report.total
    assert not load.failures, load.failures[:3]


# --- producers that give up -------------------------------------------------------------------------------------------


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("in_flight", [1, 5])
def test_what_times_out_is_reported_and_the_rest_is_stored_once_and_in_order(
    broker: BrokerProcess, new_topic: Callable[[], str], rng: random.Random, in_flight: int
) -> None:
    """Requests outlive their records: they arrive after the user was told that it is too late."""
    outcome = _send_in_vain(
        broker,
        new_topic(),
        [Rule.stall("Produce", ms=1_000, every=7, limit=3)],
        rng.getrandbits(32),
        delivery_timeout_ms=400,
        request_timeout_ms=200,
        max_in_flight_requests_per_connection=in_flight,
    )
    assert outcome.failures, outcome
    assert outcome.audit.clean, outcome


@pytest.mark.on_both_brokers
def test_a_new_epoch_waits_for_what_is_in_doubt(
    broker: BrokerProcess, new_topic: Callable[[], str], rng: random.Random
) -> None:
    """Batches are given up one after the other, each time while answers about others, which are stored, got lost."""
    topic = new_topic()
    create_topic(broker, topic, partitions=PARTITIONS)
    rules = [Rule.drop_response("Produce", probability=0.5)]
    impatient = {**SETTINGS, "delivery_timeout_ms": 400, "request_timeout_ms": 350, "linger_ms": 5}
    with (
        FaultProxy(broker.bootstrap, rules, seed=rng.getrandbits(32)) as proxy,
        oncelog.Producer(proxy.bootstrap_servers, **impatient) as producer,
    ):
        with SteadyLoad(producer, topic, records=PARTITIONS, pause_s=0.005) as steady:
            must_get_there(lambda: producer.metrics()["epoch-bump-total"] >= EPOCHS)
        report = audit_of(steady.load, broker.bootstrap, topic)
    examples = [example for entry in report.partitions for example in entry.examples]
    assert report.clean, f"{report.total} {examples[:5]}"
    assert steady.load.failures, report.total


@pytest.mark.on_both_brokers
def test_without_retries_records_fail_but_are_not_doubled(
    broker: BrokerProcess, new_topic: Callable[[], str], rng: random.Random
) -> None:
    """The order is not promised: a request that was given up with its connection may be executed after one on the
    next connection, and its records, which were reported as failed, are then stored late."""
    rules = [Rule.drop_response("Produce", every=7), Rule.drop_request("Produce", every=9)]
    outcome = _send_in_vain(broker, new_topic(), rules, rng.getrandbits(32), **PLAIN, retries=0)
    assert outcome.failures, outcome
    total = outcome.audit.total
    assert (total.lost, total.duplicated, total.misplaced) == (0, 0, 0), outcome


def _send_in_vain(broker: BrokerProcess, topic: str, rules: list[Rule], seed: int, **settings: Any) -> Outcome:
    create_topic(broker, topic, partitions=PARTITIONS)
    return run_cell(broker.bootstrap, topic, rules, seed, records=RECORDS_PER_LIFE, batch_size=1_024, **settings)


CRASH = """
import os, signal, sys, oncelog
producer = oncelog.Producer(sys.argv[1], linger_ms=60_000)
for number in range(10):
    producer.send("memories", b"%d" % number)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_had_in_memory_is_gone(oncelog_broker: BrokerProcess) -> None:
    create_topic(oncelog_broker, "memories")
    killed = subprocess.run([sys.executable, "-c", CRASH, oncelog_broker.bootstrap], timeout=WAIT_S, check=False)
    assert killed.returncode == -signal.SIGKILL
    with oncelog.Admin(oncelog_broker.bootstrap) as admin:
        partition = oncelog.TopicPartition("memories", 0)
        assert admin.list_offsets({partition: OffsetSpec.LATEST})[partition].offset == 0
