"""The few raw requests that most tests need, each reduced to the part of the answer that they look at."""

from __future__ import annotations

import time
import uuid
from typing import Any

from tests.support.raw import Message, RawClient

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
SETTLE_TIMEOUT_S = 60


def create_topic(
    client: RawClient, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None
) -> uuid.UUID:
    """Create a topic and wait until all of its partitions have a leader that serves."""
    settings = [{"name": key, "value": value} for key, value in (configs or {}).items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
    (created,) = client.request("create_topics", 7, {"topics": [topic], "timeout": 60_000})["topics"]
    assert created["error_code"] == 0, created
    await_leaders(client, name, partitions)
    topic_id: uuid.UUID = created["topic_id"]
    return topic_id


def await_leaders(client: RawClient, name: str, partitions: int) -> None:
    """Kafka answers CreateTopics before its partitions serve; until then they say NOT_LEADER_OR_FOLLOWER."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        errors = {list_offset(client, name, LATEST, partition=index)["error_code"] for index in range(partitions)}
        if errors == {0}:
            return
        assert time.monotonic() < deadline, f"{name}: partitions still answer {errors}"
        time.sleep(0.02)


def produce_request(
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    topic_id: uuid.UUID | None = None,
    transactional_id: str | None = None,
) -> Message:
    data = {"name": topic, "topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}
    return {"transactional_id": transactional_id, "acks": acks, "timeout": 10_000, "topic_data": [data]}


def produce(client: RawClient, topic: str, records: bytes | None, *, version: int = 12, **options: Any) -> Message:
    answer = client.request("produce", version, produce_request(topic, records, **options))
    ((response,),) = [each["partition_responses"] for each in answer["responses"]]
    return dict(response)


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 1 << 24,
    min_bytes: int = 1,
    max_wait: int = 500,
    isolation_level: int = 0,
    topic_id: uuid.UUID | None = None,
    leader_epoch: int = -1,
) -> Message:
    wanted = {
        "partition": partition,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [wanted]}],
    }


def fetch(client: RawClient, topic: str, offset: int = 0, *, version: int = 12, **options: Any) -> Message:
    answer = client.request("fetch", version, fetch_request(topic, offset, **options))
    assert answer.get("error_code", 0) == 0, answer
    ((response,),) = [each["partitions"] for each in answer["responses"]]
    return dict(response)


def list_offset(
    client: RawClient, topic: str, timestamp: int, *, partition: int = 0, version: int = 7, isolation_level: int = 0
) -> Message:
    wanted = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
    message = {
        "replica_id": -1,
        "isolation_level": isolation_level,
        "topics": [{"name": topic, "partitions": [wanted]}],
    }
    answer = client.request("list_offsets", version, message)
    ((response,),) = [each["partitions"] for each in answer["topics"]]
    return dict(response)
