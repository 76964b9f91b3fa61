"""What must be true of the output in the end, as clients see it who know nothing of oncelog.

A reader of committed records gets, as a multiset and in order per key, exactly what was expected; no transaction is
left open; the last stable offset is the high watermark. Read by confluent-kafka, not by oncelog's own consumer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import oncelog
from tests.support.patience import eventually

TIMEOUT_S = 120.0
MESSAGES_AT_ONCE, POLL_S = 10_000, 0.1
ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


@dataclass(frozen=True, slots=True)
class Row:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def committed_rows(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    """By partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    rows: list[Row] = []
    try:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        unread = set(range(partitions))
        deadline = time.monotonic() + TIMEOUT_S
        while unread:
            assert time.monotonic() < deadline, f"the ends of partitions {unread} of {topic} were not reached"
            for message in consumer.consume(MESSAGES_AT_ONCE, timeout=POLL_S):
                error = message.error()
                if error is None:
                    rows.append(Row(message.partition(), message.offset(), message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def ends(bootstrap: str, topic: str, partitions: int, isolation: IsolationLevel) -> dict[int, int]:
    """High watermarks, or last stable offsets, by partition."""
    asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=TIMEOUT_S)
    return {place.partition: answer.result().offset for place, answer in answers.items()}


def nothing_is_open(bootstrap: str, topic: str, partitions: int, prefix: str) -> None:
    """Markers may take a moment; nothing else may be waited for."""

    def open_transactions() -> list[str]:
        with oncelog.Admin(bootstrap) as admin:
            listed = admin.list_transactions()
        return [
            f"{one.transactional_id}: {one.state}"
            for one in listed
            if one.transactional_id.startswith(prefix) and one.state not in ENDED
        ]

    try:
        eventually(lambda: not open_transactions(), f"no transaction of {prefix} is open", TIMEOUT_S)
    except AssertionError as error:
        error.add_note(f"open are {open_transactions()}")
        raise
    committed = ends(bootstrap, topic, partitions, IsolationLevel.READ_COMMITTED)
    assert committed == ends(bootstrap, topic, partitions, IsolationLevel.READ_UNCOMMITTED)


def by_key(rows: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, list[bytes | None]]:
    found: dict[bytes | None, list[bytes | None]] = {}
    for key, value in rows:
        found.setdefault(key, []).append(value)
    return found


def exactly_once(
    found: Iterable[Row], expected: Iterable[tuple[bytes | None, bytes | None]], *, in_order: bool = True
) -> None:
    rows, wanted = list(found), list(expected)
    had, due = Counter((row.key, row.value) for row in rows), Counter(wanted)
    lost, doubled = due - had, had - due
    assert not lost, f"{lost.total()} of {len(wanted)} are lost, such as {list(lost)[:5]}"
    assert not doubled, f"{doubled.total()} are too many, such as {list(doubled)[:5]}"
    if in_order:
        assert by_key((row.key, row.value) for row in rows) == by_key(wanted)
