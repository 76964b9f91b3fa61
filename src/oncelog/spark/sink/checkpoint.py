"""What the topic sink keeps in a query's checkpoint, and what it reads there for lag tools."""

from __future__ import annotations

import json
from typing import Final

from oncelog.spark.checkpoint import Checkpoint
from oncelog.spark.sink.errors import ForeignCheckpoint
from oncelog.types import TopicPartition

OWNER_FILE: Final = "_oncelog_sink.json"
OWNER: Final = "transactional.id.prefix"


def claim(checkpoint: Checkpoint, prefix: str) -> None:
    """From now on it belongs to this sink. Raises ForeignCheckpoint."""
    if not check_owner(checkpoint, prefix):
        checkpoint.write(OWNER_FILE, json.dumps({OWNER: prefix}))


def check_owner(checkpoint: Checkpoint, prefix: str) -> bool:
    """Whether it has an owner yet. Raises ForeignCheckpoint if that is another sink: what that one decided would never
    be finished."""
    text = checkpoint.read(OWNER_FILE)
    if text is None:
        return False
    owner = json.loads(text)[OWNER]
    if owner != prefix:
        raise ForeignCheckpoint(
            f"the checkpoint {checkpoint.location!r} belongs to the transactional.id.prefix {owner!r}, and the query "
            f"has {prefix!r}: what that one decided would be lost or doubled. Use {owner!r}, or an empty checkpoint"
        )
    return True


def topic_offsets(source_offsets: str) -> dict[TopicPartition, int]:
    """Those of a source that reads topics, `{"orders": {"0": 17}}`; of any other source nothing."""
    try:
        found = json.loads(source_offsets)
        return {
            TopicPartition(topic, int(index)): int(offset)
            for topic, offsets in found.items()
            for index, offset in offsets.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}
