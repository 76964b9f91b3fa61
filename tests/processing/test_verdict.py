"""What to do after which error."""

from __future__ import annotations

import pytest

from oncelog.client.producer_errors import BufferExhausted, DeliveryFailed, DeliveryTimedOut, TopicUnavailable
from oncelog.client.transaction_errors import (
    AbortNeeded,
    OutcomeUnknown,
    TransactionalProducerFenced,
    TransactionFailed,
    TransactionMisuse,
)
from oncelog.errors import (
    FencedInstanceId,
    IllegalGeneration,
    MessageTooLarge,
    NotLeaderOrFollower,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownMemberId,
)
from oncelog.processing.verdict import Verdict, verdict_of


def because_of(cause: Exception) -> AbortNeeded:
    error = AbortNeeded("lost")
    error.__cause__ = cause
    return error


def refused_by_a_leader(cause: Exception) -> DeliveryFailed:
    error = DeliveryFailed("refused", may_be_written=False)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (OutcomeUnknown("?"), Verdict.ASK_AGAIN),
        (because_of(IllegalGeneration("")), Verdict.GO_BACK),
        (because_of(UnknownMemberId("")), Verdict.GO_BACK),
        (because_of(StaleMemberEpoch("")), Verdict.GO_BACK),
        (because_of(TransactionAbortable("")), Verdict.GO_BACK),
        (because_of(DeliveryTimedOut("", may_be_written=True)), Verdict.GO_BACK),
        (because_of(refused_by_a_leader(NotLeaderOrFollower(""))), Verdict.GO_BACK),
        (because_of(refused_by_a_leader(MessageTooLarge(""))), Verdict.FAILED),
        (because_of(TopicAuthorizationFailed("")), Verdict.FAILED),
        (because_of(FencedInstanceId("")), Verdict.GIVE_UP),
        (AbortNeeded("without a reason"), Verdict.GO_BACK),
        (BufferExhausted(""), Verdict.GO_BACK),
        (TransactionalProducerFenced(""), Verdict.GIVE_UP),
        (TransactionFailed(""), Verdict.GIVE_UP),
        (TransactionMisuse(""), Verdict.GIVE_UP),
        (TopicUnavailable(""), Verdict.GIVE_UP),
        (ValueError("of the user's"), Verdict.FAILED),
    ],
)
def test_the_table(error: Exception, verdict: Verdict) -> None:
    assert verdict_of(error) is verdict
