"""Members as real clients are: what they have is what they read, whatever the coordinator believes.

A `NewClient` speaks KIP-848, an `OldClient` the classic protocol, eager or cooperative. Each does one thing at a time,
and may be slow, or never see an answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from oncelog.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.wire.codec import Message, decode_exactly, encode
from tests.coordinator.consumer.support import GROUP, Coordinator

Place = tuple[UUID, int]
ISOLATED = (FencedMemberEpoch.code, UnknownMemberId.code, GroupIdNotFound.code)
"""What makes a member give up everything and begin anew."""


class NewClient:
    def __init__(
        self, coordinator: Coordinator, name: str, topics: Iterable[str], instance_id: str | None = None
    ) -> None:
        self.coordinator = coordinator
        self.name = name
        self.member_id = f"{name}-1"
        self._lives = 1
        self.topics = sorted(topics)
        self.instance_id = instance_id
        self.epoch = 0
        self.has: set[Place] = set()
        """What it reads."""
        self.assigned: set[Place] = set()
        """What it was last told to read."""
        self._told: object = None

    @property
    def is_in(self) -> bool:
        """It believes to be a member."""
        return self.epoch > 0

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = sorted(topics)
        self._told = None

    def revoke(self) -> None:
        """It has stopped to read what it no longer may, and starts with what is new."""
        self.has = set(self.assigned)

    def beat(self, *, is_silent: bool = False, is_lost: bool = False) -> Message:
        answer = self.coordinator.ask("ConsumerGroupHeartbeat", 1, self._request(is_silent))
        if is_lost:
            # Whoever hears nothing says everything again.
            self._told = None
            return answer
        code = answer["error_code"]
        if code in ISOLATED:
            self.epoch, self.has, self.assigned, self._told = 0, set(), set(), None
        elif not code:
            self.epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.assigned = {
                    (topic["topic_id"], partition)
                    for topic in answer["assignment"]["topic_partitions"]
                    for partition in topic["partitions"]
                }
                self.has |= self.assigned
        return answer

    def _request(self, is_silent: bool) -> Message:
        body: Message = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
        }
        everything = (self.topics, frozenset(self.has))
        if self.epoch == 0 or (self._told is None and not is_silent):
            body |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": self.topics}
        if not is_silent or self.epoch == 0:
            body["topic_partitions"] = as_message(self.has)
            self._told = everything
        return body

    def leave(self, *, for_a_while: bool = False) -> None:
        epoch = -2 if for_a_while and self.instance_id is not None else -1
        body = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": epoch, "instance_id": self.instance_id}
        self.coordinator.ask("ConsumerGroupHeartbeat", 1, body)
        self._reborn()

    def _reborn(self) -> None:
        self._lives += 1
        self.member_id = f"{self.name}-{self._lives}"
        self.epoch, self.has, self.assigned, self._told = 0, set(), set(), None

    def coordinator_crashed(self) -> None:
        """It goes on with its epoch as if nothing had happened."""

    def act(self) -> None:
        self.revoke()
        self.beat()
        self.revoke()


class OldClient:
    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        topics: Iterable[str],
        instance_id: str | None = None,
        *,
        is_cooperative: bool = False,
        rebalance_timeout_ms: int = 60_000,
    ) -> None:
        self.coordinator = coordinator
        self.name = name
        self.topics = sorted(topics)
        self.instance_id = instance_id
        self.is_cooperative = is_cooperative
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = ""
        self.generation = -1
        self.has: set[Place] = set()
        self.must_join = True
        self._joining: Any = None
        self._syncing: Any = None
        self._joined_with: list[str] = []
        self._led_with: object = None
        """The topics as they were when it assigned them; None for one that does not lead."""

    @property
    def is_in(self) -> bool:
        return self.generation > 0 and not self.must_join

    @property
    def waits(self) -> bool:
        return self._joining is not None or self._syncing is not None

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = sorted(topics)
        self.must_join = True

    def coordinator_crashed(self) -> None:
        """Its connection broke, and with it whatever it waited for."""
        if self.waits:
            self._joining = self._syncing = None
            self.must_join = True

    def revoke(self) -> None:
        """There is nothing that it only half gave up."""

    def leave(self, *, for_a_while: bool = False) -> None:
        if for_a_while and self.instance_id is not None:
            # A static member that stops says nothing, and comes back without a member id.
            self._isolated()
            return
        if self.member_id:
            member = {"member_id": self.member_id, "group_instance_id": self.instance_id, "reason": None}
            self.coordinator.ask("LeaveGroup", 5, {"group_id": GROUP, "members": [member]})
        self._isolated()

    def beat(self, *, is_silent: bool = False, is_lost: bool = False) -> None:
        """One step: a join, a sync, a heartbeat, or hearing what it waits for."""
        if self._led_with is not None and self._led_with != self._seen_topics():
            self.must_join = True
        if self.waits:
            self._hear()
        elif self.must_join:
            self._join()
        else:
            self._heartbeat()

    act = beat

    def _seen_topics(self) -> object:
        topics = self.coordinator.topics
        return {name: (topics.topic_id(name), topics.partition_count(name)) for name in topics.names()}

    def _heartbeat(self) -> None:
        body = {"group_id": GROUP, "generation_id": self.generation, **self._identity()}
        code = self.coordinator.ask("Heartbeat", 4, body)["error_code"]
        if code == RebalanceInProgress.code:
            self.must_join = True
        elif code:
            self._isolated(keeps_id=code == IllegalGeneration.code)

    def _isolated(self, *, keeps_id: bool = False) -> None:
        self.has, self.generation, self.must_join = set(), -1, True
        self._joining = self._syncing = self._led_with = None
        if not keeps_id:
            self.member_id = ""

    def _identity(self) -> Message:
        return {"member_id": self.member_id, "group_instance_id": self.instance_id}

    def _join(self) -> None:
        if not self.is_cooperative:
            self.has = set()
        metadata, self._joined_with = self._subscription(), self.topics
        names = ["cooperative-sticky", "range"] if self.is_cooperative else ["range", "cooperative-sticky"]
        body = {
            "group_id": GROUP,
            "session_timeout_ms": 45_000,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            **self._identity(),
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": metadata} for name in names],
        }
        self._joining = self.coordinator.send("JoinGroup", 9, body)
        self._hear()

    def _subscription(self) -> bytes:
        topics = self.coordinator.topics
        owned: dict[str, list[int]] = {}
        for topic_id, partition in self.has:
            name = topics.topic_name(topic_id)
            if name is not None:
                owned.setdefault(name, []).append(partition)
        message = {
            "topics": self.topics,
            "owned_partitions": [{"topic": name, "partitions": partitions} for name, partitions in owned.items()],
            "generation_id": self.generation,
        }
        return struct.pack(">h", 3) + encode("ConsumerProtocolSubscription", 3, message)

    def _hear(self) -> None:
        if self._joining is not None:
            answer = self.coordinator.answer(self._joining)
            if answer is not None:
                self._joining = None
                self._joined(answer)
        elif self._syncing is not None:
            answer = self.coordinator.answer(self._syncing)
            if answer is not None:
                self._syncing = None
                self._synced(answer)

    def _joined(self, answer: Message) -> None:
        code = answer["error_code"]
        if code == MemberIdRequired.code:
            self.member_id = answer["member_id"]
            self._join()
        elif code == RebalanceInProgress.code:
            self.must_join = True
        elif code:
            self._isolated(keeps_id=code == IllegalGeneration.code)
        else:
            self.member_id, self.generation, self.must_join = answer["member_id"], answer["generation_id"], False
            leads = answer["leader"] == self.member_id
            self._led_with = self._seen_topics() if leads else None
            assignments = assign(self.coordinator, answer["members"]) if leads else []
            body = {
                "group_id": GROUP,
                "generation_id": self.generation,
                **self._identity(),
                "protocol_type": answer["protocol_type"],
                "protocol_name": answer["protocol_name"],
                "assignments": assignments,
            }
            self._syncing = self.coordinator.send("SyncGroup", 5, body)
            self._hear()

    def _synced(self, answer: Message) -> None:
        code = answer["error_code"]
        if code == RebalanceInProgress.code:
            self.must_join = True
        elif code:
            self._isolated(keeps_id=code == IllegalGeneration.code)
        else:
            assigned = self._assignment(bytes(answer["assignment"]))
            # A cooperative member joins again at once when it had to give something up.
            self.must_join = (self.is_cooperative and not self.has <= assigned) or self.topics != self._joined_with
            self.has = assigned

    def _assignment(self, data: bytes) -> set[Place]:
        message = decode_exactly("ConsumerProtocolAssignment", 3, data, 2)
        topics = self.coordinator.topics
        return {
            (topic_id, partition)
            for topic in message["assigned_partitions"]
            if (topic_id := topics.topic_id(topic["topic"])) is not None
            for partition in topic["partitions"]
        }


def assign(coordinator: Coordinator, members: list[Message]) -> list[Message]:
    """What the leader of a classic group does: partitions in turn, but none that another member still has."""
    wants: dict[str, set[str]] = {}
    owner: dict[tuple[str, int], str] = {}
    for member in members:
        subscription = decode_exactly("ConsumerProtocolSubscription", 3, bytes(member["metadata"]), 2)
        wants[member["member_id"]] = set(subscription["topics"])
        for topic in subscription["owned_partitions"]:
            owner.update({(topic["topic"], partition): member["member_id"] for partition in topic["partitions"]})
    given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in wants}
    for name in sorted(set().union(*wants.values())):
        readers = sorted(member_id for member_id, topics in wants.items() if name in topics)
        for partition in range(coordinator.topics.partition_count(name) or 0):
            reader = readers[partition % len(readers)]
            if owner.get((name, partition), reader) == reader:
                given[reader].setdefault(name, []).append(partition)
    return [
        {"member_id": member_id, "assignment": _assignment_bytes(partitions)} for member_id, partitions in given.items()
    ]


def _assignment_bytes(partitions: dict[str, list[int]]) -> bytes:
    topics = [{"topic": name, "partitions": numbers} for name, numbers in partitions.items()]
    return struct.pack(">h", 3) + encode("ConsumerProtocolAssignment", 3, {"assigned_partitions": topics})


def as_message(places: Iterable[Place]) -> list[Message]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in places:
        by_topic.setdefault(topic_id, []).append(partition)
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in by_topic.items()]
