"""What is said of partitions that nobody leads: which, why that may be, and what to do. One text for all clients."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.types import TopicPartition


def without_leader(partitions: Sequence[TopicPartition]) -> str:
    """Names the first one, and how many more there are."""
    first = partitions[0]
    more = f" (and {len(partitions) - 1} more)" if len(partitions) > 1 else ""
    return (
        f"partition {first.partition} of topic {first.topic!r} has no leader{more}: its broker is down, or has taken it"
        " offline for a failed disk or damage; start the broker, or see what its log says"
    )
