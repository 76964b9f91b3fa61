from __future__ import annotations

from uuid import UUID

from oncelog.client.metadata import ClusterMetadata, Node
from oncelog.wire import codec

TOPIC_ID = UUID(int=7)


def metadata(*topics: str) -> ClusterMetadata:
    partitions = [
        {"partition_index": index, "leader_id": 2, "replica_nodes": [2, 1], "isr_nodes": [2]} for index in (1, 0)
    ]
    message = {
        "brokers": [{"node_id": 2, "host": "h", "port": 9, "rack": "r"}],
        "cluster_id": "c",
        "controller_id": 2,
        "topics": [{"name": name, "topic_id": TOPIC_ID, "partitions": partitions} for name in topics],
    }
    body = codec.encode("MetadataResponse", 12, message)
    return ClusterMetadata.from_message(codec.decode_exactly("MetadataResponse", 12, body))


def test_a_message_becomes_values() -> None:
    cluster = metadata("orders")
    assert cluster.nodes == {2: Node(2, "h", 9, "r")}
    topic = cluster.topics["orders"]
    assert topic.topic_id == TOPIC_ID
    assert [partition.index for partition in topic.partitions] == [0, 1]
    found = topic.partition(1)
    assert found is not None
    assert (found.leader, found.replicas, found.isr) == (2, (2, 1), (2,))
    assert topic.partition(2) is None


def test_topics_that_were_not_asked_for_again_are_kept() -> None:
    assert set(metadata("new").keeping_topics_of(metadata("old")).topics) == {"old", "new"}
    assert set(metadata("new").keeping_topics_of(None).topics) == {"new"}
