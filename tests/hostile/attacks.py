"""What clients with bad intentions do to a broker: each attack is a function of a running one.

Every attack ends by itself, whatever the broker answers, and leaves it to the caller to find out how the broker is.
They are used by `test_under_attack.py`, which asks whether the broker lives, and by the row `attack` of the benchmarks,
which measures how long others wait meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.support.batches import LZ4, TIMESTAMP_MS, ZSTD, make_batch
from tests.support.groups import await_coordinator, commit_request, heartbeat_request, join_request
from tests.support.process import BrokerProcess
from tests.support.raw import ConnectionClosedError, Message, RawClient, encode_header, encode_request
from tests.support.requests import await_leaders, create_topic, fetch_request, produce_request

Attack = Callable[[BrokerProcess], None]
ATTACKS: dict[str, Attack] = {}

MIB: Final = 1 << 20
PARTITIONS: Final = 10
ORDINARY, TARGET = "ordinary", "target"
TRANSACTION_COORDINATOR: Final = 1
ANSWER_TIMEOUT_S: Final = 60
SEND_TIMEOUT_S: Final = 0.01
"""A broker that does not read is left alone by then."""
BROKER_RESOURCE: Final = 4
FEW_DESCRIPTORS: Final = 600
MOST_INT64: Final = 2**63 - 1


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


# --- tools ---


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def ask(client: RawClient, request: bytes) -> bytes:
    """Send and take the answer; nothing if the broker hangs up instead."""
    try:
        client.send_bytes(request)
        return client.receive_frame()
    except (ConnectionClosedError, ConnectionError):
        return b""


def ask_alone(broker: BrokerProcess, request: bytes) -> bytes:
    with RawClient(broker.address, ANSWER_TIMEOUT_S) as client:
        return ask(client, request)


def flood(broker: BrokerProcess, requests: Sequence[bytes], connections: int = 4) -> None:
    """All of them, on a few connections, as fast as the broker takes them; answers are read and forgotten."""

    def run(part: Sequence[bytes]) -> None:
        with contextlib.suppress(ConnectionClosedError, ConnectionError), RawClient(broker.address) as client:
            sender = threading.Thread(target=send, args=(client, part))
            sender.start()
            try:
                for _ in part:
                    client.receive_frame()
            finally:
                client.socket.shutdown(socket.SHUT_RDWR)
                sender.join()

    def send(client: RawClient, part: Sequence[bytes]) -> None:
        with contextlib.suppress(OSError):
            client.send_bytes(b"".join(part))

    threads = [threading.Thread(target=run, args=(requests[number::connections],)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def crowd(
    broker: BrokerProcess, count: int, sent: bytes = b"", *, port: int | None = None
) -> Iterator[list[socket.socket]]:
    """Connections that stay, each after having sent something; whoever is refused is left out."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(count):
            try:
                connected = socket.create_connection((broker.host, port or broker.port), timeout=ANSWER_TIMEOUT_S)
            except OSError:
                continue
            stack.enter_context(connected)
            connected.settimeout(SEND_TIMEOUT_S)
            with contextlib.suppress(OSError):
                connected.sendall(sent)
            sockets.append(connected)
        yield sockets


def metrics_port(broker: BrokerProcess) -> int:
    return int(re.findall(r"metrics at http://[^:]+:(\d+)/metrics", broker.log)[-1])


def prepare(broker: BrokerProcess) -> None:
    """What ordinary clients have done before: topics, and those that coordinators need, which are made once."""
    with RawClient(broker.address) as client:
        create_topic(client, ORDINARY)
        create_topic(client, TARGET, partitions=PARTITIONS)
        await_coordinator(client, "group")
        request = {"key_type": TRANSACTION_COORDINATOR, "coordinator_keys": ["t"]}
        while client.request("find_coordinator", 4, request)["coordinators"][0]["error_code"]:
            pass


def bomb() -> bytes:
    """A batch of 64 MiB of zeroes in a few thousand bytes."""
    return make_batch([bytes(64 * MIB - 100)], codec=ZSTD)


