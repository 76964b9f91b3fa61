"""What an error of a coordinator means for a transaction: the table "what a producer does on each error"."""

from __future__ import annotations

from enum import Enum, auto

from oncelog.errors import (
    NONE,
    ClusterAuthorizationFailed,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    NotCoordinator,
    OperationNotAttempted,
    ProducerFenced,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownMemberId,
    UnknownProducerId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for_code,
)


class TransactionVerdict(Enum):
    DONE = auto()
    RETRY = auto()
    CONTENDED = auto()
    """The transaction before this one is being completed: it takes a moment."""
    MOVED = auto()
    """Another broker coordinates: look for it again."""
    ABORT = auto()
    """This transaction cannot be committed; the next one can."""
    FENCED = auto()
    """Another producer has taken the transactional id over."""
    FATAL = auto()


_BY_CODE = {
    NONE: TransactionVerdict.DONE,
    OperationNotAttempted.code: TransactionVerdict.DONE,  # another partition's error tells what to do
    ConcurrentTransactions.code: TransactionVerdict.CONTENDED,
    UnknownTopicOrPartition.code: TransactionVerdict.RETRY,
    CoordinatorNotAvailable.code: TransactionVerdict.MOVED,
    NotCoordinator.code: TransactionVerdict.MOVED,
    InvalidProducerEpoch.code: TransactionVerdict.FENCED,
    ProducerFenced.code: TransactionVerdict.FENCED,
    TransactionAbortable.code: TransactionVerdict.ABORT,
    UnknownProducerId.code: TransactionVerdict.ABORT,
    TopicAuthorizationFailed.code: TransactionVerdict.ABORT,
    GroupAuthorizationFailed.code: TransactionVerdict.ABORT,
    IllegalGeneration.code: TransactionVerdict.ABORT,
    UnknownMemberId.code: TransactionVerdict.ABORT,
    StaleMemberEpoch.code: TransactionVerdict.ABORT,
    FencedInstanceId.code: TransactionVerdict.ABORT,
}

_FATAL_FROM_LEADERS = (
    ProducerFenced,
    InvalidProducerIdMapping,
    TransactionalIdAuthorizationFailed,
    ClusterAuthorizationFailed,
    UnsupportedVersion,
)


def verdict_of(code: int) -> TransactionVerdict:
    known = _BY_CODE.get(code)
    if known is not None:
        return known
    return TransactionVerdict.RETRY if error_for_code(code).retriable else TransactionVerdict.FATAL


def is_fatal_for_records(error: Exception) -> bool:
    """Whether a leader's answer to Produce ends more than the transaction."""
    return isinstance(_said(error), _FATAL_FROM_LEADERS)


def is_fencing(error: Exception) -> bool:
    said = _said(error)
    return isinstance(said, KafkaError) and verdict_of(said.code) is TransactionVerdict.FENCED


def _said(error: Exception) -> BaseException | None:
    """What the broker said, where the error adds that the record may be stored all the same."""
    return error if isinstance(error, KafkaError) else error.__cause__
