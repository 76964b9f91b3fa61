"""A small Kafka cluster in memory: request frames in, response frames out, no sockets, no clock, no files.

Serves ApiVersions, Metadata, InitProducerId and Produce (record batches of format 2 from idempotent and from plain
producers; no transactions). The bytes are read with oncelog's wire codecs and with the tests' own reader of batches;
everything else is written from Kafka's rules alone, so that the model and what it tests can disagree.

Nothing happens by itself. A `Line` is one connection: what the client wrote waits in it until the test lets the node
serve it, and answers wait until the test hands them over. What was still under way when a line ended may arrive later:
see `ModelCluster.stragglers`. A request cannot vanish from the middle of a TCP stream, so a line loses everything
behind a lost frame as well.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from oncelog.types import TopicPartition
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import FrameAssembler, RequestHeader, decode_request_header, encode_response
from oncelog.wire.hot import CurrentLeader, NodeEndpoint
from oncelog.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_request,
    encode_produce_response,
)
from tests.sim.model_partition import (
    Batch,
    FailAfterAppend,
    Fault,
    ModelPartition,
    Refuse,
    Refused,
)
from tests.support.batches import batch_records, read_batches

NONE = 0
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
MESSAGE_TOO_LARGE = 10
INVALID_TXN_STATE = 48
INVALID_RECORD = 87
FINAL_REFUSALS = (29, INVALID_RECORD, MESSAGE_TOO_LARGE, 42)
"""Codes that a leader answers about the records themselves."""
UNKNOWN_TOPIC_ID = 100

TRANSACTIONAL = 0x10
FIRST_STRICT_PRODUCE = 12
"""From then on a leader takes nothing but 0 as the first number of a transactional producer that it does not know."""

NO_LEADER = -1
FIRST_PORT = 9_000
MAX_FRAME_BYTES = 1 << 26
KEPT_REQUESTS = 100
"""How many Produce requests can be delivered once more."""

VERSIONS = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.METADATA: (0, 13),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
}


class Leadership(NamedTuple):
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A request that is on its way to a node, or that was there."""

    node_id: int
    frame: bytes


@dataclass(eq=False)
class Line:
    """One connection of a client to a node."""

    cluster: ModelCluster
    node_id: int
    is_open: bool = True
    requests: deque[bytes] = field(default_factory=deque)
    """Written by the client, not yet seen by the node."""
    answers: deque[bytes] = field(default_factory=deque)
    """Given by the node, not yet seen by the client."""
    is_stalled: bool = False
    """Nothing moves on it any more, and the client has not been told."""
    written: int = 0
    """How many requests the client wrote."""
    hung_up: bool = False
    """The node wants no more of it: Kafka's way to refuse a request that expects no answer."""
    _frames: FrameAssembler = field(default_factory=lambda: FrameAssembler(MAX_FRAME_BYTES))

    def write(self, data: bytes) -> None:
        """Bytes from the client."""
        assert self.is_open
        rest = memoryview(data)
        while rest:
            buffer = self._frames.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            frames = [bytes(frame) for frame in self._frames.received(count)]
            self.written += len(frames)
            if not self.is_stalled:
                self.requests += frames

    def serve(self) -> None:
        """The node takes the oldest request and answers it."""
        if self.is_stalled or self.hung_up or not self.requests:
            return
        answer = self.cluster.execute(Delivered(self.node_id, self.requests.popleft()))
        if answer is HANG_UP:
            self.hung_up = True
        elif isinstance(answer, bytes):
            self.answers.append(answer)

    def stall(self) -> None:
        """Both directions go silent; what was under way is lost."""
        self.is_stalled = True
        self.requests.clear()
        self.answers.clear()

    def end(self, *, requests_arrive: bool) -> None:
        """The connection is over, whoever closed it. Its answers are lost; its requests too, or they come later."""
        if self.is_open and requests_arrive and self.requests:
            self.cluster.stragglers.append(deque(Delivered(self.node_id, frame) for frame in self.requests))
        self.is_open = False
        self.requests.clear()
        self.answers.clear()


HANG_UP = object()
"""As the outcome of a request: the node closes the connection."""


