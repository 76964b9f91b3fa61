"""A spool with a transactional id on real brokers: who is told what and when, and what an earlier process left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog import Admin, Producer, TransactionalProducerFenced, TransactionMisuse
from oncelog.admin.values import ResourceType
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.spool.errors import SpoolError, SpoolFateUnknown
from oncelog.errors import MessageTooLarge
from oncelog.faults import FaultProxy, Rule
from tests.producer.test_spooling import files, leave_behind, numbers, patient
from tests.support.confluent import create_topic
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.transactions import committed, end_offset, seen

both = pytest.mark.on_both_brokers
NO_START = Rule.refuse_request("InitProducerId", error="COORDINATOR_LOAD_IN_PROGRESS")
SECOND_COMMIT_UNANSWERED = Rule.drop_response("EndTxn", every=2, cut_after_ms=600_000)


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    create_topic(broker, name)
    return name


@pytest.fixture
def spool_dir(tmp_path: Path) -> str:
    return str(tmp_path / "spool")


def spooled(bootstrap: str, topic: str, spool_dir: str, **settings: object) -> Producer:
    """One transactional id for each topic, and with it for each test."""
    return Producer(bootstrap, transactional_id=f"of-{topic}", spool_dir=spool_dir, **settings)


# --- the ordinary life ------------------------------------------------------------------------------------------------


@both
def test_users_are_told_where_each_record_is(broker: BrokerProcess, topic: str, spool_dir: str) -> None:
    told: list[int | None] = []
    with spooled(broker.bootstrap, topic, spool_dir) as producer:
        futures = [
            producer.send(topic, value, on_delivery=lambda metadata, error: told.append(metadata and metadata.offset))
            for value in numbers(0, 300)
        ]
        producer.flush(PATIENCE_S)
        assert len(told) == 300
        assert [future.result(0).offset for future in futures] == told
        assert seen(broker, topic) == numbers(0, 300)
    assert files(spool_dir, ".records") == []
    with Admin(broker.bootstrap) as admin:
        configs = admin.describe_configs(ResourceType.TOPIC, "oncelog-spool-positions")
        assert configs["cleanup.policy"].value == "compact"


def test_the_spool_alone_begins_and_ends_transactions(broker: BrokerProcess, topic: str, spool_dir: str) -> None:
    with spooled(broker.bootstrap, topic, spool_dir) as producer:
        for call in (producer.init_transactions, producer.begin, producer.commit, producer.abort, producer.prepare):
            with pytest.raises(TransactionMisuse, match="just send"):
                call()
        with pytest.raises(TransactionMisuse, match="just send"), producer.transaction():
            pass
        producer.send(topic, b"sent").result(PATIENCE_S)


@both
def test_a_record_that_no_broker_takes_fails_alone(
    broker: BrokerProcess, new_topic: Callable[[], str], spool_dir: str
) -> None:
    topic = new_topic()
    create_topic(broker, topic, configs={"max.message.bytes": "2000"})
    with spooled(broker.bootstrap, topic, spool_dir, batch_size=500) as producer:
        before = producer.send(topic, b"before")
        large = producer.send(topic, b"." * 5_000)
        after = producer.send(topic, b"after")
        assert isinstance(large.exception(PATIENCE_S), MessageTooLarge)
        after.result(PATIENCE_S)
        before.result(PATIENCE_S)
        assert seen(broker, topic) == [b"before", b"after"]


# --- what an earlier process left -------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("rule", "is_committed"),
    [(Rule.drop_response("EndTxn"), True), (Rule.drop_request("EndTxn"), False)],
    ids=["committed", "not committed"],
)
def test_killed_while_a_commit_is_unanswered(
    broker: BrokerProcess, topic: str, spool_dir: str, tmp_path: Path, rule: Rule, is_committed: bool
) -> None:
    """A copy of the folder is what a process would have left that was killed at that moment."""
    left = str(tmp_path / "left")
    with FaultProxy(broker.bootstrap, [rule]) as proxy, FaultProxy(proxy.bootstrap_servers, [NO_START]) as gate:
        producer = spooled(gate.bootstrap_servers, topic, spool_dir, linger_ms=200)
        futures = [producer.send(topic, value) for value in numbers(0, 20)]
        gate.heal()  # all of them are in the first transaction; there will be no other
        with RawClient(broker.address) as raw:
            eventually(lambda: end_offset(raw, topic, 0) >= 20, "all records")
            if is_committed:
                eventually(lambda: len(committed(raw, topic)) == 20, "the commit")
        shutil.copytree(spool_dir, left)
        assert not any(future.done() for future in futures), "nobody is told before the commit is known"
        producer.close(0)
    with spooled(broker.bootstrap, topic, left) as producer:
        producer.send(topic, b"next")
        producer.flush(PATIENCE_S)
    assert seen(broker, topic) == [*numbers(0, 20), b"next"]
    assert files(left, ".records") == []


@both
def test_a_new_folder_under_the_same_id_sends_its_first_records(
    broker: BrokerProcess, topic: str, spool_dir: str, tmp_path: Path
) -> None:
    for folder, values in ((spool_dir, numbers(0, 3)), (str(tmp_path / "another"), numbers(3, 5))):
        with spooled(broker.bootstrap, topic, folder) as producer:
            for value in values:
                producer.send(topic, value)
    assert seen(broker, topic) == numbers(0, 5)


@both
def test_a_second_producer_of_the_id_fences_the_first_whose_records_stay(
    broker: BrokerProcess, topic: str, spool_dir: str, tmp_path: Path
) -> None:
    first = spooled(broker.bootstrap, topic, spool_dir)
    first.send(topic, b"0").result(PATIENCE_S)
    with spooled(broker.bootstrap, topic, str(tmp_path / "second")) as second:
        second.send(topic, b"1").result(PATIENCE_S)
        kept = first.send(topic, b"2")
        with pytest.raises(ProducerClosed, match="another producer with the transactional id"):
            kept.result(PATIENCE_S)
        with pytest.raises(TransactionalProducerFenced):
            first.send(topic, b"3")
        first.close()
    with spooled(broker.bootstrap, topic, spool_dir):
        pass
    assert seen(broker, topic) == numbers(0, 3)


@both
def test_batches_from_before_there_was_an_id_get_their_fate_first(
    broker: BrokerProcess, topic: str, spool_dir: str
) -> None:
    leave_behind(spool_dir, topic, opened=5, waiting=3)
    with spooled(broker.bootstrap, topic, spool_dir) as producer:
        producer.flush(PATIENCE_S)
    assert seen(broker, topic) == numbers(0, 8)


def test_a_journal_that_is_damaged_is_no_question_with_an_id(broker: BrokerProcess, topic: str, spool_dir: str) -> None:
    with FaultProxy(broker.bootstrap, [SECOND_COMMIT_UNANSWERED]) as proxy:
        producer = spooled(proxy.bootstrap_servers, topic, spool_dir)
        producer.send(topic, b"0").result(PATIENCE_S)
        producer.send(topic, b"1")
        eventually(lambda: seen(broker, topic) == numbers(0, 2), "the second commit")
        producer.close(0)
    (journal,) = files(spool_dir, ".journal")
    path = os.path.join(spool_dir, journal)
    with open(path, "r+b") as file:
        file.write(b"rubbish")
    with spooled(broker.bootstrap, topic, spool_dir) as producer:
        producer.send(topic, b"2")
    assert seen(broker, topic) == numbers(0, 3)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_records_left_in_transactions_are_for_a_producer_with_that_id(
    broker: BrokerProcess, topic: str, spool_dir: str
) -> None:
    with FaultProxy(broker.bootstrap, [Rule.drop_request("EndTxn")]) as proxy:
        producer = spooled(proxy.bootstrap_servers, topic, spool_dir)
        producer.send(topic, b"0")
        with RawClient(broker.address) as raw:
            eventually(lambda: end_offset(raw, topic, 0) >= 1, "the record")
        producer.close(0)
    for other in ({}, {"transactional_id": "another"}):
        with pytest.raises(SpoolError, match=f"transactions of 'of-{topic}'"):
            Producer(broker.bootstrap, spool_dir=spool_dir, **other)
    spooled(broker.bootstrap, topic, spool_dir).close()
    with Producer(broker.bootstrap, spool_dir=spool_dir) as producer:
        producer.send(topic, b"1")
    assert seen(broker, topic) == numbers(0, 2)


def test_a_topic_that_forgets_positions_is_refused(
    broker: BrokerProcess, topic: str, new_topic: Callable[[], str], spool_dir: str
) -> None:
    positions = new_topic()
    create_topic(broker, positions, configs={"cleanup.policy": "delete"})
    with (  # it may be known when the producer is made, or soon afterwards
        pytest.raises((SpoolError, ProducerClosed), match=r"cleanup\.policy=delete"),
        spooled(broker.bootstrap, topic, spool_dir, spool_positions_topic=positions) as producer,
    ):
        producer.send(topic, b"kept").result(PATIENCE_S)
    assert seen(broker, topic) == []


def test_positions_that_somebody_deleted_are_a_question(
    broker: BrokerProcess, topic: str, new_topic: Callable[[], str], spool_dir: str
) -> None:
    positions = new_topic()
    with FaultProxy(broker.bootstrap, [SECOND_COMMIT_UNANSWERED]) as proxy:
        producer = spooled(proxy.bootstrap_servers, topic, spool_dir, spool_positions_topic=positions)
        producer.send(topic, b"0").result(PATIENCE_S)
        producer.send(topic, b"1")
        eventually(lambda: seen(broker, topic) == numbers(0, 2), "the second commit")
        producer.close(0)
    with Admin(broker.bootstrap) as admin:
        admin.delete_topic(positions)
    with patient(), pytest.raises(SpoolFateUnknown, match="was deleted"):
        spooled(broker.bootstrap, topic, spool_dir, spool_positions_topic=positions)
    spooled(broker.bootstrap, topic, spool_dir, spool_positions_topic=positions, spool_unknown="discard").close()
    assert seen(broker, topic) == numbers(0, 2)