def produce_often(batch: bytes | bytearray, times: int) -> bytes:
    """One request that brings the same batch again and again."""
    partitions = [{"index": 0, "records": batch}] * times
    data = [{"name": TARGET, "topic_id": None, "partition_data": partitions}]
    message: Message = {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": data}
    return encode_request("produce", 9, message)


def compact(number: int) -> bytes:
    """An unsigned varint."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def flexible(api_key: int, version: int, body: bytes, client_id: str | None = "raw") -> bytes:
    return frame(encode_header(api_key, version, 1, client_id, flexible=True) + body)


# --- one request that asks for the same again and again ---


@attack
def describe_configs_of_the_broker_13000_times(broker: BrokerProcess) -> None:
    resource_ = bytes([BROKER_RESOURCE]) + compact(2) + b"1" + compact(0) + b"\0"
    request = flexible(32, 4, compact(13_001) + resource_ * 13_000 + b"\1\1\0")
    for _ in range(3):
        ask_alone(broker, request)


@attack
def describe_producers_of_one_partition_200_times(broker: BrokerProcess) -> None:
    batches = (make_batch([b"v"], producer_id=number, epoch=0, sequence=0) for number in range(1_000))
    flood(broker, [encode_request("produce", 9, produce_request(TARGET, batch)) for batch in batches])
    request = encode_request("describe_producers", 0, {"topics": [{"name": TARGET, "partition_indexes": [0] * 200}]})
    for _ in range(3):
        ask_alone(broker, request)


@attack
def offset_fetch_of_one_group_5600_times(broker: BrokerProcess) -> None:
    committed = [(TARGET, index, 7) for index in range(PARTITIONS)]
    ask_alone(broker, encode_request("offset_commit", 8, commit_request("group", *committed)))
    group = compact(6) + b"group" + compact(0) + b"\0"
    request = flexible(9, 8, compact(5_601) + group * 5_600 + b"\0\0")
    for _ in range(3):
        ask_alone(broker, request)


@attack
def metadata_of_20000_topics_that_do_not_exist(broker: BrokerProcess) -> None:
    """Auto-creation is on: each mention would make a topic."""
    topics = b"".join(bytes(16) + compact(9) + b"%08d" % number + b"\0" for number in range(20_000))
    ask_alone(broker, flexible(3, 12, compact(20_001) + topics + b"\1\0\0"))


@attack
def list_offsets_by_time_in_a_bomb(broker: BrokerProcess) -> None:
    ask_alone(broker, encode_request("produce", 9, produce_request(TARGET, bomb())))
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 1}
    again = [{"name": TARGET, "partitions": [wanted]}] * 60
    request = encode_request("list_offsets", 7, {"replica_id": -1, "isolation_level": 0, "topics": again})
    for _ in range(2):
        ask_alone(broker, request)


@attack
def produce_50_bombs_at_once(broker: BrokerProcess) -> None:
    ask_alone(broker, produce_often(bomb(), 50))


@attack
def produce_lz4_bombs_in_requests_of_50_megabytes(broker: BrokerProcess) -> None:
    """On four connections: what is being decompressed takes memory, and so do the requests that arrive meanwhile."""
    request = produce_often(make_batch([bytes(64 * MIB - 100)], codec=LZ4), 180)
    threads = [threading.Thread(target=ask_alone, args=(broker, request)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@attack
def produce_30000_tiny_batches_at_once(broker: BrokerProcess) -> None:
    ask_alone(broker, produce_often(make_batch([b"v"]), 30_000))


@attack
def produce_batches_each_of_which_rolls_a_segment(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        create_topic(client, "rolling", configs={"segment.ms": "1"})
    partitions = [
        {"index": 0, "records": make_batch([b"v"], base_timestamp=TIMESTAMP_MS + 10 * number)} for number in range(300)
    ]
    data = [{"name": "rolling", "topic_id": None, "partition_data": partitions}]
    message: Message = {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": data}
    ask_alone(broker, encode_request("produce", 9, message))


# --- what is kept between requests ---


@attack
def fetch_sessions_of_150000_partitions(broker: BrokerProcess) -> None:
    partition = b"".join(struct.pack(">iiqiqi", index, -1, 0, -1, -1, 1) + b"\0" for index in range(150_000))
    body = struct.pack(">iiiibii", -1, 0, 0, 1024, 0, 0, 0)
    body += compact(2) + compact(8) + b"unknown" + compact(150_001) + partition + b"\0" + b"\1\1\0"
    request = flexible(1, 12, body)
    for _ in range(8):
        ask_alone(broker, request)


@attack
def regular_expression_that_is_expensive(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        expression = "(.*a.{245}|" + ".*" * 900 + "zz)"
        fields = {"subscribed_topic_regex": expression, "subscribed_topic_names": None, "rebalance_timeout": 60_000}
        ask(client, encode_request("consumer_group_heartbeat", 1, heartbeat_request("group", "member", 0, **fields)))
    topics = [{"name": "a" * 200 + str(number), "num_partitions": 1, "replication_factor": 1} for number in range(50)]
    ask_alone(broker, encode_request("create_topics", 7, {"topics": topics, "timeout": 1000}))


@attack
def offset_commit_that_is_kept_for_ever(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        for retention in (MOST_INT64, -(2**63), 2**62):
            body = struct.pack(">h5sih", 5, b"group", -1, 0) + struct.pack(">q", retention)
            body += struct.pack(">ih6siiqh", 1, len(TARGET), TARGET.encode(), 1, 0, 7, 0)
            ask(client, frame(encode_header(8, 2, 1, "raw", flexible=False) + body))


@attack
def join_group_flood(broker: BrokerProcess) -> None:
    requests = [encode_request("join_group", 3, join_request(f"group-{number}")) for number in range(1_500)]
    flood(broker, requests, connections=30)


@attack
def members_of_one_group_flood(broker: BrokerProcess) -> None:
    requests = [encode_request("join_group", 5, join_request("group")) for _ in range(3_000)]
    flood(broker, requests)


@attack
def producer_id_flood(broker: BrokerProcess) -> None:
    request = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    flood(broker, [encode_request("init_producer_id", 4, request)] * 5_000)


@attack
def transactional_id_flood(broker: BrokerProcess) -> None:
    message = {"transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    requests = [
        encode_request("init_producer_id", 4, {**message, "transactional_id": f"{number:0>200}"})
        for number in range(1_500)
    ]
    flood(broker, requests)


@attack
def huge_client_ids(broker: BrokerProcess) -> None:
    body = b"\1\0\0\0"
    flood(broker, [flexible(3, 12, body, f"{number:0>30000}") for number in range(2_000)])


@attack
def huge_group_names(broker: BrokerProcess) -> None:
    requests = [
        encode_request("offset_commit", 8, commit_request(f"{number:0>30000}", (TARGET, 0, 1))) for number in range(300)
    ]
    flood(broker, requests)


@attack
def topics_made_and_deleted(broker: BrokerProcess) -> None:
    requests = []
    for number in range(150):
        new = {"name": f"t{number}", "num_partitions": 1, "replication_factor": 1}
        requests.append(encode_request("create_topics", 7, {"topics": [new], "timeout": 1000}))
        gone = {"name": f"t{number}", "topic_id": None}
        requests.append(encode_request("delete_topics", 6, {"topics": [gone], "timeout": 1000}))
    flood(broker, requests, connections=1)


# --- sockets ---


@attack
def half_sent_requests_for_metrics(broker: BrokerProcess) -> None:
    with crowd(broker, 500, b"GET /metrics HTTP/1.1\r\nHost: ", port=metrics_port(broker)):
        pass


@attack
def descriptors_exhausted(broker: BrokerProcess) -> None:
    """What is asked for meanwhile by somebody who was there before is done, at the latest when the crowd has gone."""
    before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, before[1]))
    try:
        with RawClient(broker.address) as early, crowd(broker, 1_200):
            create_topic(early, "in-a-crowd", partitions=10)
            request = encode_request("produce", 9, produce_request("in-a-crowd", make_batch([b"v"])))
            assert ask(early, request)
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)


@attack
def no_descriptor_left_at_all(broker: BrokerProcess) -> None:
    """Not even those that are reserved. What was promised meanwhile is there afterwards, without anybody's doing."""
    before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    with RawClient(broker.address) as first, RawClient(broker.address) as second, RawClient(broker.address) as third:
        for client in (first, second, third):
            client.request("api_versions", 0)
        in_use = len(os.listdir(f"/proc/{broker.pid}/fd"))
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (in_use, before[1]))
        try:
            new = {"name": "promised", "num_partitions": 3, "replication_factor": 1}
            ask(first, encode_request("create_topics", 7, {"topics": [new], "timeout": 1000}))
            ask(second, encode_request("describe_cluster", 0, {}))
            ask(third, encode_request("list_transactions", 0, {}))
        finally:
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)
    with RawClient(broker.address) as client:
        await_leaders(client, "promised", 3)


