"""What the broker counts, and its Prometheus page as Prometheus's own parser reads it."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from oncelog.broker.metrics import LATENCY_BUCKETS_MS, BrokerMetrics, Latency, PrometheusCollector
from oncelog.broker.metrics_endpoint import gauges
from oncelog.log.storage import FileStorage
from tests.broker.support import NOW_MS, Desk, MetricsPage, await_that
from tests.support.batches import make_batch
from tests.support.groups import await_coordinator, commit_request, join_alone
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import create_topic, fetch, fetch_request, produce, produce_request

Topics = Callable[[], str]

ERRORS = "kafka_network_requestmetrics_errors_total"
LATENCY = "kafka_network_requestmetrics_totaltimems"
DUPLICATES = "oncelog_duplicates_recognised_total"


# --- counting ---


def test_a_histogram_puts_each_value_into_its_bucket() -> None:
    latency = Latency()
    for elapsed_ms in (0.05, 0.1, 0.11, 99.0, 100.0, 4999.0, 5000.0, 5000.1, 1e9):
        latency.observe(elapsed_ms)
    cumulative = dict(latency.cumulative())
    assert cumulative["0.1"] == 2, "a bound is part of its bucket"
    assert cumulative["0.25"] == 3
    assert (cumulative["50.0"], cumulative["100.0"]) == (3, 5)
    assert (cumulative["1000.0"], cumulative["5000.0"], cumulative["+Inf"]) == (5, 7, 9)
    assert latency.count == 9
    assert latency.total_ms == pytest.approx(1e9 + 0.05 + 0.1 + 0.11 + 99 + 100 + 4999 + 5000 + 5000.1)
    assert len(cumulative) == len(LATENCY_BUCKETS_MS) + 1


def test_errors_are_found_at_every_depth_of_an_answer() -> None:
    metrics = BrokerMetrics()
    partitions = [{"error_code": 3}, {"error_code": 0}, {"error_code": 3, "offset": 7}]
    metrics.count_errors("X", {"error_code": 35, "topics": [{"error_code": 56, "partitions": partitions}, {}], "n": []})
    metrics.count_errors("X", {"error_code": 0, "inner": {"error_code": 12345}})
    metrics.count_errors("X", {"results": [{"partition_error_code": 51}, {"partition_error_code": 0}]})
    assert metrics.errors == {
        ("X", "UNSUPPORTED_VERSION"): 1,
        ("X", "KAFKA_STORAGE_ERROR"): 1,
        ("X", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("X", "12345"): 1,
        ("X", "CONCURRENT_TRANSACTIONS"): 1,
    }


def test_a_topic_is_forgotten_with_its_traffic() -> None:
    metrics = BrokerMetrics()
    metrics.appended("orders", 100, 3)
    metrics.appended("orders", 50, 1)
    assert (metrics.topics["orders"].bytes_in, metrics.topics["orders"].messages_in) == (150, 4)
    metrics.forget_topic("orders")
    metrics.forget_topic("never seen")
    assert metrics.topics == {}


# --- the page ---


def test_names_of_topics_cannot_break_the_page() -> None:
    metrics = BrokerMetrics()
    for topic in ('quote"d', "back\\slash", "new\nline", "plain"):
        metrics.appended(topic, 1, 1)
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(metrics, dict, Counter))
    page = generate_latest(registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    samples = families["kafka_server_brokertopicmetrics_bytesin"].samples
    assert {sample.labels["topic"] for sample in samples} == set(metrics.topics)


def test_the_gauges(tmp_path: Path) -> None:
    desk = Desk(FileStorage(), str(tmp_path / "data"))
    desk.create("orders", 3)
    batch = make_batch(producer_id=5, epoch=0, sequence=0)
    desk.ask("produce", 9, produce_request("orders", batch))
    desk.ask("fetch", 12, {**fetch_request("orders", 0, max_wait=0), "session_epoch": 0})
    desk.ask_later("fetch", 12, fetch_request("orders", 1, max_wait=1000))
    desk.broker.partition("orders", 2).offline = True
    found = {name: value for name, (_, value) in gauges(desk.broker).items()}
    assert found == {
        "kafka_server_replicamanager_partitioncount": 3,
        "kafka_server_replicamanager_offlinereplicacount": 1,
        "kafka_server_replicamanager_producerid_count": 1,
        "kafka_log_log_size": len(batch),
        "kafka_server_socketservermetrics_connection_count": 0,
        "kafka_server_fetchsessioncache_numincrementalfetchsessions": 1,
        "oncelog_quota_rates": 0,
        "kafka_server_delayedoperationpurgatory_size": 1,
        "oncelog_transactions_open": 0,
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize": 0,
    }
    desk.broker.stop(NOW_MS)


def test_every_metric_says_what_it_is(page: MetricsPage) -> None:
    families = page.families()
    assert len(families) > 10
    for family in families.values():
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")


def test_errors_per_code(client: RawClient, page: MetricsPage, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic)
    before = page.value(ERRORS, request="Produce", error="CORRUPT_MESSAGE")
    for _ in range(3):
        assert produce(client, topic, make_batch(crc=1))["error_code"] == 2
    assert page.value(ERRORS, request="Produce", error="CORRUPT_MESSAGE") == before + 3
    before = page.value(ERRORS, request="Fetch", error="OFFSET_OUT_OF_RANGE")
    assert fetch(client, topic, 99)["error_code"] == 1
    assert page.value(ERRORS, request="Fetch", error="OFFSET_OUT_OF_RANGE") == before + 1
    before = page.value(ERRORS, request="DeleteTopics", error="UNKNOWN_TOPIC_OR_PARTITION")
    client.request("delete_topics", 6, {"topics": [{"name": "nope", "topic_id": None}], "timeout": 1})
    assert page.value(ERRORS, request="DeleteTopics", error="UNKNOWN_TOPIC_OR_PARTITION") == before + 1


def test_duplicates_recognised(client: RawClient, page: MetricsPage, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic)
    before = page.value(DUPLICATES)
    for _ in range(4):
        assert produce(client, topic, make_batch(producer_id=5, epoch=0, sequence=0))["base_offset"] == 0
    assert page.value(DUPLICATES) == before + 3
    assert page.value("kafka_server_brokertopicmetrics_messagesin_total", topic=topic) == 1


def test_traffic(client: RawClient, page: MetricsPage, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic)
    batch = make_batch([b"a", b"b", b"c"])
    out_before = page.value("kafka_server_brokertopicmetrics_bytesout_total")
    produce(client, topic, batch)
    fetch(client, topic)
    fetch(client, topic)
    assert page.value("kafka_server_brokertopicmetrics_bytesin_total", topic=topic) == len(batch)
    assert page.value("kafka_server_brokertopicmetrics_messagesin_total", topic=topic) == 3
    assert page.value("kafka_server_brokertopicmetrics_bytesout_total") == out_before + 2 * len(batch)
    client.request("delete_topics", 6, {"topics": [{"name": topic, "topic_id": None}], "timeout": 1})
    labels = [sample.labels for sample in page.families()["kafka_server_brokertopicmetrics_bytesin"].samples]
    assert {"topic": topic} not in labels


def test_latencies_are_a_histogram_per_request(client: RawClient, page: MetricsPage, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic)
    before_count = page.value(f"{LATENCY}_count", request="Fetch")
    before_sum = page.value(f"{LATENCY}_sum", request="Fetch")
    before_fast = page.value(f"{LATENCY}_bucket", request="Fetch", le="100.0")
    fetch(client, topic, max_wait=150)
    assert page.value(f"{LATENCY}_count", request="Fetch") == before_count + 1
    assert page.value(f"{LATENCY}_sum", request="Fetch") >= before_sum + 140, "waiting is part of it"
    assert page.value(f"{LATENCY}_bucket", request="Fetch", le="100.0") == before_fast
    family = page.families()[LATENCY]
    buckets = [s.value for s in family.samples if s.name.endswith("_bucket") and s.labels["request"] == "Fetch"]
    assert buckets == sorted(buckets)
    assert len(buckets) == len(LATENCY_BUCKETS_MS) + 1
    assert buckets[-1] == page.value(f"{LATENCY}_count", request="Fetch")


def test_connections_come_and_go(measured: BrokerProcess, client: RawClient, page: MetricsPage) -> None:
    client.request("metadata", 12, {"topics": []})
    before = page.connections
    more = [RawClient(measured.address) for _ in range(5)]
    await_that(lambda: page.connections == before + 5, "five more")
    for each in more:
        each.close()
    await_that(lambda: page.connections == before, "five less")


def test_scrapes_do_not_disturb_and_are_not_disturbed(
    measured: BrokerProcess, page: MetricsPage, new_topic: Topics
) -> None:
    """They come from another thread, while fetches park and wake and topics appear and vanish."""
    stop = threading.Event()
    failures: list[str] = []

    def poll(topic: str) -> None:
        try:
            with RawClient(measured.address) as own:
                while not stop.is_set():
                    create_topic(own, topic)
                    for offset in range(5):
                        waiting = own.send("fetch", 12, fetch_request(topic, offset, max_wait=1000))
                        produced = own.send("produce", 9, produce_request(topic, make_batch()))
                        own.receive("fetch", 12, waiting)
                        own.receive("produce", 9, produced)
                    own.request("delete_topics", 6, {"topics": [{"name": topic, "topic_id": None}], "timeout": 1})
        except Exception as error:
            failures.append(repr(error))

    with RawClient(measured.address) as first:
        create_topic(first, new_topic())  # so that there is a latency to tell of, however soon the first page is made
    pollers = [threading.Thread(target=poll, args=(new_topic(),)) for _ in range(3)]
    for poller in pollers:
        poller.start()
    try:
        for _ in range(150):
            assert page.families()[LATENCY].samples
    finally:
        stop.set()
        for poller in pollers:
            poller.join()
    assert failures == []
    assert "Traceback" not in measured.log


# --- groups ---

COORDINATOR = "kafka_server_group_coordinator_metrics"


def test_groups_are_counted_by_their_states(client: RawClient, page: MetricsPage, new_topic: Topics) -> None:
    def counted() -> list[float]:
        states = [
            page.value(f"{COORDINATOR}_group_count", protocol="classic", state=one) for one in ("Stable", "Empty")
        ]
        counters = ("offset_commit_count", "offset_deletion_count", "group_completed_rebalance_count")
        return states + [page.value(f"{COORDINATOR}_{name}_total") for name in counters]

    topic, group = new_topic(), "counted"
    create_topic(client, topic, partitions=2)
    await_coordinator(client, group)
    before = counted()
    member = join_alone(client, group)
    client.request("offset_commit", 8, commit_request(group, (topic, 0, 5), (topic, 1, 7), member=member))
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 0, 2, 0, 1]
    client.request("leave_group", 5, {"group_id": group, "members": [{"member_id": member["member_id"]}]})
    client.request("delete_topics", 5, {"topic_names": [topic], "timeout": 10_000})
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [0, 1, 2, 2, 2]
    assert page.value(f"{LATENCY}_count", request="OffsetCommit") > 0


@pytest.mark.parametrize("damage", ["a lost folder", "a lost segment"])
def test_partitions_that_could_not_be_opened_are_offline(tmp_path: Path, damage: str) -> None:
    desk = Desk(FileStorage(), str(tmp_path / "data"))
    desk.create("orders", 3)
    desk.ask("produce", 9, produce_request("orders", make_batch()))
    desk.broker.stop(NOW_MS)
    if damage == "a lost folder":
        shutil.rmtree(tmp_path / "data" / "orders-0")
    else:
        (tmp_path / "data" / "orders-0" / "00000000000000000000.log").unlink()
    broker = Desk(FileStorage(), str(tmp_path / "data")).broker
    assert gauges(broker)["kafka_server_replicamanager_offlinereplicacount"][1] == 1
    broker.stop(NOW_MS)
