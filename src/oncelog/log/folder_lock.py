"""The lock on a folder of records: one process at a time, or two would overwrite each other's.

Owns what is locked, and how it stays so. Three locks, since none of them sees the others:

- `flock` on the folder itself, which nobody can delete while it holds files that matter;
- `flock` on its file `.lock`, which earlier versions lock;
- `lockf` on the same file, which Apache Kafka locks.

The file can be deleted under us. Whoever locks the folder is still kept out; for the others `renew` puts the file back.
The system lets go of all three when the process dies. What is in the folder is not known here.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Final

from oncelog.errors import OncelogError
from oncelog.printable import printable

try:
    import fcntl
except ImportError:  # on Windows, whose clients need none of this
    fcntl = None  # type: ignore[assignment]

LOCK_FILE: Final = ".lock"
FILE_MODE: Final = 0o644
MAX_OWNER_BYTES: Final = 32
"""What is read of the file: it holds a process id."""
UNKNOWN_OWNER: Final = "unknown"
TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})

NOT_HERE: Final = "a broker, and a producer with spool_dir, need Linux or macOS, where folders can be locked"

Inode = tuple[int, int]

_held: dict[Inode, int] = {}
"""Folders that this very process has locked, or the one it was forked from: which. Looking into their file would undo
`lockf`, which ends with any descriptor of it that the process closes."""


class FolderInUse(OncelogError):
    """Somebody else has the folder: `owner`, a process id if that is known."""

    def __init__(self, directory: str, owner: str) -> None:
        super().__init__(f"the folder {directory} is in use by process {owner}")
        self.owner = owner


class _Taken(Exception):
    """One of the locks is somebody else's."""


class FolderLock:
    """Held from its making on, until `release`."""

    def __init__(self, directory: str, *, only_looks: bool = False) -> None:
        """Makes the folder if it is not there. Whoever `only_looks` writes nothing, and locks what there is. Raises
        FolderInUse, or OSError with words for a user."""
        if fcntl is None:
            raise OSError(errno.ENOTSUP, NOT_HERE)
        if not only_looks:
            _make_folder(directory)
        self._only_looks = only_looks
        self._directory = directory
        self._path = os.path.join(directory, LOCK_FILE)
        self._file = -1
        self._folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._inode = _inode(os.fstat(self._folder))
        try:
            self._lock_folder()
            if not only_looks or os.path.exists(self._path):
                self._file = self._lock_file()
        except BaseException as error:
            os.close(self._folder)
            if isinstance(error, _Taken):
                holder = _held.get(self._inode)
                raise FolderInUse(directory, self._owner() if holder is None else str(holder)) from None
            raise
        _held[self._inode] = os.getpid()

    def _lock_folder(self) -> None:
        if self._inode in _held:
            raise _Taken
        with contextlib.suppress(OSError):  # a file system that cannot lock folders (NFS): the file has to do
            _lock(fcntl.flock, self._folder)

    def _lock_file(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if self._only_looks else os.O_CREAT)
        descriptor = os.open(LOCK_FILE, flags, FILE_MODE, dir_fd=self._folder)
        try:
            _lock(fcntl.flock, descriptor)
            _lock(fcntl.lockf, descriptor)
            if not self._only_looks:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _owner(self) -> str:
        """As the file tells, which must not be the one that we hold."""
        with contextlib.suppress(OSError), open(self._path, "rb") as file:
            return printable(file.read(MAX_OWNER_BYTES).decode(errors="replace").strip()) or UNKNOWN_OWNER
        return UNKNOWN_OWNER

    def renew(self) -> bool:
        """Put the file back and lock it, if it was deleted or replaced; whether it was. Raises FolderInUse if somebody
        has locked the one in its place, and OSError if it cannot be made."""
        with contextlib.suppress(FileNotFoundError):
            if _inode(os.stat(LOCK_FILE, dir_fd=self._folder)) == _inode(os.fstat(self._file)):
                return False
        try:
            renewed = self._lock_file()
        except _Taken:
            raise FolderInUse(self._directory, self._owner()) from None
        os.close(self._file)
        self._file = renewed
        return True

    @property
    def was_moved(self) -> bool:
        """Whether the folder that is locked no longer has the name that it was locked by."""
        try:
            return _inode(os.stat(self._directory)) != self._inode
        except OSError:
            return True

    def release(self) -> None:
        """Once is enough; more do no harm."""
        _held.pop(self._inode, None)
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._file = self._folder = -1


def _lock(kind: Callable[[int, int], None], descriptor: int) -> None:
    try:
        kind(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in TAKEN:
            raise _Taken from None
        raise


def _inode(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino


def _make_folder(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except FileExistsError:
        raise OSError(f"{directory} is a file, not a folder") from None
    except OSError as error:
        raise OSError(f"cannot create the folder {directory}: {error.strerror}") from error
