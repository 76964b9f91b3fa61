"""ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeLogDirs, DescribeProducers, and the small ones."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.types import NO_TIMESTAMP
from tests.broker.handlers.conftest import Asking
from tests.broker.support import Desk
from tests.log.driver import append, make_batch
from tests.support.faulty_storage import FaultyStorage

LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def offsets(
    ask: Asking, version: int, timestamp: int, *, topic: str = "orders", partition: int = 0, **more: Any
) -> Any:
    epoch = more.pop("current_leader_epoch", -1)
    one = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    answer = ask("list_offsets", version, replica_id=-1, topics=[{"name": topic, "partitions": [one]}], **more)
    (found,) = answer["topics"][0]["partitions"]
    return found["error_code"], found["timestamp"], found["offset"], found["leader_epoch"]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (LATEST, (0, NO_TIMESTAMP, 3, 0)),
        (EARLIEST, (0, NO_TIMESTAMP, 0, 0)),
        (NEWEST, (0, 300, 1, 0)),
        (EARLIEST_LOCAL, (0, NO_TIMESTAMP, 0, 0)),
        (LATEST_TIERED, (0, -1, -1, -1)),
        (PENDING_UPLOAD, (0, -1, -1, -1)),
        (0, (0, 100, 0, 0)),
        (150, (0, 300, 1, 0)),
        (301, (0, -1, -1, -1)),
        (-7, (35, -1, -1, -1)),
    ],
)
def test_offsets_by_time(ask: Asking, timestamp: int, expected: tuple[int, ...]) -> None:
    ask.create("orders")
    ask.append("orders", 0, 100, 300, 200)
    assert offsets(ask, 11, timestamp) == expected


@pytest.mark.parametrize(
    ("timestamp", "first"), [(NEWEST, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)]
)
def test_special_offsets_and_their_versions(ask: Asking, timestamp: int, first: int) -> None:
    ask.create("orders")
    assert offsets(ask, first - 1, timestamp)[0] == 35
    assert offsets(ask, first, timestamp)[0] == 0


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_in_every_version(ask: Asking, version: int) -> None:
    ask.create("orders")
    ask.append("orders", 0, 100)
    epoch = 0 if version >= 4 else -1
    assert offsets(ask, version, LATEST) == (0, -1, 1, epoch)
    assert offsets(ask, version, 50) == (0, 100, 0, epoch)


def test_offsets_of_an_empty_log(ask: Asking) -> None:
    ask.create("orders")
    assert offsets(ask, 10, LATEST) == (0, -1, 0, 0)
    assert offsets(ask, 10, EARLIEST) == (0, -1, 0, 0)
    assert offsets(ask, 10, NEWEST) == (0, -1, -1, -1)
    assert offsets(ask, 10, 5) == (0, -1, -1, -1)


def test_offsets_that_cannot_be_listed(ask: Asking) -> None:
    ask.create("orders")
    assert offsets(ask, 10, LATEST, topic="nope")[0] == 3
    assert offsets(ask, 10, LATEST, partition=1)[0] == 3
    assert offsets(ask, 10, LATEST, current_leader_epoch=5)[0] == 75
    assert offsets(ask, 10, LATEST, current_leader_epoch=-3)[0] == 74
    assert offsets(ask, 10, LATEST, isolation_level=3)[0] == 42
    ask.broker.partition("orders", 0).offline = True
    assert offsets(ask, 10, LATEST)[0] == 56


def test_a_partition_asked_for_twice(ask: Asking) -> None:
    ask.create("orders")
    twice = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    answer = ask("list_offsets", 10, replica_id=-1, topics=[{"name": "orders", "partitions": twice}])
    assert [partition["error_code"] for partition in answer["topics"][0]["partitions"]] == [42]


def test_readers_see_up_to_the_high_watermark(ask: Asking) -> None:
    ask.create("orders")
    ask.append("orders", 0, 100)
    log = ask.broker.partition("orders", 0)
    log.high_watermark = 0  # as if the record were not readable yet
    assert offsets(ask, 10, LATEST) == (0, -1, 0, 0)
    assert offsets(ask, 10, 50) == (0, -1, -1, -1)


def delete_records(ask: Asking, topic: str, partition: int, offset: int) -> tuple[int, int]:
    one = {"partition_index": partition, "offset": offset}
    answer = ask("delete_records", 2, topics=[{"name": topic, "partitions": [one]}])
    (deleted,) = answer["topics"][0]["partitions"]
    return deleted["error_code"], deleted["low_watermark"]


def test_deleting_records(ask: Asking) -> None:
    ask.create("orders")
    ask.append("orders", 0, *range(10))
    assert delete_records(ask, "orders", 0, 3) == (0, 3)
    assert delete_records(ask, "orders", 0, 2) == (0, 3)
    assert offsets(ask, 10, EARLIEST) == (0, -1, 3, 0)
    assert delete_records(ask, "orders", 0, -1) == (0, 10)
    assert delete_records(ask, "orders", 0, 11) == (1, -1)
    assert delete_records(ask, "orders", 0, -2) == (1, -1)


def test_deleting_records_waits_for_no_disk_and_survives_a_kill() -> None:
    storage = FaultyStorage()
    desk = Desk(storage, "data")
    desk.create("orders", 20)
    for index in range(20):
        log = desk.broker.partition("orders", index)
        append(log, make_batch([b"a", b"b", b"c"]))
        log.advance_high_watermark(3)
    before = storage.operations
    asked = [{"partition_index": index, "offset": 2} for index in range(20)]
    answer = desk.ask("delete_records", 2, {"topics": [{"name": "orders", "partitions": asked}], "timeout": 1000})
    assert {each["low_watermark"] for each in answer["topics"][0]["partitions"]} == {2}
    assert [line for line in storage.log[before:] if " sync" in line] == []
    found = Desk(storage.after_kill(), "data")
    assert {log.log_start_offset for log in found.broker.logs.logs.values()} == {2}


def test_records_that_cannot_be_deleted(ask: Asking) -> None:
    ask.create("compacted", cleanup_policy="compact")
    ask.create("both", cleanup_policy="compact,delete")
    assert delete_records(ask, "nope", 0, 0) == (3, -1)
    assert delete_records(ask, "compacted", 0, 0) == (44, -1)
    assert delete_records(ask, "both", 0, 0) == (0, 0)
    assert delete_records(ask, "__consumer_offsets", 0, 0) == (3, -1)
    ask.create("__consumer_offsets")
    assert delete_records(ask, "__consumer_offsets", 0, 0) == (17, -1)


def end_of_epoch(ask: Asking, epoch: int, current: int = -1, topic: str = "orders") -> tuple[int, int, int]:
    one = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = ask("offset_for_leader_epoch", 4, replica_id=-1, topics=[{"topic": topic, "partitions": [one]}])
    (found,) = answer["topics"][0]["partitions"]
    return found["error_code"], found["leader_epoch"], found["end_offset"]


def test_where_an_epoch_ended(ask: Asking) -> None:
    ask.create("orders")
    assert end_of_epoch(ask, 0) == (0, 0, 0), "an empty log knows its epoch too"
    ask.append("orders", 0, 1, 2)
    assert end_of_epoch(ask, 0) == (0, 0, 2)
    assert end_of_epoch(ask, 0, current=0) == (0, 0, 2)
    assert end_of_epoch(ask, 5) == (0, -1, -1)
    assert end_of_epoch(ask, -1) == (0, -1, -1)
    assert end_of_epoch(ask, 0, current=5) == (75, -1, -1)
    assert end_of_epoch(ask, 0, topic="nope") == (3, -1, -1)


def test_log_directories(ask: Asking) -> None:
    ask.create("orders", 2)
    ask.append("orders", 1, 1)
    (directory,) = ask("describe_log_dirs", 4, topics=None)["results"]
    assert directory["log_dir"] == ask.broker.config.log_dir
    assert directory["usable_bytes"] > 0
    (topic,) = directory["topics"]
    sizes = {partition["partition_index"]: partition["partition_size"] for partition in topic["partitions"]}
    assert sizes == {0: 0, 1: ask.broker.partition("orders", 1).size_bytes}
    assert sizes[1] > 61
    asked = [{"topic": "orders", "partitions": [1, 7]}, {"topic": "nope", "partitions": [0]}]
    (directory,) = ask("describe_log_dirs", 1, topics=asked)["results"]
    assert [(topic["name"], len(topic["partitions"])) for topic in directory["topics"]] == [("orders", 1)]
    assert ask("describe_log_dirs", 4, topics=[])["results"][0]["topics"] == []


def test_producers_of_a_partition(ask: Asking) -> None:
    ask.create("orders")
    ask.append("orders", 0, 100, 200, producer_id=9, sequence=0)
    answer = ask("describe_producers", 0, topics=[{"name": "orders", "partition_indexes": [0, 1]}])
    known, unknown = answer["topics"][0]["partitions"]
    assert known["active_producers"] == [
        {
            "producer_id": 9,
            "producer_epoch": 0,
            "last_sequence": 1,
            "last_timestamp": 200,
            "coordinator_epoch": -1,
            "current_txn_start_offset": -1,
        }
    ]
    assert (unknown["error_code"], unknown["active_producers"]) == (3, [])
    answer = ask("describe_producers", 0, topics=[{"name": "bad name", "partition_indexes": [0]}])
    assert answer["topics"][0]["partitions"][0]["error_code"] == 17


def init(ask: Asking, version: int = 4, **body: Any) -> tuple[int, int, int]:
    defaults = {"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    answer = ask("init_producer_id", version, **{**defaults, **body})
    return answer["error_code"], answer["producer_id"], answer["producer_epoch"]


@pytest.mark.parametrize("version", range(6))
def test_producer_ids(ask: Asking, version: int) -> None:
    assert init(ask, version) == (0, 0, 0)
    assert init(ask, version) == (0, 1, 0)


def test_a_producer_that_comes_back_gets_a_fresh_id(ask: Asking) -> None:
    assert init(ask, producer_id=5, producer_epoch=3) == (0, 0, 0)


def test_producer_ids_that_are_refused(ask: Asking) -> None:
    assert init(ask, producer_epoch=3) == (42, -1, -1)
    assert init(ask, producer_id=3) == (42, -1, -1)
    assert init(ask, transactional_id="") == (42, -1, -1)


def test_coordinators(ask: Asking) -> None:
    answer = ask("find_coordinator", 0, key="g")
    assert (answer["error_code"], answer["node_id"], answer["host"], answer["port"]) == (0, 1, "broker.example", 9092)
    answer = ask("find_coordinator", 4, key_type=0, coordinator_keys=["a", "b"])
    assert [(one["key"], one["error_code"], one["port"]) for one in answer["coordinators"]] == [
        ("a", 0, 9092),
        ("b", 0, 9092),
    ]
    assert ask("find_coordinator", 3, key="t", key_type=1)["port"] == 9092
    assert ask("find_coordinator", 3, key="t", key_type=7)["error_code"] == 42


def test_the_cluster(ask: Asking) -> None:
    answer = ask("describe_cluster", 2, include_cluster_authorized_operations=True)
    assert (answer["cluster_id"], answer["controller_id"]) == (ask.broker.cluster_id, 1)
    assert answer["brokers"] == [
        {"broker_id": 1, "host": "broker.example", "port": 9092, "rack": None, "is_fenced": False}
    ]
    assert answer["cluster_authorized_operations"] == 8096
    assert ask("describe_cluster", 1, endpoint_type=2)["error_code"] == 114
    refused = ask("describe_cluster", 1, endpoint_type=7)
    assert (refused["error_code"], refused["error_message"]) == (115, "Unsupported endpoint type 7")