class ModelCluster:
    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        node_count: int = 3,
        max_message_bytes: int = 1 << 20,
        versions: Mapping[ApiKey, tuple[int, int]] = VERSIONS,
        leader_hints: bool = True,
    ) -> None:
        self.nodes = tuple(range(node_count))
        self.stopped: set[int] = set()
        self.partitions = {
            TopicPartition(topic, index): ModelPartition(index % node_count)
            for topic, count in topics.items()
            for index in range(count)
        }
        self.topic_ids = {topic: UUID(int=number) for number, topic in enumerate(topics, start=1)}
        self.max_message_bytes = max_message_bytes
        self.refused_for_good: set[bytes] = set()
        """Values of records that a leader has said it never takes, alone or with others of their batch."""
        self.throttle_ms = 0
        """What Produce answers say from now on."""
        self.versions = dict(versions)
        self.leader_hints = leader_hints
        self.lines: list[Line] = []
        self.stragglers: list[deque[Delivered]] = []
        """Requests of ended lines that may still arrive, in order for each line, at any time."""
        self.stored_requests: deque[Delivered] = deque(maxlen=KEPT_REQUESTS)
        """Produce requests whose every batch is stored."""
        self.complaints: list[str] = []
        """What a client must never do. Answered as Kafka does, and remembered."""
        self._refusals: defaultdict[ApiKey, deque[int]] = defaultdict(deque)
        self._next_producer_id = 1_000
        self._published: dict[TopicPartition, Leadership] = {}
        self._producing: tuple[ProduceRequest, int]
        """The request that is being served, and its version."""
        self.publish()

    # --- what the test may do to it ---

    def connect(self, node_id: int) -> Line | None:
        """A new connection, unless the node is down."""
        if node_id in self.stopped:
            return None
        line = Line(self, node_id)
        self.lines.append(line)
        return line

    def plan(self, partition: TopicPartition, *faults: Fault) -> None:
        """What the next appends to a partition meet, one fault each."""
        self.partitions[partition].faults += faults

    def refuse(self, api_key: ApiKey, *codes: int) -> None:
        """How the next Metadata (for each of its topics) or InitProducerId requests fail, one code each."""
        self._refusals[api_key] += codes

    def change_leader(
        self, partition: TopicPartition, leader: int, *, keep_unreplicated: bool = True, published: bool = True
    ) -> None:
        """A clean election. Until it is published, Metadata names the old leader."""
        self.partitions[partition].change_leader(leader, keep_unreplicated=keep_unreplicated)
        if published:
            self.publish()

    def change_leader_uncleanly(self, partition: TopicPartition, leader: int, lost_batches: int) -> None:
        self.partitions[partition].change_leader_uncleanly(leader, lost_batches)
        self.publish()

    def forgive(self) -> None:
        """No planned fault happens any more."""
        self._refusals.clear()
        for partition in self.partitions.values():
            partition.faults.clear()

    def publish(self) -> None:
        self._published = {
            name: Leadership(partition.leader, partition.leader_epoch) for name, partition in self.partitions.items()
        }

    def stop(self, node_id: int) -> None:
        """The node's process ends, and with it its connections and everything on them. Its partitions wait for it."""
        self.stopped.add(node_id)
        self.cut_connections(node_id, requests_arrive=False)
        self.stragglers = [late for late in self.stragglers if late[0].node_id != node_id]

    def start(self, node_id: int) -> None:
        """It was stopped cleanly, and remembers what a snapshot holds."""
        self.stopped.discard(node_id)
        for partition in self.partitions.values():
            if partition.leader == node_id:
                partition.restart_cleanly()

    def cut_connections(self, node_id: int, *, requests_arrive: bool) -> None:
        for line in self.lines_of(node_id):
            line.end(requests_arrive=requests_arrive)

    def lines_of(self, node_id: int) -> list[Line]:
        return [line for line in self.lines if line.is_open and line.node_id == node_id]

    def forget_producer(self, producer_id: int) -> None:
        for partition in self.partitions.values():
            partition.forget_producer(producer_id)

    def deliver_straggler(self, index: int) -> None:
        """The oldest request of an ended line arrives after all. Nobody hears the answer."""
        late = self.stragglers[index]
        self.execute(late.popleft())
        if not late:
            del self.stragglers[index]

    def lose_straggler(self, index: int) -> None:
        del self.stragglers[index]

    def deliver_again(self, index: int) -> None:
        """A Produce request whose batches are stored arrives a second time, as a bad network may have it.

        One that was refused must not: TCP does not double, and a client may take a refusal for final."""
        self.execute(self.stored_requests[index])

    # --- serving ---

    def execute(self, request: Delivered) -> bytes | object | None:
        """Carry out one request: its answer, None where none is due, or HANG_UP."""
        frame = memoryview(request.frame)
        header, position = decode_request_header(frame)
        if header.api_key == ApiKey.PRODUCE:
            return self._produce(request, header, frame, position)
        api_key = ApiKey(header.api_key)
        name = api_key.schema_prefix
        asked = codec.decode_exactly(f"{name}Request", header.api_version, frame, position)
        answer = self._answer(request.node_id, api_key, header.api_version, asked)
        return encode_response(header, codec.encode(f"{name}Response", header.api_version, answer))

    def _answer(self, node_id: int, api_key: ApiKey, version: int, asked: Message) -> Message:
        return {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
        }[api_key](asked)

    def _api_versions(self, _: Message) -> Message:
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in self.versions.items()]
        return {"api_keys": keys}

    def _metadata(self, asked: Message) -> Message:
        refusals = self._refusals[ApiKey.METADATA]
        code = refusals.popleft() if refusals else NONE
        names = list(self.topic_ids)
        if asked["topics"] is not None:
            names = [topic["name"] or self._name_of(topic["topic_id"]) for topic in asked["topics"]]
        return {
            "brokers": [
                {"node_id": one, "host": f"node{one}", "port": FIRST_PORT + one}
                for one in self.nodes
                if one not in self.stopped
            ],
            "cluster_id": "model",
            "controller_id": self.nodes[0],
            "topics": [self._describe(name, code) for name in names],
        }

    def _describe(self, name: str, code: int) -> Message:
        if name not in self.topic_ids:
            code = UNKNOWN_TOPIC_OR_PARTITION
        topic: Message = {"name": name, "error_code": code, "partitions": []}
        if code != NONE:
            return topic
        topic["topic_id"] = self.topic_ids[name]
        for partition, (leader, leader_epoch) in self._published.items():
            if partition.topic == name:
                is_down = leader in self.stopped
                description = {
                    "partition_index": partition.partition,
                    "leader_id": NO_LEADER if is_down else leader,
                    "leader_epoch": leader_epoch,
                    "error_code": LEADER_NOT_AVAILABLE if is_down else NONE,
                    "replica_nodes": list(self.nodes),
                    "isr_nodes": list(self.nodes),
                }
                topic["partitions"].append(description)
        return topic

    def _init_producer_id(self, _: Message) -> Message:
        refusals = self._refusals[ApiKey.INIT_PRODUCER_ID]
        if refusals:
            return {"error_code": refusals.popleft(), "producer_id": -1, "producer_epoch": -1}
        self._next_producer_id += 1
        return {"producer_id": self._next_producer_id, "producer_epoch": 0}

    def _produce(
        self, delivered: Delivered, header: RequestHeader, frame: memoryview, position: int
    ) -> bytes | object | None:
        request = decode_produce_request(frame, position, header.api_version)
        self._producing = request, header.api_version
        answered = [self._produce_topic(delivered.node_id, topic, request.acks) for topic in request.topics]
        outcomes = [outcome for topic in answered for outcome in topic.partitions]
        if not any(outcome.error_code for outcome in outcomes):
            self.stored_requests.append(delivered)
        elif request.acks == 0:
            return HANG_UP
        if request.acks == 0:
            return None
        leaders = {outcome.current_leader.leader_id for outcome in outcomes if outcome.current_leader}
        endpoints = [NodeEndpoint(one, f"node{one}", FIRST_PORT + one, None) for one in sorted(leaders)]
        body = encode_produce_response(header.api_version, answered, self.throttle_ms, endpoints)
        return encode_response(header, body)

    def _produce_topic(self, node_id: int, topic: ProduceTopic, acks: int) -> ProducedTopic:
        name = topic.name or self._name_of(topic.topic_id)
        indexes = [one.index for one in topic.partitions]
        if len(set(indexes)) != len(indexes):
            self.complaints.append(f"{name}: a partition comes twice in one request: {indexes}")
        outcomes = [self._produce_partition(node_id, name, one, acks) for one in topic.partitions]
        return ProducedTopic(topic.name, topic.topic_id, outcomes)

    def _produce_partition(self, node_id: int, topic: str, sent: ProducePartition, acks: int) -> ProducedPartition:
        partition = self.partitions.get(TopicPartition(topic, sent.index))
        if partition is None:
            return ProducedPartition(sent.index, UNKNOWN_TOPIC_OR_PARTITION if topic else UNKNOWN_TOPIC_ID)
        if partition.leader != node_id:
            leader = CurrentLeader(partition.leader, partition.leader_epoch) if self.leader_hints else None
            return ProducedPartition(sent.index, NOT_LEADER_OR_FOLLOWER, current_leader=leader)
        return self._append(topic, partition, sent, acks)

    def _append(self, topic: str, partition: ModelPartition, sent: ProducePartition, acks: int) -> ProducedPartition:
        fault = partition.faults.popleft() if partition.faults else None
        if isinstance(fault, Refuse):
            return self._refused(sent, fault.code)
        batch = self._read(bytes(sent.records or b""))
        if isinstance(batch, int):
            return self._refused(sent, batch)
        code = self._check_transaction(TopicPartition(topic, sent.index), partition, batch)
        if code != NONE:
            return ProducedPartition(sent.index, code)
        is_strict = batch.is_transactional and self._producing[1] >= FIRST_STRICT_PRODUCE
        verdict = partition.append(batch, replicated=acks == -1 and fault is None, is_strict=is_strict)
        if isinstance(verdict, Refused):
            return ProducedPartition(sent.index, verdict.code)
        if isinstance(fault, FailAfterAppend):
            return ProducedPartition(sent.index, fault.code)
        return ProducedPartition(sent.index, NONE, verdict.stored.base_offset)

    def _refused(self, sent: ProducePartition, code: int) -> ProducedPartition:
        if code in FINAL_REFUSALS:
            for batch in read_batches(bytes(sent.records or b"")):
                self.refused_for_good.update(record.value or b"" for record in batch_records(batch))
        return ProducedPartition(sent.index, code)

    def _check_transaction(self, name: TopicPartition, partition: ModelPartition, batch: Batch) -> int:
        """This cluster has none."""
        return INVALID_TXN_STATE if batch.is_transactional else NONE

    def _read(self, records: bytes) -> Batch | int:
        """The one batch that a client may send, or the error that it earns."""
        batches = list(read_batches(records))
        if len(batches) != 1 or batches[0].magic != 2 or 12 + batches[0].length != len(records):
            return self._complain(INVALID_RECORD, f"{len(batches)} batches in {len(records)} bytes")
        (batch,) = batches
        if not batch.crc_is_right:
            return self._complain(CORRUPT_MESSAGE, "a batch with a wrong CRC")
        if len(records) > self.max_message_bytes:
            return MESSAGE_TOO_LARGE
        values = tuple(record.value or b"" for record in batch_records(batch))
        if batch.last_offset_delta != len(values) - 1 or (batch.producer_id >= 0) != (batch.base_sequence >= 0):
            return self._complain(INVALID_RECORD, f"a header that contradicts itself: {batch[:-2]}")
        is_transactional = bool(batch.attributes & TRANSACTIONAL)
        return Batch(batch.producer_id, batch.producer_epoch, batch.base_sequence, values, is_transactional)

    def _complain(self, code: int, complaint: str) -> int:
        self.complaints.append(complaint)
        return code

    def _name_of(self, topic_id: UUID | None) -> str:
        """Empty if there is no such topic."""
        return next((name for name, one in self.topic_ids.items() if one == topic_id), "")

    def stored(self) -> Iterator[tuple[TopicPartition, int, bytes]]:
        """Every record in the cluster: partition, offset, value."""
        for name, partition in self.partitions.items():
            for offset, record in enumerate(partition.records):
                yield name, offset, record
