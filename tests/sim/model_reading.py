"""A small Kafka cluster to read from: request frames in, response frames out, no sockets, no clock, no files.

Serves ApiVersions, Metadata, Fetch (with sessions), ListOffsets and OffsetForLeaderEpoch. Frames are read and written
with oncelog's wire codecs, batches are made by the tests' own hand; everything else is written from Kafka's rules
alone, so that the model and what it tests can disagree.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from oncelog.types import TopicPartition
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.fetch import (
    EpochEndOffset,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from oncelog.wire.frame import FrameAssembler, RequestHeader, decode_request_header, encode_response
from oncelog.wire.hot import CurrentLeader, NodeEndpoint
from tests.support.batches import TIMESTAMP_MS, make_batch

NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNKNOWN_TOPIC_ID = 100

FIRST_PORT = 9_000
MAX_FRAME_BYTES = 1 << 26
LATEST, EARLIEST = -1, -2

VERSIONS = {
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
}


class StoredBatch(NamedTuple):
    base_offset: int
    epoch: int
    values: tuple[bytes, ...]
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.values)


@dataclass(eq=False)
class ModelLog:
    """One partition."""

    leader: int
    leader_epoch: int = 0
    start_offset: int = 0
    end_offset: int = 0
    batches: list[StoredBatch] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Each epoch, and where it began; those that wrote nothing give way to the next."""
    errors: deque[int] = field(default_factory=deque)
    """What the next fetches of it are answered with."""
    read_replica: int = -1
    diverging: EpochEndOffset | None = None
    """What the next fetch is told, as only followers are."""

    def append(self, *values: bytes) -> None:
        data = make_batch(
            values,
            base_offset=self.end_offset,
            leader_epoch=self.leader_epoch,
            base_timestamp=TIMESTAMP_MS + self.end_offset,
        )
        self.batches.append(StoredBatch(self.end_offset, self.leader_epoch, values, data))
        self.end_offset += len(values)

    def change_leader(self, leader: int, *, lost_batches: int = 0) -> None:
        """With an unclean election the newest batches are lost."""
        for _ in range(min(lost_batches, len(self.batches))):
            self.end_offset = self.batches.pop().base_offset
        self.leader = leader
        self.leader_epoch += 1
        earlier = [(epoch, start) for epoch, start in self.epochs if start < self.end_offset]
        self.epochs = [*earlier, (self.leader_epoch, self.end_offset)]

    def delete_oldest(self, batch_count: int) -> None:
        """Retention."""
        for _ in range(min(batch_count, len(self.batches))):
            self.start_offset = self.batches.pop(0).next_offset

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to that one, and where it ended; (-1, -1) for one that is yet to come."""
        if epoch == self.leader_epoch:
            return epoch, self.end_offset
        later = [start for one, start in self.epochs if one > epoch]
        if not later:
            return -1, -1
        earlier = [one for one, _ in self.epochs if one <= epoch]
        return (earlier[-1] if earlier else epoch), later[0]

    def read(self, offset: int, max_bytes: int, *, whole_first: bool) -> bytes:
        found = [batch.data for batch in self.batches if batch.next_offset > offset]
        if not found:
            return b""
        limit = max(max_bytes, len(found[0])) if whole_first else max_bytes
        data = b"".join(found)[:limit]
        return data if len(data) >= len(found[0]) else b""

    def values(self, start: int) -> list[bytes]:
        return [
            value
            for batch in self.batches
            for offset, value in enumerate(batch.values, start=batch.base_offset)
            if offset >= start
        ]


@dataclass(eq=False)
class Session:
    epoch: int
    partitions: dict[tuple[UUID | str, int], FetchPartition]
    told: dict[tuple[UUID | str, int], int] = field(default_factory=dict)
    """High watermarks."""


class ReadCluster:
    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        node_count: int = 3,
        versions: Mapping[ApiKey, tuple[int, int]] = VERSIONS,
        leader_hints: bool = True,
        has_sessions: bool = True,
    ) -> None:
        self.nodes = tuple(range(node_count))
        self.stopped: set[int] = set()
        self.topic_ids: dict[str, UUID] = {}
        self.logs: dict[TopicPartition, ModelLog] = {}
        self.versions = dict(versions)
        self.leader_hints = leader_hints
        self.has_sessions = has_sessions
        self.throttle_ms = 0
        self.is_hasty = False
        """Whether fetches are answered at once, although there is no data."""
        self.sessions: dict[int, Session] = {}
        self.refusals: defaultdict[ApiKey, deque[int]] = defaultdict(deque)
        """What the next requests are answered with: Fetch as a whole, the others for each partition or topic."""
        self.requests: list[tuple[int, ApiKey, object]] = []
        """Everything that was executed: node, API, body."""
        self.complaints: list[str] = []
        self._next_id = 1
        self._published: dict[TopicPartition, tuple[int, int]] = {}
        for topic, count in topics.items():
            self.create(topic, count)

    # --- what the test may do to it ---------------------------------------------------------------------------------

    def create(self, topic: str, partition_count: int) -> None:
        self.topic_ids[topic] = UUID(int=self._next_id)
        self._next_id += 1
        for index in range(partition_count):
            self.logs[TopicPartition(topic, index)] = ModelLog(index % len(self.nodes))
        self.publish()

    def delete(self, topic: str) -> None:
        del self.topic_ids[topic]
        for partition in [one for one in self.logs if one.topic == topic]:
            del self.logs[partition]
        self.publish()

    def publish(self) -> None:
        """Metadata tells the leaders as they are now."""
        self._published = {name: (log.leader, log.leader_epoch) for name, log in self.logs.items()}

    def asked(self, api_key: ApiKey) -> list[tuple[int, Message | FetchRequest]]:
        return [(node, body) for node, key, body in self.requests if key == api_key]  # type: ignore[misc]

    def forgive(self) -> None:
        self.refusals.clear()
        for log in self.logs.values():
            log.errors.clear()
            log.diverging = None

    # --- serving ----------------------------------------------------------------------------------------------------

    def execute(self, node_id: int, frame: bytes, *, is_overdue: bool) -> bytes | None:
        """The answer; None if the request waits for data."""
        header, position = decode_request_header(memoryview(frame))
        api_key = ApiKey(header.api_key)
        if api_key == ApiKey.FETCH:
            return self._fetch(node_id, header, memoryview(frame), position, is_overdue)
        name = api_key.schema_prefix
        asked = codec.decode_exactly(f"{name}Request", header.api_version, memoryview(frame), position)
        self.requests.append((node_id, api_key, asked))
        answers: dict[ApiKey, Callable[[], Message]] = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: lambda: self._metadata(asked),
            ApiKey.LIST_OFFSETS: lambda: self._list_offsets(node_id, asked),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda: self._epochs(node_id, asked),
        }
        return encode_response(header, codec.encode(f"{name}Response", header.api_version, answers[api_key]()))

    def _refusal(self, api_key: ApiKey) -> int:
        return self.refusals[api_key].popleft() if self.refusals[api_key] else NONE

    def _api_versions(self) -> Message:
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in self.versions.items()]
        return {"api_keys": keys}

    def _metadata(self, asked: Message) -> Message:
        code = self._refusal(ApiKey.METADATA)
        names = [topic["name"] for topic in asked["topics"]] if asked["topics"] is not None else list(self.topic_ids)
        return {
            "brokers": [
                {"node_id": one, "host": f"node{one}", "port": FIRST_PORT + one}
                for one in self.nodes
                if one not in self.stopped
            ],
            "cluster_id": "model",
            "controller_id": 0,
            "topics": [self._describe(name, code) for name in names],
        }

    def _describe(self, name: str, code: int) -> Message:
        code = code or (NONE if name in self.topic_ids else UNKNOWN_TOPIC_OR_PARTITION)
        if code:
            return {"name": name, "error_code": code, "partitions": []}
        partitions = [
            {
                "partition_index": partition.partition,
                "leader_id": -1 if leader in self.stopped else leader,
                "leader_epoch": epoch,
                "replica_nodes": list(self.nodes),
                "isr_nodes": list(self.nodes),
            }
            for partition, (leader, epoch) in self._published.items()
            if partition.topic == name
        ]
        return {"name": name, "topic_id": self.topic_ids[name], "error_code": NONE, "partitions": partitions}

    def _check(self, node_id: int, partition: TopicPartition, epoch: int) -> tuple[ModelLog | None, int]:
        log = self.logs.get(partition)
        if log is None:
            return None, UNKNOWN_TOPIC_OR_PARTITION
        if node_id not in (log.leader, log.read_replica):
            return log, NOT_LEADER_OR_FOLLOWER
        if epoch not in (-1, log.leader_epoch):
            return log, FENCED_LEADER_EPOCH if epoch < log.leader_epoch else UNKNOWN_LEADER_EPOCH
        return log, NONE

    def _list_offsets(self, node_id: int, asked: Message) -> Message:
        topics = []
        for topic in asked["topics"]:
            indexes = [one["partition_index"] for one in topic["partitions"]]
            if len(set(indexes)) != len(indexes):
                self.complaints.append(f"a partition comes twice in one request: {indexes}")
            partitions = [self._list_one(node_id, topic["name"], one) for one in topic["partitions"]]
            topics.append({"name": topic["name"], "partitions": partitions})
        return {"throttle_time_ms": self.throttle_ms, "topics": topics}

    def _list_one(self, node_id: int, topic: str, asked: Message) -> Message:
        index, timestamp = asked["partition_index"], asked["timestamp"]
        log, code = self._check(node_id, TopicPartition(topic, index), asked["current_leader_epoch"])
        code = self._refusal(ApiKey.LIST_OFFSETS) or code
        if log is None or code:
            return {"partition_index": index, "error_code": code}
        if timestamp in (LATEST, EARLIEST):
            offset = log.end_offset if timestamp == LATEST else log.start_offset
            return {"partition_index": index, "offset": offset, "leader_epoch": _epoch_at(log, offset)}
        offset = max(log.start_offset, timestamp - TIMESTAMP_MS)  # every record is a millisecond younger than the last
        if offset >= log.end_offset:
            return {"partition_index": index, "offset": -1, "timestamp": -1}
        return {
            "partition_index": index,
            "offset": offset,
            "timestamp": TIMESTAMP_MS + offset,
            "leader_epoch": _epoch_at(log, offset),
        }

    def _epochs(self, node_id: int, asked: Message) -> Message:
        topics = []
        for topic in asked["topics"]:
            partitions = []
            for one in topic["partitions"]:
                name = TopicPartition(topic["topic"], one["partition"])
                log, code = self._check(node_id, name, one["current_leader_epoch"])
                code = self._refusal(ApiKey.OFFSET_FOR_LEADER_EPOCH) or code
                answer = {"partition": one["partition"], "error_code": code}
                if log is not None and not code:
                    answer["leader_epoch"], answer["end_offset"] = log.end_of_epoch(one["leader_epoch"])
                partitions.append(answer)
            topics.append({"topic": topic["topic"], "partitions": partitions})
        return {"throttle_time_ms": self.throttle_ms, "topics": topics}

    # --- Fetch ------------------------------------------------------------------------------------------------------

    def _fetch(
        self, node_id: int, header: RequestHeader, frame: memoryview, position: int, is_overdue: bool
    ) -> bytes | None:
        request = decode_fetch_request(frame, position, header.api_version)
        refusal = self.refusals[ApiKey.FETCH]
        if refusal:
            return self._finish(node_id, header, request, FetchResponse([], 0, refusal.popleft(), 0))
        session, code = self._session_of(request)
        if session is None:
            return self._finish(node_id, header, request, FetchResponse([], 0, code, 0))
        answers = self._answers(node_id, session, request)
        if not is_overdue and not self.is_hasty and not any(_is_urgent(answer) for answer in answers.values()):
            return None
        is_full = request.session_epoch == 0
        told = {
            key: one
            for key, one in answers.items()
            if is_full or _is_urgent(one) or session.told.get(key) != one.high_watermark
        }
        session.told.update({key: one.high_watermark for key, one in told.items()})
        session_id = self._open(session, request)
        leaders = {one.current_leader.leader_id for one in told.values() if one.current_leader}
        endpoints = [NodeEndpoint(one, f"node{one}", FIRST_PORT + one, None) for one in sorted(leaders)]
        response = FetchResponse(_by_topic(told), self.throttle_ms, NONE, session_id, endpoints)
        return self._finish(node_id, header, request, response)

    def _finish(self, node_id: int, header: RequestHeader, request: FetchRequest, response: FetchResponse) -> bytes:
        self.requests.append((node_id, ApiKey.FETCH, request))
        chunks = encode_fetch_response(header.api_version, response)
        return encode_response(header, b"".join(bytes(chunk) for chunk in chunks))

    def _session_of(self, request: FetchRequest) -> tuple[Session | None, int]:
        named = {(topic.topic_id or topic.name, one.index): one for topic in request.topics for one in topic.partitions}
        if request.session_epoch == 0:
            self.sessions.pop(request.session_id, None)
            return Session(1, named), NONE
        session = self.sessions.get(request.session_id)
        if session is None:
            return None, FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return None, INVALID_FETCH_SESSION_EPOCH
        gone = {(topic.topic_id or topic.name, index) for topic in request.forgotten for index in topic.partitions}
        if not gone <= session.partitions.keys():
            self.complaints.append(f"what the session does not hold is forgotten: {gone}")
        kept = {key: one for key, one in session.partitions.items() if key not in gone}
        # What comes anew goes to the end, so that none starves.
        return Session(session.epoch, {**kept, **named}, dict(session.told)), NONE

    def _open(self, session: Session, request: FetchRequest) -> int:
        if not self.has_sessions:
            return 0
        if request.session_epoch == 0:
            self._next_id += 1
            self.sessions[self._next_id] = session
            return self._next_id
        session.epoch += 1
        self.sessions[request.session_id] = session
        return request.session_id

    def _answers(
        self, node_id: int, session: Session, request: FetchRequest
    ) -> dict[tuple[UUID | str, int], FetchedPartition]:
        answers = {}
        left = request.max_bytes
        has_data = False
        for key, asked in session.partitions.items():
            answer = self._fetch_one(node_id, key, asked, left, whole_first=not has_data)
            answers[key] = answer
            left = max(0, left - len(answer.records or b""))
            has_data = has_data or bool(answer.records)
        return answers

    def _fetch_one(
        self, node_id: int, key: tuple[UUID | str, int], asked: FetchPartition, left: int, *, whole_first: bool
    ) -> FetchedPartition:
        name = self._name_of(key[0])
        if name is None:
            return FetchedPartition(asked.index, UNKNOWN_TOPIC_ID, -1)
        log, code = self._check(node_id, TopicPartition(name, asked.index), asked.current_leader_epoch)
        if log is None:
            return FetchedPartition(asked.index, code, -1)
        if not code and log.errors:
            code = log.errors.popleft()
        if not code and not log.start_offset <= asked.fetch_offset <= log.end_offset:
            code = OFFSET_OUT_OF_RANGE
        if code:
            has_hint = self.leader_hints and code in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH)
            leader = CurrentLeader(log.leader, log.leader_epoch) if has_hint else None
            return FetchedPartition(asked.index, code, -1, current_leader=leader)
        answer = FetchedPartition(asked.index, NONE, log.end_offset, log.end_offset, log.start_offset)
        if log.diverging is not None:
            diverging, log.diverging = log.diverging, None
            return answer._replace(diverging_epoch=diverging)
        if log.read_replica >= 0 and node_id == log.leader and log.read_replica != log.leader:
            return answer._replace(preferred_read_replica=log.read_replica)
        return answer._replace(
            records=log.read(asked.fetch_offset, min(asked.max_bytes, left), whole_first=whole_first) or None
        )

    def _name_of(self, topic: UUID | str) -> str | None:
        if isinstance(topic, str):
            return topic if topic in self.topic_ids else None
        return next((name for name, one in self.topic_ids.items() if one == topic), None)


def _is_urgent(answer: FetchedPartition) -> bool:
    """Whether there is more to say than that nothing has come."""
    has_news = answer.diverging_epoch is not None or answer.preferred_read_replica >= 0
    return has_news or bool(answer.records or answer.error_code)


def _epoch_at(log: ModelLog, offset: int) -> int:
    begun = [epoch for epoch, start in log.epochs if start <= offset]
    return begun[-1] if begun else -1


def _by_topic(answers: Mapping[tuple[UUID | str, int], FetchedPartition]) -> list[FetchedTopic]:
    topics: dict[UUID | str, list[FetchedPartition]] = {}
    for (topic, _), answer in answers.items():
        topics.setdefault(topic, []).append(answer)
    return [
        FetchedTopic(topic if isinstance(topic, str) else "", None if isinstance(topic, str) else topic, answers)
        for topic, answers in topics.items()
    ]


@dataclass(eq=False)
class ReadLine:
    """One connection. A fetch that waits for data holds up what comes behind it, as on a real broker."""

    cluster: ReadCluster
    node_id: int
    is_open: bool = True
    requests: deque[bytes] = field(default_factory=deque)
    answers: deque[bytes] = field(default_factory=deque)
    waits_since_ms: int | None = None
    _frames: FrameAssembler = field(default_factory=lambda: FrameAssembler(MAX_FRAME_BYTES))

    def write(self, data: bytes) -> None:
        for frame in self._cut(data):
            self.requests.append(frame)

    def _cut(self, data: bytes) -> Iterator[bytes]:
        rest = memoryview(data)
        while rest:
            buffer = self._frames.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            yield from [bytes(frame) for frame in self._frames.received(count)]

    def serve(self, now_ms: int, max_wait_ms: int) -> bool:
        """The node looks at the oldest request; whether it answered."""
        if not self.requests:
            return False
        is_overdue = self.waits_since_ms is not None and now_ms >= self.waits_since_ms + max_wait_ms
        answer = self.cluster.execute(self.node_id, self.requests[0], is_overdue=is_overdue)
        if answer is None:
            self.waits_since_ms = now_ms if self.waits_since_ms is None else self.waits_since_ms
            return False
        self.waits_since_ms = None
        self.requests.popleft()
        self.answers.append(answer)
        return True

    def end(self) -> None:
        self.is_open = False
        self.requests.clear()
        self.answers.clear()
