"""What every shell of the client does with sockets: find addresses, open, and say in words what went wrong."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, NamedTuple

from oncelog.records.model import Buffer

SYSTEM_DEFAULT = -1
MAX_PORT = 2**16 - 1

MAX_GATHERED = 1024
"""How many buffers Linux takes in one write (IOV_MAX)."""

CAN_GATHER = hasattr(socket.socket, "sendmsg")
"""Whether a socket takes several buffers in one write: not on Windows."""

ADDRESS_PATIENCE_MS = 1_000
"""How long an address of a host may keep silent while the host has others to try."""


class Address(NamedTuple):
    family: int
    kind: int
    protocol: int
    canonical_name: str
    place: Any


class SocketOptions(NamedTuple):
    send_buffer_bytes: int = SYSTEM_DEFAULT
    receive_buffer_bytes: int = SYSTEM_DEFAULT


SYSTEM_DEFAULTS = SocketOptions()


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


CLOSED_BY_BROKER = "the broker closed the connection"


def look_up(host: str, port: int, flags: int = 0) -> list[Address]:
    """Every address of the host, without repetition. May take long; raises OSError, or ValueError where no host has
    such a name or port."""
    if not 0 < port <= MAX_PORT:
        raise ValueError(f"there is no port {port}")
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [Address(*one) for one in dict.fromkeys(found)]


def numeric(host: str, port: int) -> list[Address] | None:
    """The address, if the host is written as one: this asks nobody."""
    try:
        return look_up(host, port, socket.AI_NUMERICHOST)
    except (OSError, ValueError):
        return None


def open_socket(address: Address, options: SocketOptions) -> socket.socket:
    """A socket that does not block, not yet connected. Raises OSError."""
    opened = socket.socket(address.family, address.kind, address.protocol)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.send_buffer_bytes != SYSTEM_DEFAULT:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
        if options.receive_buffer_bytes != SYSTEM_DEFAULT:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
    except BaseException:
        opened.close()
        raise
    return opened


def reason_of(error: BaseException) -> str:
    if isinstance(error, socket.gaierror | ValueError):
        return f"unknown host ({error.strerror if isinstance(error, OSError) else error})"
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)  # the system's words; asyncio has its own
    return str(error) or type(error).__name__


def unsent(buffers: list[Buffer], sent_bytes: int) -> list[Buffer]:
    """What is left of the buffers after so many bytes."""
    for place, buffer in enumerate(buffers):
        if sent_bytes < len(buffer):
            return [memoryview(buffer)[sent_bytes:], *buffers[place + 1 :]]
        sent_bytes -= len(buffer)
    return []
