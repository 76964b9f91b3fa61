"""What a reader may see of fetched batches: no control records, and under read_committed nothing that was aborted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from oncelog.errors import CorruptMessage
from oncelog.records import kernel
from oncelog.records.batch import read_control_marker, records_payload
from oncelog.records.model import BatchHeader, Record
from oncelog.types import IsolationLevel


class FetchedRecords:
    """The records of one fetched partition from `fetch_offset` on, and where the next fetch starts.

    A fetched partition begins with the batch that *contains* the wanted offset, and may end in the middle of a batch.
    `next_offset` also moves past batches that show nothing: control batches, aborted ones, compacted ones.
    """

    def __init__(
        self,
        data: memoryview,
        fetch_offset: int,
        isolation: IsolationLevel,
        aborted: Sequence[tuple[int, int]] | None,
    ) -> None:
        self._data = data
        self._fetch_offset = fetch_offset
        self._visible = _Visibility(isolation, aborted or ())
        self._headers, self._good_bytes = kernel.scan(data, 0, len(data), True)
        self.next_offset = self._headers[-1].next_offset if self._headers else fetch_offset
        self._check_progress()

    def _check_progress(self) -> None:
        rest = len(self._data) - self._good_bytes
        if not self._headers and rest:
            raise CorruptMessage(f"no whole and sound batch at offset {self._fetch_offset}, in {rest} bytes")

    def __iter__(self) -> Iterator[Record]:
        position = 0
        for header in self._headers:
            batch = self._data[position : position + header.size_bytes]
            position += header.size_bytes
            if not self._visible.shows(header, batch):
                continue
            for record in kernel.decode(records_payload(batch, header), header):
                if record.offset >= self._fetch_offset:
                    yield record


class _Visibility:
    """Walks batches in order, knowing which producers' transactions at that point will turn out aborted."""

    def __init__(self, isolation: IsolationLevel, aborted: Iterable[tuple[int, int]]) -> None:
        self._hides_aborted = isolation == IsolationLevel.READ_COMMITTED
        self._upcoming = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()

    def shows(self, header: BatchHeader, batch: memoryview) -> bool:
        while self._upcoming and self._upcoming[-1][1] <= header.last_offset:
            self._aborting.add(self._upcoming.pop()[0])
        if header.is_control:
            if not read_control_marker(batch).commit:
                self._aborting.discard(header.producer_id)
            return False
        return not (self._hides_aborted and header.is_transactional and header.producer_id in self._aborting)
