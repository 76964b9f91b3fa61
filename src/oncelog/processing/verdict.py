"""What an error means for the batch in hand: the table "what to do after which error"."""

from __future__ import annotations

from enum import Enum, auto

from oncelog.client.producer_errors import BufferExhausted, DeliveryFailed, ProducerClosed, TopicUnavailable
from oncelog.client.transaction_errors import AbortNeeded, OutcomeUnknown, TransactionError
from oncelog.errors import (
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    StaleMemberEpoch,
    TransactionAbortable,
    UnknownMemberId,
    UnknownProducerId,
)
from oncelog.processing.job import FeedsItself


class Verdict(Enum):
    ASK_AGAIN = auto()
    """The outcome is not known yet: the same call again tells it."""
    GO_BACK = auto()
    """Nobody's fault: abort, and process the same records again, whoever has them by then."""
    FAILED = auto()
    """The batch, or what was made of it, is to blame: abort; worth a few more attempts."""
    GIVE_UP = auto()
    """This worker can do nothing any more."""


_PASSING = (IllegalGeneration, StaleMemberEpoch, TransactionAbortable, UnknownMemberId, UnknownProducerId)


def verdict_of(error: BaseException) -> Verdict:
    if isinstance(error, OutcomeUnknown):
        return Verdict.ASK_AGAIN
    if isinstance(error, AbortNeeded):
        return _verdict_of_loss(error.__cause__)
    if isinstance(error, BufferExhausted):
        return Verdict.GO_BACK
    return (
        Verdict.GIVE_UP
        if isinstance(error, TransactionError | TopicUnavailable | ProducerClosed | FeedsItself)
        else Verdict.FAILED
    )


def _verdict_of_loss(cause: BaseException | None) -> Verdict:
    """Why the transaction cannot be committed."""
    if isinstance(cause, DeliveryFailed) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, FencedInstanceId):
        return Verdict.GIVE_UP
    if isinstance(cause, KafkaError):
        return Verdict.GO_BACK if cause.retriable or isinstance(cause, _PASSING) else Verdict.FAILED
    return Verdict.GO_BACK
