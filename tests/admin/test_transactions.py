"""Transactions through `Admin`, of producers that speak either protocol: who is where, and how they are ended."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from oncelog import Producer
from oncelog.admin import (
    Admin,
    Ended,
    EndedOtherwise,
    HangingTransaction,
    NothingToEnd,
    OutcomeForgotten,
    PreparedTransaction,
    TransactionState,
    transactions,
)
from oncelog.client.transaction_errors import OutcomeUnknown
from oncelog.errors import InvalidRegularExpression, InvalidRequest, TransactionalIdNotFound
from oncelog.faults import FaultProxy, Rule
from oncelog.types import TopicPartition
from tests.support.broker import OncelogBroker
from tests.support.hanging import write_stray
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import create_topic
from tests.support.transactions import HandProducer, await_transactions, committed, end_offset, last_stable_offset

pytestmark = pytest.mark.on_both_brokers

PROTOCOLS = pytest.mark.parametrize("is_modern", [False, True], ids=["v1", "v2"])
OUTCOMES = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
PATIENCE_S = 60.0
LONG_MS, SHORT_MS = 600_000, 100
"""Timeouts of transactions: one that no test outlasts, one that none waits long for."""

Open = Callable[..., HandProducer]


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        await_transactions(client)
        yield client


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


@pytest.fixture
def as_protocol_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the broker had a `transaction.version` below 2."""
    monkeypatch.setattr(transactions, "PROTOCOL_2", 3)


@pytest.fixture(params=["by protocol 1", "by protocol 2"])
def protocol(request: pytest.FixtureRequest) -> None:
    if request.param == "by protocol 1":
        request.getfixturevalue("as_protocol_1")


