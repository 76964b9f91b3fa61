"""What one partition remembers of each producer id, and its verdict on the next batch.

Owns the table "the broker's answer to an append": epochs, sequences, the last five batches of a producer (a repeat of
one of them is answered from memory and not written again), open transactions and the first offset that is not yet
stable. Pure and in memory: it never reads or writes a file, never looks at a clock, and holds no offsets of its own
beyond those of the batches it was told about.

A producer is forgotten after a long silence, so that memory stays bounded. How long it has been silent is counted by
the broker's own clock (`mono_ms`, which nobody turns) from the last append: the time in its records is the client's
word, and may be days ago when they are written (a replay of history). Kafka counts from the record's timestamp.

The calls come in pairs. `check` (or `check_marker`) judges a batch and changes nothing; `update` (or
`complete_transaction`) records it once its bytes are in the log. Recovery and truncation are the same path without
the judging: `load` what a snapshot held, then `replay` every later batch.

Kafka's names: ProducerStateManager, ProducerAppendInfo, ProducerStateEntry, BatchMetadata, CompletedTxn.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterable
from enum import Enum
from operator import itemgetter
from struct import Struct
from typing import Final, TypeAlias

from oncelog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from oncelog.named_tuple import NamedTuple
from oncelog.records.batch import BatchHeader, ControlMarker
from oncelog.types import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TopicPartition,
    advance_sequence,
)

logger = logging.getLogger(__name__)

KEPT_BATCHES: Final = 5
"""A producer may have this many requests in flight, so that many of its last batches may come again."""

NO_COORDINATOR_EPOCH: Final = -1

DEFAULT_PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000


class AppendOrigin(Enum):
    """Who wrote the batch, and therefore how much of it is judged."""

    CLIENT = "client"  # epoch, sequence, transaction
    COORDINATOR = "coordinator"  # offset commits and markers carry no sequence: epoch and transaction only
    REPLICATION = "replication"  # the leader has judged already: nothing is refused, oddities are logged


_CLIENT: Final = AppendOrigin.CLIENT  # finding a member on its class is slow, and this is asked of every batch


_BATCH: Final = Struct("<iiqqq")  # a BatchMetadata, packed
_pack_batch: Final = _BATCH.pack
_MOST_EARLIER: Final = (KEPT_BATCHES - 2) * _BATCH.size
"""Bytes of earlier batches that stay when the last one joins them."""


class BatchMetadata(NamedTuple):
    """One batch as a retry of it would be recognised, and what such a retry is answered."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Append(NamedTuple):
    """The batch is new and fits: write it."""


class Duplicate(NamedTuple):
    """The batch is in the log already: answer with where it is, write nothing."""

    metadata: BatchMetadata


Decision: TypeAlias = Append | Duplicate

APPEND: Final = Append()


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has just ended.

    `last_offset` is the marker's. `last_stable_offset` is what the transaction index records for an aborted one: the
    first offset still undecided once this transaction is out of the way.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int


