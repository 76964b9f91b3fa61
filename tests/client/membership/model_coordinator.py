"""Two brokers for members of a group: the real coordinator core on one of them, the rest played, in a world of events.

A connection behaves as Kafka's: its requests are worked on one by one, and while one waits (a JoinGroup for the other
members) those behind it wait as well. What the coordinator wrote survives its crash, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from uuid import UUID

from oncelog.coordinator.effects import Caller, Effects, GroupSettings
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.records import CoordinatorRecord, RecordType
from oncelog.errors import NONE, NotCoordinator
from oncelog.types import TopicPartition
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import FrameAssembler, RequestHeader, decode_request_header, encode_response
from oncelog.wire.schema import load_schema
from tests.client.fake_broker import api_versions_answer

GROUP = "g"
FIRST_PORT = 9000
NODES = (1, 2)
GROUP_APIS = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
)
APIS = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, *GROUP_APIS)
SETTINGS = GroupSettings(
    group_initial_rebalance_delay_ms=200,
    group_min_session_timeout_ms=100,
    group_consumer_session_timeout_ms=3_000,
    group_consumer_min_session_timeout_ms=100,
    group_consumer_heartbeat_interval_ms=300,
    group_consumer_min_heartbeat_interval_ms=100,
)


def newest(api_key: ApiKey) -> tuple[int, int]:
    valid = load_schema(f"{api_key.schema_prefix}Request").valid
    return valid.lowest, valid.highest


class Topics:
    """The cluster's topics, as brokers and coordinator see them."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = dict(counts)
        self._numbers = count(1)
        self._ids = {name: UUID(int=next(self._numbers)) for name in counts}

    def create(self, name: str, partitions: int) -> None:
        self.counts[name] = partitions
        self._ids[name] = UUID(int=next(self._numbers))

    def delete(self, name: str) -> None:
        del self.counts[name]
        del self._ids[name]

    def partitions(self, names: Iterable[str]) -> frozenset[TopicPartition]:
        return frozenset(
            TopicPartition(name, index) for name in names if name in self.counts for index in range(self.counts[name])
        )

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def topic_id(self, name: str) -> UUID | None:
        return self._ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, one in self._ids.items() if one == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.counts)


