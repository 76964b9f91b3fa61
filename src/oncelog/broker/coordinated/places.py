"""Which partition of a coordinated topic keeps a group, or a transactional id. Remembered, since every request asks."""

from __future__ import annotations

from functools import lru_cache

from oncelog.coordinator.groups import coordinator_for

REMEMBERED = 4_096
"""Keys whose partition need not be computed again."""
MAX_REMEMBERED_LENGTH = 256
"""Of such a key: longer ones are odd, and would take much memory."""

_remembered = lru_cache(REMEMBERED)(coordinator_for)


def place_of(key: str, partition_count: int) -> int:
    find = _remembered if len(key) <= MAX_REMEMBERED_LENGTH else coordinator_for
    return find(key, partition_count)
