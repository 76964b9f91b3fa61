"""Bad input over a raw socket: the connection closes, nothing is allocated for it, and the broker goes on serving."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator

import cramjam
import pytest

from tests.support.batches import GZIP, LZ4, SNAPPY, XERIAL_MAGIC, ZSTD, compress, make_batch, make_message, zigzag
from tests.support.process import BrokerProcess
from tests.support.raw import API_KEYS, ConnectionClosedError, RawClient, encode_header, encode_request
from tests.support.requests import (
    LATEST,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
)

Topics = Callable[[], str]

UNSUPPORTED_VERSION = 35
INVALID_RECORD = 87
MIB = 1 << 20
REQUEST_LIMIT_BYTES = 100 * MIB  # `socket.request.max.bytes`
MEMORY_TOLERANCE_BYTES = 24 * MIB
SETTLE_S = 60


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request(api: str, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    return frame(encode_header(API_KEYS[api], version, 1, "hostile", flexible=flexible) + body)


BAD_FRAMES = {
    "a negative size": struct.pack(">i", -1),
    "the most negative size": struct.pack(">i", -(2**31)) + bytes(20),
    "a size just over the limit": struct.pack(">i", REQUEST_LIMIT_BYTES + 1) + bytes(20),
    "the largest size": struct.pack(">i", 2**31 - 1) + bytes(20),
    "an empty frame": struct.pack(">i", 0),
    "less than a header": frame(bytes(7)),
    "a browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS handshake": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "a negative API key": frame(encode_header(-1, 0, 1, "x", flexible=False)),
    "a retired API": frame(encode_header(4, 0, 1, "x", flexible=False) + bytes(20)),
    "an unknown API": frame(encode_header(999, 0, 1, "x", flexible=False) + bytes(20)),
    "the largest API key": frame(encode_header(32767, 0, 1, "x", flexible=False)),
    "a version from the future": request("metadata", 14, b"\x00\x00\x00\x00", flexible=True),
    "a negative version": request("metadata", -1, bytes(4)),
    "a retired version of Fetch": request("fetch", 3, bytes(20)),
    "a retired version of ListOffsets": request("list_offsets", 0, bytes(20)),
    "a Produce from the future": request("produce", 14, bytes(20), flexible=True),
    "no body": request("metadata", 4, b""),
    "a client id beyond the frame": frame(struct.pack(">hhih", 3, 1, 1, 500) + bytes(4)),
    "a count larger than the frame": request("metadata", 1, struct.pack(">i", 2**31 - 1)),
    "a count a little larger than the frame": request("metadata", 1, struct.pack(">i", 2) + b"\x00\x01x"),
    "a compact count larger than the frame": request("metadata", 12, b"\xff\xff\xff\xff\x07" + bytes(9), flexible=True),
    "a varint that never ends": request("metadata", 12, b"\xff" * 20, flexible=True),
    "a varint that never ends in the header": request("metadata", 12, b"\xff" * 20),
    "a string beyond the frame": request("metadata", 1, struct.pack(">ih", 1, 30_000) + b"abc"),
    "a negative string length": request("metadata", 1, struct.pack(">ih", 1, -5) + b"abc"),
    "null where a name must be": request("metadata", 1, struct.pack(">ih", 1, -1)),
    "a tagged field beyond the frame": request("metadata", 12, b"\x01\x00\x00\x01\x63\x7fab", flexible=True),
    "a count of tagged fields that is a lie": request(
        "metadata", 12, b"\x01\x00\x00\xff\xff\xff\xff\x07", flexible=True
    ),
    "a topic count that is a lie in Produce": request("produce", 3, struct.pack(">hhii", -1, -1, 1000, 2**31 - 1)),
    "a topic count that is a lie in Fetch": request("fetch", 4, struct.pack(">iiiibi", -1, 0, 0, 100, 0, 2**31 - 1)),
    "records beyond the frame": request(
        "produce", 3, struct.pack(">hhiih1siii", -1, -1, 1000, 1, 1, b"t", 1, 0, 2**30)
    ),
    "a request for a mechanism that is not on": request("sasl_authenticate", 1, struct.pack(">i", 2**30)),
}


@pytest.fixture
def serving(broker: BrokerProcess, new_topic: Topics) -> Iterator[BrokerProcess]:
    """After the test the same process still takes and returns records, and is no larger than before."""
    topic = new_topic()
    with RawClient(broker.address) as client:
        create_topic(client, topic)
        produce(client, topic, make_batch([b"before"]))
    before, pid = broker.rss_bytes, broker.pid
    yield broker
    with RawClient(broker.address) as client:
        assert produce(client, topic, make_batch([b"after"]))["base_offset"] == 1
        assert b"after" in fetch(client, topic, 1)["records"]
    assert broker.pid == pid
    if broker.kind == "oncelog":
        _await_memory(broker, before + MEMORY_TOLERANCE_BYTES)
        assert "Traceback" not in broker.log


def _await_memory(broker: BrokerProcess, limit_bytes: int) -> None:
    deadline = time.monotonic() + SETTLE_S
    while broker.rss_bytes > limit_bytes:
        assert time.monotonic() < deadline, f"{broker.rss_bytes / MIB:.0f} MiB, allowed {limit_bytes / MIB:.0f}"
        time.sleep(0.1)


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_closes_the_connection(serving: BrokerProcess, name: str) -> None:
    with RawClient(serving.address) as client:
        client.send_bytes(BAD_FRAMES[name])
        assert client.is_closed_by_peer()


def test_an_answer_to_a_good_request_comes_before_the_close(serving: BrokerProcess) -> None:
    with RawClient(serving.address) as client:
        good = client.send("metadata", 12, {"topics": []})
        client.send_bytes(BAD_FRAMES["a count larger than the frame"])
        assert client.receive("metadata", 12, good)["brokers"]
        assert client.is_closed_by_peer()


BODIES = {
    ("produce", 3): produce_request("t", make_batch()),
    ("produce", 12): produce_request("t", make_batch()),
    ("fetch", 4): fetch_request("t", 0, max_wait=0),
    ("fetch", 12): fetch_request("t", 0, max_wait=0),
    ("list_offsets", 7): {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    ("metadata", 4): {"topics": [{"name": "t"}], "allow_auto_topic_creation": False},
    ("metadata", 12): {"topics": [{"name": "t"}], "allow_auto_topic_creation": False},
    ("create_topics", 7): {"topics": [{"name": "t", "num_partitions": 1, "configs": [{"name": "a", "value": "b"}]}]},
    ("describe_configs", 4): {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": ["a"]}]},
}


@pytest.mark.parametrize(("api", "version"), BODIES)
def test_a_request_cut_anywhere_closes_the_connection(serving: BrokerProcess, api: str, version: int) -> None:
    """The frame is whole but its body stops early, at every byte."""
    whole = encode_request(api, version, BODIES[(api, version)])[4:]
    header_bytes = 4 + 4 + 2 + len("raw")
    for size in range(header_bytes, len(whole)):
        with RawClient(serving.address) as client:
            client.send_bytes(frame(whole[:size]))
            assert client.is_closed_by_peer(), f"still open after {size} of {len(whole)} bytes"


def test_a_request_may_arrive_one_byte_at_a_time(serving: BrokerProcess) -> None:
    with RawClient(serving.address) as client:
        for byte in encode_request("metadata", 12, {"topics": []}, correlation_id=5):
            client.send_bytes(bytes([byte]))
        assert client.receive("metadata", 12, 5)["brokers"]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_produce_from_before_record_batches(serving: BrokerProcess, new_topic: Topics, version: int) -> None:
    """Advertised (see ApiVersions) but not served: refused, and nothing is written."""
    topic = new_topic()
    records = make_message(magic=min(version, 1))
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">hii", -1, 1000, 1) + name + struct.pack(">iii", 1, 0, len(records)) + records
    with RawClient(serving.address) as client:
        create_topic(client, topic)
        client.send_bytes(request("produce", version, body))
        with contextlib.suppress(ConnectionClosedError):
            answer = client.receive_frame()
            assert struct.pack(">h", UNSUPPORTED_VERSION) in answer
    with RawClient(serving.address) as client:
        assert list_offset(client, topic, LATEST)["offset"] == 0


def test_large_claims_allocate_nothing(serving: BrokerProcess) -> None:
    """Frames that claim 90 MiB each and send a few bytes: memory follows what arrives, not what is claimed."""
    if serving.kind == "kafka":
        pytest.skip("Apache Kafka allocates what a frame claims, and runs out of memory")
    before = serving.rss_bytes
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(RawClient(serving.address))
            client.send_bytes(struct.pack(">i", 90 * MIB) + encode_header(0, 9, 1, "x", flexible=True) + bytes(1000))
        time.sleep(0.5)
        assert serving.rss_bytes < before + MEMORY_TOLERANCE_BYTES


def test_connections_that_come_and_go(serving: BrokerProcess) -> None:
    for turn in range(500):
        with RawClient(serving.address) as client:
            if turn % 2:
                client.send_bytes(encode_request("metadata", 12, {"topics": []})[: turn % 20])
            if turn % 3 == 0:
                # Resets the connection instead of ending it.
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_client_that_vanishes_while_it_waits(serving: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    with RawClient(serving.address) as client:
        create_topic(client, topic)
    for _ in range(50):
        with RawClient(serving.address) as client:
            client.send("fetch", 12, fetch_request(topic, 0, max_wait=30_000))
    with RawClient(serving.address) as client:
        assert produce(client, topic, make_batch())["error_code"] == 0


def test_a_client_that_never_reads_its_answers(serving: BrokerProcess, new_topic: Topics) -> None:
    """Gigabytes of answers are asked for and not taken: the broker stops reading from that client instead."""
    topic = new_topic()
    with RawClient(serving.address) as client:
        create_topic(client, topic)
        for _ in range(8):
            produce(client, topic, make_batch([os.urandom(MIB - 100)]))
    before = serving.rss_bytes
    with RawClient(serving.address) as client:
        client.socket.settimeout(1)
        asked = encode_request("fetch", 12, fetch_request(topic, 0, max_wait=0))
        with contextlib.suppress(TimeoutError):
            for _ in range(2_000):
                client.send_bytes(asked)
        time.sleep(0.5)
        if serving.kind == "oncelog":
            assert serving.rss_bytes < before + 3 * MEMORY_TOLERANCE_BYTES


def _bomb(codec: int, unfolded_bytes: int) -> bytes:
    head = bytes(3) + zigzag(-1) + zigzag(unfolded_bytes)
    record = zigzag(len(head) + unfolded_bytes + 1) + head + bytes(unfolded_bytes) + zigzag(0)
    if codec == SNAPPY:
        blocks = (bytes(cramjam.snappy.compress_raw(record[at : at + MIB])) for at in range(0, len(record), MIB))
        section = XERIAL_MAGIC + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    else:
        section = compress(codec, record)
    return make_batch(section=section, codec=codec)


@pytest.mark.parametrize(("codec", "unfolded_mib"), [(GZIP, 300), (SNAPPY, 200), (LZ4, 200), (ZSTD, 300)])
def test_a_decompression_bomb(serving: BrokerProcess, new_topic: Topics, codec: int, unfolded_mib: int) -> None:
    if serving.kind == "kafka":
        pytest.skip("Apache Kafka does not bound what a batch unfolds to")
    topic = new_topic()
    with RawClient(serving.address) as client:
        create_topic(client, topic, configs={"max.message.bytes": str(64 * MIB)})
        assert produce(client, topic, _bomb(codec, unfolded_mib * MIB))["error_code"] == INVALID_RECORD
        assert list_offset(client, topic, LATEST)["offset"] == 0


def test_a_snappy_block_that_announces_gigabytes(serving: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    announced = b"\xff\xff\xff\xff\x0f" + b"\xfe\x00\x00" * 10
    sections = [
        announced,
        XERIAL_MAGIC + struct.pack(">i", len(announced)) + announced,
        XERIAL_MAGIC + b"\x7f\xff\xff\xff",
    ]
    with RawClient(serving.address) as client:
        create_topic(client, topic)
        for section in sections:
            assert produce(client, topic, make_batch(section=section, codec=SNAPPY))["error_code"] != 0
        assert list_offset(client, topic, LATEST)["offset"] == 0
