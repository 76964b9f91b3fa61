"""The journal: one file of facts about the entries, begun anew by every process and whenever it has grown.

    00000000000000000007.journal
        frame: header (version, how durable, how many bytes the summary takes)
        frames: the summary, facts that lead to the state at which this journal began
        frames: facts as they happened, each with how much of the journal was known to be on the disk before it

A journal appears under its name complete or not at all; the one with the highest number counts, and those before it
are removed. What it says is trusted as a whole or not at all: a fact that cannot be read may be the one that matters.
Two things are no damage: a torn tail, because nothing is done on the strength of a fact before it is written; and, if
the journal was kept by fsync, a tail that no later fact calls durable, because that is what a power failure leaves. A
file that was cut is damage, wherever it was cut (`frame`).
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.client.spool.entry import JournalNote
from oncelog.client.spool.errors import SpoolError, SpoolWriteFailed
from oncelog.client.spool.facts import Fact, decode_fact, encode_fact
from oncelog.client.spool.frame import Damage, Frame, encode_frame, has_reserve, reserved_end, walk
from oncelog.log.storage import File, Storage, replace_file

SUFFIX: Final = ".journal"
VERSION: Final = 2
"""1: without what is told of files, and in the first format of frames."""
FIRST_VERSION: Final = 1
ROLL_BYTES: Final = 1024 * 1024
"""A journal that grew by this much begins anew with what still matters."""

_HEADER = struct.Struct(">8sHBQ")  # what it is, version, durable, bytes of header and summary
_NAME: Final = b"journal "
_SYNCED = struct.Struct(">Q")

logger = logging.getLogger(__name__)


class SpoolOfAnotherVersion(SpoolError):
    """The folder was written by a newer oncelog."""


def journal_path(directory: str, number: int) -> str:
    return f"{directory}/{number:020d}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class JournalContents:
    facts: tuple[Fact, ...]
    damages: tuple[Damage, ...]
    is_trusted: bool
    """Nothing that mattered is missing from `facts`."""
    knows_files: bool = False
    """It tells which files of records there must be."""
    is_durable: bool = False
    end: int = 0
    """Where its last frame ends."""
    is_cut: bool = False


def read_journal(number: int, data: bytes, path: str) -> JournalContents:
    items = list(walk(number, data, may_be_torn=True))
    damages = tuple(item for item in items if isinstance(item, Damage) and not item.is_torn)
    header = items[0] if items else None
    if not isinstance(header, Frame) or len(header.body) != _HEADER.size:
        return JournalContents((), damages, is_trusted=False, is_cut=not has_reserve(data))
    name, version, is_durable, summary_bytes = _HEADER.unpack(header.body)
    if name != _NAME or not FIRST_VERSION <= version <= VERSION:
        raise SpoolOfAnotherVersion(
            f"{path} has format {version}, and this oncelog knows {VERSION}; open the spool with the one that wrote it"
        )
    frames = [item for item in items[1:] if isinstance(item, Frame)]
    known_durable = max((_SYNCED.unpack_from(frame.body)[0] for frame in frames), default=0)
    lost_at = next((item.position for item in items if isinstance(item, Damage)), len(data))
    is_tail = not damages or (bool(is_durable) and lost_at >= max(summary_bytes, known_durable))
    is_cut = version > FIRST_VERSION and not has_reserve(data)
    is_trusted = is_tail and lost_at >= summary_bytes and not is_cut
    kept = [frame for frame in frames if frame.position < lost_at] if is_trusted else frames
    return JournalContents(
        facts=tuple(decode_fact(frame.body[_SYNCED.size :]) for frame in kept),
        damages=damages,
        is_trusted=is_trusted,
        knows_files=version > FIRST_VERSION,
        is_durable=bool(is_durable),
        end=max(frame.end for frame in (header, *frames)),
        is_cut=is_cut,
    )


class Journal:
    """The journal of this process. It refuses to write once it cannot tell what the next process would read."""

    def __init__(self, storage: Storage, directory: str, *, is_durable: bool) -> None:
        self._storage = storage
        self._directory = directory
        self._is_durable = is_durable
        self._number = 0
        self._file: File | None = None
        self._synced_bytes = 0
        self._roll_at = 0
        self._reserved = 0
        self._is_unclean = False
        """A write has begun: if it does not come to its end, by an error or a signal, something may lie behind the end
        of the file."""
        self._broken: str | None = None

    def begin(self, number: int, summary: Iterable[Fact]) -> None:
        """Write journal `number`, which takes the place of all before it. Raises OSError."""
        path = journal_path(self._directory, number)
        data = _encode_whole(number, [encode_fact(fact) for fact in summary], is_durable=self._is_durable)
        whole = data + bytes(reserved_end(len(data)) - len(data))
        replace_file(self._storage, path, whole, durable=self._is_durable)
        self._file, old = self._storage.open(path), self._file
        self._file.resume(len(data))
        if old is not None:
            old.close()
        self._number = number
        self._reserved = len(whole)
        self._synced_bytes = self._file.size if self._is_durable else 0
        self._roll_at = self._file.size + ROLL_BYTES
        self._is_unclean = False

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more."""
        return self._broken

    @property
    def reached(self) -> JournalNote:
        """How far it is sure to be there."""
        assert self._file is not None
        return JournalNote(self._number, self._synced_bytes if self._is_durable else self._file.size)

    @property
    def is_due_to_roll(self) -> bool:
        return self._file is not None and self._file.size >= self._roll_at and self._broken is None

    def roll(self, summary: Iterable[Fact]) -> None:
        """Begin anew, if the disk lets us; else go on with this one."""
        old = self._number
        try:
            self.begin(old + 1, summary)
        except OSError as error:
            self._roll_at += ROLL_BYTES
            self._survive_failed_roll(error)
            return
        except BaseException as error:  # a signal's handler: perhaps the new one is there, and we are at the old one
            self._survive_failed_roll(error)
            raise
        self._remove(old)

    def _survive_failed_roll(self, error: BaseException) -> None:
        """The old journal may go on only if no new one can be found in its place."""
        path = journal_path(self._directory, self._number + 1)
        logger.warning("%s could not be written: %s", path, error)
        exists = True
        with contextlib.suppress(OSError):
            exists = self._storage.exists(path)
        if exists:
            self._broken = f"{path} could not be completed ({error})"

    def _remove(self, number: int) -> None:
        with contextlib.suppress(OSError):  # the next process removes it
            self._storage.remove(journal_path(self._directory, number))

    def append(self, facts: Sequence[Fact]) -> None:
        """Write the facts, all or none. Raises SpoolWriteFailed."""
        file = self._file
        assert file is not None
        if self._broken is not None:
            raise SpoolWriteFailed(f"{self._directory}: {self._broken}; close the producer and open the spool again")
        try:
            self._clean(file)
            data = bytearray()
            for fact in facts:
                body = _SYNCED.pack(self._synced_bytes) + encode_fact(fact)
                data += encode_frame(self._number, file.size + len(data), body)
            self._reserve(file, file.size + len(data))
            self._is_unclean = True
            file.append(data)
            self._is_unclean = False
        except OSError as error:
            with contextlib.suppress(OSError):
                self._clean(file)
            raise SpoolWriteFailed(f"{journal_path(self._directory, self._number)}: {error}") from error

    def _reserve(self, file: File, size: int) -> None:
        """Zeros behind what is to be written. If durable, they are on the disk before: a power failure leaves no file
        that looks cut."""
        if size >= self._reserved:
            file.reserve(reserved_end(size))
            if self._is_durable:
                file.sync()
            self._reserved = reserved_end(size)

    def _clean(self, file: File) -> None:
        if self._is_unclean:
            file.clear(file.size, self._reserved)
            self._is_unclean = False

    def sync(self) -> None:
        """Return once all facts are on the disk. A failed sync must not be tried again: it would seem to succeed."""
        file = self._file
        assert file is not None
        if self._broken is not None:
            raise SpoolWriteFailed(f"{self._directory}: {self._broken}; close the producer and open the spool again")
        if self._synced_bytes == file.size:
            return
        try:
            file.sync()
        except OSError as error:
            self._broken = f"{journal_path(self._directory, self._number)} could not be synced ({error})"
            raise SpoolWriteFailed(self._broken) from error
        self._synced_bytes = file.size

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _encode_whole(number: int, facts: list[bytes], *, is_durable: bool) -> bytes:
    """Header and summary. The header tells the size of both, so it is made last."""
    header_bytes = len(encode_frame(number, 0, bytes(_HEADER.size)))
    summary = bytearray()
    for fact in facts:
        summary += encode_frame(number, header_bytes + len(summary), _SYNCED.pack(0) + fact)
    header = _HEADER.pack(_NAME, VERSION, is_durable, header_bytes + len(summary))
    return encode_frame(number, 0, header) + bytes(summary)
