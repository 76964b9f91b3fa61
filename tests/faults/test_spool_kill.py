"""`kill -9` of a producer with a spool, at 200 random moments (`make faults`; else 90): nothing for which `send()`
returned is lost, and nothing is stored twice or out of order; with a transactional id, as readers of committed records
see it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.audit.account import Audit, Ledger
from oncelog.audit.ids import RecordId
from oncelog.cli.audit import observe_topic
from oncelog.faults import FaultProxy, Rule
from oncelog.producer.producer import Producer
from oncelog.types import IsolationLevel, TopicPartition
from tests.faults.spool_lives import Lives, stream_of
from tests.support.confluent import create_topic
from tests.support.process import BrokerProcess
from tests.support.sizes import IS_SOAK
from tests.support.transactions import await_stable

KILLS = 70 if IS_SOAK else 25
PARTITIONS = 3
LIFE_S = (0.01, 0.25)
"""The shortest end before the producer is made, the longest in the middle of its work."""
FINISH_S = 120
SLOW_ANSWERS = [Rule.delay("Produce", ms=(1, 30), on="response")]
"""So that most deaths find batches in flight, some of them stored."""
BAD_NETWORK = [
    *SLOW_ANSWERS,
    Rule.drop_response("Produce", probability=0.03),
    Rule.drop_request("Produce", probability=0.02),
    Rule.duplicate_request("Produce", probability=0.03),
    Rule.cut(every=40),
]


def some_settings(rng: random.Random) -> dict[str, Any]:
    """Of one life: small batches, sometimes a full memory, fsync, compression."""
    return {
        "linger_ms": rng.choice([0, 1, 5]),
        "batch_size": rng.choice([200, 1_000, 16_384]),
        "buffer_memory": rng.choice([20_000, 33_554_432]),
        "max_request_size": 20_000,
        "retry_backoff_ms": 5,
        "reconnect_backoff_ms": 5,
        "spool_flush": rng.choice(["none", "none", "fsync"]),
        "compression_type": rng.choice(["none", "zstd"]),
        "spool_max_bytes": 64_000_000,
    }


TRANSACTIONS_IN_TROUBLE = [
    Rule.delay("EndTxn", ms=(1, 30), on="response"),
    Rule.drop_response("EndTxn", probability=0.03, cut_after_ms=50),
    Rule.drop_request("EndTxn", probability=0.03, cut_after_ms=50),
    Rule.drop_response("Produce", probability=0.01, cut_after_ms=50),
    Rule.cut(every=60),
]
"""So that many deaths find a commit that nobody answered."""


def kill_and_audit(
    broker: BrokerProcess,
    bootstrap: str,
    topic: str,
    directory: Path,
    rng: random.Random,
    kills: int,
    growing_up: float = 0.0,
    **always: Any,
) -> None:
    """`growing_up`: how many of the lives end only after something of theirs was delivered; `always`: settings of
    every life."""
    create_topic(broker, topic, partitions=PARTITIONS)
    lives = Lives(directory, bootstrap=bootstrap, topic=topic, partitions=PARTITIONS)
    try:
        for _ in range(kills):
            settings, grows_up = {**some_settings(rng), **always}, rng.random() < growing_up
            lives.live_and_die(rng.uniform(*LIFE_S), rng.randrange(2**32), settings, grows_up=grows_up)
        life_s = LIFE_S[1]
        while not lives.promised():  # on a machine so slow that no life was long enough
            life_s *= 2
            assert life_s < FINISH_S, "no life ever sent a record"
            lives.live_and_die(life_s, rng.randrange(2**32), {**some_settings(rng), **always})
    finally:
        lives.close()
    with Producer(broker.bootstrap, spool_dir=str(lives.spool), **always) as producer:
        producer.flush(FINISH_S)
    assert not list(lives.spool.glob("*.records")), "everything was sent"
    nothing_promised_is_lost_doubled_or_out_of_order(broker, topic, lives)


def nothing_promised_is_lost_doubled_or_out_of_order(broker: BrokerProcess, topic: str, lives: Lives) -> None:
    ledger = Ledger()
    for partition, number in lives.promised():
        record, place = RecordId(stream_of(topic, partition), number), TopicPartition(topic, partition)
        ledger.sent(record, place)
        ledger.acknowledged(record, place)
    audit = Audit(ledger)
    await_stable(broker, topic, PARTITIONS)
    observe_topic(audit, broker.bootstrap, topic, IsolationLevel.READ_COMMITTED)
    report = audit.report()
    findings = [example for entry in report.partitions for example in entry.examples]
    assert report.clean, f"{report.total}: {findings}"
    assert report.total.stored >= ledger.sent_count > 0


def test_killed_while_all_is_well(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, rng: random.Random
) -> None:
    kill_and_audit(oncelog_broker, oncelog_broker.bootstrap, new_topic(), tmp_path, rng, KILLS)


@pytest.mark.parametrize("rules", [SLOW_ANSWERS, BAD_NETWORK], ids=["slow answers", "bad network"])
def test_killed_with_batches_in_flight(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, rng: random.Random, rules: list[Rule]
) -> None:
    with FaultProxy(oncelog_broker.bootstrap, rules, seed=rng.randrange(2**32)) as proxy:
        kill_and_audit(oncelog_broker, proxy.bootstrap_servers, new_topic(), tmp_path, rng, KILLS)


def test_killed_on_apache_kafka(
    kafka_broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, rng: random.Random
) -> None:
    with FaultProxy(kafka_broker.bootstrap, BAD_NETWORK, seed=rng.randrange(2**32)) as proxy:
        kill_and_audit(kafka_broker, proxy.bootstrap_servers, new_topic(), tmp_path, rng, KILLS // 2)


def test_killed_in_transactions(
    oncelog_broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, rng: random.Random
) -> None:
    topic = new_topic()
    with FaultProxy(oncelog_broker.bootstrap, TRANSACTIONS_IN_TROUBLE, seed=rng.randrange(2**32)) as proxy:
        kill_and_audit(
            oncelog_broker,
            proxy.bootstrap_servers,
            topic,
            tmp_path,
            rng,
            14,
            growing_up=0.8,
            batch_size=16_384,
            transactional_id=topic,
        )


def test_killed_in_transactions_on_apache_kafka(
    kafka_broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, rng: random.Random
) -> None:
    topic = new_topic()
    with FaultProxy(kafka_broker.bootstrap, TRANSACTIONS_IN_TROUBLE, seed=rng.randrange(2**32)) as proxy:
        kill_and_audit(
            kafka_broker,
            proxy.bootstrap_servers,
            topic,
            tmp_path,
            rng,
            8,
            growing_up=0.8,
            batch_size=16_384,
            transactional_id=topic,
        )
