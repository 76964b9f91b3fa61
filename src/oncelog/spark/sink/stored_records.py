"""The records of decided transactions, as the log has them. Implements `ports.Log`.

Looks at batches, not at records: only their headers tell whose they are. A batch belongs to an attempt by its producer
id and epoch, which no other transaction has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oncelog.client.leaders import EARLIEST_OFFSET
from oncelog.client.partition_fetch import batches_of, fetch_partition
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.errors import OffsetOutOfRange
from oncelog.records.batch import iter_records
from oncelog.records.model import BatchHeader
from oncelog.spark.moments import Moment, reach
from oncelog.spark.sink.attempts import Place, Prepared, Range
from oncelog.spark.sink.brokers import Brokers
from oncelog.spark.sink.finishing import Copy, Seen
from oncelog.spark.sink.slot_writer import SlotWriter
from oncelog.types import IsolationLevel, TopicPartition
from oncelog.wire.fetch import FetchedPartition

SETTLE_S: Final = 30.0
"""How long a look waits for the last stable offset: markers are on their way, other transactions end."""
SETTLE_POLL_S: Final = 0.05


class StoredRecords:
    def __init__(self, brokers: Brokers, prefix: str, timeout_ms: int) -> None:
        self._brokers = brokers
        self._prefix = prefix
        self._timeout_ms = timeout_ms

    def look(self, attempts: Sequence[Prepared]) -> Mapping[PreparedTransaction, Seen]:
        give_up = time.monotonic() + SETTLE_S
        return {attempt.transaction: self._settled(attempt, give_up) for attempt in attempts}

    def copy(self, plan: Copy) -> Prepared:
        source = plan.source
        with SlotWriter(self._brokers, self._prefix, plan.transactional_id, source.slot, self._timeout_ms) as writer:
            for span in source.ranges:
                for batch in self._batches(span, source.transaction):
                    for record in iter_records(batch):
                        writer.copy(span.partition, record)
                    reach(Moment.COPYING)
            copied = writer.prepare()
        reach(Moment.COPIED)
        return copied

    # --- what became of an attempt ------------------------------------------------------------------------------

    def _settled(self, attempt: Prepared, give_up: float) -> Seen:
        while (seen := self._seen(attempt)) is Seen.UNSETTLED and time.monotonic() < give_up:
            time.sleep(SETTLE_POLL_S)
        return seen

    def _seen(self, attempt: Prepared) -> Seen:
        """By its marker; by the first of its records that is still there, if the marker is not."""
        marker, offset = attempt.marker
        for place in (Place(marker, offset), *(Place(one.partition, one.first_offset) for one in attempt.ranges)):
            end = next((one.last_offset for one in attempt.ranges if one.partition == place.partition), place.offset)
            seen = self._seen_at(place, end, attempt.transaction)
            if seen is not Seen.GONE:
                return seen
        return Seen.GONE

    def _seen_at(self, place: Place, last_offset: int, transaction: PreparedTransaction) -> Seen:
        for fetched in self._fetches(place.partition, place.offset, last_offset, IsolationLevel.READ_COMMITTED):
            for header, _ in batches_of(fetched):
                if _is_of(header, transaction):
                    return Seen.ABORTED if _is_aborted(fetched, header) else Seen.COMMITTED
            if fetched.last_stable_offset <= last_offset:
                return Seen.UNSETTLED
        return Seen.GONE

    # --- reading ------------------------------------------------------------------------------------------------

    def _batches(self, span: Range, transaction: PreparedTransaction) -> Iterator[memoryview]:
        for fetched in self._fetches(
            span.partition, span.first_offset, span.last_offset, IsolationLevel.READ_UNCOMMITTED
        ):
            for header, batch in batches_of(fetched):
                if _is_of(header, transaction) and span.first_offset <= header.base_offset <= span.last_offset:
                    yield batch

    def _fetches(
        self, partition: TopicPartition, offset: int, last_offset: int, isolation: IsolationLevel
    ) -> Iterator[FetchedPartition]:
        """Fetches from `offset` on that show what is left up to `last_offset`; none of what retention has taken."""
        client = self._brokers.client
        while offset <= last_offset:
            try:
                fetched = fetch_partition(client, partition, offset, isolation)
            except OffsetOutOfRange:
                first = self._first_offset(partition)
                if first <= offset:
                    return  # behind the end: the log was cut
                offset = first
                continue
            yield fetched
            headers = [header for header, _ in batches_of(fetched)]
            if not headers:
                return
            offset = max(offset + 1, headers[-1].next_offset)

    def _first_offset(self, partition: TopicPartition) -> int:
        return self._brokers.admin.list_offsets({partition: EARLIEST_OFFSET})[partition].offset


def _is_of(header: BatchHeader, transaction: PreparedTransaction) -> bool:
    writer = (header.producer_id, header.producer_epoch)
    return not header.is_control and writer == (transaction.producer_id, transaction.producer_epoch)


def _is_aborted(fetched: FetchedPartition, header: BatchHeader) -> bool:
    """A transaction that begins after the batch is another one of the same producer id."""
    return any(
        producer_id == header.producer_id and first_offset <= header.base_offset
        for producer_id, first_offset in fetched.aborted or ()
    )
