"""`metadata-end-offset-checkpoint`: what is known to be durable of the metadata, written down outside of it.

A log that lost its end looks exactly like one that never had it. This file, in the data folder beside the metadata's
own, tells them apart: every change of the metadata is noted here after its fsync and before anybody hears of it. Never
ahead of the log, so a log that ends earlier has lost what was in force. It holds the folder's identity as well, which
is how a damaged `meta.properties` is recognised.

    identity <cluster id> <directory id> <node id> <checksum>
    foreign <epoch> <checksum>
    end <end offset> <epoch> <checksum>

Whoever writes metadata does so in an epoch of its own. One that is newer than the noted one is somebody else's: of an
older oncelog or of Apache Kafka, which keep none of the notes that oncelog keeps in its own files. `foreign` is the
last such epoch; notes from before it are not believed.

Lines are appended and carry their own checksum: one that is damaged is passed over, which makes the file less sharp,
never wrong. It is not synced with every line: it survives the death of the process, and what a power failure takes of
it is only sharpness. Nothing but the check reads it, and a folder without one (of Kafka, of an older version) is as
good.
"""

from __future__ import annotations

import logging
import zlib

from oncelog.controller.identity import Identity, decode_id, encode_id
from oncelog.log.manifest import NO_FOREIGN_EPOCH
from oncelog.log.storage import File, Storage
from oncelog.named_tuple import NamedTuple

logger = logging.getLogger(__name__)

FILE_NAME = "metadata-end-offset-checkpoint"
MAX_LINES = 1000
"""Then the file is replaced by its last line: some 40 KB, which is read once per start."""

_IDENTITY = "identity"
_FOREIGN = "foreign"
_END = "end"


class DurableEnd(NamedTuple):
    """Up to which offset, exclusive, the metadata was durable, and the epoch of its last batch."""

    end_offset: int
    epoch: int


class Noted(NamedTuple):
    """What the file says; None for what it does not."""

    identity: Identity | None = None
    end: DurableEnd | None = None
    bad_lines: int = 0
    foreign_epoch: int = NO_FOREIGN_EPOCH

    def latest_foreign_epoch(self, last_epoch: int) -> int:
        """The last epoch that somebody else wrote in, if `last_epoch` is that of the metadata's last batch. That of a
        batch which a crash left without its note is taken for one too: that makes notes less sharp, never wrong."""
        is_foreign = self.end is not None and last_epoch > self.end.epoch
        return max(self.foreign_epoch, last_epoch) if is_foreign else self.foreign_epoch


NOTHING_NOTED = Noted()


def read_noted(storage: Storage, data_directory: str) -> Noted:
    path = f"{data_directory}/{FILE_NAME}"
    if not storage.exists(path):
        return NOTHING_NOTED
    noted = decode_noted(storage.read_all(path))
    if noted.bad_lines:
        logger.warning("%s: %d damaged lines are passed over", path, noted.bad_lines)
    return noted


def decode_noted(data: bytes) -> Noted:
    identity, ends, foreign_epoch, bad_lines = None, [], NO_FOREIGN_EPOCH, 0
    for line in data.decode("utf-8", "replace").splitlines():
        try:
            match _checked(line):
                case [name, cluster_id, directory_id, node_id] if name == _IDENTITY:
                    identity = Identity(cluster_id, int(node_id), decode_id(directory_id))
                case [name, end_offset, epoch] if name == _END:
                    ends.append(DurableEnd(int(end_offset), int(epoch)))
                case [name, epoch] if name == _FOREIGN:
                    foreign_epoch = max(foreign_epoch, int(epoch))
                case _:
                    bad_lines += 1
        except ValueError:
            bad_lines += 1
    return Noted(identity, max(ends, default=None), bad_lines, foreign_epoch)


class EndOffsetCheckpoint:
    """The file, being written. That it cannot be written stops nothing: the metadata itself is durable."""

    def __init__(self, storage: Storage, data_directory: str, identity: Identity) -> None:
        self._storage = storage
        self._path = f"{data_directory}/{FILE_NAME}"
        self._identity = identity
        self.foreign_epoch = NO_FOREIGN_EPOCH
        """Is noted with the first end of an opening, and kept from then on."""
        self._file: File | None = None
        self._lines = 0

    def note(self, end: DurableEnd) -> None:
        """`end` is durable. The first one of an opening, and every MAX_LINES-th, replaces the file."""
        try:
            if self._file is None or self._lines >= MAX_LINES:
                self._replace(end)
            else:
                self._file.append(_line(_END, end.end_offset, end.epoch))
                self._lines += 1
        except OSError as error:
            logger.warning("%s cannot be written, and now says less than it should: %s", self._path, error)

    def _replace(self, end: DurableEnd) -> None:
        self.close()
        self._storage.write_atomically(self._path, encode_noted(self._identity, end, self.foreign_epoch))
        self._file = self._storage.open(self._path)
        self._lines = 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def encode_noted(identity: Identity, end: DurableEnd, foreign_epoch: int = NO_FOREIGN_EPOCH) -> bytes:
    whose = _line(_IDENTITY, identity.cluster_id, encode_id(identity.directory_id), identity.node_id)
    foreign = _line(_FOREIGN, foreign_epoch) if foreign_epoch != NO_FOREIGN_EPOCH else b""
    return whose + foreign + _line(_END, end.end_offset, end.epoch)


def _line(*words: object) -> bytes:
    text = " ".join(map(str, words))
    return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def _checked(line: str) -> list[str]:
    """The words of a line without its checksum; none if they are not what was written."""
    text, _, checksum = line.rpartition(" ")
    return text.split(" ") if checksum == f"{zlib.crc32(text.encode()):08x}" else []
