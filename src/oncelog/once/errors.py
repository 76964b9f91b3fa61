"""What can go wrong while effects are made to happen once. Every message says what to do."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.errors import OncelogError
from oncelog.types import TopicPartition


class OnceError(OncelogError):
    """Whatever `oncelog.once` has to say."""


class UnsupportedDatabase(OnceError):
    """Neither a path, nor an engine or a connection of a dialect that is known here."""


class BadEffect(OnceError, TypeError):
    """The effect is no function that can be called as `effect(connection, record)`."""


class EffectEndedTransaction(OnceError):
    """The effect committed or rolled back what is not its to end, or hid an error that undid it."""


class BadIdentity(OnceError):
    """The id, entity or version that a record was asked for is none."""


class LeaseHeld(OnceError):
    """Another worker holds the lease of at least one of the messages: nothing was done, ask again a little later."""


class LeaseLost(OnceError):
    """While the effect worked its lease was given to another worker: the transaction was refused and rolled back."""


class PartitionFenced(OnceError):
    """Another worker has claimed partitions since: the transaction was refused and rolled back."""

    def __init__(self, partitions: Mapping[TopicPartition, int]) -> None:
        """Each partition, with the group's generation under which it was claimed by the other."""
        self.partitions = partitions
        names = ", ".join(map(str, partitions))
        super().__init__(f"another worker has claimed {names} since; stop working on them, or claim them again")


class NotClaimed(OnceError):
    """Offsets in the database belong to a claim, and this worker has none on the record's partition."""


class PartitionTakenTwice(OnceError):
    """Two workers claim one partition, and neither has the newer generation of a group."""


class PositionBeyondEnd(OnceError):
    """The database is ahead of the topic, which must have been created anew or truncated."""


class PoisonRecord(OnceError):
    """An effect failed for good, and there is no dead-letter topic to send its record to. Nothing is lost: the record
    is read again by the next run."""


class DatabaseUnavailable(OnceError):
    """The database was away for longer than the runner's patience. Nothing is lost."""
