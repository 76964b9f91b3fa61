"""A storage on top of another that is only read: what is written stays in memory, and is gone with it.

Lets whoever must not change a folder see what opening it would do. Files are never copied: a changed one is the first
bytes of the original and what was appended to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncelog.log.storage import File, FileStatus, Storage, directory_of, replace_file
from oncelog.records.batch import Buffer


@dataclass(slots=True)
class _Changed:
    """The first `kept` bytes of `base`, then `tail`."""

    base: File | None
    kept: int
    tail: bytearray
    modified_ms: int = 0


class OverlayFile:
    def __init__(self, changed: _Changed) -> None:
        self._changed = changed
        self.size = changed.kept + len(changed.tail)

    def read(self, position: int, size: int) -> bytes:
        changed = self._changed
        end = min(position + size, self.size)
        below = b""
        if position < changed.kept and changed.base is not None:
            below = changed.base.read(position, min(end, changed.kept) - position)
        start = max(position - changed.kept, 0)
        return below + bytes(changed.tail[start : max(end - changed.kept, start)])

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        data = self.read(position, len(buffer))
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def append(self, data: Buffer) -> None:
        self._changed.tail += data
        self.size += len(data)

    def truncate(self, size: int) -> None:
        changed = self._changed
        changed.kept = min(changed.kept, size)
        del changed.tail[max(size - changed.kept, 0) :]
        self.size = size

    def reserve(self, end: int) -> None:
        """Memory needs no zeros to write over."""

    def clear(self, size: int, end: int) -> None:
        self.truncate(size)

    def resume(self, size: int) -> None:
        self.truncate(size)

    def sync(self) -> None:
        """Nothing survives."""

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        """The bytes stay."""


class OverlayStorage:
    def __init__(self, base: Storage) -> None:
        self._base = base
        self._changed: dict[str, _Changed | None] = {}  # None: removed

    def open(self, path: str, create: bool = False) -> OverlayFile:
        if path not in self._changed:
            if self._base.exists(path):
                file = self._base.open(path)
                self._changed[path] = _Changed(file, file.size, bytearray(), self._base.status(path).modified_ms)
            elif create:
                self._changed[path] = _Changed(None, 0, bytearray())
        changed = self._changed.get(path)
        if changed is None:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            changed = self._changed[path] = _Changed(None, 0, bytearray())
        return OverlayFile(changed)

    def exists(self, path: str) -> bool:
        return self._changed[path] is not None if path in self._changed else self._base.exists(path)

    def status(self, path: str) -> FileStatus:
        if path not in self._changed:
            return self._base.status(path)
        changed = self._changed[path]
        if changed is None:
            raise FileNotFoundError(2, "no such file", path)
        return FileStatus(changed.kept + len(changed.tail), changed.modified_ms)

    def list_directory(self, path: str) -> list[str]:
        names = set(self._base.list_directory(path)) if self._base.exists(path) else set()
        here = {
            each.rpartition("/")[2]: changed for each, changed in self._changed.items() if directory_of(each) == path
        }
        return sorted({name for name in names if here.get(name, True) is not None} | {n for n, c in here.items() if c})

    def make_directory(self, path: str) -> None:
        """Directories are not needed to hold files in memory."""

    def remove(self, path: str) -> None:
        self._changed[path] = None

    def remove_directory(self, path: str) -> None:
        for name in self.list_directory(path):
            self.remove(f"{path}/{name}")

    def rename(self, source: str, target: str) -> None:
        self.open(source)
        self._changed[target] = self._changed[source]
        self._changed[source] = None

    def sync_directory(self, path: str) -> None:
        """Nothing survives."""

    def read_all(self, path: str) -> bytes:
        if path not in self._changed:
            return self._base.read_all(path)
        file = self.open(path)
        return file.read(0, file.size)

    def write_atomically(self, path: str, data: Buffer) -> None:
        replace_file(self, path, data, durable=True)

    def free_bytes(self, path: str) -> int:
        return self._base.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._base.total_bytes(path)
