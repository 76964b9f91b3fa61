"""How many records are left to read in fetched batches: what a reader of an isolation level would be shown.

Owns that count. Markers are nobody's records, aborted ones are not those of a reader of committed records, and what
compaction took is gone, though all of them have offsets. Headers tell nearly everything; only a batch that is counted
in part is decoded. Fetches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncelog.errors import InvalidRecord
from oncelog.records.batch import decode_records, read_control_marker
from oncelog.records.model import BatchHeader, Buffer
from oncelog.types import IsolationLevel

Batches = Iterable[tuple[BatchHeader, Buffer]]
Aborted = Sequence[tuple[int, int]]
"""(producer id, first offset) of each aborted transaction, as one answer to a Fetch tells them of its own records."""


def remaining_records(
    batches: Batches, aborted: Aborted, from_offset: int, end_offset: int, isolation: IsolationLevel
) -> int:
    """Records of the batches of one answer, from `from_offset` up to `end_offset`, that the reader is shown."""
    hidden = _AbortedBatches(aborted if isolation is IsolationLevel.READ_COMMITTED else ())
    count = 0
    for header, batch in batches:
        if hidden.contains(header, batch) or header.is_control:
            continue
        if from_offset <= header.base_offset and header.last_offset < end_offset:
            count += header.record_count
        elif header.last_offset >= from_offset and header.base_offset < end_offset:
            count += sum(from_offset <= record.offset < end_offset for record in decode_records(batch))
    return count


class _AbortedBatches:
    """Knows, batch by batch, whose transactions at that point turn out aborted. Kafka: CompletedFetch"""

    def __init__(self, aborted: Aborted) -> None:
        self._upcoming = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()

    def contains(self, header: BatchHeader, batch: Buffer) -> bool:
        while self._upcoming and self._upcoming[-1][1] <= header.last_offset:
            self._aborting.add(self._upcoming.pop()[0])
        if header.producer_id not in self._aborting:
            return False
        if header.is_control and _is_abort_marker(batch):
            self._aborting.discard(header.producer_id)
        return header.is_transactional


def _is_abort_marker(batch: Buffer) -> bool:
    try:
        return not read_control_marker(batch).commit
    except InvalidRecord:  # another control record, or one that compaction has emptied
        return False
