"""Reads a spool as an earlier process left it: what is open, what waits, what is damaged.

It decides nothing about fates: a batch that may be stored is handed out as it was, with its records. Bytes that cannot
be read are copied to a file beside, named after where they were (`00000000000000000012.records.4096.damaged`), so that
nothing vanishes without a trace. Reading itself changes nothing that matters: what damage makes necessary is done by
`put_right`, once the spool goes on. So a file that is put back cures everything until then.

Files vouch for each other. A file of records that the journal knows and that is not there, or ends too early, is named.
A journal that ends before a note in the records, or does not know a file with records that it would have to know, is
not the last one that was written, and as good as damaged.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from oncelog.client.spool import journal as journals
from oncelog.client.spool import record_files
from oncelog.client.spool.book import PartitionBook
from oncelog.client.spool.entry import JournalNote, SpooledRecord, decode_entry, decode_note, decode_place
from oncelog.client.spool.facts import Doubted, Fates, Numbered, Settled, fates_of
from oncelog.client.spool.frame import OLD_MARK, Damage, Frame, has_reserve, walk
from oncelog.client.spool.journal import JournalContents
from oncelog.client.spool.ranges import EntryRanges
from oncelog.client.spool.record_files import RecordFile, RecordFiles
from oncelog.log.storage import TEMPORARY_SUFFIX, Storage
from oncelog.types import TopicPartition

DAMAGED_SUFFIX = ".damaged"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DamageReport:
    """A part of a file that could not be read, and where its bytes are kept if the spool goes on; or that is not
    there."""

    path: str
    position: int
    size_bytes: int
    kept_as: str | None
    """None: there are no bytes to keep."""

    def __str__(self) -> str:
        if self.kept_as is None:
            size = f" ({self.size_bytes} bytes are gone, or more)" if self.size_bytes else ""
            what = f"ends at position {self.position}, too early{size}" if self.position else f"is missing{size}"
            return f"{self.path} {what}: it was cut or removed, or an older copy was put in its place"
        return f"{self.path} is damaged at position {self.position} ({self.size_bytes} bytes)"


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch that was numbered and not settled: it may be stored."""

    numbers: Numbered
    records: tuple[SpooledRecord, ...]
    follows_gap: bool = False
    """Entries before it have no numbers: the second part of a split batch, which was never sent."""

    @property
    def is_complete(self) -> bool:
        return len(self.records) == self.numbers.count


@dataclass(frozen=True, slots=True)
class OpenPartition:
    partition: TopicPartition
    batches: tuple[OpenBatch, ...]
    doubted: tuple[tuple[int, int], ...]
    """Ranges of entries that may be stored under numbers that were lost with a part of the journal."""


@dataclass(frozen=True, slots=True)
class Recovery:
    open_partitions: tuple[OpenPartition, ...] = ()
    waiting: int = 0
    """Records that were never sent."""
    damages: tuple[DamageReport, ...] = ()
    lost: dict[TopicPartition, int] = field(default_factory=dict)
    """Records that lay in damaged parts, as the gaps in the numbering tell."""
    lost_ranges: dict[TopicPartition, EntryRanges] = field(default_factory=dict)
    """Which ones they are."""

    @property
    def may_be_cured(self) -> bool:
        """Files that are put back would answer what has to be asked."""
        return bool(self.open_partitions) and (bool(self.damages) or any(one.doubted for one in self.open_partitions))


