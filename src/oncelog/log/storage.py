"""Files as the log sees them: one small interface, and the real implementation on the operating system.

This is the only module of the room that imports `os`. It knows nothing of logs: it opens, reads, appends, truncates,
syncs and renames. Errors are the operating system's own `OSError`; what they mean for a partition is decided above.
Tests put a storage in its place that fails, tears writes and forgets what was not synced (`tests/support`).

What survives what: appended bytes survive the death of this process (page cache); they survive the loss of power only
after `File.sync`, and a created, renamed or removed name only after `sync_directory`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Protocol

from oncelog.errors import KafkaStorageError
from oncelog.named_tuple import NamedTuple
from oncelog.records.batch import Buffer

TEMPORARY_SUFFIX = ".tmp"
FILE_MODE = 0o644

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
TEMPORARY = OUT_OF_DESCRIPTORS | {errno.ENOMEM, errno.ENOSPC, errno.EDQUOT}
"""Errors that say nothing about the disk: something is used up, and may be there again in a moment."""

MAY_PASS = (KafkaStorageError, OSError, MemoryError, ImportError)
"""What prevents the reading of a log, and says nothing of what is in it: descriptors or memory are used up, the disk
did not answer, code that is loaded when first used could not be. What is damaged raises something else."""

_sync_data = getattr(os, "fdatasync", os.fsync)  # the size is data, the time of the last change is not


class NotAFile(OSError):
    """In the place of a file lies a folder, a pipe or a device: nobody of ours made it, and it is left alone."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EISDIR, "it is not a regular file; move it away, then start again", path)


class _Opened(NamedTuple):
    descriptor: int
    size_bytes: int


def _open_regular(name: str, flags: int, folder: int | None) -> _Opened:
    """Without waiting for whoever is to write into a pipe. Raises NotAFile."""
    try:
        descriptor = os.open(name, flags | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ENXIO):  # a folder; a socket, or a device that is not there
            raise NotAFile(name) from error
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise NotAFile(name)
    return _Opened(descriptor, status.st_size)


class FileStatus(NamedTuple):
    size_bytes: int
    modified_ms: int


class File(Protocol):
    """An open file. It closes itself when the last reference goes: an outstanding read keeps a removed file alive."""

    @property
    def size(self) -> int:
        """Bytes appended so far; what a failed `append` left behind is not counted."""

    def read(self, position: int, size: int) -> bytes:
        """The bytes at `position`: fewer than `size` only where the file ends."""

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fill `buffer` from `position` and return how many bytes there were: fewer only where the file ends."""

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end, or raise; a raise may leave a part of it beyond `size`."""

    def truncate(self, size: int) -> None:
        """Cut to `size`, and with it whatever a failed append left behind."""

    def reserve(self, end: int) -> None:
        """Let the file go on to `end` with zeros, which appends write over; `size` stays."""

    def clear(self, size: int, end: int) -> None:
        """Zeros from `size` to `end`, in the place of whatever lies there; appends go on at `size`."""

    def resume(self, size: int) -> None:
        """Append from `size` on, over zeros that were reserved."""

    def sync(self) -> None:
        """Return once everything appended is on the disk. May be called from another thread."""

    def fileno(self) -> int | None:
        """The descriptor, if the operating system has one for this file."""

    def close(self) -> None:
        """Release the descriptor now instead of with the last reference."""


