"""What each error in the answer to an offset commit means for the commit, for the coordinator and for the member."""

from __future__ import annotations

from enum import Enum, auto

from oncelog import errors
from oncelog.errors import KafkaError


class CommitVerdict(Enum):
    AGAIN = auto()
    """The same may succeed later."""
    MOVED = auto()
    """The coordinator must be found first."""
    UNKNOWN_ID = auto()
    """The topic is to be called by its name."""
    REBALANCING = auto()
    """May succeed once the member has rejoined."""
    STALE = auto()
    """May succeed with the member's next epoch, which its heartbeat brings."""
    TOO_LATE = auto()
    """The partitions are others' by now."""
    FENCED = auto()
    """Another process has this member's instance id."""
    FINAL = auto()

    @property
    def concerns_member(self) -> bool:
        return self in (CommitVerdict.REBALANCING, CommitVerdict.TOO_LATE, CommitVerdict.FENCED)


_VERDICTS: dict[type[KafkaError], CommitVerdict] = {
    errors.NotCoordinator: CommitVerdict.MOVED,
    errors.CoordinatorNotAvailable: CommitVerdict.MOVED,
    errors.RequestTimedOut: CommitVerdict.MOVED,
    errors.UnknownTopicId: CommitVerdict.UNKNOWN_ID,
    errors.RebalanceInProgress: CommitVerdict.REBALANCING,
    errors.StaleMemberEpoch: CommitVerdict.STALE,
    errors.UnknownMemberId: CommitVerdict.TOO_LATE,
    errors.IllegalGeneration: CommitVerdict.TOO_LATE,
    errors.FencedMemberEpoch: CommitVerdict.TOO_LATE,
    errors.FencedInstanceId: CommitVerdict.FENCED,
}


def verdict_of(error: KafkaError) -> CommitVerdict:
    verdict = _VERDICTS.get(type(error))
    if verdict is not None:
        return verdict
    return CommitVerdict.AGAIN if error.retriable else CommitVerdict.FINAL
