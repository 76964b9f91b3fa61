"""What a `Network` remembers of its nodes and connections. Holds it, and decides nothing."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from oncelog.client.connection import Connection
from oncelog.client.metadata import Node
from oncelog.client.network_events import Write


class State(Enum):
    CONNECTING = auto()
    AGREEING = auto()
    """Connected; the broker was asked which versions it speaks."""
    READY = auto()


class Request:
    """One that has no answer yet."""

    __slots__ = ("deadline_ms", "held_ms", "node_id", "sent_ms", "tag")

    def __init__(self, tag: Any, node_id: int, sent_ms: int, deadline_ms: int, held_ms: int) -> None:
        self.tag = tag
        self.node_id = node_id
        self.sent_ms = sent_ms
        self.deadline_ms = deadline_ms
        self.held_ms = held_ms  # for so long the broker may keep it on purpose


class Peer:
    """One node: where it is, and what we know from earlier connections."""

    __slots__ = ("failures", "link", "node", "retry_ms", "throttled_until_ms", "why_lost")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.link: Link | None = None
        self.failures = 0  # in a row, since a connection to it last lasted
        self.retry_ms = 0
        self.throttled_until_ms = 0
        self.why_lost: str | None = None


class Link:
    """One connection, from the attempt to its end."""

    __slots__ = (
        "connection", "deadline_ms", "has_unanswered", "heard_ms", "is_leaving", "is_paused", "is_silent", "load",
        "number", "peer", "ready_ms", "state", "untaken", "untaken_unanswered", "used_ms", "write",
    )  # fmt: skip

    def __init__(self, number: int, peer: Peer, connection: Connection, now_ms: int, deadline_ms: int) -> None:
        self.number = number
        self.peer = peer
        self.connection = connection
        self.state = State.CONNECTING
        self.load = 0  # requests in flight, and those that nobody answers while they are not taken
        self.used_ms = now_ms
        self.heard_ms = now_ms  # when the broker last said anything
        self.is_silent = False  # an answer is overdue, and that was told
        self.ready_ms = now_ms  # when the versions were agreed on
        self.deadline_ms = deadline_ms  # of connecting, of agreeing, then of a write that the broker does not take
        self.is_paused = False  # the broker does not take what was written
        self.is_leaving = False  # not a node's link any more: closes after its last answer
        self.has_unanswered = False  # what was written last includes requests that nobody will answer
        self.write: Write | None = None  # in the effects that were not taken yet, with this many requests:
        self.untaken = 0
        self.untaken_unanswered = 0

    @property
    def is_flushing(self) -> bool:
        """Requests that nobody will answer have not left: once they have, all that was promised for them is done."""
        return self.has_unanswered and (self.is_paused or self.write is not None)