class ProducerEntry:
    """The state of one producer id. Only ProducerStateManager changes it; everyone else reads.

    There may be a hundred thousand of them for a day, most of them of producers that are gone. So an entry holds plain
    numbers (compiled, they are C's: see the .pxd), and what a retry of a batch before the last one needs is packed.
    """

    __slots__ = (
        "_earlier_batches",
        "_first_offset",
        "_first_sequence",
        "_last_offset",
        "_last_sequence",
        "_timestamp",
        "_transaction_first_offset",
        "coordinator_epoch",
        "epoch",
        "last_appended_ms",
        "last_timestamp",
        "next_sequence",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        *,
        batches: Iterable[BatchMetadata] = (),
        last_timestamp: int = NO_TIMESTAMP,
        last_appended_ms: int = 0,
        current_transaction_first_offset: int | None = None,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
    ) -> None:
        self.producer_id = producer_id
        self._first_sequence = self._last_sequence = NO_SEQUENCE
        self._first_offset = NO_OFFSET
        self._timestamp = NO_TIMESTAMP
        self.begin_epoch(epoch)
        for batch in batches:
            self.remember(*batch)
        self.last_timestamp = last_timestamp  # of its records, as DescribeProducers shows it
        self.last_appended_ms = last_appended_ms  # by the broker's steady clock
        self.set_transaction(current_transaction_first_offset)
        self.coordinator_epoch = coordinator_epoch

    def begin_epoch(self, epoch: int) -> None:
        """Sequences start over, so the batches of another epoch can never be repeated."""
        self.epoch = epoch
        self.next_sequence = 0
        self._earlier_batches = b""
        self._last_offset = NO_OFFSET  # while this epoch has only written markers

    def remember(
        self, first_sequence: int, last_sequence: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        """The batch that comes after those that are known. Of them, the last four stay."""
        if self._last_offset != NO_OFFSET:
            self._earlier_batches = self._earlier_batches[-_MOST_EARLIER:] + _pack_batch(
                self._first_sequence, self._last_sequence, self._first_offset, self._last_offset, self._timestamp
            )
        self._first_sequence = first_sequence
        self._last_sequence = last_sequence
        self._first_offset = first_offset
        self._last_offset = last_offset
        self._timestamp = timestamp
        self.next_sequence = advance_sequence(last_sequence, 1)

    def set_transaction(self, first_offset: int | None) -> None:
        self._transaction_first_offset = NO_OFFSET if first_offset is None else first_offset

    @property
    def current_transaction_first_offset(self) -> int | None:
        return None if self._transaction_first_offset == NO_OFFSET else self._transaction_first_offset

    @property
    def batches(self) -> list[BatchMetadata]:
        """The last ones of this epoch, oldest first, `KEPT_BATCHES` at most; none if it has only written markers."""
        if self._last_offset == NO_OFFSET:
            return []
        return [BatchMetadata(*fields) for fields in _BATCH.iter_unpack(self._earlier_batches)] + [self._last_batch()]

    def _last_batch(self) -> BatchMetadata:
        return BatchMetadata(
            self._first_sequence, self._last_sequence, self._first_offset, self._last_offset, self._timestamp
        )

    def has_open_transaction(self, epoch: int) -> bool:
        return self._transaction_first_offset != NO_OFFSET and epoch == self.epoch

    def silent_ms(self, mono_ms: int) -> int:
        """For how long it has written nothing here, while the broker ran."""
        return max(0, mono_ms - self.last_appended_ms)

    def is_expired(self, mono_ms: int, producer_id_expiration_ms: int) -> bool:
        if self._transaction_first_offset != NO_OFFSET:
            return False
        return self.silent_ms(mono_ms) >= producer_id_expiration_ms

    def find_duplicate(self, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        for metadata in self.batches:
            if metadata.first_sequence == first_sequence and metadata.last_sequence == last_sequence:
                return metadata
        return None

    def __repr__(self) -> str:
        return (
            f"ProducerEntry(producer_id={self.producer_id}, epoch={self.epoch}, batches={self.batches}, "
            f"last_timestamp={self.last_timestamp}, last_appended_ms={self.last_appended_ms}, "
            f"current_transaction_first_offset={self.current_transaction_first_offset}, "
            f"coordinator_epoch={self.coordinator_epoch})"
        )


class ProducerStateManager:
    """The producers of one partition. Memory is bounded by expiry: call `expire` from time to time."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._topic_partition = topic_partition
        self._entries: dict[int, ProducerEntry] = {}
        # First offset -> producer id. Transactions begin in offset order, so the first key is always the lowest.
        self._open_transactions: dict[int, int] = {}
        self._unreplicated = _UnreplicatedTransactions()

    # --- judging ---

    def check(
        self, header: BatchHeader, origin: AppendOrigin, *, transaction_version: int = 1, verified: bool = True
    ) -> Decision:
        """Judge a data batch; raise the coded error if it must be refused. Changes nothing.

        `verified` is the caller's word that the transaction coordinator knows this partition as part of the
        producer's transaction. It matters only to a client's transactional batch that would begin one here.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return self._check_unknown_producer(header, origin, transaction_version, verified)
        if origin is not _CLIENT:
            return self._check_trusted(header, entry, origin)
        # In order comes first: the numbers of a batch that is due may, after a wrap, be those of one that is kept.
        in_order = header.producer_epoch == entry.epoch and header.base_sequence == entry.next_sequence
        if not in_order and header.producer_epoch == entry.epoch:
            duplicate = entry.find_duplicate(header.base_sequence, header.last_sequence)
            if duplicate is not None:
                return Duplicate(duplicate)
        if not verified and header.is_transactional and not entry.has_open_transaction(header.producer_epoch):
            raise self._unverified(header)
        if not in_order:
            self._check_first_of_new_epoch(header, entry)
        if entry.current_transaction_first_offset is not None and not header.is_transactional:
            raise self._not_transactional(header, entry)
        return APPEND

    def _check_unknown_producer(
        self, header: BatchHeader, origin: AppendOrigin, transaction_version: int, verified: bool
    ) -> Decision:
        # KIP-360: the state may have gone with old segments, so any sequence may open it again. Under transaction v2
        # every transaction has an epoch of its own and begins at 0, so any other number is a gap.
        if origin is not _CLIENT or not header.is_transactional:
            return APPEND
        if not verified:
            raise self._unverified(header)
        if transaction_version >= 2 and header.base_sequence != 0:
            raise self._out_of_order(header, "sequence 0, since there is no state for this producer id")
        return APPEND

    def _check_trusted(self, header: BatchHeader, entry: ProducerEntry, origin: AppendOrigin) -> Decision:
        """A coordinator's batch is judged by epoch and transaction; a leader's not at all, but odd ones are logged."""
        error: InvalidProducerEpoch | InvalidTxnState | None = None
        if header.producer_epoch < entry.epoch:
            error = self._fenced(header, entry, "<")
        elif entry.current_transaction_first_offset is not None and not header.is_transactional:
            error = self._not_transactional(header, entry)
        if error is not None:
            self._refuse(error, origin)
        return APPEND

    def _check_first_of_new_epoch(self, header: BatchHeader, entry: ProducerEntry) -> None:
        """A batch that does not follow the last one is welcome only as the first of a higher epoch."""
        if header.producer_epoch < entry.epoch:
            raise self._fenced(header, entry, "<")
        if header.producer_epoch == entry.epoch:
            raise self._out_of_order(header, f"sequence {entry.next_sequence}")
        if header.base_sequence != 0:
            raise self._out_of_order(header, f"sequence 0, the first after epoch {entry.epoch}")

    def check_marker(
        self, header: BatchHeader, marker: ControlMarker, origin: AppendOrigin, *, transaction_version: int = 1
    ) -> None:
        """Judge a commit or abort marker; raise the coded error if it must be refused. Changes nothing.

        A transaction v2 coordinator raises the epoch before it writes a marker (KIP-1228), so that a late marker can
        never end a later transaction. A marker of the current epoch with nothing open is a repeat and may be written.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            self._refuse(self._fenced(header, entry, "<"), origin)
        is_open = entry.current_transaction_first_offset is not None
        if transaction_version >= 2 and header.producer_epoch == entry.epoch and is_open:
            self._refuse(self._fenced(header, entry, "<="), origin)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            message = (
                f"marker for producer id {header.producer_id} in {self._topic_partition} comes from coordinator epoch "
                f"{marker.coordinator_epoch}, but epoch {entry.coordinator_epoch} has already written one"
            )
            self._refuse(TransactionCoordinatorFenced(message), origin)

    # --- recording ---

    def update(self, header: BatchHeader, base_offset: int, max_timestamp: int, mono_ms: int) -> None:
        """Record a data batch that was written at `base_offset` just now. Without a producer id it leaves no trace."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            if producer_id == NO_PRODUCER_ID:
                return
            entry = self._entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        elif header.producer_epoch != entry.epoch:
            entry.begin_epoch(header.producer_epoch)
        last_offset = base_offset + header.last_offset_delta
        entry.remember(header.base_sequence, header.last_sequence, base_offset, last_offset, max_timestamp)
        entry.last_timestamp = max_timestamp
        entry.last_appended_ms = mono_ms
        if header.is_transactional and entry.current_transaction_first_offset is None:
            entry.set_transaction(base_offset)
            self._open_transactions[base_offset] = producer_id

    def complete_transaction(
        self, header: BatchHeader, marker: ControlMarker, offset: int, timestamp: int, mono_ms: int
    ) -> CompletedTransaction | None:
        """Record a marker that was written at `offset` just now. None if the producer had nothing here to complete."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        elif header.producer_epoch != entry.epoch:
            entry.begin_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        entry.last_appended_ms = mono_ms
        first_offset = entry.current_transaction_first_offset
        if first_offset is None:
            return None
        entry.set_transaction(None)
        del self._open_transactions[first_offset]
        self._unreplicated.add(first_offset, offset)
        undecided = self.first_undecided_offset
        last_stable_offset = offset + 1 if undecided is None else undecided
        return CompletedTransaction(producer_id, first_offset, offset, not marker.commit, last_stable_offset)

    def replay(self, header: BatchHeader, marker: ControlMarker | None, mono_ms: int) -> CompletedTransaction | None:
        """Record a batch found in the log (`marker` if it is a control batch that still holds its record).

        When it was written nobody knows: it may have been a moment ago, and a retry of it be under way. So its producer
        is as if it had written now.
        """
        if marker is not None:
            return self.complete_transaction(header, marker, header.base_offset, header.max_timestamp, mono_ms)
        if not header.is_control:  # a control batch emptied by compaction: its transaction is gone altogether
            self.update(header, header.base_offset, header.max_timestamp, mono_ms)
        return None

    def load(self, entries: Iterable[ProducerEntry]) -> None:
        """Forget everything and start from a snapshot's entries. Those that are silent for too long `expire` finds.

        With no entries this is truncation of the whole log. The log never truncates below the high watermark's
        decisions, so completed transactions need not be remembered across it.
        """
        self._unreplicated = _UnreplicatedTransactions()
        self._entries = {
            entry.producer_id: entry
            for entry in entries
            # Kafka's snapshots may name producers whose every batch was cleaned away: epoch -1, nothing known.
            if entry.epoch != NO_PRODUCER_EPOCH
        }
        open_transactions = (
            (entry.current_transaction_first_offset, entry.producer_id)
            for entry in self._entries.values()
            if entry.current_transaction_first_offset is not None
        )
        self._open_transactions = dict(sorted(open_transactions))

    def expire(self, mono_ms: int) -> list[int]:
        """Forget producers that have been silent too long; their ids."""
        limit_ms = self.producer_id_expiration_ms
        expired = [entry.producer_id for entry in self._entries.values() if entry.is_expired(mono_ms, limit_ms)]
        for producer_id in expired:
            del self._entries[producer_id]
        return expired

    def on_high_watermark(self, high_watermark: int) -> None:
        """Release the transactions whose markers every in-sync replica now has."""
        self._unreplicated.release_below(high_watermark)

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Release the transactions that were deleted. Their producers stay: they may write on."""
        self._unreplicated.release_below(log_start_offset)

    # --- looking ---

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open_transactions), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset a `read_committed` reader may not see: of the oldest transaction that is open, or whose
        marker lies at or above the high watermark."""
        undecided = self.first_undecided_offset
        unreplicated = self._unreplicated.first_offset
        if undecided is None or unreplicated is None:
            return unreplicated if undecided is None else undecided
        return min(undecided, unreplicated)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> Collection[ProducerEntry]:
        """Every producer known here, for snapshots and DescribeProducers. Read only."""
        return self._entries.values()

    def __len__(self) -> int:
        return len(self._entries)

    # --- refusing ---

    @staticmethod
    def _refuse(error: KafkaError, origin: AppendOrigin) -> None:
        if origin is not AppendOrigin.REPLICATION:
            raise error
        logger.warning("accepting what the leader accepted: %s", error)

    def _describe(self, header: BatchHeader) -> str:
        return (
            f"producer id {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence} "
            f"in {self._topic_partition}"
        )

    def _out_of_order(self, header: BatchHeader, expected: str) -> OutOfOrderSequenceNumber:
        return OutOfOrderSequenceNumber(f"{self._describe(header)}: expected {expected}")

    def _fenced(self, header: BatchHeader, entry: ProducerEntry, comparison: str) -> InvalidProducerEpoch:
        return InvalidProducerEpoch(f"{self._describe(header)}: the epoch is {comparison} the current {entry.epoch}")

    def _unverified(self, header: BatchHeader) -> InvalidTxnState:
        return InvalidTxnState(f"{self._describe(header)}: the partition is not part of an ongoing transaction")

    def _not_transactional(self, header: BatchHeader, entry: ProducerEntry) -> InvalidTxnState:
        return InvalidTxnState(
            f"{self._describe(header)}: expected a transactional batch, since the transaction that began at offset "
            f"{entry.current_transaction_first_offset} is still open"
        )


class _UnreplicatedTransactions:
    """Completed transactions whose markers are not yet below the high watermark: the lowest first offset of them.

    Markers come, and are released, in offset order. So a transaction that begins before an earlier completed one
    outlives it and hides it for good: only a run of increasing first offsets needs keeping.
    """

    __slots__ = ("_transactions",)

    def __init__(self) -> None:
        self._transactions: list[tuple[int, int]] = []  # (first offset, marker offset), both increasing

    def add(self, first_offset: int, marker_offset: int) -> None:
        transactions = self._transactions
        while transactions and transactions[-1][0] > first_offset:
            transactions.pop()
        transactions.append((first_offset, marker_offset))

    def release_below(self, offset: int) -> None:
        transactions = self._transactions
        if transactions:
            del transactions[: bisect_left(transactions, offset, key=itemgetter(1))]

    @property
    def first_offset(self) -> int | None:
        return self._transactions[0][0] if self._transactions else None
