"""A group coordinator with its log: appends, replays and answers in the order that the runtime keeps, and can crash."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from oncelog.coordinator.effects import Caller, Effects, GroupSettings
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.groups import MemberRoom
from oncelog.coordinator.records import decode_record, encode_record
from oncelog.types import NO_PRODUCER_ID
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, decode_exactly, encode
from oncelog.wire.schema import ZERO_UUID

START_MS = 1_700_000_000_000
NEWEST = {
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
}
SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=0)


class Topics:
    def __init__(self, **partitions: int) -> None:
        self.partitions = dict(partitions)
        self.ids = {name: UUID(int=index + 1) for index, name in enumerate(partitions)}

    def partition_count(self, name: str) -> int | None:
        return self.partitions.get(name)

    def topic_id(self, name: str) -> UUID | None:
        return self.ids.get(name) if name in self.partitions else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name in self.partitions if self.ids[name] == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.partitions)


class Ticket:
    """A request over the wire: what it asked goes through the codec, and so does its answer."""

    def __init__(self, api_key: ApiKey, version: int) -> None:
        self.api_key = api_key
        self.version = version
        self.answer: Message | None = None

    def reply(self, body: Message) -> None:
        assert self.answer is None, "a ticket is answered once"
        schema = f"{self.api_key.schema_prefix}Response"
        self.answer = decode_exactly(schema, self.version, encode(schema, self.version, body))


class Logged(NamedTuple):
    key: bytes
    value: bytes | None
    timestamp_ms: int
    producer_id: int = NO_PRODUCER_ID
    """Of whose transaction it is."""


class Marker(NamedTuple):
    producer_id: int
    is_commit: bool


class Rig:
    """One partition of `__consumer_offsets`."""

    def __init__(self, settings: GroupSettings = SETTINGS, topics: Topics | None = None) -> None:
        self.settings = settings
        self.topics = topics or Topics(orders=4, bills=2)
        self.now_ms = START_MS
        self.log: list[Logged | Marker] = []
        self.tickets: list[Ticket] = []
        self.append_fails = False
        self._ids = itertools.count(1)
        self.coordinator = self._new_coordinator()
        self.apply(self.coordinator.loaded(self.now_ms))

    def _new_coordinator(self) -> GroupCoordinator:
        self.room = MemberRoom()
        return GroupCoordinator(self.settings, self.topics, lambda: f"id{next(self._ids)}", self.room)

    def send(self, api_key: ApiKey, body: Message, version: int | None = None, client_id: str = "client") -> Ticket:
        version = NEWEST[api_key] if version is None else version
        ticket = Ticket(api_key, version)
        self.tickets.append(ticket)
        schema = f"{api_key.schema_prefix}Request"
        request = decode_exactly(schema, version, encode(schema, version, body))
        caller = Caller(ticket, client_id, "/127.0.0.1", version)
        producer_id = request["producer_id"] if api_key is ApiKey.TXN_OFFSET_COMMIT else NO_PRODUCER_ID
        self.apply(self.coordinator.handle(api_key, request, caller, self.now_ms), producer_id)
        return ticket

    def ask(self, api_key: ApiKey, body: Message, version: int | None = None) -> Message:
        """For requests that are answered at once."""
        answer = self.send(api_key, body, version).answer
        assert answer is not None, "nobody has answered"
        return answer

    def apply(self, effects: Effects, producer_id: int = NO_PRODUCER_ID) -> None:
        if effects.records and self.append_fails:
            return
        for record in effects.records:
            self.log.append(Logged(*encode_record(record), self.now_ms, producer_id))
            self.coordinator.replay(record, self.now_ms, len(self.log) - 1, producer_id)
        for reply in effects.replies:
            assert isinstance(reply.ticket, Ticket)
            reply.ticket.reply(reply.body)

    def pass_time(self, ms: int) -> None:
        """Time goes on, and every deadline on its way is kept."""
        end_ms = self.now_ms + ms
        for _ in range(10_000):
            due_ms = self.coordinator.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.apply(self.coordinator.expire(self.now_ms))
        else:
            raise AssertionError("the coordinator never comes to rest")
        self.now_ms = end_ms

    def crash(self) -> None:
        """kill -9, and a start from the log."""
        self.coordinator = self._new_coordinator()
        self._replay_into(self.coordinator)
        self.tickets.clear()
        self.apply(self.coordinator.loaded(self.now_ms))

    def replayed(self) -> GroupCoordinator:
        """Another coordinator that knows the log alone."""
        other = self._new_coordinator()
        self._replay_into(other)
        return other

    def _replay_into(self, coordinator: GroupCoordinator) -> None:
        for log_offset, entry in enumerate(self.log):
            if isinstance(entry, Marker):
                coordinator.transaction_ended(*entry)
                continue
            record = decode_record(entry.key, entry.value)
            assert record is not None
            coordinator.replay(record, entry.timestamp_ms, log_offset, entry.producer_id)

    @property
    def records(self) -> list[Logged]:
        return [entry for entry in self.log if isinstance(entry, Logged)]

    # Requests with what matters in them

    def join(self, group_id: str = "g", member_id: str = "", version: int | None = None, **fields: Any) -> Ticket:
        body = {"group_id": group_id, "member_id": member_id, "session_timeout_ms": 10_000}
        body |= {"rebalance_timeout_ms": 60_000, "protocol_type": "consumer", "protocols": protocols("range")}
        return self.send(ApiKey.JOIN_GROUP, body | fields, version)

    def new_member(self, group_id: str = "g", **fields: Any) -> tuple[str, Ticket]:
        """A dynamic member as clients join today: first an id, then with it."""
        first = self.join(group_id, **fields).answer
        assert first is not None
        assert first["error_code"] == 79
        return first["member_id"], self.join(group_id, first["member_id"], **fields)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        version: int | None = None,
        **fields: Any,
    ) -> Ticket:
        parts = [{"member_id": each, "assignment": data} for each, data in (assignments or {}).items()]
        body = {"group_id": "g", "generation_id": generation, "member_id": member_id, "assignments": parts}
        body |= {"protocol_type": "consumer", "protocol_name": "range"}
        return self.send(ApiKey.SYNC_GROUP, body | fields, version)

    def heartbeat(self, member_id: str, generation: int, **fields: Any) -> int:
        body = {"group_id": "g", "generation_id": generation, "member_id": member_id}
        code: int = self.ask(ApiKey.HEARTBEAT, body | fields)["error_code"]
        return code

    def leave(self, *members: str, instances: Iterable[str] = (), group_id: str = "g") -> list[int]:
        parts: list[Message] = [{"member_id": member_id} for member_id in members]
        parts += [{"member_id": "", "group_instance_id": instance_id} for instance_id in instances]
        answer = self.ask(ApiKey.LEAVE_GROUP, {"group_id": group_id, "members": parts})
        return [part["error_code"] for part in answer["members"]]

    def commit(
        self, offset: int = 1, member_id: str = "", generation: int = -1, version: int | None = None, **fields: Any
    ) -> int:
        topic, partition = fields.pop("topic", "orders"), fields.pop("partition", 0)
        part = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_metadata": fields.pop("metadata", ""),
        }
        body = {"group_id": "g", "generation_id_or_member_epoch": generation, "member_id": member_id}
        topic_id = self.topics.ids.get(topic, ZERO_UUID)
        body["topics"] = [{"name": topic, "topic_id": topic_id, "partitions": [part]}]
        answer = self.ask(ApiKey.OFFSET_COMMIT, body | fields, version)
        code: int = answer["topics"][0]["partitions"][0]["error_code"]
        return code

    def commit_in_transaction(
        self, producer_id: int, offset: int = 1, member_id: str = "", generation: int = -1, **fields: Any
    ) -> int:
        version = fields.pop("version", None)
        topic, partition = fields.pop("topic", "orders"), fields.pop("partition", 0)
        part = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_metadata": fields.pop("metadata", ""),
        }
        body = {"transactional_id": f"t{producer_id}", "producer_id": producer_id, "producer_epoch": 0, "group_id": "g"}
        body |= {"generation_id": generation, "member_id": member_id, "topics": [{"name": topic, "partitions": [part]}]}
        answer = self.ask(ApiKey.TXN_OFFSET_COMMIT, body | fields, version)
        code: int = answer["topics"][0]["partitions"][0]["error_code"]
        return code

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """A marker comes into the log."""
        self.log.append(Marker(producer_id, is_commit))
        self.coordinator.transaction_ended(producer_id, is_commit)

    def committed(self, group_id: str = "g", topic: str = "orders", partition: int = 0) -> int:
        group = {"group_id": group_id, "topics": [{"name": topic, "partition_indexes": [partition]}]}
        answer = self.ask(ApiKey.OFFSET_FETCH, {"groups": [group]})
        offset: int = answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"]
        return offset

    def described(self, group_id: str = "g", version: int | None = None) -> Message:
        groups: list[Message] = self.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [group_id]}, version)["groups"]
        return groups[0]

    def state(self, group_id: str = "g") -> str:
        name: str = self.described(group_id)["group_state"]
        return name

    def stable_group(self, size: int = 1, **fields: Any) -> list[str]:
        """A group of this many members in its first generation, each with an assignment; the first one leads."""
        joins = [self.new_member(**fields) for _ in range(size)]
        self.pass_time(self.settings.group_initial_rebalance_delay_ms)
        members = [member_id for member_id, _ in joins]
        generation = joined(joins[0][1])["generation_id"]
        for member_id in members[1:]:
            self.sync(member_id, generation)
        self.sync(members[0], generation, {member_id: member_id.encode() for member_id in members})
        assert self.state() == "Stable"
        return members


def protocols(*names: str, topics: Iterable[str] = ("orders",)) -> list[Message]:
    return [{"name": name, "metadata": subscription(*topics)} for name in names]


def subscription(*topics: str) -> bytes:
    return b"\x00\x00" + encode("ConsumerProtocolSubscription", 0, {"topics": list(topics)})


def joined(ticket: Ticket) -> Message:
    assert ticket.answer is not None, "the join still waits"
    assert ticket.answer["error_code"] == 0, ticket.answer
    return ticket.answer


def error_of(ticket: Ticket) -> int:
    assert ticket.answer is not None, "nobody has answered"
    code: int = ticket.answer["error_code"]
    return code
