"""How many of the process's descriptors clients may have: the others are the broker's own.

A broker without descriptors cannot begin a segment, make a topic or even load the code that answers a request; clients
can come again. The system gives out the lowest number that is free. So a descriptor's own number tells whether those
below it are all in use, and nothing has to be counted.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
from typing import Final

from oncelog.client.occasional import OccasionalWarning
from oncelog.errors import KafkaStorageError, ReplicaNotAvailable
from oncelog.log.storage import is_out_of_descriptors

logger = logging.getLogger(__name__)

WARN_EVERY_MS: Final = 60_000
"""Readers that find no descriptor ask again and again."""

RESERVED_DESCRIPTORS: Final = 128
"""What the broker may need at once for its own work beside what it has open: new segments and their indexes, snapshots
and checkpoints, flushes, compaction, modules that are loaded when first used, the metrics page."""

LOG_SHARE: Final = 2
"""The part of the descriptors that growing segments may hold open, less what is reserved: a half."""

MAX_OPEN_SEGMENTS: Final = 65_536
"""Growing segments that are held open where the system allows any number."""

RESERVED_SHARE: Final = 8
"""Where few descriptors are allowed, this part of them is reserved: an eighth."""

MAX_HELD_BY_ANSWER: Final = 1_000
"""Slices of segments, each of which may be a descriptor, that an answer may hold while it is made in steps."""

HELD_SHARE: Final = 8
"""Where few descriptors are allowed, this part of them: an eighth."""


def is_for_clients(descriptor: int) -> bool:
    """Whether a client may keep this descriptor; if not, it must be closed at once."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit == resource.RLIM_INFINITY or descriptor < limit - reserve_of(limit)


def reserve_of(limit: int) -> int:
    return min(RESERVED_DESCRIPTORS, limit // RESERVED_SHARE)


def for_logs() -> int:
    """How many growing segments may hold their file open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MAX_OPEN_SEGMENTS
    return min(MAX_OPEN_SEGMENTS, max(1, limit // LOG_SHARE - reserve_of(limit)))


def duplicate_for_client(descriptor: int) -> int:
    """A second descriptor of a client's socket. Raises OSError where clients may have no more."""
    duplicate = os.dup(descriptor)
    if not is_for_clients(duplicate):
        os.close(duplicate)
        raise OSError(errno.EMFILE, "the remaining descriptors are reserved for the broker's own work")
    return duplicate


class WantOfDescriptors:
    """What is made of reading that failed because no descriptor was left. Nothing is wrong with the disk then, and
    nobody may hear so: clients ask again, and the operator is told what to do."""

    def __init__(self) -> None:
        self._warning = OccasionalWarning(logger, WARN_EVERY_MS)

    @staticmethod
    def may_be_held_by_an_answer() -> int:
        """Others are served while it is made, and find some as well."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return MAX_HELD_BY_ANSWER if limit == resource.RLIM_INFINITY else min(MAX_HELD_BY_ANSWER, limit // HELD_SHARE)

    def noticed(self, error: KafkaStorageError, now_ms: int) -> bool:
        """Whether that is what was wrong."""
        if not is_out_of_descriptors(error):
            return False
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        advice = "the broker may have %d files and connections open; allow it more (ulimit -n)"
        self._warning.give(now_ms, "%s: " + advice, str(error), limit)  # not what holds frames
        return True

    def to_client(self, error: KafkaStorageError, now_ms: int) -> KafkaStorageError | ReplicaNotAvailable:
        """The same, in a code that every client takes for what passes."""
        if not self.noticed(error, now_ms):
            return error
        return ReplicaNotAvailable(f"{error.message}; ask again")
