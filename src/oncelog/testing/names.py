"""Names and seeds of one test: topics, groups and ids that no other test, worker or run uses.

Pure but for the chance in a name, which no seed governs: two runs against one cluster must not meet.
"""

from __future__ import annotations

import re
import uuid
import zlib

MAX_READABLE = 80
"""Characters of a name that say which test it belongs to; Kafka allows 249 in all."""

UNIQUE_DIGITS = 12

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]+")


def fresh_name(*parts: str) -> str:
    """`orders-gzip-input-3f1c...` for "test_orders[gzip]" and "input": valid as a topic, a group and an id."""
    words = (_NOT_IN_NAMES.sub("-", part).strip("-").removeprefix("test_") for part in parts)
    readable = "-".join(word for word in words if word)[:MAX_READABLE]
    return f"{readable or 'test'}-{uuid.uuid4().hex[:UNIQUE_DIGITS]}"


def seed_of(test_id: str) -> int:
    """The same for the same test, on every machine and in every run."""
    return zlib.crc32(test_id.encode())
