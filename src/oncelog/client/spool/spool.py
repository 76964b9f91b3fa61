"""The spool: records on disk before `send()` returns, and what became of them.

One object, no thread of its own: the shell calls it under one lock. The order in which things become durable is the
whole point, so here it is in one place:

1. `append`: the record is in a file; then `send()` may return. With `is_durable` only after the `sync_request` that
   follows has run, which several sends share.
2. `numbered`: which entries a batch holds and under which numbers is in the journal; then its bytes may leave.
3. `settled`: after the answer. If this is lost, the batch is sent again under the same numbers, and recognised.
4. Files go only when the journal says that all of their entries are settled.

With a transactional id (`transacting`), 2. and 3. are one: entries are settled by the commit of the transaction that
holds them, which stores how far it came at the brokers, so that the journal is no more than a shortcut.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from oncelog.client.spool.backlog import Backlog
from oncelog.client.spool.book import PartitionBook
from oncelog.client.spool.entry import SpooledRecord, decode_entry, decode_note, encode_entry
from oncelog.client.spool.errors import SpoolError, SpoolWriteFailed
from oncelog.client.spool.facts import (
    NO_LIFE,
    NO_PARTITION,
    Belongs,
    Fact,
    Fates,
    Identity,
    Numbered,
    Placed,
    Reached,
    Refused,
    Removed,
    Settled,
    Voided,
)
from oncelog.client.spool.frame import Damage, Frame, encode_frame, has_reserve, reserved_end, walk
from oncelog.client.spool.identity import FILE_NAME, SpoolIdentity, check_life, decode_identity
from oncelog.client.spool.journal import Journal
from oncelog.client.spool.record_files import RecordFile, RecordFiles, SyncRequest
from oncelog.client.spool.recovery import DAMAGED_SUFFIX, Recovery, SpoolReader
from oncelog.log.storage import Storage
from oncelog.records.model import Buffer, HeadersInput
from oncelog.types import TopicPartition

DISCARDED_SUFFIX = ".discarded"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpoolConfig:
    max_bytes: int
    is_durable: bool = False
    """Whether records and numbers survive a power failure (fsync) and not only the death of the process."""


class Spool:
    """Made by `open`."""

    def __init__(
        self, storage: Storage, directory: str, config: SpoolConfig, files: RecordFiles, reader: SpoolReader
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._config = config
        self._files = files
        self._fates: Fates = reader.fates
        self._books: dict[tuple[str, int], PartitionBook] = reader.books
        self._journal = Journal(storage, directory, is_durable=config.is_durable)
        files.before_growing = self._tell_growth
        self._unwritten: list[Fact] = []
        """Settled in memory; the journal did not take it yet."""
        self._failure: str | None = None
        self._to_begin: SpoolReader | None = reader
        """Until something is written."""
        self._backlog = Backlog(files, self._books)
        self._backlog.rewind()
        self.identity: SpoolIdentity | None = None
        """In whose transactions the entries are sent; None if in nobody's."""

    @classmethod
    def open(cls, storage: Storage, directory: str, config: SpoolConfig) -> tuple[Spool, Recovery]:
        """Read what an earlier process left, and begin; if what is damaged leaves a question open, only with the first
        write, so that nothing is changed by whoever refuses to go on. Raises SpoolError."""
        try:
            storage.make_directory(directory)
            files = RecordFiles(storage, directory, max_bytes=config.max_bytes, is_durable=config.is_durable)
            reader = SpoolReader(storage, directory, files)
            recovery = reader.read()
            spool = cls(storage, directory, config, files, reader)
            spool._read_identity()
            if not recovery.may_be_cured:
                spool._begin()
        except OSError as error:
            raise SpoolError(f"the spool {directory} cannot be opened: {error}") from error
        return spool, recovery

    def _read_identity(self) -> None:
        path = self._identity_path
        if self._storage.exists(path):
            self.identity = decode_identity(self._storage.read_all(path), path)
        check_life(self.identity, self._fates.life, path)

    def _begin(self) -> None:
        reader = self._to_begin
        assert reader is not None
        reader.put_right()
        if self._config.is_durable and (request := self._files.sync_request()):
            request.run()
            self._files.synced(request)
        self._journal.begin(reader.last_journal + 1, self._fates.summary())
        for path in reader.obsolete:
            self._storage.remove(path)
        self._files.remove(self._files.settled())
        self._to_begin = None

    def _go_on(self) -> None:
        """Before anything is written. Raises SpoolWriteFailed."""
        try:
            self._begin()
        except OSError as error:
            raise SpoolWriteFailed(f"{self._directory} cannot be written: {error}") from error

    @property
    def is_untouched(self) -> bool:
        """Its files are still as they were found."""
        return self._to_begin is not None

    # --- sending ----------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput = (),
    ) -> int:
        """Write a record behind those of its partition; its entry number. It waits on disk until `took` says
        otherwise. Raises SpoolFull or SpoolWriteFailed: then it was not accepted."""
        if self._failure is not None:
            raise SpoolWriteFailed(f"{self._failure}; make a new producer once the disk works")
        if self._to_begin is not None:
            self._go_on()
        book = self._books.get((topic, partition))
        if book is None:
            book = self._new_book(topic, partition)
        entry = book.next
        body = encode_entry(book.topic, partition, entry, timestamp_ms, key, value, headers)
        try:
            self._backlog.wrote(*self._files.append(book, body))
            self._files.keep()
        except SpoolError:
            raise
        except BaseException:  # a signal's handler, at any point
            self._take_back(book, entry)
            raise
        return entry

    def _take_back(self, book: PartitionBook, entry: int) -> None:
        """Unless it was kept, the entry counts nowhere."""
        if self._files.is_unfinished:
            book.take_back(entry)
            active = self._files.active
            if active is not None:
                active.live = sum(one.live_in(active) for one in self._books.values())
            self._backlog.rewind()
            self._files.take_back()

    def _new_book(self, topic: str, partition: int) -> PartitionBook:
        place = TopicPartition(topic, partition)
        first = 0 if self.identity is None else self.identity.first_entry
        if first:
            self._write_first([Settled(place, 0, first)])
        book = self._books[place] = PartitionBook(place, self._fates.of(place))
        book.next = book.loaded = first
        return book

    def took(self, topic: str, partition: int, count: int = 1) -> None:
        """The next waiting records of the partition are in memory now."""
        self._books[(topic, partition)].took(count)
        self._backlog.loaded(count)

    def took_to(self, topic: str, partition: int, end: int) -> None:
        """As `took`, where a signal may have come between, or in the middle of it: the entries below are in memory."""
        self._books[(topic, partition)].take_to(end)
        self._backlog.recount()

    def is_next(self, topic: str, partition: int, entry: int) -> bool:
        """Whether nothing of the partition waits on disk before this entry."""
        return self._books[(topic, partition)].loaded == entry

    @property
    def waiting(self) -> int:
        """How many records wait on disk only."""
        return self._backlog.count

    def peek(self) -> SpooledRecord | None:
        """The next record to take into memory; None if none waits (or, if durable, none is synced). Raises
        SpoolReadFailed."""
        return self._backlog.peek()

    def skip(self, topic: str) -> None:
        """Let `peek` pass by the topic's records, until `unskip`."""
        self._backlog.skip(topic)

    def unskip(self, topic: str) -> None:
        self._backlog.unskip(topic)

    def waiting_marks(self) -> dict[tuple[str, int], int]:
        """Up to which entry each partition's records wait on disk now."""
        return {place: book.next for place, book in self._books.items() if book.loaded < book.next}

    def has_loaded(self, marks: Mapping[tuple[str, int], int]) -> bool:
        return all(self._books[place].loaded >= mark for place, mark in marks.items())

    @property
    def size_bytes(self) -> int:
        return self._files.total_bytes

    @property
    def failure(self) -> str | None:
        """Why nothing can be written down any more, and so nothing new be sent, until the spool is opened again."""
        return self._failure or self._journal.failure

    # --- what becomes of it -----------------------------------------------------------------------------------

    def numbered(self, batches: Sequence[Numbered]) -> None:
        """Write down the numbers of batches whose bytes may leave afterwards. Raises SpoolWriteFailed: then they may
        not."""
        if self._failure is not None:
            raise SpoolWriteFailed(self._failure)
        self._write_first(batches)
        self._note_journal()

    def _note_journal(self) -> None:
        """An older copy of the journal, which does not know these numbers, must not be taken for the last one."""
        try:
            self._files.append_note(self._journal.reached)
        except OSError as error:
            raise SpoolWriteFailed(f"{self._directory} cannot be written: {error}") from error

    def _write_first(self, facts: Sequence[Fact]) -> None:
        """Facts that count only once they are written."""
        if self._to_begin is not None:
            self._go_on()
        self._append_facts([*self._unwritten, *facts])
        if self._config.is_durable:
            self._journal.sync()
        self._unwritten.clear()
        for fact in facts:
            self._fates.apply(fact)
        if self._journal.is_due_to_roll:
            self._journal.roll(self._fates.summary())

    def _append_facts(self, facts: Sequence[Fact]) -> None:
        """With them, how far the records are."""
        active = self._files.active
        grown = [] if active is None else self._reached(active)
        self._journal.append([*facts, *grown])
        for fact in grown:
            self._fates.apply(fact)

    def _reached(self, record_file: RecordFile) -> list[Fact]:
        size = self._files.readable_bytes(record_file)
        return (
            []
            if self._fates.files.get(record_file.number) == size
            else [Reached(NO_PARTITION, record_file.number, size)]
        )

    def _tell_growth(self, record_file: RecordFile) -> None:
        """A file of records is in the journal before anything is in the file, and now and then while it grows."""
        before = self._files.active
        facts = self._reached(record_file)
        if before is not None and before is not record_file:
            facts += self._reached(before)
        self._journal.append(facts)
        if self._config.is_durable and record_file.size == 0:
            self._journal.sync()
        for fact in facts:
            self._fates.apply(fact)

    def settled(self, topic: str, partition: int, first: int, count: int, *, was_refused: bool = False) -> None:
        """These entries will not be sent again; `was_refused`: they were numbered, and certainly are not stored. Never
        raises: a journal that cannot be written is told later, and until then their files stay."""
        book = self._books[(topic, partition)]
        is_emptied = self._settle(book, first, first + count, Refused if was_refused else Settled)
        self._write_settled(may_remove=is_emptied)

    def _settle(self, book: PartitionBook, first: int, end: int, kind: type[Settled] | type[Refused] = Settled) -> bool:
        is_emptied = book.release(first, end)
        fact = kind(book.partition, first, end - first)
        self._fates.apply(fact)
        self._unwritten.append(fact)
        book.forget_settled_runs()
        return is_emptied

    def _write_settled(self, *, may_remove: bool) -> None:
        try:
            if self._to_begin is not None:
                self._go_on()
            self._append_facts(self._unwritten)
            self._unwritten.clear()
            if may_remove:
                self._remove_settled_files()
        except SpoolWriteFailed as error:
            logger.warning(
                "%s: what is settled was not written down, which costs nothing yet: %s", self._directory, error
            )

    def _remove_settled_files(self) -> None:
        if self._config.is_durable:
            self._journal.sync()  # else a power failure might find open batches without their records
        self._remove(self._files.settled())

    def _remove(self, numbers: list[int]) -> None:
        """Raises SpoolWriteFailed."""
        facts = [Removed(NO_PARTITION, number) for number in numbers]
        self._journal.append(facts)
        for fact in facts:
            self._fates.apply(fact)
        self._files.remove(numbers)

    # --- in transactions ----------------------------------------------------------------------------------------

    def open_for(self, transactional_id: str | None, topic: str) -> None:
        """Before anything is accepted: only a producer with the same transactional id and topic of positions may go on
        with what is left. Raises SpoolError."""
        identity = self.identity
        if identity is None:
            return
        try:
            if identity.is_of(transactional_id, topic):
                self._begin_life(identity.next_life())
            elif any(self.unsettled()):
                raise SpoolError(
                    f"{self._directory} holds records that may have been sent in transactions of"
                    f" {identity.transactional_id!r} (positions in {identity.topic!r}): open it with that"
                    " transactional.id and spool.positions.topic once more, flush() and close(); then change them"
                )
            else:
                self._write_first([Belongs(NO_PARTITION, NO_LIFE)])
                self._storage.remove(self._identity_path)
                self.identity = None
        except OSError as error:
            raise SpoolError(f"{self._identity_path} cannot be written: {error}") from error

    def _begin_life(self, identity: SpoolIdentity) -> None:
        self._storage.write_atomically(self._identity_path, identity.encode())
        self.identity = identity
        skipped: list[Fact] = [Belongs(NO_PARTITION, identity.life)]
        for book in self._books.values():
            before = book.next
            if book.skip_to(identity.first_entry):
                skipped.append(Settled(book.partition, before, book.next - before))
        self._write_first(skipped)
        if len(skipped) > 1:
            self.resolved()

    def belong_to(self, identity: SpoolIdentity) -> None:
        """From now on entries are sent in transactions. Only when no batch is open. Raises SpoolWriteFailed."""
        self._write_first([])
        try:
            self._storage.write_atomically(self._identity_path, identity.encode())
        except OSError as error:
            raise SpoolWriteFailed(f"{self._identity_path} cannot be written: {error}; nothing was sent") from error
        self._write_first([Belongs(NO_PARTITION, identity.life)])
        self.identity = identity

    @property
    def _identity_path(self) -> str:
        return f"{self._directory}/{FILE_NAME}"

    @property
    def placed(self) -> int | None:
        """The offset of a position that was committed."""
        placed = self._fates.placed
        if placed is None or self.identity is None or placed.partition != self.identity.place:
            return None
        return placed.first

    def loaded_ends(self) -> dict[TopicPartition, int]:
        """Of each partition: below which entry all are in memory or settled."""
        return {book.partition: book.loaded for book in self._books.values()}

    def unsettled(self) -> Iterator[tuple[TopicPartition, int, int]]:
        """Ranges of entries: partition, first, end."""
        for book in self._books.values():
            for first, end in book.fates.settled.missing(0, book.next):
                yield book.partition, first, end

    def committed(self, ends: Mapping[TopicPartition, int], offset: int | None = None) -> None:
        """Of each partition all entries below are in committed transactions; `offset`: where that is written. Never
        raises, as `settled`."""
        is_emptied = False
        for place, end in ends.items():
            book = self._books.get(place)
            if book is not None:
                first, end = book.fates.settled.next_missing(0), min(end, book.next)
                is_emptied |= first < end and self._settle(book, first, end)
        if offset is not None and self.identity is not None:
            placed = Placed(self.identity.place, offset)
            self._fates.apply(placed)
            self._unwritten.append(placed)
        self._write_settled(may_remove=is_emptied)
        if self._journal.is_due_to_roll and not self._unwritten:
            self._journal.roll(self._fates.summary())

    def dispel_doubts(self) -> None:
        """The position told what the journal could not. Raises SpoolWriteFailed."""
        for book in list(self._books.values()):
            for first, end in list(book.fates.doubted):
                self.void(book.partition, first, end)

    def has_settled(self, marks: Mapping[tuple[str, int], int]) -> bool:
        return all(self._books[place].fates.settled.next_missing(0) >= mark for place, mark in marks.items())

    def written_marks(self) -> dict[tuple[str, int], int]:
        """Up to which entry each partition's records are written."""
        return {place: book.next for place, book in self._books.items()}

    # --- what an earlier process left ---------------------------------------------------------------------------

    def void(self, partition: TopicPartition, first: int, end: int) -> None:
        """Forget under which numbers these entries may have been sent: they wait as if new. Raises SpoolWriteFailed."""
        book = self._books[partition]
        if self._to_begin is not None:
            self._go_on()
        for low, high in book.lost_entries(first, end):
            self._settle(book, low, high)
        self._write_first([Voided(partition, first, end - first)])

    def unreadable(self, partition: TopicPartition, first: int, end: int) -> list[tuple[int, int]]:
        """Which of these entries are not settled and in no file any more."""
        return self._books[partition].lost_entries(first, end)

    def settled_end(self, partition: TopicPartition) -> int:
        """All entries below are settled."""
        return self._books[partition].fates.settled.next_missing(0)

    def discard(self, partition: TopicPartition, first: int, end: int) -> str | None:
        """Move these entries to a file beside the spool and settle them; the file's path, None if none of them can be
        read. Raises SpoolWriteFailed."""
        if self._to_begin is not None:
            self._go_on()
        path = f"{self._directory}/{partition}.{first}-{end - 1}{DISCARDED_SUFFIX}"
        book = self._books[partition]
        data = bytearray()
        try:
            for number in sorted({run.file.number for run in book.runs if run.first < end and first < run.end}):
                for record, body in self._entries_in(number):
                    if record.topic_partition == partition and first <= record.entry < end:
                        data += encode_frame(0, len(data), body)
            if data:
                self._storage.write_atomically(path, data + bytes(reserved_end(len(data)) - len(data)))
        except OSError as error:
            raise SpoolWriteFailed(f"{path} cannot be written: {error}; nothing was discarded") from error
        is_emptied = self._settle(book, first, end)
        self._write_settled(may_remove=is_emptied)
        return path if data else None

    def resolved(self) -> None:
        """Everything an earlier process left is judged; what remains open is sent as it was, and the rest waits. Raises
        SpoolWriteFailed."""
        if self._to_begin is not None:
            self._go_on()
        for book in self._books.values():
            book.rewind()
        self._backlog.rewind()

    def _entries_in(self, number: int) -> Iterable[tuple[SpooledRecord, bytes]]:
        record_file = self._files.files[number]
        data = record_file.file.read(0, record_file.size)
        for item in walk(number, data, may_be_torn=False):
            if isinstance(item, Frame) and decode_note(item.body) is None:
                yield decode_entry(item.body), bytes(item.body)

    # --- durability and the end ---------------------------------------------------------------------------------

    def sync_request(self) -> SyncRequest | None:
        """What must be synced for everything appended so far to survive a power failure. One at a time."""
        return self._files.sync_request()

    def synced(self, request: SyncRequest) -> None:
        self._files.synced(request)

    def sync_failed(self, error: OSError) -> None:
        """A disk that failed to sync may have dropped anything: take back what was not promised, accept no more."""
        self._failure = f"{self._directory} could not be synced ({error}), so nothing more is accepted"
        self._files.cut_unsynced()

    def close(self) -> None:
        """Leave nothing behind that a later process need not know."""
        if self._to_begin is None:
            self._leave()
        self._files.close()
        self._journal.close()

    def _leave(self) -> None:
        self._write_settled(may_remove=True)
        if not self._unwritten and self._failure is None:
            with contextlib.suppress(SpoolWriteFailed):
                self._remove(self._files.settled(with_active=True))
                if self._files.files:
                    self._note_journal()
                    self._append_facts([])


def read_discarded(data: bytes) -> list[SpooledRecord]:
    """The records in a file that `discard` wrote. What cannot be read, or was cut off, is told in the log."""
    items = list(walk(0, data, may_be_torn=False))
    records = [decode_entry(item.body) for item in items if isinstance(item, Frame)]
    for item in items:
        if isinstance(item, Damage):
            logger.error("discarded records are damaged at position %d (%d bytes)", item.position, item.size_bytes)
    if not has_reserve(data) and not any(isinstance(item, Frame) and item.is_old for item in items):
        logger.error("discarded records were cut at position %d, behind %d that are there", len(data), len(records))
    return records


__all__ = [
    "DAMAGED_SUFFIX",
    "DISCARDED_SUFFIX",
    "Identity",
    "Numbered",
    "Recovery",
    "Spool",
    "SpoolConfig",
    "SpooledRecord",
    "read_discarded",
]
