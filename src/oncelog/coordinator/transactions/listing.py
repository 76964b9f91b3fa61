"""ListTransactions v0-2 and DescribeTransactions v0: what is known of transactions, for people and tools.

Of ListTransactions, v1 filters by duration, v2 by a regular expression over the whole transactional id. Characters that
no topic's name may have are matched by no expression (see `TopicPattern`). Never changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.coordinator.consumer.regex import TopicPattern, too_much_work
from oncelog.coordinator.transactions.answers import refusal
from oncelog.coordinator.transactions.records import by_topic
from oncelog.coordinator.transactions.state import STATES_BY_LABEL
from oncelog.coordinator.transactions.transaction import Transaction
from oncelog.errors import NONE, InvalidRegularExpression, InvalidRequest, TransactionalIdNotFound
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

MAX_PATTERN_WORK = 5_000
"""What an expression may take in one coordinator, some milliseconds. See `regex` for the measure."""


def list_transactions(transactions: Mapping[str, Transaction], body: Message, version: int, now_ms: int) -> Message:
    known = {STATES_BY_LABEL[name] for name in body["state_filters"] if name in STATES_BY_LABEL}
    producer_ids = set(body["producer_id_filters"])
    duration_ms = body.get("duration_filter", -1)
    found = [
        {
            "transactional_id": transactional_id,
            "producer_id": transaction.producer_id,
            "transaction_state": transaction.state.label,
        }
        for transactional_id, transaction in transactions.items()
        if (not body["state_filters"] or transaction.state in known)
        and (not producer_ids or transaction.producer_id in producer_ids)
        and (duration_ms < 0 or now_ms - transaction.start_ms > duration_ms)
    ]
    if body.get("transactional_id_pattern"):
        try:
            found = _matching(body["transactional_id_pattern"], found)
        except InvalidRegularExpression as error:
            return refusal(ApiKey.LIST_TRANSACTIONS, body, version, error.code)
    unknown = [name for name in body["state_filters"] if name not in STATES_BY_LABEL]
    return {"error_code": NONE, "unknown_state_filters": unknown, "transaction_states": found}


def _matching(expression: str, found: list[Message]) -> list[Message]:
    """Raises InvalidRegularExpression, also for one that takes too much work."""
    pattern = TopicPattern.of(expression)
    allowed = pattern.work + MAX_PATTERN_WORK
    matching = []
    for one in found:
        if pattern.matches(one["transactional_id"]):
            matching.append(one)
        if pattern.work > allowed:
            raise too_much_work(expression)
    return matching


def describe(transactions: Mapping[str, Transaction], transactional_id: str) -> Message:
    transaction = transactions.get(transactional_id)
    if transaction is None:
        code = TransactionalIdNotFound.code if transactional_id else InvalidRequest.code
        refused = refusal(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [transactional_id]}, 0, code)
        blank: Message = refused["transaction_states"][0]
        return blank
    topics = [
        {"topic": each["topic"], "partitions": each["partition_ids"]} for each in by_topic(transaction.partitions)
    ]
    return {
        "error_code": NONE,
        "transactional_id": transactional_id,
        "transaction_state": transaction.state.label,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_start_time_ms": transaction.start_ms,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "topics": topics,
    }
