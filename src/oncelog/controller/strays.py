"""Folders of partitions that the metadata does not know: left over, or all that is left of something.

A topic's deletion is durable before its folders are renamed, so a crash may leave folders of a deleted topic. They are
set aside. But a folder whose topic the metadata neither knows nor tells to have been deleted speaks of metadata that is
missing, or of a damaged `partition.metadata`; setting it aside, and creating an empty one in its place, would be
serving the damage. Owns that judgement.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from uuid import UUID

from oncelog.controller.state import ControllerState
from oncelog.log.checkpoints import CorruptCheckpoint, read_topic_id
from oncelog.log.segment_files import LOG_SUFFIX
from oncelog.log.storage import Storage
from oncelog.types import TopicPartition


class Whose(Enum):
    OURS = "a partition that the metadata knows"
    LEFTOVER = "not in use any more"
    DOUBTFUL = "the metadata neither knows its topic nor that it was deleted"


def whose(
    state: ControllerState,
    removed_topics: Collection[UUID],
    topic_partition: TopicPartition,
    topic_id: UUID | None,
    *,
    is_whole: bool,
) -> Whose:
    """`is_whole`: the metadata is known to have everything that was ever in force, so what it does not know never was,
    or is gone. Even then no deletion explains a folder with the name of a topic that lives and the id of none."""
    topic = state.topic(topic_partition.topic)
    is_known = topic is not None and topic_partition.partition in topic.partitions
    if is_known and topic is not None and topic_id in (None, topic.id):
        return Whose.OURS
    if topic_id in removed_topics or (is_whole and not is_known):
        return Whose.LEFTOVER
    return Whose.DOUBTFUL


def has_records(storage: Storage, path: str) -> bool:
    logs = (name for name in storage.list_directory(path) if name.endswith(LOG_SUFFIX))
    return any(storage.status(f"{path}/{name}").size_bytes for name in logs)


def noted_topic_id(storage: Storage, path: str) -> UUID | None:
    """None if it was never noted, or cannot be read."""
    try:
        return read_topic_id(storage, path)
    except CorruptCheckpoint:
        return None
