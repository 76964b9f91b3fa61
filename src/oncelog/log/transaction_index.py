"""Kafka's `.txnindex`: the aborted transactions of one segment, for readers that must leave them out.

Owns the entry format and the file. It is written only when a marker aborts a transaction, so most segments have no
such file. It never judges transactions: the producer state says which ended and how.

Unlike the other indexes it is no hint: a lost entry hands aborted records to readers, and nothing would notice. So the
manifest has its `Checksum`, and opening a log compares it.

    int16 version = 0, int64 producer id, int64 first offset, int64 last offset (the marker's), int64 last stable offset
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from oncelog.errors import OncelogError
from oncelog.log.storage import Storage
from oncelog.named_tuple import NamedTuple
from oncelog.records.kernel import crc32c

VERSION: Final = 0

_ENTRY = struct.Struct(">hqqqq")


class CorruptTransactionIndex(OncelogError):
    """The file is not a list of aborted transactions of its segment. Rebuild it from the segment."""


class AbortedTransaction(NamedTuple):
    """`last_stable_offset` is the one at the time of the marker: nothing later reaches back below it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Checksum(NamedTuple):
    entries: int
    crc: int  # CRC32C of the file's bytes


class TransactionIndex:
    """The aborted transactions of a segment in the order of their markers; read from the file when first asked for."""

    __slots__ = ("_entries", "_start_offset", "_storage", "_unwritten", "path")

    def __init__(self, storage: Storage, path: str, start_offset: int) -> None:
        self._storage = storage
        self._start_offset = start_offset
        self._entries: list[AbortedTransaction] | None = None
        self._unwritten = 0  # the last ones, which the file does not have yet
        self.path = path

    @property
    def exists(self) -> bool:
        return self._storage.exists(self.path)

    def create(self) -> None:
        """Of a segment that has no files yet: there is nothing to read."""
        self._entries = []

    def entries(self) -> list[AbortedTransaction]:
        """All of them; raise CorruptTransactionIndex if the file cannot be believed."""
        if self._entries is None:
            self._entries = self._read() if self.exists else []
        return self._entries

    def _read(self) -> list[AbortedTransaction]:
        data = self._storage.read_all(self.path)
        if len(data) % _ENTRY.size:
            raise CorruptTransactionIndex(f"{self.path}: {len(data)} bytes are not a multiple of {_ENTRY.size}")
        entries = []
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            in_order = entry.first_offset <= entry.last_offset and self._start_offset <= entry.last_offset
            if version != VERSION or not in_order:
                raise CorruptTransactionIndex(f"{self.path}: version {version} of {entry} does not belong here")
            entries.append(entry)
        return entries

    def checksum(self) -> Checksum:
        """Of all entries; raise CorruptTransactionIndex if the file cannot be believed."""
        entries = self.entries()
        return Checksum(len(entries), crc32c(_encode(entries)) if entries else 0)

    def append(self, transaction: AbortedTransaction) -> None:
        """Add one. Readers know of it from here on; if this raises, the file will have it after `write_out`."""
        self.entries().append(transaction)
        self._unwritten += 1
        self.write_out()

    def write_out(self) -> None:
        """Write what an `append` could not: before anybody relies on the file."""
        if not self._unwritten:
            return
        entries = self.entries()
        written = len(entries) - self._unwritten
        file = self._storage.open(self.path, create=True)
        if file.size != written * _ENTRY.size:  # a failed write left something behind
            file.truncate(written * _ENTRY.size)
        file.append(b"".join(_ENTRY.pack(VERSION, *entry) for entry in entries[written:]))
        self._unwritten = 0

    def replace(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Make these the only ones (recovery and truncation)."""
        entries = list(transactions)
        if entries:
            file = self._storage.open(self.path, create=True)
            file.truncate(0)
            file.append(_encode(entries))
        else:
            self._storage.remove(self.path)
        self._entries = entries
        self._unwritten = 0

    def truncate_to_offset(self, offset: int) -> None:
        """Forget the transactions whose markers lie at or above `offset`."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) != len(entries):
            self.replace(kept)

    def collect(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that touch [start_offset, end_offset), and whether later segments can hold no more."""
        found = []
        for entry in self.entries():
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False


def _encode(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(VERSION, *entry) for entry in entries)
