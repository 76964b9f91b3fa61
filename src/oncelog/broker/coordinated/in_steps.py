"""Answers that concern many groups or transactions, made in steps: only their encoded form is held.

Owns how such an answer grows, and how its steps wait for flushes and for coordinators. Decides nothing of what is told.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from oncelog.broker.coordinated.writing import awaits_flush
from oncelog.broker.dispatch import api_name, response_schema
from oncelog.broker.request import Answer, Late, Pending, Request, Wait, awaited
from oncelog.errors import KafkaError
from oncelog.log.partition_log import PartitionLog
from oncelog.wire.codec import Message, encoded_elements

if TYPE_CHECKING:
    from oncelog.broker.metrics import BrokerMetrics
    from oncelog.broker.state import BrokerState


class Told:
    """An array of an answer: its elements are encoded as they come, and their errors counted."""

    def __init__(self, metrics: BrokerMetrics, request: Request, *path: str) -> None:
        self._metrics = metrics
        self._api_name = api_name(request.api_key)
        self.encoded = encoded_elements(response_schema(request.api_key), request.version, *path)

    def add(self, element: Message) -> None:
        """Raises EncodedTooLarge."""
        self._metrics.count_errors(self._api_name, element)
        self.encoded.append(element)


def offsets_told(
    metrics: BrokerMetrics, request: Request, of: Message, *path: str
) -> Generator[Wait | None, None, None]:
    """Encode the topics of an OffsetFetch's answer, or of one of its groups, at `path`: a group may have offsets of
    very many partitions."""
    topics = Told(metrics, request, *path, "topics")
    for topic in of.get("topics", ()):
        partitions = Told(metrics, request, *path, "topics", "partitions")
        for partition in topic["partitions"]:
            partitions.add(partition)
            yield None
        topics.add({**topic, "partitions": partitions.encoded})
        yield None
    of["topics"] = topics.encoded


def answered(answer: Answer) -> Generator[Wait | None, None, Late]:
    """The answer, once it has come."""
    if not isinstance(answer, Pending):
        return answer
    wait, came = awaited(answer)
    yield wait
    return came[0]


def until_durable(broker: BrokerState, log: PartitionLog) -> Generator[Wait | None, None, None]:
    """An answer may tell only of what `flush.messages` has promised the disk. Raises KafkaStorageError."""
    if not awaits_flush(log):
        return
    wait, errors = Wait(), list[KafkaError | None]()

    def flushed(error: KafkaError | None) -> None:
        errors.append(error)
        wait.end()

    broker.group_commit.wait(log, log.log_end_offset, flushed)
    yield wait
    if errors[0] is not None:
        raise errors[0]
