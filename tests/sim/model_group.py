"""A small cluster whose topics are read by a group: model logs, and the real coordinator's core on one of the nodes.

What the coordinator wrote survives its crash, and nothing else does. Connections behave as Kafka's: requests are worked
on one by one, and one that waits (a fetch for data, a JoinGroup for the others) holds up those behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from uuid import UUID

from oncelog.coordinator.effects import Caller, Effects, GroupSettings, Reply
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.records import CoordinatorRecord, RecordType
from oncelog.errors import NONE, NotCoordinator
from oncelog.types import TopicPartition
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import RequestHeader, decode_request_header, encode_response
from tests.client.membership.model_coordinator import GROUP_APIS, newest, refusal
from tests.sim.model_reading import FIRST_PORT, VERSIONS, ReadCluster, ReadLine

GROUP = "g"
SETTINGS = GroupSettings(
    group_initial_rebalance_delay_ms=100,
    group_min_session_timeout_ms=100,
    group_consumer_session_timeout_ms=3_000,
    group_consumer_min_session_timeout_ms=100,
    group_consumer_heartbeat_interval_ms=300,
    group_consumer_min_heartbeat_interval_ms=100,
)
COORDINATED = frozenset({ApiKey.FIND_COORDINATOR, *GROUP_APIS})
OnCommit = Callable[[TopicPartition, int], None]


@dataclass(eq=False)
class GroupLine(ReadLine):
    under_way: RequestHeader | None = None
    """A request that the coordinator has not answered yet."""

    def answer(self, body: Message) -> None:
        assert self.under_way is not None
        header, self.under_way = self.under_way, None
        name = f"{ApiKey(header.api_key).schema_prefix}Response"
        self.answers.append(encode_response(header, codec.encode(name, header.api_version, body)))


class Topics:
    """The cluster's topics, as its coordinator sees them."""

    def __init__(self, cluster: ReadCluster) -> None:
        self._cluster = cluster

    def partition_count(self, name: str) -> int | None:
        return sum(partition.topic == name for partition in self._cluster.logs) or None

    def topic_id(self, name: str) -> UUID | None:
        return self._cluster.topic_ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, one in self._cluster.topic_ids.items() if one == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self._cluster.topic_ids)


class GroupCluster(ReadCluster):
    def __init__(self, topic: str, partitions: int, on_commit: OnCommit) -> None:
        versions = {**VERSIONS, **{api: newest(api) for api in COORDINATED}}
        super().__init__({topic: partitions}, node_count=2, versions=versions)
        self.coordinator_node = 0
        self.lines: list[GroupLine] = []
        self._on_commit = on_commit
        self._log: list[CoordinatorRecord] = []
        self._numbers = count(1)
        self._losses: dict[ApiKey, int] = {}
        self._core = self._new_core()

    def _new_core(self) -> GroupCoordinator:
        return GroupCoordinator(SETTINGS, Topics(self), lambda: f"id-{next(self._numbers)}")

    # --- what happens to it -----------------------------------------------------------------------------------------

    def connect(self, node_id: int) -> GroupLine:
        line = GroupLine(self, node_id)
        self.lines.append(line)
        return line

    def hang_up(self, line: GroupLine) -> None:
        if line.is_open:
            line.end()
            self.lines.remove(line)
            self._core.forget(line)

    def lose_answers(self, api_key: ApiKey, number: int) -> None:
        """The next requests of this kind are worked on, and their connection breaks before the answer has left."""
        self._losses[api_key] = number

    def heal(self) -> None:
        self._losses.clear()
        self.forgive()

    def crash(self, now_ms: int) -> None:
        """The coordinator's process is killed and starts again."""
        for line in [one for one in self.lines if one.node_id == self.coordinator_node]:
            line.end()
            self.lines.remove(line)
        self._load(now_ms)

    def move(self, now_ms: int) -> None:
        """The other node becomes coordinator."""
        replies = self._core.unload()
        self.coordinator_node = 1 - self.coordinator_node
        self._load(now_ms)
        self._reply(replies)

    def _load(self, now_ms: int) -> None:
        before = self._core.hard_state()
        self._core = self._new_core()
        for record in self._log:
            self._core.replay(record, now_ms)
        assert self._core.hard_state() == before, "the log says something else than the coordinator did"
        self._perform(self._core.loaded(now_ms), now_ms)

    def tick(self, now_ms: int) -> None:
        while (deadline_ms := self._core.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            self._perform(self._core.expire(now_ms), now_ms)

    def next_deadline_ms(self) -> int | None:
        return self._core.next_deadline_ms()

    def members(self) -> set[str]:
        """The ids of all members of the group, of either protocol."""
        questions = {
            ApiKey.DESCRIBE_GROUPS: {"groups": [GROUP]},
            ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": [GROUP]},
        }
        return {
            member["member_id"]
            for api_key, body in questions.items()
            for reply in self._core.handle(api_key, body, Caller(None, "test", "test", 5), 0).replies
            for group in reply.body["groups"]
            for member in group.get("members", ())
        }

    # --- requests ---------------------------------------------------------------------------------------------------

    def serve(self, line: GroupLine, now_ms: int, max_wait_ms: int) -> None:
        while line.is_open and line.requests and line.under_way is None:
            if ApiKey(int.from_bytes(line.requests[0][:2], "big")) in COORDINATED:
                self._coordinate(line, line.requests.popleft(), now_ms)
            elif not line.serve(now_ms, max_wait_ms):
                return

    def _coordinate(self, line: GroupLine, frame: bytes, now_ms: int) -> None:
        header, position = decode_request_header(memoryview(frame))
        api_key = ApiKey(header.api_key)
        body = codec.decode_exactly(f"{api_key.schema_prefix}Request", header.api_version, frame, position)
        line.under_way = header
        if api_key is ApiKey.FIND_COORDINATOR:
            line.answer(self._found(header.api_version))
        elif line.node_id != self.coordinator_node:
            line.answer(refusal(api_key, header.api_version, body, NotCoordinator.code))
        else:
            caller = Caller(line, header.client_id or "", "somewhere", header.api_version)
            self._perform(self._core.handle(api_key, body, caller, now_ms), now_ms)
        if self._losses.get(api_key, 0) > 0:
            self._losses[api_key] -= 1
            self.hang_up(line)

    def _found(self, version: int) -> Message:
        node = self.coordinator_node
        where = {"node_id": node, "host": f"node{node}", "port": FIRST_PORT + node, "error_code": NONE}
        return where if version < 4 else {"coordinators": [{"key": GROUP, **where}]}

    def _perform(self, effects: Effects, now_ms: int) -> None:
        for record in effects.records:
            self._log.append(record)
            self._core.replay(record, now_ms)
            if record.type is RecordType.OFFSET_COMMIT and record.value is not None:
                self._on_commit(TopicPartition(record.key["topic"], record.key["partition"]), record.value["offset"])
        self._reply(effects.replies)

    def _reply(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            if isinstance(reply.ticket, GroupLine) and reply.ticket.is_open:
                reply.ticket.answer(reply.body)
