"""A coordinator without a broker: its records go through their bytes into a list, from which it can be loaded again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from oncelog.coordinator.classic.group import ClassicGroup
from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.effects import Caller, Effects, GroupSettings
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.records import decode_record, encode_record
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, decode_exactly, encode

GROUP = "billing"


class FakeTopics:
    """A view on topics that a test makes and unmakes."""

    def __init__(self, **partition_counts: int) -> None:
        self._topics: dict[str, tuple[UUID, int]] = {}
        self._ids = itertools.count(1)
        for name, count in partition_counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> UUID:
        topic_id = UUID(int=next(self._ids))
        self._topics[name] = (topic_id, count)
        return topic_id

    def grow(self, name: str, count: int) -> None:
        self._topics[name] = (self._topics[name][0], count)

    def delete(self, name: str) -> None:
        del self._topics[name]

    def partition_count(self, name: str) -> int | None:
        return self._topics[name][1] if name in self._topics else None

    def topic_id(self, name: str) -> UUID | None:
        return self._topics[name][0] if name in self._topics else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, (known, _) in self._topics.items() if known == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._topics)

    def places(self, names: Iterable[str]) -> set[tuple[UUID, int]]:
        """Every partition of those of the topics that exist."""
        found = (self._topics[name] for name in names if name in self._topics)
        return {(topic_id, partition) for topic_id, count in found for partition in range(count)}


class Coordinator:
    def __init__(self, topics: FakeTopics, settings: GroupSettings | None = None) -> None:
        self.topics = topics
        self.settings = settings or GroupSettings(group_initial_rebalance_delay_ms=0)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 1_000
        self._ids = itertools.count(1)
        self._tickets = itertools.count(1)
        self.replies: dict[object, Message] = {}
        self._start()
        self.core.loaded(self.now_ms)

    def _start(self) -> None:
        self.core = GroupCoordinator(self.settings, self.topics, self._new_id)

    def _new_id(self) -> str:
        return f"made-{next(self._ids)}"

    def load(self) -> None:
        """As after kill -9: only the log is left."""
        self._start()
        for key, value in self.log:
            self._replay(key, value)
        self.perform(self.core.loaded(self.now_ms))
        self.follow()

    def compact(self) -> None:
        """The last record of each key is kept, in its place; tombstones go as well."""
        last = {key: index for index, (key, _) in enumerate(self.log)}
        self.log = [
            (key, value) for index, (key, value) in enumerate(self.log) if last[key] == index and value is not None
        ]

    def perform(self, effects: Effects) -> None:
        for record in effects.records:
            key, value = encode_record(record)
            self.log.append((key, value))
            self._replay(key, value)
        for ticket, body in effects.replies:
            self.replies[ticket] = body

    def _replay(self, key: bytes, value: bytes | None) -> None:
        record = decode_record(key, value)
        assert record is not None
        self.core.replay(record, self.now_ms)

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        group = self.core._groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def classic_group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.core._groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def group_type(self) -> str:
        return self.core._groups[GROUP].group_type

    def pass_time(self, elapsed_ms: int) -> None:
        """The clock goes on, and whatever falls due on the way is done in its time."""
        end_ms = self.now_ms + elapsed_ms
        while (due_ms := self.core.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.tick()
        self.now_ms = end_ms

    def tick(self) -> None:
        self.perform(self.core.expire(self.now_ms))

    def topics_changed(self) -> None:
        self.perform(self.core.topics_changed(self.now_ms))
        self.follow()

    def follow(self) -> None:
        """Whatever is due at once is done."""
        while self.core.next_deadline_ms() == 0:
            self.tick()

    # Requests go through their bytes as well: what is answered fits the version that was asked.

    def ask(self, api: str, version: int, body: Message) -> Message:
        """The answer; fails if there is none yet."""
        ticket = self.send(api, version, body)
        answer = self.answer(ticket)
        assert answer is not None, f"{api} is not answered yet"
        return answer

    def send(self, api: str, version: int, body: Message) -> Any:
        request = decode_exactly(f"{api}Request", version, encode(f"{api}Request", version, body))
        ticket = (next(self._tickets), api, version)
        caller = Caller(ticket, "client", "/127.0.0.1", version)
        key = next(key for key in ApiKey if key.schema_prefix == api)
        self.perform(self.core.handle(key, request, caller, self.now_ms))
        return ticket

    def answer(self, ticket: Any) -> Message | None:
        body = self.replies.pop(ticket, None)
        if body is None:
            return None
        _, api, version = ticket
        return decode_exactly(f"{api}Response", version, encode(f"{api}Response", version, body))

    def hard_state(self) -> object:
        return self.core.hard_state()


@dataclass
class Kip848Client:
    """A member as a faithful client is: it gives up what it is told to, and says so with its next heartbeat."""

    coordinator: Coordinator
    member_id: str
    topics: list[str] = field(default_factory=lambda: ["orders"])
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    owned: set[tuple[UUID, int]] = field(default_factory=set)

    def request(self, **changes: Any) -> Message:
        body: Message = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
        }
        if self.epoch == 0:
            body |= self.everything()
        else:
            body["topic_partitions"] = self.owned_message()
        return body | changes

    def everything(self) -> Message:
        return {
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "subscribed_topic_names": self.topics,
            "subscribed_topic_regex": self.regex,
            "server_assignor": self.assignor,
            "topic_partitions": self.owned_message(),
        }

    def owned_message(self) -> list[Message]:
        by_topic: dict[UUID, list[int]] = {}
        for topic_id, partition in self.owned:
            by_topic.setdefault(topic_id, []).append(partition)
        return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in by_topic.items()]

    def beat(self, **changes: Any) -> Message:
        """One heartbeat. What is assigned is taken over at once; whoever is fenced gives up everything."""
        answer = self.coordinator.ask("ConsumerGroupHeartbeat", 1, self.request(**changes))
        if answer["error_code"]:
            if answer["error_code"] in (25, 110):
                self.epoch, self.owned = 0, set()
            return answer
        self.epoch = answer["member_epoch"]
        if answer["assignment"] is not None:
            self.owned = {
                (topic["topic_id"], partition)
                for topic in answer["assignment"]["topic_partitions"]
                for partition in topic["partitions"]
            }
        return answer

    def beat_in_silence(self) -> Message:
        """A heartbeat that says nothing of partitions: nothing is acknowledged."""
        return self.beat(topic_partitions=None) if self.epoch > 0 else self.beat()

    def leave(self, epoch: int = -1) -> Message:
        answer = self.coordinator.ask(
            "ConsumerGroupHeartbeat",
            1,
            {
                "group_id": GROUP,
                "member_id": self.member_id,
                "member_epoch": epoch,
                "instance_id": self.instance_id,
            },
        )
        self.epoch, self.owned = 0, set()
        return answer


def settle(*clients: Kip848Client, rounds: int = 12) -> None:
    """Everybody heartbeats until the group is stable."""
    for _ in range(rounds):
        for client in clients:
            client.beat()
        if clients[0].coordinator.group().state_name == "Stable":
            return
    raise AssertionError(f"the group is {clients[0].coordinator.group().state_name} after {rounds} rounds")
