"""Values for the tests of the sink."""

from __future__ import annotations

from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark.sink.attempts import Nothing, Place, Prepared, Range, TaskResult
from oncelog.spark.sink.identity import Term, slot_id
from oncelog.types import TopicPartition

QUERY = "5b1c2f6e"
TERM = Term(1, 7)
MARKER = Place(TopicPartition("journal", 3), 99)


def prepared(slot: int = 0, *, partition: int | None = None, records: int = 3, decide_by_ms: int = 1000) -> Prepared:
    paid = TopicPartition("paid", slot if partition is None else partition)
    transaction = PreparedTransaction(slot_id("billing", slot), 4000 + slot, 2)
    return Prepared(slot, transaction, (Range(paid, 10, 15, records),), MARKER, decide_by_ms)


def result(slot: int, outcome: Prepared | Nothing, *, batch_id: int = 5, query_id: str = QUERY) -> TaskResult:
    return TaskResult(query_id, batch_id, slot, TERM, outcome)
