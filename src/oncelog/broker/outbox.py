"""What one client is still to be sent: bytes, and records that go from their file to the socket without passing here.

A shell around one non-blocking socket. It keeps the order, sends what the socket takes, and asks to be called when the
socket takes more. Records stay in their files until then (`sendfile`), so a client that does not read costs a
descriptor and a few bytes.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterator

from oncelog.broker.descriptors import duplicate_for_client
from oncelog.broker.request import Chunk, Chunks
from oncelog.errors import KafkaStorageError

SENDFILE_BYTES = 1 << 20
"""One call's worth: a fast reader must not keep the loop from the other clients."""

COPIED_BYTES = 16 * 1024
"""Records up to this size are read and sent together with what surrounds them: one call instead of three."""

MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)


class FileRange:
    """What is left of records that leave by `sendfile`."""

    __slots__ = ("descriptor", "position", "size_bytes")

    def __init__(self, descriptor: int, position: int, size_bytes: int) -> None:
        self.descriptor = descriptor
        self.position = position
        self.size_bytes = size_bytes


Piece = memoryview | tuple[Chunk, FileRange]


class Outbox:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._duplicate: socket.socket | None = None
        self._pieces: deque[Piece] = deque()
        self.held_bytes = 0
        """Memory of the answers that are not sent yet: all of one of which a byte is left."""

    @property
    def client(self) -> socket.socket:
        """The socket under a descriptor of its own, which the loop can watch beside its transport. Most connections
        never need one: it is made when an answer is large or the client slow. Raises OSError where clients may have no
        more descriptors."""
        if self._duplicate is None:
            self._duplicate = socket.socket(fileno=duplicate_for_client(self._descriptor))
        return self._duplicate

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, chunks: Chunks) -> None:
        """Raises KafkaStorageError if records cannot be read; then nothing of this answer is added."""
        if len(chunks) == 1 and isinstance(chunks[0], bytes):
            self._hold(memoryview(chunks[0]))
        else:
            for piece in list(_pieces(chunks)):
                self._hold(piece)

    def post(self, chunks: Chunks) -> bool:
        """Add an answer and send what the socket takes now; see `add` and `send`."""
        if self._pieces or len(chunks) != 1 or not isinstance(chunks[0], bytes):
            self.add(chunks)
            return self.send()
        answer = chunks[0]
        try:
            sent = os.write(self._descriptor, answer)
        except BlockingIOError:
            sent = 0
        if sent < len(answer):
            self._hold(memoryview(answer)[sent:])
        return sent == len(answer)

    def send(self) -> bool:
        """Send what the socket takes now; whether that was everything. Raises OSError, or KafkaStorageError if a file
        is shorter than was promised: then the connection cannot go on."""
        for _ in range(len(self._pieces)):
            piece = self._pieces[0]
            done = self._send_bytes(piece) if isinstance(piece, memoryview) else self._send_file(piece[1])
            if not done:
                return False
            self._pieces.popleft()
            self.held_bytes -= _memory_bytes(piece)
        return True

    def _hold(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self.held_bytes += _memory_bytes(piece)

    def close(self) -> None:
        self._pieces.clear()
        self.held_bytes = 0
        if self._duplicate is not None:
            self._duplicate.close()

    def _send_bytes(self, piece: memoryview) -> bool:
        try:
            sent = os.write(self._descriptor, piece) if len(self._pieces) == 1 else self._send_with_more(piece)
        except BlockingIOError:
            return False
        if sent < len(piece):
            self._pieces[0] = piece[sent:]
            return False
        return True

    def _send_with_more(self, piece: memoryview) -> int:
        try:
            client = self.client
        except OSError:  # the hint is not worth a descriptor that others need
            return os.write(self._descriptor, piece)
        return client.send(piece, MORE_FOLLOWS)

    def _send_file(self, range_: FileRange) -> bool:
        try:
            sent = os.sendfile(
                self._descriptor, range_.descriptor, range_.position, min(range_.size_bytes, SENDFILE_BYTES)
            )
        except BlockingIOError:
            return False
        if sent == 0:
            raise KafkaStorageError(f"a segment ends {range_.size_bytes} bytes before what was promised")
        range_.position += sent
        range_.size_bytes -= sent
        return range_.size_bytes == 0


def _memory_bytes(piece: Piece) -> int:
    """What a piece keeps in memory: the whole of which it is the rest."""
    return len(piece.obj) if isinstance(piece, memoryview) else 0  # type: ignore[arg-type]


def _pieces(chunks: Chunks) -> Iterator[Piece]:
    """Neighbouring bytes, and records too few to be worth a call of their own, as one; large ranges by themselves."""
    joined: list[bytes] = []
    for chunk in chunks:
        if isinstance(chunk, bytes):
            joined.append(chunk)
            continue
        descriptor = chunk.descriptor
        if descriptor is None or chunk.size_bytes <= COPIED_BYTES:
            joined.append(chunk.read_all())
            continue
        if joined:
            yield memoryview(b"".join(joined))
            joined = []
        # The chunk goes along: it keeps its file open.
        yield chunk, FileRange(descriptor, chunk.position, chunk.size_bytes)
    if joined:
        yield memoryview(b"".join(joined))
