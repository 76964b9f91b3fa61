"""What survives compaction: a decision per batch, over values only.

Owns the rules and no file. Of each key only the newest record stays. A record without a value (a tombstone) hides the
older ones of its key until readers had `delete.retention.ms` to see it, and then goes too. Records of aborted
transactions go; the marker that ended a transaction stays until all its records are gone, and then as long as a
tombstone. What stays keeps its offset, and a batch that loses records keeps its range of offsets and sequences.

Some batches stay even without records. The last batch of a producer tells its sequence: without it a retry after a
restart would be written twice. The last batch of a segment tells where it ends: without it an interrupted swap could
not tell which older segments it replaces, and records that compaction had removed would come back.

The time when a tombstone or marker may go (the delete horizon) is written into its batch when compaction first meets
it, in the place of the base timestamp (KIP-534).

Kafka's names: Cleaner.cleanInto, CleanedTransactionMetadata, OffsetMap.
"""

from __future__ import annotations

import itertools
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from oncelog.errors import InvalidRecord
from oncelog.log.producer_state import ProducerEntry
from oncelog.log.transaction_index import AbortedTransaction
from oncelog.named_tuple import NamedTuple
from oncelog.records import compression
from oncelog.records.batch import (
    BatchHeader,
    Buffer,
    ControlMarker,
    Record,
    decode_records,
    read_control_marker,
    rebuild_batch,
    records_payload,
    walk_payload,
)
from oncelog.records.model import DELETE_HORIZON_MASK
from oncelog.types import NO_OFFSET

DIGEST_BYTES: Final = 16
"""A key is remembered by, as in Kafka: so many that no two keys have the same, however long."""

DEFAULT_MAX_KEYS: Final = 1_000_000
"""Keys remembered in one round, at 36 bytes each. More keys take more rounds, each over what the one before left."""


def read_marker(header: BatchHeader, batch: Buffer) -> ControlMarker | None:
    """How a control batch ended its transaction; None if it was emptied, or is no transaction's (KRaft has others)."""
    try:
        return read_control_marker(batch) if header.record_count else None
    except InvalidRecord:
        return None


class KeyOffsets:
    """The newest offset of every key met, up to a number of keys. A key is its digest, in a table without objects: what
    a round takes is known before it begins, and is the same for every key. Kafka's name: SkimpyOffsetMap."""

    __slots__ = ("_count", "_digests", "_max_keys", "_offsets", "_slots", "end_offset")

    def __init__(self, max_keys: int, start_offset: int) -> None:
        assert max_keys > 0, "a map without room would never make progress"
        self._max_keys = max_keys
        self._count = 0
        self._slots = max_keys + max_keys // 2 + 1  # never more than two thirds are taken, so that a search is short
        self._digests = bytearray(DIGEST_BYTES * self._slots)
        self._offsets = array("q", (NO_OFFSET,)) * self._slots
        self.end_offset = start_offset
        """Everything from the start of the map up to here is in it; of records at or above it nothing is known."""

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> bool:
        """Remember the offset of a key; False if there is no room for a new key."""
        digest = _digest(key)
        slot = self._find(digest)
        if self._offsets[slot] == NO_OFFSET:
            if self._count >= self._max_keys:
                return False
            self._count += 1
            self._digests[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] = digest
        self._offsets[slot] = offset
        self.end_offset = offset + 1
        return True

    def newest(self, key: bytes) -> int:
        return self._offsets[self._find(_digest(key))]

    def _find(self, digest: bytes) -> int:
        """The slot of a key, or the free one where it belongs."""
        slots, offsets, digests = self._slots, self._offsets, self._digests
        slot = int.from_bytes(digest[:8]) % slots
        while offsets[slot] != NO_OFFSET and digests[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] != digest:
            slot = slot + 1 if slot + 1 < slots else 0
        return slot


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class CleanedTransactions:
    """Follows the transactions of a log from batch to batch, and tells which are aborted and which have data left."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer id: begun, marker still to come
        self._with_data: set[int] = set()  # producers whose current transaction still has a batch

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a data batch: whether it belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._reach(header.last_offset)
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborted

    def end(self, header: BatchHeader, *, commit: bool) -> tuple[bool, AbortedTransaction | None]:
        """Take note of a marker: whether its transaction has data left, and its index entry if it was aborted."""
        self._reach(header.last_offset)
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        aborted = None if commit else self._aborted.pop(header.producer_id, None)
        return has_data, aborted

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            transaction = self._ahead.popleft()
            self._aborted.setdefault(transaction.producer_id, transaction)


class LastOfProducer(NamedTuple):
    """Which batch tells a producer's state: the one that ends at `last_offset`, or a marker of `epoch` if None."""

    last_offset: int | None
    epoch: int

    @classmethod
    def of(cls, entry: ProducerEntry) -> LastOfProducer:
        return cls(entry.batches[-1].last_offset if entry.batches else None, entry.epoch)

    def is_in(self, header: BatchHeader) -> bool:
        if self.last_offset is None:
            return header.is_control and header.producer_epoch == self.epoch
        return header.last_offset == self.last_offset