class SpoolReader:
    """One reading of the folder. `read` first, then the rest is there."""

    def __init__(self, storage: Storage, directory: str, files: RecordFiles) -> None:
        self._storage = storage
        self._directory = directory
        self._files = files
        self.fates = Fates()
        self.books: dict[tuple[str, int], PartitionBook] = {}
        self.last_journal = 0
        self.obsolete: list[str] = []
        """Journals of earlier processes, to be removed once there is another one."""
        self._found_books: dict[tuple[bytes, int], PartitionBook] = {}
        self._damages: list[DamageReport] = []
        self._lost: dict[TopicPartition, EntryRanges] = {}
        self._to_put_right: list[Callable[[], None]] = []
        self._records: dict[TopicPartition, dict[int, SpooledRecord]] = {}
        self._journal = JournalContents((), (), is_trusted=False)
        self._note = JournalNote(0, 0)
        """The latest in the records."""

    def read(self) -> Recovery:
        names = self._storage.list_directory(self._directory)
        self._remove_temporary(names)
        numbers = sorted(_numbers_in(names, record_files.SUFFIX))
        is_trusted = self._read_journals(sorted(_numbers_in(names, journals.SUFFIX)), has_records=bool(numbers))
        for number in numbers:
            self._read_records(number, is_last=number == numbers[-1])
        if is_trusted:
            self._look_for_missing(numbers)
        self._open_books(is_trusted=is_trusted and not self._is_outdated())
        self.fates.files = {number: one.size for number, one in self._files.files.items() if one.live}
        self.fates.last_file = max(self.fates.last_file, *numbers, 0)
        return self._recovery()

    def put_right(self) -> None:
        """The spool goes on with what is there: keep aside what cannot be read. Raises OSError."""
        while self._to_put_right:
            self._to_put_right[0]()
            del self._to_put_right[0]

    def _remove_temporary(self, names: list[str]) -> None:
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                self._storage.remove(f"{self._directory}/{name}")

    # --- journal ----------------------------------------------------------------------------------------------

    def _read_journals(self, numbers: list[int], *, has_records: bool) -> bool:
        """The fates as the newest journal tells them; whether it tells all."""
        self.obsolete = [journals.journal_path(self._directory, number) for number in numbers]
        if not numbers:
            if has_records:
                logger.error("%s has records and no journal: whether they were delivered is not known", self._directory)
            return not has_records
        self.last_journal = numbers[-1]
        path = self.obsolete[-1]
        data = self._storage.read_all(path)
        contents = self._journal = journals.read_journal(self.last_journal, data, path)
        for damage in contents.damages:
            self._keep_aside(path, data, damage)
        if contents.is_cut:
            self._report(DamageReport(path, len(data), 0, None))
        self.fates = fates_of(contents.facts)
        return contents.is_trusted or not has_records

    # --- records ----------------------------------------------------------------------------------------------

    def _read_records(self, number: int, *, is_last: bool) -> None:
        path = record_files.records_path(self._directory, number)
        record_file = RecordFile(number, path, self._storage.open(path))
        data = record_file.file.read(0, record_file.size)
        reached = self.fates.files.get(number)
        is_old = data.startswith(OLD_MARK)
        record_file.size = 0
        items = list(walk(number, data, may_be_torn=has_reserve(data) or (is_last and is_old and reached is None)))
        entries_end = max((one.end for one in items if isinstance(one, Frame) and not decode_note(one.body)), default=0)
        for item in items:
            if isinstance(item, Frame):
                is_old |= item.is_old
                self._found(record_file, item.body)
                record_file.size = item.end
            elif item.is_torn:
                logger.info("%s: the last write, at %d, was never completed", path, item.position)
                if is_old:
                    record_file.file.truncate(item.position)
            elif (
                self._journal.is_durable
                and item.position >= entries_end
                and not any(data[item.position :][: item.size_bytes])
            ):
                record_file.damages.append(item)  # notes that went with the power: they are not synced
            else:
                record_file.damages.append(item)
                record_file.size = item.position + item.size_bytes
                self._keep_aside(path, data, item)
        is_cut = not has_reserve(data) and not is_old and (bool(data) or reached is not None)
        missing_bytes = max((reached or 0) - record_file.size, 0)
        if is_cut or missing_bytes:
            self._report(DamageReport(path, record_file.size, missing_bytes, None))
        if is_cut:
            self._to_put_right.append(partial(_complete, record_file, len(data)))
        self._files.adopt(record_file)

    def _look_for_missing(self, numbers: list[int]) -> None:
        """If the journal is durable, a file may have gone with the power as long as nothing in it was promised."""
        for number, size_bytes in self.fates.files.items():
            if number not in numbers and (size_bytes or not self._journal.is_durable):
                self._report(DamageReport(record_files.records_path(self._directory, number), 0, size_bytes, None))

    def _is_outdated(self) -> bool:
        """Whether the journal is an older one than the records are. A file that it once knew and that is there again is
        no sign: its removal was lost with the power."""
        if not self._journal.knows_files:
            return False
        unknown = [one.path for one in self._files.files.values() if one.live and one.number > self.fates.last_file]
        is_older = (self.last_journal, self._journal.end) < self._note
        if is_older or unknown:
            logger.error(
                "%s/%020d.journal is older than the records (%s): whether those were delivered is not known",
                self._directory, self.last_journal, ", ".join(unknown) or f"they know of {self._note}",
            )  # fmt: skip
        return is_older or bool(unknown)

    def _found(self, record_file: RecordFile, body: memoryview) -> None:
        note = decode_note(body)
        if note is not None:
            self._note = max(self._note, note)
            return
        topic, partition, entry = decode_place(body)
        book = self._found_books.get((topic, partition))
        if book is None:
            book = self._found_books[(topic, partition)] = self._book(TopicPartition(topic.decode(), partition))
        if entry in book.fates.settled:
            book.next = max(book.next, entry + 1)
            return
        book.written(entry, record_file)
        if book.fates.numbered and any(batch.first <= entry < batch.end for batch in book.fates.numbered):
            self._records.setdefault(book.partition, {})[entry] = decode_entry(body)

    def _book(self, partition: TopicPartition) -> PartitionBook:
        book = self.books.get(partition)
        if book is None:
            book = self.books[partition] = PartitionBook(partition, self.fates.of(partition))
        return book

    def _keep_aside(self, path: str, data: bytes, damage: Damage) -> None:
        kept_as = f"{path}.{damage.position}{DAMAGED_SUFFIX}"
        content = data[damage.position : damage.position + damage.size_bytes]
        self._to_put_right.append(partial(self._keep, path, kept_as, content))
        self._report(DamageReport(path, damage.position, damage.size_bytes, kept_as))

    def _keep(self, path: str, kept_as: str, content: bytes) -> None:
        self._storage.write_atomically(kept_as, content)
        logger.error("%d bytes of %s that cannot be read are kept as %s", len(content), path, kept_as)

    def _report(self, report: DamageReport) -> None:
        self._damages.append(report)
        logger.error("%s", report)

    # --- what follows from both ---------------------------------------------------------------------------------

    def _open_books(self, *, is_trusted: bool) -> None:
        for partition in list(self.fates.partitions):
            self._book(partition)
        for book in self.books.values():
            book.next = max(book.next, book.fates.end)
            if not is_trusted:
                self._doubt(book)
            self._give_up_lost(book)
            book.rewind()
            book.forget_settled_runs()

    def _doubt(self, book: PartitionBook) -> None:
        """Without the journal: what is no longer in any file was settled, of the rest nobody knows."""
        first_known = book.runs[0].first if book.runs else book.next
        if first_known:
            self.fates.apply(Settled(book.partition, 0, first_known))
        for first, end in book.fates.settled.missing(first_known, book.next):
            self.fates.apply(Doubted(book.partition, first, end - first))

    def _give_up_lost(self, book: PartitionBook) -> None:
        """Entries that cannot be read are reported, and settled. Not those of an open batch: it may be stored whole."""
        in_open_batches = EntryRanges()
        for batch in book.fates.numbered:
            in_open_batches.add(batch.first, batch.end)
        for first, end in book.lost_entries(0, book.next):
            logger.error("%s: records %d to %d of %s cannot be read", self._directory, first, end - 1, book.partition)
            self._lost.setdefault(book.partition, EntryRanges()).add(first, end)
            for low, high in in_open_batches.missing(first, end):
                self.fates.apply(Settled(book.partition, low, high - low))

    def _open_batches(self, book: PartitionBook) -> Iterator[OpenBatch]:
        records = self._records.get(book.partition, {})
        end = 0
        for one in book.fates.numbered:
            readable = tuple(records[entry] for entry in range(one.first, one.end) if entry in records)
            yield OpenBatch(one, readable, follows_gap=bool(book.fates.settled.missing(end, one.first)))
            end = one.end

    def _recovery(self) -> Recovery:
        found = []
        for book in self.books.values():
            batches = tuple(self._open_batches(book))
            doubted = tuple(book.fates.doubted)
            if batches or doubted:
                found.append(OpenPartition(book.partition, batches, doubted))
        waiting = sum(book.waiting for book in self.books.values()) - sum(
            end - first for one in found for first, end in one.doubted
        )
        lost = {partition: sum(end - first for first, end in ranges) for partition, ranges in self._lost.items()}
        return Recovery(tuple(found), waiting, tuple(self._damages), lost, self._lost)


def without_doubts(left: tuple[OpenPartition, ...]) -> tuple[OpenPartition, ...]:
    """Where another authority than the journal tells what was sent."""
    return tuple(replace(one, doubted=()) for one in left if one.batches)


def _complete(record_file: RecordFile, size: int) -> None:
    """So that it is said once that the file was cut."""
    with contextlib.suppress(OSError):
        record_file.reserve(size)


def _numbers_in(names: list[str], suffix: str) -> list[int]:
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return [int(stem) for stem in stems if stem.isdecimal()]
