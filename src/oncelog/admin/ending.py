"""How a prepared transaction is ended by somebody who did not write it: what each answer means, what it leaves open.

Owns the decisions between one question to the coordinator and the next. Never asks, waits or counts time: that is for
`TransactionAdmin`. Never guesses: an outcome is told only where the coordinator's words allow no other.

`EndTxn` may be sent again and again, as an answer can be lost. By protocol 2 (EndTxn 5) the end of a transaction raises
the epoch, so a repeat is recognised whoever ended it, even after a timeout, until a successor takes the transactional
id. By protocol 1 the epoch stays: the end is recognised under the epoch itself, and an epoch that has moved on may hide
either outcome. DescribeTransactions says where the transactional id is (P, E: as prepared):

| the coordinator has | protocol 2         | protocol 1         |
|---------------------|--------------------|--------------------|
| P, E, Ongoing       | open               | open               |
| P, E, Empty         | nothing to end     | nothing to end     |
| P, E, an outcome    | nothing to end (1) | that outcome       |
| P, E + 1, an outcome| that outcome       | forgotten (2)      |
| anything later      | forgotten          | forgotten          |

(1) The outcome of the transaction before: this one has written nothing, or was ended by protocol 1.
(2) Aborted by its timeout, or committed with a successor whose own transaction ended so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from oncelog.admin.values import TransactionDescription, TransactionState
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.client.transaction_errors import TransactionError, WhatToDo
from oncelog.errors import (
    NONE,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    UnknownServerError,
    error_for_code,
)


class Ended(Enum):
    """The outcome is certain: it holds whatever dies from now on. Markers may still be on their way."""

    COMMITTED = "committed"
    ABORTED = "aborted"


class Next(Enum):
    LOOK = "ask where the transactional id is"
    END = "ask to end the transaction"


class EndedOtherwise(TransactionError):
    """It has ended, for certain, in the other way than was asked for; by a timeout, for example."""

    what_to_do: ClassVar[WhatToDo] = "give up"

    def __init__(self, message: str, outcome: Ended) -> None:
        super().__init__(message)
        self.outcome = outcome


class OutcomeForgotten(TransactionError):
    """It has ended, and the coordinator cannot tell how any more. `described` is what it could tell."""

    what_to_do: ClassVar[WhatToDo] = "give up"

    def __init__(self, message: str, described: TransactionDescription | None) -> None:
        super().__init__(message)
        self.described = described


class NothingToEnd(TransactionError):
    """No transaction is open under this identity: it has written nothing, or somebody ended it by protocol 1."""

    what_to_do: ClassVar[WhatToDo] = "give up"

    def __init__(self, message: str, described: TransactionDescription) -> None:
        super().__init__(message)
        self.described = described


UNCLEAR: Final = frozenset(
    error.code
    for error in (
        ConcurrentTransactions,
        InvalidTxnState,
        ProducerFenced,
        InvalidProducerEpoch,
        InvalidProducerIdMapping,
        UnknownServerError,
    )
)
"""What may be answered to a request that was executed before, or whose transaction somebody else has ended."""

OUTCOMES: Final[dict[str, Ended]] = {
    TransactionState.PREPARE_COMMIT: Ended.COMMITTED,
    TransactionState.COMPLETE_COMMIT: Ended.COMMITTED,
    TransactionState.PREPARE_ABORT: Ended.ABORTED,
    TransactionState.COMPLETE_ABORT: Ended.ABORTED,
}


@dataclass(frozen=True, slots=True)
class Ending:
    prepared: PreparedTransaction
    wanted: Ended

    def first(self, *, by_protocol_2: bool) -> Next:
        """Protocol 2 aborts what never began, too: only a look tells that from a transaction which was committed by
        protocol 1. No other request does what it should not."""
        return Next.LOOK if by_protocol_2 and self.wanted is Ended.ABORTED else Next.END

    def after_end(self, error_code: int) -> Ended | Next:
        """EndTxn was answered. Raises what the coordinator refuses for good, or, retriable, what it may do later."""
        if error_code == NONE:
            return self.wanted
        if error_code in UNCLEAR:
            return Next.LOOK
        error = error_for_code(error_code)
        raise error_for_code(error_code, f"{self.name} was not ended: {error.message}")

    def after_look(self, found: TransactionDescription | None, *, by_protocol_2: bool) -> Ended | Next:
        """DescribeTransactions was answered; None: the transactional id is unknown. Raises where it has not ended as
        wanted, and never will."""
        if found is None:
            raise OutcomeForgotten(
                f"how {self.name} ended is not known: the coordinator has forgotten the transactional id, as it does "
                "after transactional.id.expiration.ms; only its records can tell (read_committed)",
                None,
            )
        prepared = self.prepared
        lead = found.producer_epoch - prepared.producer_epoch
        if found.producer_id != prepared.producer_id or lead > 1:
            raise self._forgotten(found)
        outcome = OUTCOMES.get(found.state)
        if lead == 1:
            if not by_protocol_2 or outcome is None:
                raise self._forgotten(found)
            return self._settled(outcome)
        if lead == 0 and found.state == TransactionState.ONGOING:
            return Next.END
        if lead == 0 and not by_protocol_2 and outcome is not None:
            return self._settled(outcome)
        raise NothingToEnd(f"nothing to end: {self.name} is not open, {_place(found)}", found)

    def _settled(self, outcome: Ended) -> Ended:
        if outcome is self.wanted:
            return outcome
        raise EndedOtherwise(f"{self.name} is {outcome.value} already, and cannot be {self.wanted.value}", outcome)

    def _forgotten(self, found: TransactionDescription) -> OutcomeForgotten:
        return OutcomeForgotten(
            f"{self.name} is over, and how it ended is not known: {_place(found)}. It was aborted, unless it was "
            "committed before that; only its records can tell (read_committed)",
            found,
        )

    @property
    def name(self) -> str:
        one = self.prepared
        return f"the transaction of {one.transactional_id!r} (producer {one.producer_id}, epoch {one.producer_epoch})"


def _place(found: TransactionDescription) -> str:
    return f"the transactional id is {found.state} with producer {found.producer_id}, epoch {found.producer_epoch}"