class Survivor(NamedTuple):
    """What stays of a batch: `batch` is None if nothing does; `aborted` belongs in the index of its new segment."""

    batch: Buffer | None
    aborted: AbortedTransaction | None = None


class BatchFilter:
    """Decides batch by batch, from the start of the log on: a transaction's marker is judged by what came before."""

    def __init__(
        self,
        keys: KeyOffsets,
        transactions: CleanedTransactions,
        last_of_producers: Mapping[int, LastOfProducer],
        *,
        now_ms: int,
        new_horizon_ms: int,
    ) -> None:
        """`new_horizon_ms` is when what is met for the first time may go."""
        self._keys = keys
        self._transactions = transactions
        self._last_of_producers = last_of_producers
        self._now_ms = now_ms
        self._new_horizon_ms = new_horizon_ms

    def survivor(self, header: BatchHeader, batch: Buffer, *, ends_segment: bool) -> Survivor:
        """What stays of `batch`, whose header is `header`."""
        last = self._last_of_producers.get(header.producer_id) if header.has_producer_id else None
        keep_empty = ends_segment or (last is not None and last.is_in(header))
        if header.is_control:
            kept, aborted = self._filter_marker(header, batch)
        else:
            kept, aborted = self._filter_data(header, batch), None
        if kept is None and keep_empty:
            kept = batch if header.record_count == 0 else _emptied(header)
        return Survivor(kept, aborted)

    def _filter_marker(self, header: BatchHeader, batch: Buffer) -> tuple[Buffer | None, AbortedTransaction | None]:
        if header.record_count == 0:
            return None, None
        marker = read_marker(header, batch)
        if marker is None:
            return batch, None
        has_data, aborted = self._transactions.end(header, commit=marker.commit)
        if has_data:
            return batch, aborted
        if not header.is_delete_horizon_set:
            return rebuild_batch(header, decode_records(batch), delete_horizon_ms=self._new_horizon_ms), None
        return (None if self._is_past_horizon(header) else batch), None

    def _filter_data(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        if self._transactions.is_aborted(header) or header.record_count == 0:
            return None
        if header.base_offset >= self._keys.end_offset:
            return batch
        payload = records_payload(batch, header)
        tombstones_go = self._is_past_horizon(header)
        stays = bytearray()  # a byte per record: of millions in one batch few are objects at a time
        has_tombstones = False
        for record in walk_payload(payload, header):
            record_stays = self._stays(record, tombstones_go)
            stays.append(record_stays)
            has_tombstones = has_tombstones or (record_stays and record.value is None)
        if not any(stays):
            return None
        if not header.is_delete_horizon_set and has_tombstones:
            kept = itertools.compress(walk_payload(payload, header), stays)
            return rebuild_batch(header, kept, delete_horizon_ms=self._new_horizon_ms)
        if all(stays):
            return batch
        return rebuild_batch(header, itertools.compress(walk_payload(payload, header), stays))

    def _stays(self, record: Record, tombstones_go: bool) -> bool:
        if record.offset >= self._keys.end_offset:
            return True
        if record.key is None or (record.value is None and tombstones_go):
            return False
        return record.offset >= self._keys.newest(record.key)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return header.is_delete_horizon_set and header.base_timestamp <= self._now_ms


def _emptied(header: BatchHeader) -> bytearray:
    """The batch without any record: its offsets, producer and sequences alone."""
    plain = header._replace(attributes=header.attributes & ~DELETE_HORIZON_MASK)
    return rebuild_batch(plain, (), codec=compression.NONE)