@attack
def frames_announced_and_never_sent(broker: BrokerProcess) -> None:
    with crowd(broker, 2_000, struct.pack(">i", 100 * MIB) + bytes(20)):
        pass


@attack
def half_frames_of_a_mebibyte(broker: BrokerProcess) -> None:
    with crowd(broker, 1_000, struct.pack(">i", MIB) + bytes(MIB // 2)):
        pass


@attack
def requests_whose_answers_nobody_reads(broker: BrokerProcess) -> None:
    """Answers of a hundred kilobytes and more, hundreds on each connection."""
    ask_alone(broker, encode_request("produce", 9, produce_request(TARGET, make_batch([bytes(900_000)]))))
    requests = encode_request("describe_configs", 4, {"resources": [{"resource_type": 4, "resource_name": "1"}]}) * 20
    requests += encode_request("metadata", 12, {"topics": None}) * 100
    requests += encode_request("fetch", 12, fetch_request(TARGET, 0, max_wait=0)) * 20
    with crowd(broker, 100, requests * 3):
        pass


@attack
def one_byte_at_a_time(broker: BrokerProcess) -> None:
    request = encode_request("metadata", 12, {"topics": []})
    with crowd(broker, 200) as slow:
        for byte in request:
            for each in slow:
                with contextlib.suppress(OSError):
                    each.sendall(bytes([byte]))


@attack
def api_versions_flood(broker: BrokerProcess) -> None:
    flood(broker, [encode_request("api_versions", 0, {})] * 10_000)


@attack
def tagged_fields_without_end(broker: BrokerProcess) -> None:
    """A hundred thousand of them in the header, and in the body one of ten megabytes."""
    fields = b"".join(compact(number) + b"\0" for number in range(100_000))
    header = encode_header(3, 12, 1, "raw", flexible=False) + compact(100_000) + fields
    large = encode_header(3, 12, 1, "raw", flexible=True) + b"\1\0\0" + compact(1) + compact(9) + compact(10 * MIB)
    for payload in (header + b"\1\0\0\0", large + bytes(10 * MIB)):
        for _ in range(3):
            ask_alone(broker, frame(payload))


@attack
def connections_that_come_and_go(broker: BrokerProcess) -> None:
    for _ in range(10):
        with crowd(broker, 200, b"\0\0"):
            pass
