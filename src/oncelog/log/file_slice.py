"""A range of a segment's file that a reader was promised and has not read yet.

Owns nothing but the promise: the open file keeps the bytes alive even if the segment is removed meanwhile. Whoever
sends it may hand the descriptor to the operating system, so that an answer of many megabytes never lies in memory.
"""

from __future__ import annotations

from typing import Final

from oncelog.errors import KafkaStorageError
from oncelog.log.storage import File


class FileSlice:
    """Whole record batches, back to back, as they lie in the file. Every offset in it is below `offset_bound`.
    `verified_bytes` were read and verified to find it, which need not be done again."""

    __slots__ = ("file", "offset_bound", "position", "size_bytes", "verified_bytes")

    def __init__(
        self, file: File | None, position: int, size_bytes: int, offset_bound: int = 0, verified_bytes: int = 0
    ) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        self.offset_bound = offset_bound
        self.verified_bytes = verified_bytes

    @property
    def descriptor(self) -> int | None:
        """Of the open file, if the operating system knows it: whoever sends the slice may let the system copy it."""
        return self.file.fileno() if self.file is not None else None

    def read_all(self) -> bytes:
        return self._read(self.position, self.size_bytes) if self.size_bytes else b""

    def _read(self, position: int, size: int) -> bytes:
        assert self.file is not None, "an empty slice has nothing to read"
        try:
            data = self.file.read(position, size)
        except OSError as error:
            raise KafkaStorageError(f"cannot read {self.file!r}: {error}") from error
        if len(data) != size:
            raise KafkaStorageError(f"{self.file!r} ends {size - len(data)} bytes before what was promised")
        return data

    def __repr__(self) -> str:
        return f"FileSlice({self.file!r}, position={self.position}, size_bytes={self.size_bytes})"


EMPTY: Final = FileSlice(None, 0, 0)
