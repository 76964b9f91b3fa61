"""The transactions of slots, as their coordinators know them. Implements `ports.Transactions`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from oncelog.admin.ending import Ended, EndedOtherwise, NothingToEnd, OutcomeForgotten
from oncelog.admin.values import TransactionState
from oncelog.client.blocking import BrokersUnreachable, ConnectionLost
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.client.transaction_errors import OutcomeUnknown, TransactionError
from oncelog.errors import KafkaError
from oncelog.spark.moments import Moment, reach
from oncelog.spark.sink.attempts import Prepared
from oncelog.spark.sink.brokers import Brokers
from oncelog.spark.sink.finishing import Answer
from oncelog.spark.sink.identity import holds_output

END_AT_ONCE: Final = 16
ABORT_TIMEOUT_S: Final = 5.0
"""For one that does not answer: nobody depends on it, the next plan fences it."""
OPEN_STATES: Final = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)

logger = logging.getLogger(__name__)


class SlotTransactions:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def commit(self, attempts: Sequence[Prepared]) -> Mapping[PreparedTransaction, Answer]:
        answers: dict[PreparedTransaction, Answer] = {}
        waiting = iter([attempt.transaction for attempt in attempts])
        reach(Moment.ENDING)
        while some := list(islice(waiting, END_AT_ONCE)):
            ended = self._brokers.admin.commit_transactions(some)
            answers |= {transaction: _answer(outcome) for transaction, outcome in ended.items()}
            reach(Moment.ENDED_SOME)
        reach(Moment.ENDED_ALL)
        return answers

    def abort(self, attempts: Sequence[Prepared]) -> None:
        for attempt in attempts:
            try:
                self._brokers.admin.end_transaction(attempt.transaction, commit=False, timeout=ABORT_TIMEOUT_S)
            except (TransactionError, KafkaError, ConnectionLost, BrokersUnreachable) as error:
                logger.info("not aborted, the next plan fences it: %s", error)

    def list_open(self, prefix: str) -> Sequence[PreparedTransaction]:
        admin = self._brokers.admin
        listed = [one.transactional_id for one in admin.list_transactions(states=OPEN_STATES)]
        names = [name for name in listed if holds_output(prefix, name)]
        if not names:
            return ()
        found = admin.describe_transactions(names)
        return [PreparedTransaction(name, one.producer_id, one.producer_epoch) for name, one in found.items()]

    def fence(self, open_transactions: Sequence[PreparedTransaction]) -> None:
        self._brokers.admin.fence_producers(one.transactional_id for one in open_transactions)


def _answer(outcome: Ended | TransactionError) -> Answer:
    match outcome:
        case Ended.COMMITTED:
            return Answer.COMMITTED
        case EndedOtherwise():
            return Answer.ABORTED
        case OutcomeForgotten() | NothingToEnd():
            return Answer.UNCLEAR
        case OutcomeUnknown():
            return Answer.UNANSWERED
    raise AssertionError(f"no commit ends like this: {outcome!r}")
