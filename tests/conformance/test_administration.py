"""The cluster as administrators see it: nodes, log directories, producers, deleted records, leader epochs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.support.batches import make_batch, read_records
from tests.support.confluent import TIMEOUT_S, create_topic, make_admin, make_producer, read, send
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient
from tests.support.requests import EARLIEST, LATEST, fetch, list_offset, produce
from tests.support.requests import create_topic as create_raw

Topics = Callable[[], str]

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_LOAD_IN_PROGRESS = 14
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75


def test_the_cluster(broker: BrokerProcess) -> None:
    admin = make_admin(broker)
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [(1, broker.host, broker.port)]
    assert cluster.controller.id == 1
    assert cluster.cluster_id


def test_every_api_tells_the_same_cluster_id(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        described = client.request("describe_cluster", 2, {"endpoint_type": 1})["cluster_id"]
        assert client.request("metadata", 12, {"topics": []})["cluster_id"] == described


def delete_records(client: RawClient, topic: str, offset: int, partition: int = 0) -> Message:
    wanted = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
    answer = client.request("delete_records", 2, {"topics": [wanted], "timeout": 10_000})
    ((result,),) = [each["partitions"] for each in answer["topics"]]
    return dict(result)


def test_deleting_records(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    with RawClient(broker.address) as client:
        create_raw(client, topic)
        for _ in range(5):
            produce(client, topic, make_batch([b"a", b"b"]))
        asked = [delete_records(client, topic, offset) for offset in (3, 3, 1, 11, -2, -1)]
        assert [(each["error_code"], each["low_watermark"]) for each in asked] == [
            (0, 3),
            (0, 3),
            (0, 3),
            (OFFSET_OUT_OF_RANGE, -1),
            (OFFSET_OUT_OF_RANGE, -1),
            (0, 10),
        ]
        assert delete_records(client, topic, 0, partition=7)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
        assert list_offset(client, topic, EARLIEST)["offset"] == 10
        assert list_offset(client, topic, LATEST)["offset"] == 10
        assert fetch(client, topic, 2)["error_code"] == OFFSET_OUT_OF_RANGE
        assert produce(client, topic, make_batch())["log_start_offset"] == 10


def test_a_start_inside_a_batch_is_kept_exactly(broker: BrokerProcess, new_topic: Topics) -> None:
    """The batch still comes whole; clients skip what lies before the offset they asked for."""
    topic = new_topic()
    with RawClient(broker.address) as client:
        create_raw(client, topic)
        produce(client, topic, make_batch([b"0", b"1", b"2", b"3"]))
        assert delete_records(client, topic, 2)["low_watermark"] == 2
        assert list_offset(client, topic, EARLIEST)["offset"] == 2
        assert [record.offset for record in read_records(fetch(client, topic, 2)["records"])] == [0, 1, 2, 3]
    assert [message.value() for message in read(broker, topic, 2, offset=2)] == [b"2", b"3"]


def test_deleting_records_through_a_client(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    send(make_producer(broker), topic, ({"value": b"%d" % n} for n in range(10)))
    admin = make_admin(broker)
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 6
    assert [int(message.value()) for message in read(broker, topic, 4, offset=OFFSET_BEGINNING)] == [6, 7, 8, 9]
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 10
    with pytest.raises(KafkaException) as refused:
        next(iter(admin.delete_records([TopicPartition(topic, 0, 99)]).values())).result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_listing_offsets_through_a_client(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    times = [1_600_000_000_000, 1_600_000_500_000, 1_600_000_300_000]
    for each in times:
        send(make_producer(broker), topic, [{"value": b"v", "timestamp": each}])
    admin = make_admin(broker)
    specs = {
        OffsetSpec.earliest(): 0,
        OffsetSpec.latest(): 3,
        OffsetSpec.max_timestamp(): 1,
        OffsetSpec.for_timestamp(times[0] + 1): 1,
    }
    for spec, expected in specs.items():
        (found,) = admin.list_offsets({TopicPartition(topic, 0): spec}).values()
        assert found.result(TIMEOUT_S).offset == expected


def test_producers_are_described(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    with RawClient(broker.address) as client:
        create_raw(client, topic)
        produce(client, topic, make_batch([b"a", b"b"], producer_id=900, epoch=3, sequence=5))
        produce(client, topic, make_batch([b"a"], producer_id=901, epoch=0, sequence=0, base_timestamp=123_456))
        produce(client, topic, make_batch())
        answer = client.request("describe_producers", 0, {"topics": [{"name": topic, "partition_indexes": [0]}]})
    ((partition,),) = [each["partitions"] for each in answer["topics"]]
    producers = {
        (p["producer_id"], p["producer_epoch"], p["last_sequence"], p["current_txn_start_offset"])
        for p in partition["active_producers"]
    }
    assert producers == {(900, 3, 6, -1), (901, 0, 0, -1)}
    assert {p["coordinator_epoch"] for p in partition["active_producers"]} == {-1}
    assert {p["last_timestamp"] for p in partition["active_producers"]} == {1_700_000_000_000, 123_456}


def test_producer_ids_are_never_given_twice(broker: BrokerProcess) -> None:
    seen = set()
    with RawClient(broker.address) as client:
        for version in (0, 1, 2, 3, 4, 5) * 50:
            request = {
                "transactional_id": None,
                "transaction_timeout": 60_000,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            answer = client.request("init_producer_id", version, request)
            while answer["error_code"] == COORDINATOR_LOAD_IN_PROGRESS:  # Kafka's controller is late with the next ids
                answer = client.request("init_producer_id", version, request)
            assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
            seen.add(answer["producer_id"])
    assert len(seen) == 300
    assert min(seen) >= 0


def test_an_empty_transactional_id_is_refused(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        request = {"transactional_id": "", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        assert client.request("init_producer_id", 4, request)["error_code"] == 42


def test_leader_epochs(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    asked = [(-1, 0), (0, 0), (-1, -1), (-1, 5), (5, 0)]
    with RawClient(broker.address) as client:
        create_raw(client, topic)
        produce(client, topic, make_batch([b"a", b"b"]))
        answers = []
        for current, wanted in asked:
            partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": wanted}
            request = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
            answer = client.request("offset_for_leader_epoch", 4, request)
            ((result,),) = [each["partitions"] for each in answer["topics"]]
            answers.append((result["error_code"], result["leader_epoch"], result["end_offset"]))
    assert answers == [(0, 0, 2), (0, 0, 2), (0, -1, -1), (0, -1, -1), (UNKNOWN_LEADER_EPOCH, -1, -1)]


def test_log_directories(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    batch = make_batch([bytes(1000)])
    with RawClient(broker.address) as client:
        create_raw(client, topic, partitions=2)
        produce(client, topic, batch)
        (directory,) = client.request("describe_log_dirs", 4, {"topics": None})["results"]
    assert directory["error_code"] == 0
    assert directory["log_dir"] == str(broker.data_dir)
    (found,) = [each for each in directory["topics"] if each["name"] == topic]
    assert {
        each["partition_index"]: (each["partition_size"], each["offset_lag"], each["is_future_key"])
        for each in found["partitions"]
    } == {0: (len(batch), 0, False), 1: (0, 0, False)}
    assert directory["usable_bytes"] > 0


def test_describing_many_partitions_page_by_page(broker: BrokerProcess, new_topic: Topics) -> None:
    topics = sorted(new_topic() for _ in range(2))
    with RawClient(broker.address) as client:
        for topic in topics:
            create_raw(client, topic, partitions=3)
        seen, cursor = [], None
        for _ in range(10):
            request = {
                "topics": [{"name": topic} for topic in topics],
                "response_partition_limit": 2,
                "cursor": cursor,
            }
            answer = client.request("describe_topic_partitions", 0, request)
            page = [(t["name"], p["partition_index"]) for t in answer["topics"] for p in t["partitions"]]
            assert len(page) <= 2
            seen += page
            cursor = answer["next_cursor"]
            if cursor is None:
                break
    assert seen == [(topic, index) for topic in topics for index in range(3)]