class Storage(Protocol):
    """Where files live. Paths are strings with `/`; a directory's names come without it."""

    def open(self, path: str, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def status(self, path: str) -> FileStatus: ...

    def list_directory(self, path: str) -> list[str]: ...

    def make_directory(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file. A file that is not there is no error: the wish is fulfilled."""

    def remove_directory(self, path: str) -> None:
        """Remove a directory with everything in it, if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Atomically give `source` the name `target`, replacing what had it."""

    def sync_directory(self, path: str) -> None: ...

    def read_all(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: Buffer) -> None:
        """Replace the content of `path` so that, whatever happens, readers find all of the old or all of the new.
        Files of which a loss of power may take a part are written with `replace_file(durable=False)` instead."""

    def free_bytes(self, path: str) -> int:
        """What the volume that holds `path` still takes from this process."""

    def total_bytes(self, path: str) -> int:
        """The size of the volume that holds `path`."""


class OsFile:
    """A file descriptor with positional reads and writes; the end of the file is remembered, not asked for."""

    __slots__ = ("_descriptor", "path", "size")

    def __init__(self, path: str, opened: _Opened) -> None:
        self.path = path
        self._descriptor, self.size = opened

    def fileno(self) -> int:
        return self._descriptor

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and (data := os.pread(self._descriptor, missing, position + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        view = memoryview(buffer)
        done = 0
        while done < len(view) and (count := os.preadv(self._descriptor, [view[done:]], position + done)):
            done += count
        return done

    def append(self, data: Buffer) -> None:
        written = os.pwrite(self._descriptor, data, self.size)
        if written != len(data):
            self._append_rest(memoryview(data), written)
        self.size += len(data)

    def _append_rest(self, data: memoryview, written: int) -> None:
        """A short write is how a filling disk begins; the next call says what is wrong."""
        while written < len(data):
            count = os.pwrite(self._descriptor, data[written:], self.size + written)
            if count == 0:
                raise OSError(errno.EIO, "the operating system wrote nothing and gave no reason", self.path)
            written += count

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self.size = size

    def reserve(self, end: int) -> None:
        os.ftruncate(self._descriptor, end)

    def clear(self, size: int, end: int) -> None:
        os.ftruncate(self._descriptor, size)
        os.ftruncate(self._descriptor, end)
        self.size = size

    def resume(self, size: int) -> None:
        self.size = size

    def sync(self) -> None:
        _sync_data(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()

    def __repr__(self) -> str:
        return f"OsFile({self.path!r}, size={self.size})"


class FileStorage:
    """Files of the operating system. What is in `folder` is reached by way of the very folder that had this name at
    first: one that is renamed under a broker, and another in its place, must not get a part of its files each."""

    _name: str | None = None
    _folder: int | None = None

    def __init__(self, folder: str | None = None) -> None:
        if folder is not None:
            self._name, self._folder = folder, _open_folder(folder)

    def _inside(self, path: str) -> tuple[str, int | None]:
        """Name and folder by which the system is to be asked for it; whoever asks puts the path into its errors."""
        if self._name is not None and path.startswith(self._name):
            rest = path[len(self._name) :]
            if rest[:1] in ("", "/"):
                return rest[1:] or ".", self._folder
        return path, None

    def open(self, path: str, create: bool = False) -> OsFile:
        name, folder = self._inside(path)
        try:
            return OsFile(path, _open_regular(name, os.O_RDWR | (os.O_CREAT if create else 0), folder))
        except OSError as error:
            error.filename = path
            raise

    def exists(self, path: str) -> bool:
        try:
            self.status(path)
        except (OSError, ValueError):
            return False
        return True

    def status(self, path: str) -> FileStatus:
        name, folder = self._inside(path)
        try:
            status = os.stat(name, dir_fd=folder)
        except OSError as error:
            error.filename = path
            raise
        return FileStatus(status.st_size, status.st_mtime_ns // 1_000_000)

    def list_directory(self, path: str) -> list[str]:
        with self._opened(path) as descriptor:
            return sorted(os.listdir(descriptor))

    def make_directory(self, path: str) -> None:
        name, folder = self._inside(path)
        try:
            if folder is None:
                os.makedirs(name, exist_ok=True)
            elif not self.exists(path):
                os.mkdir(name, dir_fd=folder)
        except OSError as error:
            error.filename = path
            raise

    def remove(self, path: str) -> None:
        name, folder = self._inside(path)
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            error.filename = path
            raise

    def remove_directory(self, path: str) -> None:
        if not self.exists(path):
            return
        from shutil import rmtree  # with what can copy and compress: a broker that removes nothing does without

        name, folder = self._inside(path)
        try:
            rmtree(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            error.filename = path
            raise

    def rename(self, source: str, target: str) -> None:
        (name, folder), (new_name, new_folder) = self._inside(source), self._inside(target)
        try:
            os.replace(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)
        except OSError as error:
            error.filename = source
            raise

    def sync_directory(self, path: str) -> None:
        with self._opened(path) as descriptor:
            os.fsync(descriptor)

    def read_all(self, path: str) -> bytes:
        name, folder = self._inside(path)
        try:
            file = OsFile(path, _open_regular(name, os.O_RDONLY, folder))
            try:
                return file.read(0, file.size)
            finally:
                file.close()
        except OSError as error:
            error.filename = path
            raise

    def write_atomically(self, path: str, data: Buffer) -> None:
        replace_file(self, path, data, durable=True)

    def free_bytes(self, path: str) -> int:
        with self._opened(path) as descriptor:
            volume = os.fstatvfs(descriptor)
        return volume.f_bavail * volume.f_frsize

    def total_bytes(self, path: str) -> int:
        with self._opened(path) as descriptor:
            volume = os.fstatvfs(descriptor)
        return volume.f_blocks * volume.f_frsize

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """A descriptor of the folder."""
        name, folder = self._inside(path)
        try:
            descriptor = _open_folder(name, folder)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            error.filename = path
            raise


def _open_folder(path: str, folder: int | None = None) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)


def replace_file(storage: Storage, path: str, data: Buffer, *, durable: bool) -> None:
    """The steps of `write_atomically`, from the other operations of a storage: each is durable before the next.

    Not `durable`, the replacement is atomic only for readers: the power may take all of it, or leave a torn file.
    """
    temporary = path + TEMPORARY_SUFFIX
    file = storage.open(temporary, create=True)
    try:
        file.truncate(0)
        file.append(data)
        if durable:
            file.sync()
    finally:
        file.close()
    storage.rename(temporary, path)
    if durable:
        storage.sync_directory(directory_of(path))


def begin_file(storage: Storage, path: str, data: Buffer) -> None:
    """Write a small file that nobody relies on yet: cheaper than `replace_file`. A kill may leave it empty or torn."""
    file = storage.open(path, create=True)
    try:
        if file.size:  # of a try that failed
            file.truncate(0)
        file.append(data)
    finally:
        file.close()


def directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def is_temporary(error: BaseException) -> bool:
    """Whether the same may succeed later: of an OSError, or of an error that one has led to."""
    return _errno_of(error) in TEMPORARY


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether there was no descriptor to do it with, so that nothing was done at all."""
    return _errno_of(error) in OUT_OF_DESCRIPTORS


def _errno_of(error: BaseException) -> int | None:
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause.errno if isinstance(cause, OSError) else None
