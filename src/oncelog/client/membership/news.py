"""What a member of a group has to tell its user, as values. The shell runs the user's callbacks for them, in order."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.types import TopicPartition


class Revoking(NamedTuple):
    """These partitions are to be given up: commit what was processed, then say `news_done`. Until then they are ours,
    and no other member gets them."""

    partitions: frozenset[TopicPartition]


class Assigned(NamedTuple):
    """All partitions that are ours from now on, and which of them are new."""

    partitions: frozenset[TopicPartition]
    added: frozenset[TopicPartition]


class Lost(NamedTuple):
    """These partitions are no longer ours, and may be another member's already: nothing can be committed for them."""

    partitions: frozenset[TopicPartition]


class Failed(NamedTuple):
    """The group cannot be joined. Where trying again may help, it is tried with the next `user_polled`."""

    error: Exception


News = Revoking | Assigned | Lost | Failed
