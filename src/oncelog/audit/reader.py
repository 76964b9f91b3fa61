"""Reads the records of a topic, partition by partition from the oldest to the newest, and hands them to an audit.

A blocking reader with as little of a client in it as the task needs: no groups, no retries, no guessing. It sees what
a `read_uncommitted` consumer sees.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from oncelog.audit.account import Audit
from oncelog.audit.ids import id_of_record
from oncelog.errors import CorruptMessage, LeaderNotAvailable, OncelogError, UnknownTopicOrPartition, error_for_code
from oncelog.records.batch import iter_records
from oncelog.records.kernel import scan
from oncelog.records.model import Record
from oncelog.types import IsolationLevel, TopicPartition
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from oncelog.wire.frame import FrameAssembler, decode_response_header, encode_request

# Spoken by every broker since Kafka 2.8. Later versions of Fetch name topics by their id.
METADATA_VERSION = 11
LIST_OFFSETS_VERSION = 7
FETCH_VERSION = 12

EARLIEST, LATEST = -2, -1
FETCH_BYTES = 8 * 1024 * 1024
MAX_ANSWER_BYTES = 1024 * 1024 * 1024
MAX_WAIT_MS = 500
TIMEOUT_S = 30.0
CLIENT_ID = "oncelog-audit"


class Unreachable(OncelogError):  # noqa: N818 - errors are named after what is wrong, as in oncelog.errors
    """No broker answers at the given address."""


def read_topic(bootstrap_servers: str, topic: str, audit: Audit) -> None:
    """Let `audit` observe every record that the topic holds now."""
    with ExitStack() as stack:
        bootstrap = stack.enter_context(_connect(bootstrap_servers))
        nodes, leaders = bootstrap.leaders(topic)
        connections: dict[int, _Connection] = {}
        for partition, leader in leaders.items():
            if leader not in nodes:
                raise LeaderNotAvailable(f"{partition} has no leader; try again when its broker is back")
            if leader not in connections:
                connections[leader] = stack.enter_context(_Connection(*nodes[leader]))
            _read_partition(connections[leader], partition, audit)


def _read_partition(connection: _Connection, partition: TopicPartition, audit: Audit) -> None:
    start = connection.list_offset(partition, EARLIEST)
    end = connection.list_offset(partition, LATEST)
    audit.open_partition(partition, start)
    for record in _records(connection, partition, start, end):
        audit.observe(partition, record.offset, id_of_record(record.value, record.headers))


def _records(connection: _Connection, partition: TopicPartition, start: int, end: int) -> Iterator[Record]:
    position = start
    while position < end:
        records = connection.fetch(partition, position)
        headers, _ = scan(records, 0, len(records), True)
        if not headers:
            raise CorruptMessage(f"{partition} cannot be read at offset {position}: no whole, undamaged batch there")
        at = 0
        for header in headers:
            if not header.is_control:
                # The batch that holds the asked offset may begin before it.
                yield from (
                    record
                    for record in iter_records(records[at : at + header.size_bytes])
                    if position <= record.offset < end
                )
            at += header.size_bytes
            position = max(position, header.next_offset)


def _connect(bootstrap_servers: str) -> _Connection:
    failures = []
    for address in bootstrap_servers.split(","):
        host, _, port = address.strip().rpartition(":")
        if not port.isdigit():
            raise Unreachable(f"{address.strip()!r} is no HOST:PORT")
        try:
            return _Connection(host.strip("[]"), int(port))
        except OSError as error:
            failures.append(f"{address.strip()}: {error.strerror or error}")
    raise Unreachable(f"no broker answers ({'; '.join(failures)}); is it running, and is the address right?")


class _Connection:
    """One request at a time, answered before the next."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self._frames = FrameAssembler(MAX_ANSWER_BYTES)
        self._correlation_id = 0

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    def leaders(self, topic: str) -> tuple[dict[int, tuple[str, int]], dict[TopicPartition, int]]:
        """The brokers' addresses by node id, and the leader of every partition."""
        answer = self._ask(
            ApiKey.METADATA, METADATA_VERSION, {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        )
        (found,) = answer["topics"]
        if found["error_code"] == UnknownTopicOrPartition.code:
            raise UnknownTopicOrPartition(f"there is no topic {topic!r}")
        _raise_for(found["error_code"], f"topic {topic}")
        nodes = {broker["node_id"]: (broker["host"], broker["port"]) for broker in answer["brokers"]}
        partitions = sorted(found["partitions"], key=lambda partition: partition["partition_index"])
        return nodes, {TopicPartition(topic, each["partition_index"]): each["leader_id"] for each in partitions}

    def list_offset(self, partition: TopicPartition, timestamp: int) -> int:
        asked = {
            "name": partition.topic,
            "partitions": [{"partition_index": partition.partition, "timestamp": timestamp}],
        }
        message = {"replica_id": -1, "isolation_level": IsolationLevel.READ_UNCOMMITTED, "topics": [asked]}
        answer = self._ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, message)
        found = answer["topics"][0]["partitions"][0]
        _raise_for(found["error_code"], str(partition))
        return int(found["offset"])

    def fetch(self, partition: TopicPartition, offset: int) -> memoryview:
        """The batches from `offset` on."""
        asked = FetchPartition(partition.partition, -1, offset, -1, -1, FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(partition.topic, None, [asked])],
        )
        frame, body = self._exchange(ApiKey.FETCH, FETCH_VERSION, encode_fetch_request(FETCH_VERSION, request))
        response = decode_fetch_response(frame, body, FETCH_VERSION)
        _raise_for(response.error_code, str(partition))
        found: FetchedPartition = response.topics[0].partitions[0]
        _raise_for(found.error_code, f"{partition} at offset {offset}")
        return memoryview(found.records if found.records is not None else b"")

    def _ask(self, api: ApiKey, version: int, message: dict[str, Any]) -> dict[str, Any]:
        prefix = api.schema_prefix
        frame, body = self._exchange(api, version, codec.encode(f"{prefix}Request", version, message))
        return codec.decode_exactly(f"{prefix}Response", version, frame, body)

    def _exchange(self, api: ApiKey, version: int, body: bytes) -> tuple[memoryview, int]:
        self._correlation_id += 1
        self._socket.sendall(encode_request(api, version, self._correlation_id, CLIENT_ID, body))
        while True:
            count = self._socket.recv_into(self._frames.get_buffer())
            if count == 0:
                raise Unreachable("the broker closed the connection; it may be older than Kafka 2.8, or have stopped")
            for frame in self._frames.received(count):
                correlation_id, position = decode_response_header(api, version, frame)
                assert correlation_id == self._correlation_id
                return frame, position


def _raise_for(code: int, what: str) -> None:
    if code:
        error = error_for_code(code)
        raise error_for_code(code, f"{what}: {error.name} ({code}): {error.message}")