@pytest.fixture
def topic(client: RawClient, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    create_topic(client, name, partitions=2)
    return name


@pytest.fixture
def open_one(client: RawClient, topic: str) -> Open:
    """A producer with an open transaction of one record in partition 0."""

    def make(is_modern: bool) -> HandProducer:
        producer = initialised(client, is_modern, LONG_MS)
        write(producer, topic)
        return producer

    return make


@pytest.fixture
def time_one_out(client: RawClient, topic: str) -> Open:
    """A producer whose transaction was aborted soon after it had begun."""

    def make(is_modern: bool) -> HandProducer:
        producer = initialised(client, is_modern, SHORT_MS)
        if is_modern:
            producer.produce(topic)
        else:
            producer.add((topic, 0))
        assert producer.rest() == "CompleteAbort"
        return producer

    return make


def initialised(client: RawClient, is_modern: bool, timeout_ms: int) -> HandProducer:
    producer = HandProducer(client, f"id-{uuid.uuid4().hex[:8]}", is_modern=is_modern)
    eventually(lambda: producer.init(timeout_ms=timeout_ms) == "none", "the producer has its id")
    return producer


def write(producer: HandProducer, topic: str, value: bytes = b"one") -> None:
    if not producer.is_modern:
        assert set(producer.add((topic, 0)).values()) == {"none"}
    assert producer.produce(topic, value) == "none"


def prepared(producer: HandProducer) -> PreparedTransaction:
    return PreparedTransaction(producer.transactional_id, producer.producer_id, producer.epoch)


def take_over(producer: HandProducer) -> HandProducer:
    return producer.copy().begun()


# --- ending -----------------------------------------------------------------------------------------------------------


@PROTOCOLS
@OUTCOMES
def test_ends_what_another_process_wrote_and_again_as_often_as_wanted(
    admin: Admin, client: RawClient, topic: str, open_one: Open, is_modern: bool, commit: bool
) -> None:
    producer = open_one(is_modern)
    wanted, other = (Ended.COMMITTED, Ended.ABORTED) if commit else (Ended.ABORTED, Ended.COMMITTED)
    for _ in range(3):  # at once, so that some come while markers are written
        assert admin.end_transaction(prepared(producer), commit=commit, timeout=PATIENCE_S) is wanted
    producer.rest()
    assert admin.end_transaction(prepared(producer), commit=commit, timeout=PATIENCE_S) is wanted
    assert committed(client, topic) == ([b"one"] if commit else [])
    with pytest.raises(EndedOtherwise, match=f"is {wanted.value} already") as caught:
        admin.end_transaction(prepared(producer), commit=not commit, timeout=PATIENCE_S)
    assert caught.value.outcome is wanted is not other


@OUTCOMES
def test_ends_what_our_producer_has_prepared(
    broker: BrokerProcess, admin: Admin, client: RawClient, topic: str, commit: bool
) -> None:
    with Producer(broker.bootstrap, transactional_id=f"id-{uuid.uuid4().hex[:8]}") as producer:
        producer.init_transactions(PATIENCE_S)
        producer.begin()
        for partition in (0, 1):
            producer.send(topic, b"one", partition=partition)
        prepared_one = producer.prepare(PATIENCE_S)
    assert prepared_one is not None
    admin.end_transaction(prepared_one, commit=commit, timeout=PATIENCE_S)
    eventually(lambda: {last_stable_offset(client, topic, at) for at in (0, 1)} == {2}, "both have their marker")
    assert [committed(client, topic, at) for at in (0, 1)] == ([[b"one"], [b"one"]] if commit else [[], []])


@PROTOCOLS
def test_a_timeout_that_came_first(admin: Admin, time_one_out: Open, is_modern: bool) -> None:
    producer = time_one_out(is_modern)
    with pytest.raises(EndedOtherwise, match="is aborted already") as caught:
        admin.end_transaction(prepared(producer), commit=True, timeout=PATIENCE_S)
    assert caught.value.outcome is Ended.ABORTED
    assert admin.end_transaction(prepared(producer), commit=False, timeout=PATIENCE_S) is Ended.ABORTED


def test_an_epoch_that_moved_on_tells_protocol_1_nothing(as_protocol_1: None, admin: Admin, time_one_out: Open) -> None:
    """A successor may have begun and ended a transaction under it."""
    producer = time_one_out(is_modern=False)
    with pytest.raises(OutcomeForgotten) as caught:
        admin.end_transaction(prepared(producer), commit=True, timeout=PATIENCE_S)
    assert caught.value.described is not None
    assert caught.value.described.state == TransactionState.COMPLETE_ABORT


def test_protocol_1_ends_and_knows_its_own_end(as_protocol_1: None, admin: Admin, open_one: Open) -> None:
    for commit, wanted in ((True, Ended.COMMITTED), (False, Ended.ABORTED)):
        producer = open_one(is_modern=False)
        for _ in range(3):
            assert admin.end_transaction(prepared(producer), commit=commit, timeout=PATIENCE_S) is wanted
        with pytest.raises(EndedOtherwise):
            admin.end_transaction(prepared(producer), commit=not commit, timeout=PATIENCE_S)
        producer.rest()
        assert producer.described()["producer_epoch"] == producer.epoch


@PROTOCOLS
@OUTCOMES
def test_a_successor_hides_the_outcome(admin: Admin, open_one: Open, is_modern: bool, commit: bool) -> None:
    producer = open_one(is_modern)
    admin.end_transaction(prepared(producer), commit=commit, timeout=PATIENCE_S)
    take_over(producer)
    for wish in (True, False):
        with pytest.raises(OutcomeForgotten, match="how it ended is not known") as caught:
            admin.end_transaction(prepared(producer), commit=wish, timeout=PATIENCE_S)
        assert caught.value.described is not None
        assert caught.value.described.producer_epoch == producer.epoch + 2


def test_what_wrote_nothing_or_was_never_there(admin: Admin, client: RawClient) -> None:
    producer = HandProducer(client, f"id-{uuid.uuid4().hex[:8]}").begun()
    for commit in (True, False):
        with pytest.raises(NothingToEnd, match="is not open"):
            admin.end_transaction(prepared(producer), commit=commit, timeout=PATIENCE_S)
        with pytest.raises(OutcomeForgotten, match="forgotten the transactional id"):
            admin.end_transaction(PreparedTransaction(uuid.uuid4().hex, 1, 0), commit=commit, timeout=PATIENCE_S)


def test_what_protocol_1_committed_is_not_taken_for_aborted(admin: Admin, open_one: Open) -> None:
    """By protocol 2 an abort under an epoch that is at rest succeeds: here it would tell a lie."""
    producer = open_one(is_modern=False)
    producer.ended(commit=True)
    with pytest.raises(NothingToEnd, match="CompleteCommit"):
        admin.end_transaction(prepared(producer), commit=False, timeout=PATIENCE_S)


@PROTOCOLS
@OUTCOMES
def test_lost_answers_are_resolved(
    broker: BrokerProcess, client: RawClient, topic: str, open_one: Open, protocol: None, is_modern: bool, commit: bool
) -> None:
    """By either protocol of the admin's, with transactions of either kind of producer."""
    producer = open_one(is_modern)
    rules = [Rule.drop_response("EndTxn", limit=2), Rule.drop_response("DescribeTransactions", limit=1)]
    with FaultProxy(broker.bootstrap, rules) as proxy, Admin(proxy.bootstrap_servers, retry_backoff_ms=10) as admin:
        ended = admin.end_transaction(prepared(producer), commit=commit, timeout=PATIENCE_S)
        assert proxy.report().total.dropped > 1
    assert ended is (Ended.COMMITTED if commit else Ended.ABORTED)
    producer.rest()
    assert committed(client, topic) == ([b"one"] if commit else [])


def test_no_answer_in_time_is_resolved_by_calling_again(broker: BrokerProcess, admin: Admin, open_one: Open) -> None:
    producer = open_one(is_modern=True)
    with (
        FaultProxy(broker.bootstrap, [Rule.drop_response("EndTxn")]) as proxy,
        Admin(proxy.bootstrap_servers, retry_backoff_ms=10) as cut_off,
        pytest.raises(OutcomeUnknown, match="call end_transaction again") as caught,
    ):
        cut_off.end_transaction(prepared(producer), commit=True, timeout=0.5)
    assert caught.value.what_to_do == "retry"
    assert admin.end_transaction(prepared(producer), commit=True, timeout=PATIENCE_S) is Ended.COMMITTED


def test_a_coordinator_that_is_down_is_waited_for(tmp_path: Path) -> None:
    """Also by an `Admin` that has never seen it, and so knows only late by which protocol to ask."""
    broker = OncelogBroker(tmp_path, {"oncelog.transaction.version": "1"})
    with broker:
        with RawClient(broker.address) as client:
            await_transactions(client)
            create_topic(client, "orders")
            producer = HandProducer(client, "shop", is_modern=False).begun()
            write(producer, "orders")
        broker.kill()
        with Admin(broker.bootstrap) as admin, ThreadPoolExecutor() as others:
            with pytest.raises(OutcomeUnknown, match="no broker answers"):
                admin.end_transaction(prepared(producer), commit=True, timeout=0)
            ending = others.submit(admin.end_transaction, prepared(producer), commit=True, timeout=PATIENCE_S)
            broker.start()
            assert ending.result() is Ended.COMMITTED
            described = admin.describe_transactions(["shop"])["shop"]
            assert described.producer_epoch == producer.epoch, "it was ended by protocol 1"


# --- looking ----------------------------------------------------------------------------------------------------------


@PROTOCOLS
def test_a_transaction_from_the_first_record_to_the_last_marker(
    admin: Admin, topic: str, open_one: Open, is_modern: bool
) -> None:
    producer = open_one(is_modern)
    name = producer.transactional_id
    described = admin.describe_transactions([name, name])[name]
    assert described.state == TransactionState.ONGOING
    assert (described.producer_id, described.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (described.timeout_ms, described.partitions) == (LONG_MS, (TopicPartition(topic, 0),))
    assert described.start_ms is not None
    (state,) = admin.describe_producers([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert (state.producer_id, state.current_transaction_start_offset) == (producer.producer_id, 0)
    assert state.coordinator_epoch is None, "no marker yet"

    producer.ended(commit=True)
    ended = admin.describe_transactions([name])[name]
    assert (ended.state, ended.partitions) == (TransactionState.COMPLETE_COMMIT, ())
    assert ended.producer_epoch == described.producer_epoch + is_modern
    (state,) = admin.describe_producers([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert state.current_transaction_start_offset is None
    assert state.coordinator_epoch is not None


def test_an_id_that_is_not_there(admin: Admin, client: RawClient, open_one: Open) -> None:
    assert admin.describe_transactions([]) == {}
    with pytest.raises(TransactionalIdNotFound, match="no transactional id 'nobody'"):
        admin.describe_transactions([open_one(is_modern=True).transactional_id, "nobody"])


def test_lists_are_filtered_by_the_broker(admin: Admin, open_one: Open) -> None:
    one, other = open_one(is_modern=True), open_one(is_modern=False)
    one.ended(commit=False)
    ours = {one.transactional_id, other.transactional_id}

    def listed(**filters: Any) -> set[str]:
        return {each.transactional_id for each in admin.list_transactions(**filters)} & ours

    assert listed() == ours
    assert listed(states=["Ongoing"]) == {other.transactional_id}
    assert listed(states=["CompleteAbort", "Ongoing"]) == ours
    assert listed(producer_ids=[one.producer_id]) == {one.transactional_id}
    assert listed(pattern=f"{one.transactional_id[:-1]}.") == {one.transactional_id}
    assert listed(pattern=one.transactional_id[:-1]) == set(), "the whole id must match"
    assert listed(older_than_ms=3_600_000) == set()
    eventually(lambda: listed(states=["Ongoing"], older_than_ms=1) == {other.transactional_id}, "it grows older")
    (listing,) = admin.list_transactions(producer_ids=[other.producer_id])
    assert (listing.state, listing.coordinator_id) == ("Ongoing", admin.describe_cluster().nodes[0].node_id)
    with pytest.raises(InvalidRequest, match="no state 'Open' of transactions; there are Empty, Ongoing"):
        admin.list_transactions(states=["Open"])
    with pytest.raises(InvalidRegularExpression, match=r"'\(' is not a regular expression"):
        admin.list_transactions(pattern="(")


def test_the_transactions_of_librdkafka(broker: BrokerProcess, admin: Admin, client: RawClient, topic: str) -> None:
    name = f"id-{uuid.uuid4().hex[:8]}"
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"one", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    found = admin.describe_transactions([name])[name]
    assert (found.state, found.partitions) == ("Ongoing", (TopicPartition(topic, 0),))
    mine = PreparedTransaction(name, found.producer_id, found.producer_epoch)
    assert admin.end_transaction(mine, commit=True, timeout=PATIENCE_S) is Ended.COMMITTED
    eventually(lambda: committed(client, topic) == [b"one"], "readers see it")
    with pytest.raises(ck.KafkaException):
        producer.commit_transaction(PATIENCE_S)


# --- what is stuck ----------------------------------------------------------------------------------------------------


def test_fencing_aborts_what_is_open(admin: Admin, client: RawClient, topic: str, open_one: Open) -> None:
    producer = open_one(is_modern=True)
    fenced = admin.fence_producers([producer.transactional_id])[producer.transactional_id]
    assert (fenced.producer_id, fenced.producer_epoch) == (producer.producer_id, producer.epoch + 2)
    assert producer.rest() == "Empty"
    assert committed(client, topic) == []
    assert last_stable_offset(client, topic) == end_offset(client, topic)
    assert producer.produce(topic, b"late") == "invalid_producer_epoch"


def test_a_transaction_that_no_coordinator_knows_of(
    broker: BrokerProcess, admin: Admin, client: RawClient, topic: str
) -> None:
    producer = write_stray(broker, client, topic, partition=1)
    write(producer, topic)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert admin.find_hanging_transactions(partitions) == [], "it may be added yet, for all that can be known"

    def found_at_once() -> list[HangingTransaction]:
        return admin.find_hanging_transactions(partitions, max_transaction_timeout_ms=0)

    eventually(lambda: bool(found_at_once()), "it is silent for a moment")
    (hanging,) = found_at_once()
    assert (hanging.partition, hanging.transactional_id) == (partitions[1], producer.transactional_id)
    producer.ended(commit=True)
    assert last_stable_offset(client, topic, 1) < end_offset(client, topic, 1), "readers wait"
    assert found_at_once() == [hanging]

    found = hanging.producer
    admin.abort_hanging(hanging.partition, found.producer_id, found.producer_epoch, found.coordinator_epoch or 0)
    assert last_stable_offset(client, topic, 1) == end_offset(client, topic, 1) == 2
    assert (committed(client, topic, 0), committed(client, topic, 1)) == ([b"one"], [])
    assert found_at_once() == []
