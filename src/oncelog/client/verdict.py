"""What the answer to a Produce request means for a batch: the table "what a producer does on each error"."""

from __future__ import annotations

from enum import Enum, auto

from oncelog.errors import (
    NONE,
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    LeaderNotAvailable,
    MessageTooLarge,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
    ThrottlingQuotaExceeded,
    UnknownLeaderEpoch,
    UnknownProducerId,
    UnknownServerError,
    UnknownTopicOrPartition,
    error_for_code,
)


class Verdict(Enum):
    STORED = auto()
    STORED_EARLIER = auto()
    """A duplicate whose offset the broker no longer knows."""
    REFUSED = auto()
    """Not stored; the same batch may be accepted later."""
    UNCERTAIN = auto()
    """Perhaps stored; only sending the same batch again tells."""
    OUT_OF_ORDER = auto()
    FORGOTTEN = auto()
    """The broker does not know the producer id any more."""
    FENCED = auto()
    """Someone used the producer id with a higher epoch."""
    TOO_LARGE = auto()
    INVALID = auto()
    """Not stored, and never will be."""
    BROKEN = auto()
    """The broker does not know itself; asking again would not help."""


_BY_CODE = {
    NONE: Verdict.STORED,
    DuplicateSequenceNumber.code: Verdict.STORED_EARLIER,
    OutOfOrderSequenceNumber.code: Verdict.OUT_OF_ORDER,
    UnknownProducerId.code: Verdict.FORGOTTEN,
    InvalidProducerEpoch.code: Verdict.FENCED,
    MessageTooLarge.code: Verdict.TOO_LARGE,
    RecordListTooLarge.code: Verdict.TOO_LARGE,
    # A broker answers these before it writes.
    CorruptMessage.code: Verdict.REFUSED,
    UnknownTopicOrPartition.code: Verdict.REFUSED,
    LeaderNotAvailable.code: Verdict.REFUSED,
    NotEnoughReplicas.code: Verdict.REFUSED,
    UnknownLeaderEpoch.code: Verdict.REFUSED,
    ThrottlingQuotaExceeded.code: Verdict.REFUSED,
    UnknownServerError.code: Verdict.BROKEN,
}


def verdict_of(code: int) -> Verdict:
    known = _BY_CODE.get(code)
    if known is not None:
        return known
    # A leader that lost its office while the batch waited for its replicas answers with a retriable error too, so a
    # retriable error proves nothing.
    return Verdict.UNCERTAIN if error_for_code(code).retriable else Verdict.INVALID
