"""Questions that only the leaders of partitions can answer: asked of each leader once, asked again where that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from oncelog.client.blocking import BlockingClient
from oncelog.errors import (
    NONE,
    GroupIdNotFound,
    ResourceNotFound,
    TransactionalIdNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for_code,
)
from oncelog.types import IsolationLevel, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1

_CONSUMER_REPLICA_ID = -1
_ABSENT = {
    one.code
    for one in (UnknownTopicOrPartition, UnknownTopicId, GroupIdNotFound, TransactionalIdNotFound, ResourceNotFound)
}
"""What these say, in the words of Kafka's table of errors too, is that there is no such thing."""


@dataclass(frozen=True, slots=True)
class ListedOffset:
    offset: int
    """-1 where no record has such a timestamp."""
    timestamp_ms: int
    leader_epoch: int


def ask_leaders(
    client: BlockingClient,
    api_key: ApiKey,
    partitions: Iterable[TopicPartition],
    request: Callable[[list[TopicPartition]], Message],
) -> dict[TopicPartition, Message]:
    """Each partition's part of the leaders' answers. Raises the first error that no retry mends."""
    wanted = list(dict.fromkeys(partitions))
    answered: dict[TopicPartition, Message] = {}

    def attempt() -> None:
        missing = [partition for partition in wanted if partition not in answered]
        for node, led in client.by_leader(missing).items():
            answer = client.request(api_key, request(led), node=node)
            for topic in answer["topics"]:
                for one in topic["partitions"]:
                    partition = TopicPartition(topic["name"], one["partition_index"])
                    raise_error(one, str(partition), "partition")
                    answered[partition] = one

    client.retrying(attempt)
    return {partition: answered[partition] for partition in wanted}


def list_offsets(
    client: BlockingClient, specs: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> dict[TopicPartition, ListedOffset]:
    """Per partition the offset of a timestamp, or of `EARLIEST_OFFSET` and the like."""

    def request(partitions: list[TopicPartition]) -> Message:
        return {
            "replica_id": _CONSUMER_REPLICA_ID,
            "isolation_level": isolation,
            "timeout_ms": client.config.request_timeout_ms,
            "topics": by_topic(partitions, lambda partition: {"timestamp": int(specs[partition])}),
        }

    answers = ask_leaders(client, ApiKey.LIST_OFFSETS, specs, request)
    return {
        partition: ListedOffset(one["offset"], one["timestamp"], one["leader_epoch"])
        for partition, one in answers.items()
    }


def by_topic(partitions: Iterable[TopicPartition], fields: Callable[[TopicPartition], Message]) -> list[Message]:
    """Partitions as requests name them: under their topics, each with fields of its own."""
    topics: dict[str, list[Message]] = {}
    for partition in partitions:
        entry = {"partition_index": partition.partition, **fields(partition)}
        topics.setdefault(partition.topic, []).append(entry)
    return [{"name": name, "partitions": entries} for name, entries in topics.items()]


def raise_error(result: Message, name: str, kind: str) -> None:
    """The broker's own words where it has any, else ours for that code; the name of what it is about in either."""
    code = result["error_code"]
    if code == NONE:
        return
    said = result.get("error_message") or error_for_code(code).message
    if code in _ABSENT and name not in said:
        raise error_for_code(code, f"{kind} {name!r} does not exist")
    raise error_for_code(code, said if name in said else f"{kind} {name!r}: {said}")
