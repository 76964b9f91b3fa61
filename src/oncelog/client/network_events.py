"""What a `Network` tells: to the core above what became of its requests, to the shell what it is to do."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, NamedTuple

from oncelog.records.model import Buffer
from oncelog.wire.api import ApiKey

# --- what happened to a request -----------------------------------------------------------------------------------


class LostKind(Enum):
    NEVER_SENT = auto()
    """No byte of it left: the broker certainly did not execute it."""
    UNSUPPORTED = auto()
    """Never sent either: the broker and this client have no version in common."""
    CONNECTION = auto()
    TIMEOUT = auto()
    RUBBISH = auto()
    """The broker answered something that makes no sense."""


class Answered(NamedTuple):
    tag: Any
    node_id: int
    api_key: ApiKey
    version: int
    body: Any
    sent_ms: int


class Lost(NamedTuple):
    tag: Any
    node_id: int
    reason: str
    kind: LostKind


Event = Answered | Lost


# --- what the shell is to do --------------------------------------------------------------------------------------


class Connect(NamedTuple):
    link: int
    host: str
    port: int


class Write(NamedTuple):
    link: int
    buffers: list[Buffer]


class Close(NamedTuple):
    link: int


Effect = Connect | Write | Close
