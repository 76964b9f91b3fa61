"""What an error in a partition's part of a Fetch answer means for the reader: a table, as Kafka's clients have it."""

from __future__ import annotations

from enum import Enum, auto

from oncelog import errors


class Verdict(Enum):
    RETRY = auto()
    """It passes; ask again after a pause."""
    ELSEWHERE = auto()
    """Somebody else leads, or the topic is another one: ask for metadata first."""
    OUT_OF_RANGE = auto()
    """The log does not have the offset."""
    TELL = auto()
    """The user must hear it; asked again all the same, since only the brokers' side can mend it."""


_VERDICTS: dict[int, Verdict] = {
    errors.OffsetOutOfRange.code: Verdict.OUT_OF_RANGE,
    errors.UnknownServerError.code: Verdict.RETRY,
    **dict.fromkeys(
        (
            errors.NotLeaderOrFollower.code,
            errors.ReplicaNotAvailable.code,
            errors.LeaderNotAvailable.code,
            errors.KafkaStorageError.code,
            errors.FencedLeaderEpoch.code,
            errors.UnknownLeaderEpoch.code,
            errors.OffsetNotAvailable.code,
            errors.UnknownTopicOrPartition.code,
            errors.UnknownTopicId.code,
            errors.InconsistentTopicId.code,
        ),
        Verdict.ELSEWHERE,
    ),
    errors.CorruptMessage.code: Verdict.TELL,  # the broker cannot read its own log: waiting will not mend that
}


def verdict_of(error_code: int) -> Verdict:
    known = _VERDICTS.get(error_code)
    if known is not None:
        return known
    return Verdict.RETRY if errors.error_for_code(error_code).retriable else Verdict.TELL
