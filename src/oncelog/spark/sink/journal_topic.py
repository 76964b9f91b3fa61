"""The journal as a topic, `{prefix}-journal`: decisions in partition 0, markers of transactions in the others.

Implements `ports.Journal`. A decision is one small transaction of `{prefix}-driver`, so whoever takes the id over ends
what the last one had begun, and no append of it can come later. Markers lie in partitions of their own, as a slot's
transaction may stay open for long, and readers of what lies behind it would wait.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID

from oncelog.client.partition_fetch import fetch_partition
from oncelog.client.transaction_errors import AbortNeeded, TransactionalProducerFenced
from oncelog.errors import OffsetOutOfRange, TopicAlreadyExists, TransactionalIdNotFound, UnknownTopicOrPartition
from oncelog.producer.producer import Producer
from oncelog.records.batch import DEFAULT_MAX_DECOMPRESSED_BYTES
from oncelog.records.kernel import RecordCursor
from oncelog.spark.moments import Moment, reach
from oncelog.spark.sink import journal
from oncelog.spark.sink.brokers import Brokers
from oncelog.spark.sink.errors import JournalFenced, NotFinished, UnreadableJournal
from oncelog.spark.sink.identity import SALVAGE, Term, driver_id
from oncelog.types import IsolationLevel, TopicPartition

DECISIONS: Final = 0
MARKER_PARTITIONS: Final = 8
MAX_ENTRY_BYTES: Final = 16 * 1024 * 1024
"""A decision names every partition of every slot: a thousand slots of a hundred partitions fit."""
TOPIC_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 * 1024 * 1024),
    "max.message.bytes": str(MAX_ENTRY_BYTES),
}
ENTRIES_AT_ONCE: Final = 1_000
MAX_ROUNDS: Final = 100_000
"""Fetches of one reading; each moves on, or finds the end."""
JOURNAL_TIMEOUT_MS: Final = 60_000
SETTLING_S: Final = 2.0


def journal_topic(prefix: str) -> str:
    return f"{prefix}-journal"


def marker_partition(prefix: str, slot: int) -> TopicPartition:
    return TopicPartition(journal_topic(prefix), 1 + max(slot, 0) % MARKER_PARTITIONS)


class _Read(NamedTuple):
    next_offset: int
    standing: journal.Ledger


_read: dict[UUID, _Read] = {}
"""How far this process has read each journal: only what came since is read again."""


def term_of(brokers: Brokers, prefix: str) -> Term | None:
    """As `ports.Journal.term`."""
    name = driver_id(prefix)
    try:
        found = brokers.admin.describe_transactions([name])[name]
    except TransactionalIdNotFound:
        return None
    return Term(found.producer_id, found.producer_epoch)


def is_in_term(brokers: Brokers, prefix: str, term: Term) -> bool:
    """Whether nobody has taken over since. The coordinator may show the last append a moment after it answered it."""
    until = time.monotonic() + SETTLING_S
    while term_of(brokers, prefix) != term:
        if time.monotonic() > until:
            return False
        time.sleep(SETTLING_S / 20)
    return True


class JournalTopic:
    def __init__(self, brokers: Brokers, prefix: str, max_timeout_ms: int, taken_over: Moment) -> None:
        """`taken_over` is the moment that comes when it is."""
        self._brokers = brokers
        self._taken_over = taken_over
        self._prefix = prefix
        self._timeout_ms = min(JOURNAL_TIMEOUT_MS, max_timeout_ms)
        self._partition = TopicPartition(journal_topic(prefix), DECISIONS)
        self._producer: Producer | None = None

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def create(self) -> None:
        """The topic, unless it is there. A broker may go away meanwhile: what it had made is there the next time."""
        self._brokers.client.retrying(self._create)

    def _create(self) -> None:
        admin = self._brokers.admin
        try:
            found = admin.describe_topic(self._partition.topic)
        except UnknownTopicOrPartition:
            with suppress(TopicAlreadyExists):  # somebody else was faster
                admin.create_topic(self._partition.topic, partitions=1 + MARKER_PARTITIONS, configs=TOPIC_SETTINGS)
            return
        if len(found.partitions) <= MARKER_PARTITIONS:
            raise UnreadableJournal(
                f"the topic {self._partition.topic!r} has {len(found.partitions)} partitions and is not a sink's "
                f"journal, which has {1 + MARKER_PARTITIONS}: choose another transactional.id.prefix, or delete it"
            )

    # --- ports.Journal ------------------------------------------------------------------------------------------

    def term(self) -> Term | None:
        return term_of(self._brokers, self._prefix)

    def take_over(self) -> None:
        self.close()
        self._producer = self._brokers.producer(
            transactional_id=driver_id(self._prefix),
            linger_ms=0,
            transaction_timeout_ms=self._timeout_ms,
            max_request_size=MAX_ENTRY_BYTES,
            compression_type="zstd",
        )
        self._producer.init_transactions()
        reach(self._taken_over)

    def held(self) -> Term:
        identity = self._held_producer().identity
        assert identity is not None, "take_over() got one"
        return Term(*identity)

    def read(self) -> Sequence[journal.Entry]:
        topic_id = self._brokers.admin.describe_topic(self._partition.topic).topic_id
        position, standing = _read.get(topic_id, _Read(0, {}))
        entries = list(standing.values())
        for _ in range(MAX_ROUNDS):
            try:
                found = fetch_partition(self._brokers.client, self._partition, position, IsolationLevel.READ_COMMITTED)
            except OffsetOutOfRange:
                raise UnreadableJournal(
                    f"the journal {self._partition.topic!r} was cut: offset {position} is not there any more. What was "
                    "decided is not known; restore the topic, or start with an empty checkpoint and another prefix"
                ) from None
            cursor = self._cursor(found.records, position, found.aborted)
            while some := cursor.take(ENTRIES_AT_ONCE):
                entries += [journal.decode(one.key, one.value) for one in some]
            position = max(position, cursor.next_offset)
            if position >= found.high_watermark:
                _read[topic_id] = _Read(position, journal.fold(entries))
                return entries
        raise NotFinished(f"the journal {self._partition.topic!r} does not come to its end")

    def append(self, entry: journal.Entry) -> None:
        producer = self._held_producer()
        key, value = journal.encode(entry)
        try:
            producer.begin()
            producer.send(self._partition.topic, value, key=key, partition=DECISIONS)
            try:
                producer.commit()
            except AbortNeeded:
                producer.abort()  # tells whether it was because somebody has taken over
                raise
        except TransactionalProducerFenced as error:
            raise JournalFenced(
                f"another driver has taken over the journal of {self._prefix!r}: this one decides nothing any more"
            ) from error
        reach(_moment_of(entry))

    def _held_producer(self) -> Producer:
        assert self._producer is not None, "take_over() comes first"
        return self._producer

    def _cursor(
        self, records: memoryview | None, position: int, aborted: Sequence[tuple[int, int]] | None
    ) -> RecordCursor:
        return RecordCursor(
            records or memoryview(b""),
            self._partition.topic,
            self._partition.partition,
            position,
            True,
            aborted,
            True,
            DEFAULT_MAX_DECOMPRESSED_BYTES,
        )


def _moment_of(entry: journal.Entry) -> Moment:
    if isinstance(entry, journal.Done):
        return Moment.DONE
    has_copies = any(one.transaction.transactional_id.endswith(SALVAGE) for one in entry.attempts)
    return Moment.COPY_DECIDED if has_copies else Moment.DECIDED
