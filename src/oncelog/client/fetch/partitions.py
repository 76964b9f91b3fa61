"""One partition that a consumer reads: where its reader is, where the next fetch begins, and who is to be asked.

The state is shared by two threads. The reader (the shell) moves `position` and `position_epoch` as it hands out
records, and counts `answers_taken`; everything else is the fetcher's. Whoever jumps (`seek`, a reset) counts
`seek_count` up: data that was fetched for an older count belongs to a place that the reader has left.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from oncelog.client.metadata import NO_LEADER
from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition

LATEST = -1
EARLIEST = -2
"""As the timestamp of a reset or a question for offsets: after the last record, and at the first."""

MAX_WAITING = 2
"""How many answers of one partition may wait for the reader: one is read while the next is on its way."""


class Stage(Enum):
    """What a partition needs before it can be fetched."""

    UNPOSITIONED = auto()
    """A position: the group is asked for a committed offset, or the user says."""
    RESETTING = auto()
    """The offset of a reset, from the leader."""
    VALIDATING = auto()
    """To know that the log still has what was read: its leader changed."""
    FETCHING = auto()
    LEAVING = auto()
    """What was fetched is read to its end, then the position changes: nothing follows here. `departure` says why."""
    HELD = auto()
    """A decision of the user, who was told why: seek, or reset."""


class OutOfRange(NamedTuple):
    """The log does not have the offset (any more)."""


class Truncated(NamedTuple):
    """The log was cut below what was read."""

    offset: int
    """Up to here it is the log that was read; NO_OFFSET if nobody knows."""
    leader_epoch: int


class Recreated(NamedTuple):
    """The topic was deleted, and is another one under the same name."""


Departure = OutOfRange | Truncated | Recreated


@dataclass(slots=True, eq=False)
class PartitionState:
    partition: TopicPartition
    position: int | None = None
    """The next offset that the user gets."""
    position_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record that the user got."""
    seek_count: int = 0
    is_paused: bool = False
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None

    # From here on only the fetcher and the inbox look.
    stage: Stage = Stage.UNPOSITIONED
    departure: Departure | None = None
    fetch_offset: int = NO_OFFSET
    """Where the next fetch begins: behind everything that was fetched."""
    fetch_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last batch that was fetched."""
    trusted_epoch: int = NO_LEADER_EPOCH
    """The leader epoch under which the fetch position is known to be in the log."""
    topic_id: UUID | None = None
    leader: int = NO_LEADER
    leader_epoch: int = NO_LEADER_EPOCH
    read_replica: int = NO_LEADER
    """The follower that the leader told us to read from."""
    read_replica_until_ms: int = 0
    attempts: int = 0
    """Failures in a row."""
    retry_at_ms: int = 0
    departures: int = 0
    """How often in a row the position led nowhere, and was given up: without an answer of a log in between."""
    answers_put: int = 0
    answers_taken: int = 0
    damage_told_at: int = -1
    """How often the reader had looked for data (`Inbox.looks`) when it was told that the log is damaged where it is."""
    has_dropped: bool = False
    """Data that waited while it was paused had to make room: it is fetched again when it is resumed."""

    @property
    def waiting(self) -> int:
        return self.answers_put - self.answers_taken

    @property
    def is_read_to_the_end(self) -> bool:
        """The reader has got everything that was fetched."""
        return self.position is not None and self.position >= self.fetch_offset

    @property
    def wants_validation(self) -> bool:
        """Whether a newer leader may have a log without what was read. Who wrote the last batch has it."""
        return 0 <= self.fetch_epoch < self.leader_epoch and self.trusted_epoch < self.leader_epoch

    def jump(self, offset: int | None, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """The position is elsewhere, or unknown; what was fetched is of no use."""
        self.seek_count += 1
        self.position = offset
        self.position_epoch = leader_epoch
        self.fetch_offset = NO_OFFSET if offset is None else offset
        self.fetch_epoch = leader_epoch
        self.trusted_epoch = NO_LEADER_EPOCH
        self.departure = None
        self.has_dropped = False
        self.read_replica = NO_LEADER
        self.succeeded()

    def rewind(self) -> None:
        """Fetch again what waits for the reader: the reader's own position stays."""
        assert self.position is not None
        self.seek_count += 1
        self.fetch_offset = self.position
        self.fetch_epoch = self.position_epoch
        self.trusted_epoch = NO_LEADER_EPOCH
        self.has_dropped = False

    def failed(self, retry_at_ms: int) -> None:
        self.attempts += 1
        self.retry_at_ms = retry_at_ms

    def succeeded(self) -> None:
        self.attempts = 0
        self.retry_at_ms = 0
