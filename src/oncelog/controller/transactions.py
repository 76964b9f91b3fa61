"""Metadata transactions (KIP-868): records between a begin and an end take effect together, or not at all.

Kafka writes what does not fit one batch this way, its very first records among them. oncelog's own writes are one batch
each and need none. Owns which records are held back; whoever reads the log replays what is let go.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.controller.records import DamagedMetadata, MetadataRecord, RecordType


class TransactionBuffer:
    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        """A transaction was begun and neither ended nor aborted: its records are not in force, and never will be."""
        return self._held is not None

    def feed(self, record: MetadataRecord) -> Sequence[MetadataRecord]:
        """The records that are in force now that this one was read."""
        if record.type is RecordType.BEGIN_TRANSACTION:
            if self._held is not None:
                raise DamagedMetadata("a metadata transaction begins inside another")
            self._held = []
            return ()
        if record.type in (RecordType.END_TRANSACTION, RecordType.ABORT_TRANSACTION):
            return self._close(record.type)
        if self._held is None:
            return (record,)
        self._held.append(record)
        return ()

    def _close(self, closed_by: RecordType) -> Sequence[MetadataRecord]:
        if self._held is None:
            raise DamagedMetadata("a metadata transaction ends that never began")
        held, self._held = self._held, None
        return held if closed_by is RecordType.END_TRANSACTION else ()
