"""confluent-kafka behind the proxy: with idempotence nothing is lost, doubled or misplaced; without it, it shows.

Runs on oncelog's broker, the whole table on Apache Kafka with `--brokers=kafka`, and the worst of it on both always.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.audit.account import Audit, AuditReport
from oncelog.cli.audit import observe_topic
from oncelog.faults import FaultProxy, Report, Rule
from tests.support.confluent import create_topic, make_producer, read, send
from tests.support.confluent_load import ConfluentLoad
from tests.support.process import BrokerProcess

SEED = 7
PARTITIONS = 2
RECORDS = 6_000
FLUSH_S = 60.0
SMALL_BATCHES = {
    "linger.ms": 1,
    "batch.num.messages": 50,
    "max.in.flight.requests.per.connection": 5,
    "retry.backoff.max.ms": 50,
}
QUICK_READER = {
    "max_partition_fetch_bytes": 1_024,
    "fetch_error_backoff_ms": 5,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
    "metadata_recovery_strategy": "none",
}

DROPPED_ANSWERS = [Rule.drop_response("Produce", probability=0.05)]
DOUBLED_REQUESTS = [Rule.duplicate_request("Produce", probability=0.1)]
EVERYTHING = [
    Rule.drop_response("Produce", probability=0.02),
    Rule.drop_request("Produce", probability=0.02),
    Rule.duplicate_request("Produce", probability=0.05),
    Rule.delay("Produce", ms=(1, 10), probability=0.2),
    Rule.delay("Produce", ms=(1, 10), probability=0.2, on="response"),
    Rule.truncate_request("Produce", probability=0.01),
    Rule.truncate_response("Produce", probability=0.01),
    Rule.stall(ms=100, probability=0.01),
    Rule.cut(every=25),
]
SCRIPTS = {
    "dropped answers": (DROPPED_ANSWERS, "dropped"),
    "dropped requests": ([Rule.drop_request("Produce", probability=0.05)], "dropped"),
    "doubled requests": (DOUBLED_REQUESTS, "duplicated"),
    "delays": ([Rule.delay("Produce", ms=(1, 20)), Rule.delay(ms=(0, 5), on="response")], "delayed"),
    "cut at requests": ([Rule.cut("Produce", every=17)], "cut"),
    "cut at answers": ([Rule.cut("Produce", every=17, on="response")], "cut"),
    "stalls": ([Rule.stall("Produce", ms=200, every=25)], "stalled"),
    "truncated requests": ([Rule.truncate_request("Produce", probability=0.05)], "truncated"),
    "truncated answers": ([Rule.truncate_response("Produce", probability=0.05)], "truncated"),
}


def send_and_audit(
    broker: BrokerProcess, topic: str, rules: list[Rule], *, idempotence: bool, records: int = RECORDS
) -> tuple[AuditReport, Report]:
    """Send through the proxy, read past it."""
    create_topic(broker, topic, partitions=PARTITIONS)
    with FaultProxy(broker.bootstrap, rules, seed=SEED) as proxy:
        config = {**SMALL_BATCHES, "enable.idempotence": idempotence}
        load = ConfluentLoad(proxy.bootstrap_servers, topic, partitions=PARTITIONS, config=config)
        load.run(records)
        assert load.flush(FLUSH_S) == 0, f"not all records have met their fate\n{proxy.report()}"
        assert not load.failures, f"{load.failures[:3]}\n{proxy.report()}"
        audit = Audit(load.ledger)
        observe_topic(audit, broker.bootstrap, topic)
        return audit.report(), proxy.report()


def assert_exactly_once(audit: AuditReport, report: Report, records: int = RECORDS) -> None:
    total = audit.total
    assert audit.clean, f"{total}\n{report}"
    assert (total.sent, total.stored) == (records, records), f"{total}\n{report}"


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_idempotent_producer_keeps_its_promise(
    broker: BrokerProcess, new_topic: Callable[[], str], script: str
) -> None:
    rules, counter = SCRIPTS[script]
    audit, report = send_and_audit(broker, new_topic(), rules, idempotence=True)
    assert getattr(report.total, counter) >= 3, f"the faults did not happen\n{report}"
    assert_exactly_once(audit, report)


def test_all_faults_at_once_on_oncelog(oncelog_broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    audit, report = send_and_audit(oncelog_broker, new_topic(), EVERYTHING, idempotence=True)
    assert report.total.dropped >= 3, report
    assert report.total.duplicated >= 3, report
    assert_exactly_once(audit, report)


def test_all_faults_at_once_on_apache_kafka(kafka_broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    audit, report = send_and_audit(kafka_broker, new_topic(), EVERYTHING, idempotence=True)
    assert report.total.dropped >= 3, report
    assert report.total.duplicated >= 3, report
    assert_exactly_once(audit, report)


@pytest.mark.parametrize("script", [DROPPED_ANSWERS, DOUBLED_REQUESTS], ids=["dropped answers", "doubled requests"])
def test_without_idempotence_the_same_script_stores_records_twice(
    broker: BrokerProcess, new_topic: Callable[[], str], script: list[Rule]
) -> None:
    audit, report = send_and_audit(broker, new_topic(), script, idempotence=False)
    assert audit.total.duplicated > 0, f"{audit.total}\n{report}"
    assert audit.total.lost == 0, f"{audit.total}\n{report}"


def test_without_idempotence_requests_that_change_places_store_records_out_of_order(
    broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    rules = [Rule.reorder_requests("Produce", probability=0.2)]
    audit, report = send_and_audit(broker, new_topic(), rules, idempotence=False)
    assert report.total.reordered > 0, report
    assert audit.total.out_of_order > 0, f"{audit.total}\n{report}"
    assert audit.total.duplicated == 0, f"{audit.total}\n{report}"


def test_a_consumer_reads_everything_once_and_in_order_through_faults(
    broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic, count = new_topic(), 500
    create_topic(broker, topic)
    producer = make_producer(broker, batch_num_messages=10)
    send(producer, topic, ({"value": str(number).encode()} for number in range(count)))
    rules = [
        Rule.drop_response("Fetch", every=3),
        Rule.duplicate_request("Fetch", every=2),
        Rule.delay("Fetch", ms=(1, 10), on="response"),
    ]
    with FaultProxy(broker.bootstrap, rules, seed=SEED) as proxy:
        settings = {**QUICK_READER, "bootstrap_servers": proxy.bootstrap_servers}
        messages = read(broker, topic, count, **settings)
        assert [int(message.value()) for message in messages] == list(range(count))
        assert proxy.report().responses["Fetch"].dropped >= 3, proxy.report()
