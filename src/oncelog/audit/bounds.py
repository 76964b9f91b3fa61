"""Which offsets of a topic an audit reads: fixed before it starts, so that it ends on a topic that grows."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.audit.spread import Bins
from oncelog.client.blocking import BlockingClient
from oncelog.client.leaders import EARLIEST_OFFSET, LATEST_OFFSET, list_offsets
from oncelog.types import IsolationLevel, TopicPartition


class Bounds(NamedTuple):
    """From the first offset that exists up to, and without, the end."""

    start: int
    end: int


def bounds_of(client: BlockingClient, topic: str, isolation: IsolationLevel) -> dict[TopicPartition, Bounds]:
    """Of each partition, in their order. A reader of committed records ends at the last stable offset."""
    partitions = sorted(TopicPartition(topic, partition.index) for partition in client.topic(topic).partitions)
    starts, ends = (
        list_offsets(client, dict.fromkeys(partitions, which), isolation) for which in (EARLIEST_OFFSET, LATEST_OFFSET)
    )
    return {partition: Bounds(starts[partition].offset, ends[partition].offset) for partition in partitions}


def bins_of(bounds: dict[TopicPartition, Bounds]) -> Bins:
    """Over all partitions that hold anything."""
    filled = [each for each in bounds.values() if each.end > each.start]
    return Bins.over(min((each.start for each in filled), default=0), max((each.end for each in filled), default=0))
