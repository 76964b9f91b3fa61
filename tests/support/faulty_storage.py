"""A Storage in memory that can do everything a real disk does to a log: fail, tear a write, die, and forget.

It keeps two views. The page cache is what every reader sees and what survives the death of the process. The disk is
what was synced, and what survives the loss of power: of everything written since, any 512-byte sector may or may not
have made it, and of the names created, renamed or removed since the directory was synced, a prefix has.

Every operation is numbered. `fail_at` makes one of them (or all from it on) raise an OSError; `crash_at` ends the
process right after one, so that every later operation raises SimulatedCrash. If it is a `torn` write, half of its bytes
are written first. Then `after_kill()` or `after_power_loss(seed)` is the storage that the next process finds.
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field

from oncelog.log.storage import FileStatus, replace_file
from oncelog.records.batch import Buffer

SECTOR_BYTES = 512


class SimulatedCrash(BaseException):
    """The process is dead. Not an Exception: nothing may catch it and go on."""


@dataclass(slots=True)
class Inode:
    cached: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[tuple[int, bytes | None]] = field(
        default_factory=list
    )  # (position, data) or (size, None): truncated
    modified_ms: int = 0

    def write(self, position: int, data: bytes) -> None:
        if len(self.cached) < position:
            self.cached += bytes(position - len(self.cached))
        self.cached[position : position + len(data)] = data
        self.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        del self.cached[size:]
        self.cached += bytes(size - len(self.cached))
        self.unsynced.append((size, None))

    def sync(self) -> None:
        self.durable = bytes(self.cached)
        self.unsynced.clear()

    def after_power_loss(self, chance: random.Random) -> Inode:
        survived = Inode()
        survived.cached += self.durable
        for position, data in self.unsynced:
            if data is None:
                if chance.random() < 0.5:
                    survived.truncate(position)
                continue
            for start in range(0, len(data), SECTOR_BYTES):
                if chance.random() < 0.6:
                    survived.write(position + start, data[start : start + SECTOR_BYTES])
        survived.sync()
        return survived


@dataclass(frozen=True, slots=True)
class Fault:
    at: int
    error: int | None = None  # None: crash
    torn: bool = False
    sticky: bool = False


class FaultyStorage:
    def __init__(self) -> None:
        self.operations = 0
        self.log: list[str] = []
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._unsynced_names: list[tuple[str, str, Inode | None]] = []  # (directory, path, what it names now)
        self._directories: set[str] = set()
        self._fault: Fault | None = None
        self._dead = False

    # --- faults ---

    def fail_at(self, operation: int, error: int = errno.EIO, *, torn: bool = False, sticky: bool = False) -> None:
        self._fault = Fault(operation, error, torn, sticky)

    def crash_at(self, operation: int, *, torn: bool = False) -> None:
        self._fault = Fault(operation, None, torn)

    def heal(self) -> None:
        self._fault = None

    def after_kill(self) -> FaultyStorage:
        """What the next process finds if only this one died: everything. What it does to its files leaves ours as they
        are, so that one crash may have several survivors."""
        copies: dict[int, Inode] = {}

        def copy(inode: Inode) -> Inode:
            if id(inode) not in copies:
                copies[id(inode)] = Inode(
                    bytearray(inode.cached), inode.durable, list(inode.unsynced), inode.modified_ms
                )
            return copies[id(inode)]

        survivor = FaultyStorage()
        survivor._directories = set(self._directories)
        survivor._names = {path: copy(inode) for path, inode in self._names.items()}
        survivor._durable_names = {path: copy(inode) for path, inode in self._durable_names.items()}
        survivor._unsynced_names = [
            (directory, path, None if inode is None else copy(inode)) for directory, path, inode in self._unsynced_names
        ]
        return survivor

    def after_power_loss(self, seed: int) -> FaultyStorage:
        """What the next process finds if the machine went down."""
        chance = random.Random(seed)
        names = dict(self._durable_names)
        for _, path, inode in self._unsynced_names[: chance.randint(0, len(self._unsynced_names))]:
            if inode is None:
                names.pop(path, None)
            else:
                names[path] = inode
        survivor = FaultyStorage()
        survivor._directories = set(self._directories)
        inodes: dict[int, Inode] = {}
        for path, inode in names.items():
            survived = inodes.setdefault(id(inode), inode.after_power_loss(chance))
            survivor._names[path] = survivor._durable_names[path] = survived
        return survivor

    def copy(self) -> FaultyStorage:
        """Another disk with the same files, to be damaged on its own."""
        other = FaultyStorage()
        other._directories = set(self._directories)
        other._names = {path: Inode(bytearray(inode.cached)) for path, inode in self._names.items()}
        return other

    def _begin(self, what: str, path: str) -> Fault | None:
        """Count an operation and return the fault that strikes it, unless that is an error which it raises at once."""
        if self._dead:
            raise SimulatedCrash
        number, self.operations = self.operations, self.operations + 1
        self.log.append(f"{number} {what} {path.rpartition('/')[2]}")
        fault = self._fault
        if fault is None or not (number == fault.at or (fault.sticky and number > fault.at)):
            return None
        if fault.error is not None and not (fault.torn and what == "append"):
            raise OSError(fault.error, os.strerror(fault.error), path)
        return fault

    def _end(self, fault: Fault | None) -> None:
        if fault is not None:
            self._dead = True
            raise SimulatedCrash

    # --- the interface ---

    def open(self, path: str, create: bool = False) -> FaultyFile:
        fault = self._begin("open", path)
        inode = self._names.get(path)
        if inode is None:
            if not create:
                self._end(fault)
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = Inode()
            self._name(path, inode)
        self._end(fault)
        return FaultyFile(self, path, inode)

    def exists(self, path: str) -> bool:
        self._end(self._begin("exists", path))
        return path in self._names or path in self._directories

    def status(self, path: str) -> FileStatus:
        self._end(self._begin("status", path))
        inode = self._inode(path)
        return FileStatus(len(inode.cached), inode.modified_ms)

    def list_directory(self, path: str) -> list[str]:
        self._end(self._begin("list", path))
        names = [*self._names, *self._directories]
        return sorted(name.rpartition("/")[2] for name in names if name.rpartition("/")[0] == path)

    def make_directory(self, path: str) -> None:
        fault = self._begin("make_directory", path)
        self._directories.add(path)
        self._end(fault)

    def remove(self, path: str) -> None:
        fault = self._begin("remove", path)
        if path in self._names:
            self._name(path, None)
        self._end(fault)

    def remove_directory(self, path: str) -> None:
        fault = self._begin("remove_directory", path)
        for name in [name for name in self._names if name.startswith(path + "/")]:
            self._name(name, None)
        self._directories.discard(path)
        self._end(fault)

    def rename(self, source: str, target: str) -> None:
        fault = self._begin("rename", source)
        if source in self._directories:
            self._rename_directory(source, target)
        else:
            inode = self._inode(source)
            self._name(target, inode)
            self._name(source, None)
        self._end(fault)

    def _rename_directory(self, source: str, target: str) -> None:
        self._directories.remove(source)
        self._directories.add(target)
        for name in [name for name in self._names if name.startswith(source + "/")]:
            self._name(target + name.removeprefix(source), self._names[name])
            self._name(name, None)

    def sync_directory(self, path: str) -> None:
        fault = self._begin("sync_directory", path)
        for directory, name, inode in self._unsynced_names:
            if directory == path and inode is not None:
                self._durable_names[name] = inode
            elif directory == path:
                self._durable_names.pop(name, None)
        self._unsynced_names = [change for change in self._unsynced_names if change[0] != path]
        self._end(fault)

    def read_all(self, path: str) -> bytes:
        self._end(self._begin("read_all", path))
        return bytes(self._inode(path).cached)

    def write_atomically(self, path: str, data: Buffer) -> None:
        replace_file(self, path, data, durable=True)

    def free_bytes(self, path: str) -> int:
        return 2**40

    def total_bytes(self, path: str) -> int:
        return 2**41

    def _inode(self, path: str) -> Inode:
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def _name(self, path: str, inode: Inode | None) -> None:
        if inode is None:
            del self._names[path]
        else:
            self._names[path] = inode
        self._unsynced_names.append((path.rpartition("/")[0], path, inode))

    # --- for tests: damage done behind everyone's back ---

    def paths(self, suffix: str) -> list[str]:
        return sorted(path for path in self._names if path.endswith(suffix))

    def content(self, path: str) -> bytearray:
        """The bytes of a file, to be looked at or flipped."""
        return self._names[path].cached


class FaultyFile:
    def __init__(self, storage: FaultyStorage, path: str, inode: Inode) -> None:
        self._storage = storage
        self._inode = inode
        self.path = path
        self.size = len(inode.cached)

    def read(self, position: int, size: int) -> bytes:
        self._storage._end(self._storage._begin("read", self.path))
        return bytes(self._inode.cached[position : position + size])

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        data = self.read(position, len(buffer))
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def append(self, data: Buffer) -> None:
        fault = self._storage._begin("append", self.path)
        if fault is not None and fault.torn:
            self._inode.write(self.size, bytes(data[: len(data) // 2]))
            if fault.error is not None:
                raise OSError(fault.error, "torn write", self.path)
        else:
            self._inode.write(self.size, bytes(data))
            self.size += len(data)
        self._storage._end(fault)

    def truncate(self, size: int) -> None:
        fault = self._storage._begin("truncate", self.path)
        if size != len(self._inode.cached):
            self._inode.truncate(size)
        self.size = size
        self._storage._end(fault)

    def reserve(self, end: int) -> None:
        fault = self._storage._begin("reserve", self.path)
        self._inode.truncate(end)
        self._storage._end(fault)

    def clear(self, size: int, end: int) -> None:
        fault = self._storage._begin("clear", self.path)
        self._inode.truncate(size)
        self._inode.truncate(end)
        self.size = size
        self._storage._end(fault)

    def resume(self, size: int) -> None:
        self.size = size

    def sync(self) -> None:
        fault = self._storage._begin("sync", self.path)
        self._inode.sync()
        self._storage._end(fault)

    def fileno(self) -> None:
        """No file of the operating system."""

    def close(self) -> None:
        """Closing does nothing to the bytes."""

    def __repr__(self) -> str:
        return f"FaultyFile({self.path!r})"
