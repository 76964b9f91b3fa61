"""The names of the folders in a data directory, as Kafka gives them.

    orders-3                          partition 3 of topic orders
    orders-3.<32 hex digits>-delete   was deleted; the space comes back after `file.delete.delay.ms`
    orders-3.<32 hex digits>-stray    nobody knows this partition any more; left for a human to judge

The digits are the topic's id, so that a topic deleted and created again never meets its own remains.
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from oncelog.types import TopicPartition

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
MAX_NAME_LENGTH: Final = 255
PARTITION_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+")
"""A topic's name has no other characters: a folder that has is nobody's, and is not spoken of."""

NOT_LOGS: Final = frozenset({"__cluster_metadata-0"})
"""Folders that look like a partition's and are not: the controller's log is the controller's."""


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose log a folder of this name holds; None for any other folder."""
    if name in NOT_LOGS or PARTITION_NAME.fullmatch(name) is None:
        return None
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def name_of(topic_partition: TopicPartition) -> str:
    return str(topic_partition)


def retired_name(topic_partition: TopicPartition, topic_id: UUID, suffix: str) -> str:
    """A name under which a partition's folder is no longer its log. Only the topic is cut if it is too long."""
    ending = f"-{topic_partition.partition}.{topic_id.hex}{suffix}"
    return topic_partition.topic[: MAX_NAME_LENGTH - len(ending)] + ending


def see_doctor(data_directory: str, *, deep: bool = False) -> str:
    """What to do about damage: the last sentence of every message that refuses to serve it."""
    return f"Nothing was changed; `oncelog doctor {data_directory}{' --deep' if deep else ''}` says what can be done"
