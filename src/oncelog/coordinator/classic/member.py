"""A member of a classic group: what it asked for, what it was given, and whether it waits for an answer."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from oncelog.coordinator.effects import Caller
from oncelog.wire.codec import Message

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata of the assignors that a member can use, the one it likes best first."""


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """It has not been told of a generation yet. While its join waits it can expire, which no other can: nobody else
    would notice that it is gone."""
    joining: Caller | None = None
    """Whoever waits for the end of the join round."""
    syncing: Caller | None = None
    """Whoever waits for the leader's assignment."""

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def is_waiting(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def for_leader(self, protocol: str | None) -> Message:
        """Its part of the JoinGroup answer by which the leader learns whom to assign to."""
        metadata = self.metadata(protocol)
        return {"member_id": self.member_id, "group_instance_id": self.instance_id, "metadata": metadata}

    def described(self, protocol: str | None) -> Message:
        """Its part of DescribeGroups; without a protocol, no metadata."""
        return {
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "member_metadata": self.metadata(protocol),
            "member_assignment": self.assignment,
        }

    def record(self, protocol: str | None, assignment: bytes) -> Message:
        """Its part of a GroupMetadata record."""
        return {
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "rebalance_timeout": self.rebalance_timeout_ms,
            "session_timeout": self.session_timeout_ms,
            "subscription": self.metadata(protocol),
            "assignment": assignment,
        }


def member_from_record(value: Message, protocol: str | None) -> Member:
    rebalance_timeout_ms = value["rebalance_timeout"]
    return Member(
        member_id=value["member_id"],
        instance_id=value["group_instance_id"],
        client_id=value["client_id"],
        client_host=value["client_host"],
        # Records of the oldest version have one timeout for both.
        rebalance_timeout_ms=value["session_timeout"] if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms=value["session_timeout"],
        protocols=((protocol or "", bytes(value["subscription"])),),
        assignment=bytes(value["assignment"]),
    )


def protocols_of(join: Message) -> Protocols:
    """Each name once, whatever the request says: support is counted by name."""
    return tuple({protocol["name"]: bytes(protocol["metadata"]) for protocol in join["protocols"]}.items())


def size_of(protocols: Protocols) -> int:
    return sum(len(metadata) for _, metadata in protocols)
