"""Which of the cluster's topics a group reads, and whether they are still what they were."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

from oncelog.coordinator.effects import TopicsView

_HASH = struct.Struct(">q")
NOTHING_READ = 0
"""The hash of a group that reads no existing topic."""


def existing_ids(names: Iterable[str], topics: TopicsView) -> frozenset[UUID]:
    return frozenset(topic_id for name in names if (topic_id := topics.topic_id(name)) is not None)


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """Differs as soon as one of the topics came, went, was made anew or grew. Kafka's own hash has another value, which
    costs a group that moves between the two one more rebalance."""
    from hashlib import blake2b  # with all of OpenSSL's digests: 0.7 MB, which a broker without such groups is spared

    digest = blake2b(digest_size=_HASH.size)
    is_nothing = True
    for name in sorted(names):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            digest.update(topic_id.bytes + struct.pack(">i", topics.partition_count(name) or 0))
            is_nothing = False
    if is_nothing:
        return NOTHING_READ
    (value,) = _HASH.unpack(digest.digest())
    return int(value)
