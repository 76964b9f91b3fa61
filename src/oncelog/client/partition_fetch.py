"""One partition read by hand: a single Fetch to its leader, and the batches that it brought, with their headers.

For those who must see what consumers do not show: who wrote a batch, which transactions were aborted, where the last
stable offset is. Keeps no position, and waits for nothing but the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.client.blocking import BlockingClient
from oncelog.errors import NONE, error_for_code
from oncelog.records import kernel
from oncelog.records.model import BatchHeader
from oncelog.types import IsolationLevel, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.schema import ZERO_UUID

MAX_BYTES: Final = 4 * 1024 * 1024
LAST_FETCH_BY_NAME: Final = 12
NO_SESSION, FINAL_EPOCH = 0, -1
UNKNOWN: Final = -1


def fetch_partition(
    client: BlockingClient, partition: TopicPartition, offset: int, isolation: IsolationLevel
) -> FetchedPartition:
    """What lies at `offset` and after it. Raises OffsetOutOfRange, and what else no retry mends."""
    return client.retrying(lambda: _fetch_once(client, partition, offset, isolation))


def _fetch_once(
    client: BlockingClient, partition: TopicPartition, offset: int, isolation: IsolationLevel
) -> FetchedPartition:
    leader, topic = client.leader_of(partition), client.topic(partition.topic)
    asked = FetchPartition(partition.partition, UNKNOWN, offset, UNKNOWN, UNKNOWN, MAX_BYTES)
    wanted = FetchTopic(topic.name, topic.topic_id, [asked])
    request = FetchRequest(0, 0, MAX_BYTES, isolation, NO_SESSION, FINAL_EPOCH, [wanted])
    max_version = LAST_FETCH_BY_NAME if topic.topic_id == ZERO_UUID else None
    answer = client.request(ApiKey.FETCH, request, node=leader, max_version=max_version)
    if answer.error_code != NONE:
        raise error_for_code(answer.error_code)
    found: FetchedPartition = answer.topics[0].partitions[0]
    if found.error_code != NONE:
        raise error_for_code(found.error_code, f"{partition}: {error_for_code(found.error_code).message}")
    return found


def batches_of(fetched: FetchedPartition) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches, whose checksums hold. The first may begin before the offset that was asked for."""
    data = memoryview(fetched.records or b"")
    headers, _ = kernel.scan(data, 0, len(data), True)
    position = 0
    for header in headers:
        yield header, data[position : position + header.size_bytes]
        position += header.size_bytes