class Line:
    """One connection, at the broker."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.is_open = True
        self.waiting: list[tuple[RequestHeader, Message]] = []
        self.under_way: RequestHeader | None = None
        self.answers: list[bytes] = []
        self._frames = FrameAssembler(1 << 24)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            buffer = self._frames.get_buffer()
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            rest = rest[size:]
            for frame in self._frames.received(size):
                header, position = decode_request_header(frame)
                name = f"{ApiKey(header.api_key).schema_prefix}Request"
                body = codec.decode_exactly(name, header.api_version, bytes(frame), position)
                self.waiting.append((header, body))

    def answer(self, body: Message) -> None:
        assert self.under_way is not None
        header, self.under_way = self.under_way, None
        name = f"{ApiKey(header.api_key).schema_prefix}Response"
        self.answers.append(encode_response(header, codec.encode(name, header.api_version, body)))


class ModelCoordinator:
    def __init__(
        self,
        topics: dict[str, int],
        *,
        versions: dict[ApiKey, tuple[int, int]] | None = None,
        settings: GroupSettings = SETTINGS,
    ) -> None:
        self.topics = Topics(topics)
        self.coordinator_id = 1
        self.lines: list[Line] = []
        self.commits: list[tuple[TopicPartition, int]] = []
        """Every offset that was written, in order."""
        self.asked: list[tuple[ApiKey, int, Message]] = []
        """Every request: its API, its version, its body."""
        self._refusals: dict[ApiKey, list[int]] = {}
        self._losses: dict[ApiKey, int] = {}
        self._is_silent = False
        self._versions = {api: newest(api) for api in APIS} | (versions or {})
        self._settings = settings
        self._log: list[CoordinatorRecord] = []
        self._ids = count(1)
        self._core = self._new_core()

    def _new_core(self) -> GroupCoordinator:
        return GroupCoordinator(self._settings, self.topics, lambda: f"id-{next(self._ids)}")

    # --- the world -----------------------------------------------------------------------------------------------

    def connect(self, port: int) -> Line:
        line = Line(port - FIRST_PORT)
        self.lines.append(line)
        return line

    def serve(self, line: Line, now_ms: int) -> None:
        while line.waiting and line.under_way is None and line.is_open and not self._is_silent:
            line.under_way, body = line.waiting.pop(0)
            self._serve_one(line, line.under_way, body, now_ms)

    def refuse(self, api_key: ApiKey, *codes: int) -> None:
        """The next requests of this kind are answered with these errors, one each."""
        self._refusals.setdefault(api_key, []).extend(codes)

    def lose_answers(self, api_key: ApiKey, number: int = 1) -> None:
        """The next requests of this kind are worked on, and their connection breaks before the answer has left."""
        self._losses[api_key] = number

    def be_silent(self, is_silent: bool = True) -> None:
        """Requests arrive, and nothing happens."""
        self._is_silent = is_silent

    def hear_late(self, api_key: ApiKey, body: Message, now_ms: int) -> None:
        """A request that its sender has given up arrives after all; nobody hears the answer."""
        version = self._versions[api_key][1]
        self._perform(self._core.handle(api_key, body, Caller(None, "", "somewhere", version), now_ms), now_ms)

    def bodies(self, api_key: ApiKey) -> list[Message]:
        return [body for one, _, body in self.asked if one is api_key]

    def hang_up(self, line: Line) -> None:
        line.is_open = False
        self.lines.remove(line)
        self._core.forget(line)

    def crash(self, now_ms: int) -> None:
        """The coordinator's process is killed and starts again: connections are gone, and all that was not written."""
        for line in [one for one in self.lines if one.node_id == self.coordinator_id]:
            line.is_open = False
            self.lines.remove(line)
        self._load(now_ms)

    def move(self, now_ms: int) -> None:
        """The other broker becomes coordinator."""
        replies = self._core.unload()
        self.coordinator_id = 3 - self.coordinator_id
        self._load(now_ms)
        self._reply(replies)

    def _load(self, now_ms: int) -> None:
        self._core = self._new_core()
        for record in self._log:
            self._core.replay(record, now_ms)
        self._perform(self._core.loaded(now_ms), now_ms)
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        while True:
            deadline_ms = self._core.next_deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                return
            self._perform(self._core.expire(now_ms), now_ms)

    def topics_changed(self, now_ms: int) -> None:
        self._perform(self._core.topics_changed(now_ms), now_ms)
        self.tick(now_ms)

    def next_deadline_ms(self) -> int | None:
        return self._core.next_deadline_ms()

    def members(self) -> set[str]:
        """The ids of all members of the group, of either protocol."""
        caller = Caller(None, "test", "test", 5)
        questions = {
            ApiKey.DESCRIBE_GROUPS: {"groups": [GROUP]},
            ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": [GROUP]},
        }
        return {
            member["member_id"]
            for api_key, body in questions.items()
            for reply in self._core.handle(api_key, body, caller, 0).replies
            for group in reply.body["groups"]
            for member in group.get("members", ())
        }

    # --- requests ------------------------------------------------------------------------------------------------

    def _serve_one(self, line: Line, header: RequestHeader, body: Message, now_ms: int) -> None:
        api_key = ApiKey(header.api_key)
        self.asked.append((api_key, header.api_version, body))
        if api_key is ApiKey.API_VERSIONS:
            line.answer(api_versions_answer(self._versions))
        elif api_key is ApiKey.METADATA:
            line.answer(self._metadata(body))
        elif api_key is ApiKey.FIND_COORDINATOR:
            codes = self._refusals.get(api_key)
            line.answer(self._found(header.api_version, codes.pop(0) if codes else NONE))
        elif self._refusals.get(api_key):
            line.answer(refusal(api_key, header.api_version, body, self._refusals[api_key].pop(0)))
        elif line.node_id != self.coordinator_id:
            line.answer(refusal(api_key, header.api_version, body, NotCoordinator.code))
        else:
            caller = Caller(line, header.client_id or "", "somewhere", header.api_version)
            self._perform(self._core.handle(api_key, body, caller, now_ms), now_ms)
        if self._losses.get(api_key) and line.is_open:
            self._losses[api_key] -= 1
            line.answers.clear()
            self.hang_up(line)

    def _perform(self, effects: Effects, now_ms: int) -> None:
        for record in effects.records:
            self._log.append(record)
            self._core.replay(record, now_ms)
            if record.type is RecordType.OFFSET_COMMIT and record.value is not None:
                partition = TopicPartition(record.key["topic"], record.key["partition"])
                self.commits.append((partition, record.value["offset"]))
        self._reply(effects.replies)

    def _reply(self, replies: Iterable) -> None:  # type: ignore[type-arg]
        for reply in replies:
            line = reply.ticket
            if isinstance(line, Line) and line.is_open:
                line.answer(reply.body)

    def _found(self, version: int, code: int) -> Message:
        where = {"node_id": self.coordinator_id, "host": "h", "port": FIRST_PORT + self.coordinator_id}
        if version < 4:
            return {"error_code": code, "error_message": None, **where}
        return {"coordinators": [{"key": GROUP, "error_code": code, "error_message": None, **where}]}

    def _metadata(self, body: Message) -> Message:
        names = list(self.topics.names()) if body["topics"] is None else [one["name"] for one in body["topics"]]
        return {
            "brokers": [{"node_id": node, "host": "h", "port": FIRST_PORT + node} for node in NODES],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [self._topic(name) for name in names],
        }

    def _topic(self, name: str) -> Message:
        partitions = self.topics.partition_count(name)
        if partitions is None:
            return {"name": name, "error_code": 3, "topic_id": UUID(int=0), "partitions": []}
        some = [
            {"partition_index": index, "leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1]}
            for index in range(partitions)
        ]
        return {"name": name, "topic_id": self.topics.topic_id(name), "error_code": NONE, "partitions": some}


def refusal(api_key: ApiKey, version: int, body: Message, code: int) -> Message:
    if api_key is ApiKey.OFFSET_COMMIT:
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "topic_id": topic["topic_id"],
                    "partitions": [
                        {"partition_index": one["partition_index"], "error_code": code} for one in topic["partitions"]
                    ],
                }
                for topic in body["topics"]
            ]
        }
    if api_key is ApiKey.OFFSET_FETCH and version >= 8:
        return {"groups": [{"group_id": GROUP, "error_code": code, "topics": []}]}
    if api_key is ApiKey.OFFSET_FETCH:
        return {"error_code": code, "topics": []}
    if api_key in (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT):
        return {"error_code": code, "member_id": body["member_id"]}
    return {"error_code": code}
