"""The server over real sockets: order, backpressure, clients that stall or vanish, limits, and stopping."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvloop

from oncelog.broker.answer_line import MAX_PENDING_ANSWERS
from oncelog.broker.config import BrokerConfig
from oncelog.broker.lookout import LOOK_S
from oncelog.broker.off_loop import INLINE_BYTES
from oncelog.broker.server import (
    MAX_TOLD_PER_PERIOD,
    REFUSED_PERIOD_MS,
    CannotListen,
    DataFolderInUse,
    Server,
    StopProgress,
    _interrupted,
    check_addresses,
    data_folder_lock,
)
from oncelog.broker.steady_time import SteadyTime
from oncelog.clock import wall_ms
from oncelog.log.storage import FileStorage
from tests.broker.support import Desk, MetricsPage, await_that
from tests.support.batches import ZSTD, make_batch, read_records
from tests.support.broker import OncelogBroker
from tests.support.process import BrokerProcess
from tests.support.raw import ConnectionClosedError, Message, RawClient, decode_response, encode_header, encode_request
from tests.support.requests import (
    EARLIEST,
    LATEST,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
)

Topics = Callable[[], str]

MIB = 1 << 20
LONG_MS = 300_000
MAX_IDLE_MS = 6_000
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100


def offsets_request(topic: str) -> Message:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [wanted]}]}


def fill(client: RawClient, topic: str, mebibytes: int) -> None:
    for number in range(mebibytes):
        assert produce(client, topic, make_batch([bytes([number]) * (MIB - 200)]))["error_code"] == 0


def stored_bytes(broker: BrokerProcess, topic: str) -> bytes:
    return (broker.data_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()


def records_of(frame: bytes, version: int = 12) -> bytes:
    _, answer = decode_response("fetch", version, frame)
    ((partition,),) = [each["partitions"] for each in answer["responses"]]
    records: bytes = partition["records"]
    return records


def small_window_client(broker: BrokerProcess) -> RawClient:
    """The kernel takes little on behalf of a client that does not read."""
    client = RawClient(broker.address)
    client.socket.close()
    client.socket = socket.socket()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    client.socket.settimeout(60)
    client.socket.connect(broker.address)
    return client


def is_writable(client: RawClient) -> bool:
    return bool(select.select([], [client.socket], [], 0)[1])


def let_turn(broker: BrokerProcess, turns: int = 20) -> None:
    """The broker's loop goes round at least so often, and looks at every connection that has something for it."""
    with RawClient(broker.address) as other:
        for _ in range(turns):
            other.request("metadata", 12, {"topics": []})


# --- order ---


def test_pipelined_requests_are_answered_in_order(client: RawClient, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic)
    requests = []
    kinds: list[tuple[str, int, Message]]
    for number in range(300):
        kinds = [
            ("metadata", 12, {"topics": [{"name": topic, "topic_id": None}]}),
            ("list_offsets", 7, offsets_request(topic)),
            ("produce", 9, produce_request(topic, make_batch([b"%d" % number]))),
            ("fetch", 12, fetch_request(topic, 0, max_wait=0)),
        ]
        api, version, message = kinds[number % len(kinds)]
        requests.append((api, version, encode_request(api, version, message, correlation_id=1000 + number)))
    client.send_bytes(b"".join(frame for _, _, frame in requests))
    produced = 0
    for number, (api, version, _) in enumerate(requests):
        correlation_id, answer = decode_response(api, version, client.receive_frame())
        assert correlation_id == 1000 + number
        if api == "produce":
            assert answer["responses"][0]["partition_responses"][0]["base_offset"] == produced
            produced += 1
        elif api == "list_offsets":
            assert answer["topics"][0]["partitions"][0]["offset"] == produced, "it saw what came before it, and no more"
        elif api == "fetch":
            assert len(read_records(answer["responses"][0]["partitions"][0]["records"])) == produced


@pytest.mark.parametrize("acks", [-1, 0])
def test_nothing_overtakes_a_batch_that_is_judged_off_the_loop(client: RawClient, new_topic: Topics, acks: int) -> None:
    """An idempotent producer has several batches under way, all on one connection."""
    topic = new_topic()
    create_topic(client, topic)
    sizes = [INLINE_BYTES + 1, 1, 1, INLINE_BYTES + 1, 1]
    batches = [
        make_batch([bytes(size)], codec=ZSTD, producer_id=7, epoch=0, sequence=sequence)
        for sequence, size in enumerate(sizes)
    ]
    frames = [
        encode_request("produce", 9, produce_request(topic, batch, acks=acks), correlation_id=number)
        for number, batch in enumerate(batches)
    ]
    frames.append(encode_request("list_offsets", 7, offsets_request(topic), correlation_id=len(frames)))
    client.send_bytes(b"".join(frames))
    for number in range(len(batches) if acks else 0):
        correlation_id, answer = decode_response("produce", 9, client.receive_frame())
        partition = answer["responses"][0]["partition_responses"][0]
        assert (correlation_id, partition["error_code"], partition["base_offset"]) == (number, 0, number)
    correlation_id, answer = decode_response("list_offsets", 7, client.receive_frame())
    assert (correlation_id, answer["topics"][0]["partitions"][0]["offset"]) == (len(batches), len(batches))


def test_requests_behind_a_long_poll_wait_for_it(client: RawClient, measured: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic)
    waiting = client.send("fetch", 12, fetch_request(topic, 0, max_wait=LONG_MS))
    offsets = client.send("list_offsets", 7, offsets_request(topic))
    metadata = client.send("metadata", 12, {"topics": []})
    with RawClient(measured.address) as other:
        assert produce(other, topic, make_batch([b"wakes"]))["base_offset"] == 0
    fetched = client.receive("fetch", 12, waiting)
    assert b"wakes" in fetched["responses"][0]["partitions"][0]["records"]
    assert client.receive("list_offsets", 7, offsets)["topics"][0]["partitions"][0]["error_code"] == 0
    assert client.receive("metadata", 12, metadata)["brokers"]


def test_a_connections_own_append_wakes_its_own_fetch(client: RawClient, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic)
    waiting = client.send("fetch", 12, fetch_request(topic, 0, max_wait=LONG_MS))
    produced = client.send("produce", 9, produce_request(topic, make_batch([b"own"])))
    fetched = client.receive("fetch", 12, waiting)
    assert b"own" in fetched["responses"][0]["partitions"][0]["records"]
    assert client.receive("produce", 9, produced)["responses"][0]["partition_responses"][0]["error_code"] == 0


# --- backpressure ---


def test_more_waiting_requests_than_the_line_takes(
    client: RawClient, measured: BrokerProcess, page: MetricsPage, new_topic: Topics
) -> None:
    topic = new_topic()
    create_topic(client, topic)
    count = 3 * MAX_PENDING_ANSWERS + 5
    sent = [client.send("fetch", 12, fetch_request(topic, 0, max_wait=LONG_MS)) for _ in range(count)]
    await_that(lambda: page.waiting_fetches >= MAX_PENDING_ANSWERS, "the line fills up")
    let_turn(measured)
    assert page.waiting_fetches == MAX_PENDING_ANSWERS
    with RawClient(measured.address) as other:
        produce(other, topic, make_batch([b"for all"]))
    for correlation_id in sent:
        fetched = client.receive("fetch", 12, correlation_id)
        assert b"for all" in fetched["responses"][0]["partitions"][0]["records"]
    assert page.waiting_fetches == 0


def test_reading_pauses_while_the_line_is_full_and_then_goes_on(
    client: RawClient, measured: BrokerProcess, new_topic: Topics
) -> None:
    """Requests of 100 MiB behind a long poll stay in the sockets, so their sender blocks; none of them is lost."""
    topic = new_topic()
    create_topic(client, topic)
    client.send("fetch", 12, fetch_request(topic, 0, max_wait=LONG_MS))
    nowhere = produce_request("no-such-topic", make_batch([bytes(256 * 1024)]))
    frames = [encode_request("produce", 9, nowhere, correlation_id=number) for number in range(400)]
    before = measured.rss_bytes
    sent = 0

    def send_all() -> None:
        nonlocal sent
        for frame in frames:
            client.send_bytes(frame)
            sent += 1

    sender = threading.Thread(target=send_all)
    sender.start()
    await_that(lambda: sent > MAX_PENDING_ANSWERS, "the line fills up")

    def stands_still() -> bool:
        """The sockets are full, and the broker, whose loop goes round meanwhile, takes nothing out of them."""
        before = sent
        let_turn(measured)
        return sent == before and not is_writable(client)

    await_that(lambda: stands_still() or sent == len(frames), "the sockets fill up")
    assert sent < len(frames), "the broker went on reading"
    assert measured.rss_bytes < before + 48 * MIB
    with RawClient(measured.address) as other:
        produce(other, topic, make_batch([b"go on"]))
    assert b"go on" in records_of(client.receive_frame())
    for number in range(len(frames)):
        correlation_id, answer = decode_response("produce", 9, client.receive_frame())
        assert correlation_id == number
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    sender.join()


def test_a_reader_that_does_not_read(client: RawClient, measured: BrokerProcess, new_topic: Topics) -> None:
    """48 MiB are asked for and not taken: the broker keeps them in their file, serves others, and then sends it all."""
    topic = new_topic()
    create_topic(client, topic)
    fill(client, topic, 48)
    before = measured.rss_bytes
    with small_window_client(measured) as reader:
        request = fetch_request(topic, 0, max_bytes=50 * MIB)
        for number in range(3):
            reader.send_bytes(encode_request("fetch", 12, request, correlation_id=number))
        reader.send_bytes(encode_request("metadata", 12, {"topics": []}, correlation_id=3))
        for _ in range(50):
            assert produce(client, topic, make_batch([b"meanwhile"]))["error_code"] == 0
            assert measured.rss_bytes < before + 16 * MIB
        stored = stored_bytes(measured, topic)
        for _ in range(3):
            records = records_of(reader.receive_frame())
            assert len(records) > 48 * MIB - 48 * 200
            assert records == stored[: len(records)]
        assert decode_response("metadata", 12, reader.receive_frame())[0] == 3


def test_records_that_vanish_under_a_reader(
    client: RawClient, measured: BrokerProcess, page: MetricsPage, new_topic: Topics
) -> None:
    """The rest of the answer cannot be read any more: the connection ends there, and nothing else takes its place."""
    first, topic, third = new_topic(), new_topic(), new_topic()
    for each in (first, topic, third):
        create_topic(client, each)
    fill(client, topic, 16)
    stored = stored_bytes(measured, topic)
    received = bytearray()
    with small_window_client(measured) as reader:
        # Two long polls with the large answer between them: the first holds it back until all three are accepted.
        wanted = [fetch_request(each, 0, max_bytes=20 * MIB, max_wait=LONG_MS) for each in (first, topic, third)]
        reader.send_bytes(b"".join(encode_request("fetch", 12, each) for each in wanted))
        await_that(lambda: page.waiting_fetches == 2, "the long polls wait")
        produce(client, first, make_batch())
        reader.receive_frame()
        os.truncate(measured.data_dir / f"{topic}-0" / f"{0:020}.log", 12 * MIB)
        said_before = len(measured.log)
        while "its records cannot be read" not in measured.log[said_before:]:
            received += reader.socket.recv(64 * 1024)
        produce(client, third, make_batch())
        with contextlib.suppress(ConnectionError):
            while chunk := reader.socket.recv(MIB):
                received += chunk
    (size,) = struct.unpack_from(">i", received)
    assert len(received) < size + 4, "not all could be sent"
    at = bytes(received).index(stored[:61])
    assert bytes(received[at:]) == stored[: len(received) - at]
    assert list_offset(client, topic, EARLIEST)["error_code"] == 0


# --- long polls ---


@pytest.mark.parametrize("goes", ["politely", "with a reset"])
def test_a_client_that_vanishes_leaves_no_waiting_fetch(
    client: RawClient, measured: BrokerProcess, page: MetricsPage, new_topic: Topics, goes: str
) -> None:
    topic = new_topic()
    create_topic(client, topic, partitions=2)
    await_that(lambda: page.waiting_fetches == 0, "nobody waits yet")
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            vanishing = stack.enter_context(RawClient(measured.address))
            for partition in (0, 1, 0):
                vanishing.send("fetch", 12, fetch_request(topic, 0, partition=partition, max_wait=LONG_MS))
            if goes == "with a reset":
                vanishing.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await_that(lambda: page.waiting_fetches == 12, "all of them wait")
    await_that(lambda: page.waiting_fetches == 0, "the broker forgets them")
    assert produce(client, topic, make_batch())["error_code"] == 0


def test_an_append_wakes_a_fetch_at_once(
    client: RawClient, measured: BrokerProcess, page: MetricsPage, new_topic: Topics
) -> None:
    topic = new_topic()
    create_topic(client, topic)
    with RawClient(measured.address) as other:
        for offset in range(10):
            waiting = client.send("fetch", 12, fetch_request(topic, offset, max_wait=LONG_MS))
            await_that(lambda: page.waiting_fetches == 1, "it waits")
            produce(other, topic, make_batch())
            fetched = client.receive("fetch", 12, waiting)  # whoever is not woken waits longer than this does
            assert len(read_records(fetched["responses"][0]["partitions"][0]["records"])) == 1


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_deleted_under_a_waiting_fetch(
    client: RawClient, measured: BrokerProcess, page: MetricsPage, new_topic: Topics, version: int
) -> None:
    topic = new_topic()
    topic_id = create_topic(client, topic)
    request = fetch_request(topic, 0, max_wait=LONG_MS, topic_id=topic_id)
    waiting = client.send("fetch", version, request)
    await_that(lambda: page.waiting_fetches == 1, "it waits")
    with RawClient(measured.address) as other:
        named = {"topics": [{"name": topic, "topic_id": None}], "timeout": 1000}
        assert other.request("delete_topics", 6, named)["responses"][0]["error_code"] == 0
    ((partition,),) = [each["partitions"] for each in client.receive("fetch", version, waiting)["responses"]]
    assert partition["error_code"] == (UNKNOWN_TOPIC_OR_PARTITION if version == 12 else UNKNOWN_TOPIC_ID)
    assert page.waiting_fetches == 0


# --- connections ---


def test_what_is_no_request_ends_the_connection(client: RawClient, measured: BrokerProcess, page: MetricsPage) -> None:
    bad = [
        encode_header(999, 0, 1, "x", flexible=False) + bytes(20),  # an API that nobody knows
        encode_header(43, 1, 1, "x", flexible=False) + bytes(20),  # ElectLeaders: known, and not served
        encode_header(3, 99, 1, "x", flexible=True) + bytes(20),  # a version of Metadata that is not served
    ]
    before = page.value("oncelog_malformed_requests_total")
    for payload in bad:
        with RawClient(measured.address) as hostile:
            good = hostile.send("metadata", 12, {"topics": []})
            hostile.send_bytes(struct.pack(">i", len(payload)) + payload)
            hostile.send_bytes(encode_request("metadata", 12, {"topics": []}, correlation_id=77))
            assert hostile.receive("metadata", 12, good)["brokers"]
            assert hostile.is_closed_by_peer(), "what comes after it must not be answered"
    assert page.value("oncelog_malformed_requests_total") == before + len(bad)
    assert client.request("metadata", 12, {"topics": []})["brokers"]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"max.connections": "3", "connections.max.idle.ms": str(MAX_IDLE_MS), "metrics.port": "0"}
    with OncelogBroker(tmp_path, settings) as broker:
        yield broker


def is_served(client: RawClient) -> bool:
    try:
        return bool(client.request("metadata", 12, {"topics": []})["brokers"])
    except (ConnectionClosedError, ConnectionError):
        return False


def test_limits_of_connections(limited: BrokerProcess) -> None:
    page = MetricsPage(limited)
    idle = [RawClient(limited.address) for _ in range(2)]
    busy = RawClient(limited.address)
    stuck = None
    try:
        began = time.monotonic()
        assert all(is_served(client) for client in [*idle, busy])
        with RawClient(limited.address) as one_too_many:
            assert not is_served(one_too_many)
        assert page.value("kafka_server_socketservermetrics_connections_refused_total") == 1
        while page.connections > 1:
            assert time.monotonic() - began < 60, "idle connections were not closed"
            assert is_served(busy)
            time.sleep(0.02)
        assert time.monotonic() - began > 0.9 * MAX_IDLE_MS / 1000, "they were not idle for long enough"
        assert all(client.is_closed_by_peer() for client in idle)
        assert is_served(busy)
        stuck = stuck_reader(limited, busy, mebibytes=16)
        await_that(lambda: page.connections == 0, "everybody is idle, also a reader who does not read")
    finally:
        for client in [*idle, busy, stuck]:
            if client is not None:
                client.close()


def stuck_reader(broker: BrokerProcess, helper: RawClient, mebibytes: int) -> RawClient:
    """Asks for more than the sockets hold, and takes nothing."""
    create_topic(helper, "large")
    fill(helper, "large", mebibytes)
    reader = small_window_client(broker)
    reader.send("fetch", 12, fetch_request("large", 0, max_bytes=mebibytes * MIB))
    return reader


def test_a_slow_reader_is_not_an_idle_one(limited: BrokerProcess) -> None:
    """It sends nothing for longer than the limit, but it takes what it is sent."""
    with RawClient(limited.address) as helper:
        reader = stuck_reader(limited, helper, mebibytes=32)
    began = time.monotonic()
    with reader:
        reader.socket.settimeout(None)
        (left,) = struct.unpack(">i", reader.socket.recv(4, socket.MSG_WAITALL))
        while left:
            chunk = reader.socket.recv(min(left, MIB), socket.MSG_WAITALL)
            assert chunk, f"cut off with {left} bytes to come"
            left -= len(chunk)
            time.sleep(0.4)
    assert time.monotonic() - began > 2 * MAX_IDLE_MS / 1000, "this was no test"


# --- starting and stopping ---


def test_one_broker_per_data_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    told = f"{folder} is in use by another broker .process {os.getpid()}"
    with data_folder_lock(folder), pytest.raises(DataFolderInUse, match=told):
        data_folder_lock(folder).__enter__()
    with data_folder_lock(folder):
        pass


def test_a_second_broker_on_a_live_folder_whose_lock_file_was_deleted(measured: BrokerProcess) -> None:
    (measured.data_dir / ".lock").unlink()
    command = [sys.executable, "-m", "oncelog", "broker", "--data", str(measured.data_dir), "--listen", "127.0.0.1:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "is in use by another broker" in ended.stderr


@pytest.mark.parametrize("which", ["listen", "metrics"])
def test_a_port_that_is_taken(measured: BrokerProcess, tmp_path: Path, which: str) -> None:
    """It is said which option to change, without a number of the system's, and nothing is left behind."""
    folder = tmp_path / "data"
    listen, metrics = (measured.bootstrap, ()) if which == "listen" else ("127.0.0.1:0", (measured.port,))
    options = [word for port in metrics for word in ("-o", f"metrics.port={port}")]
    command = [sys.executable, "-m", "oncelog", "broker", "--data", str(folder), "--listen", listen, *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    remedy = "--listen HOST:PORT (port 0 picks a free one)" if which == "listen" else "-o metrics.port=PORT"
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        f"oncelog: cannot listen on {measured.bootstrap}: another process listens there; "
        f"choose another address with {remedy}\n"
    )
    assert not folder.exists()


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    config = BrokerConfig.from_sources(None, {"log.dirs": str(tmp_path / "data"), "listeners": "192.0.2.1:9092"})
    with pytest.raises(CannotListen, match=r"192.0.2.1:9092: this machine has no such address; .* --listen HOST:PORT"):
        check_addresses(config)


def test_an_operator_hears_how_far_a_stop_is(caplog: pytest.LogCaptureFixture) -> None:
    progress = StopProgress(10.0)
    with caplog.at_level(logging.INFO):
        for closed, now_s in ((1, 10.5), (1200, 11.0), (1201, 11.5), (2999, 12.0), (3000, 14.0)):
            progress.closed(now_s, closed, 3000)
    assert [record.getMessage() for record in caplog.records] == [
        "stopping: 1200 of 3000 partitions are closed",
        "stopping: 2999 of 3000 partitions are closed",
    ]


class Load:
    """Connections that append as fast as they are answered, until the broker goes."""

    def __init__(self, broker: BrokerProcess, topic: str, count: int = 3) -> None:
        self.acknowledged: list[int] = []
        self._broker = broker
        self._topic = topic
        self._threads = [threading.Thread(target=self._append, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _append(self, number: int) -> None:
        with contextlib.suppress(ConnectionClosedError, ConnectionError), RawClient(self._broker.address) as client:
            while True:
                self.acknowledged.append(produce(client, self._topic, make_batch([b"%d" % number]))["base_offset"])

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_second_ctrl_c_is_not_waited_for(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The first is an order to stop; after it the process is killed by SIGINT as one that knows nothing of it."""
    before = signal.getsignal(signal.SIGINT)

    async def serve(loop: asyncio.AbstractEventLoop) -> None:
        stopped = asyncio.Event()
        loop.add_signal_handler(signal.SIGINT, _interrupted, loop, stopped)
        signal.raise_signal(signal.SIGINT)
        await stopped.wait()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL

    try:
        with contextlib.closing(new_loop()) as loop:
            loop.run_until_complete(serve(loop))
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_under_load(tmp_path: Path, number: signal.Signals) -> None:
    with OncelogBroker(tmp_path, {"metrics.port": "0"}) as broker, RawClient(broker.address) as client:
        page = MetricsPage(broker)
        create_topic(client, "flushed", configs={"flush.messages": "1"})
        create_topic(client, "quiet")
        for _ in range(5):
            client.send("fetch", 12, fetch_request("quiet", 0, max_wait=LONG_MS))
        load = Load(broker, "flushed")
        await_that(lambda: len(load.acknowledged) > 200 and page.waiting_fetches == 5, "the broker is busy")
        assert broker.process is not None
        broker.process.send_signal(number)
        assert broker.process.wait(60) == 0
        load.join()
        with pytest.raises(ConnectionClosedError):
            client.receive_frame()
        assert "Traceback" not in broker.log
        assert (broker.data_dir / CLEAN_SHUTDOWN_FILE).exists()
        broker.process = None
        broker.start()
        with RawClient(broker.address) as again:
            end = list_offset(again, "flushed", LATEST)["offset"]
            assert max(load.acknowledged) < end <= max(load.acknowledged) + 1 + 3, "3 may have been on their way"
            found = {record.offset for record in read_records(fetch(again, "flushed")["records"])}
        assert found >= set(load.acknowledged)


# --- the shell itself ---


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Server]:
    desk = Desk(FileStorage(), str(tmp_path / "data"))
    with ThreadPoolExecutor(2) as pool, contextlib.closing(uvloop.new_event_loop()) as loop:
        yield Server(desk.broker, loop, pool, SteadyTime(wall_ms, time.monotonic_ns))
    desk.broker.stop(0)


def test_what_an_operator_can_do_nothing_about_is_told_to_who_debugs(
    shell: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "oncelog.broker.server"):
        for _ in range(2 * MAX_TOLD_PER_PERIOD):
            shell.tell("closing", "somebody", "the broker stops", is_news=False)
        for _ in range(2 * MAX_TOLD_PER_PERIOD):
            shell.tell("closing", "somebody", "max.connections reached")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["DEBUG"] * 2 * MAX_TOLD_PER_PERIOD + ["INFO"] * MAX_TOLD_PER_PERIOD


def test_connections_that_find_no_descriptor_are_one_line(shell: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Their clients try again, hundreds of times in a second."""
    now_ms = 0
    shell.now_ms = lambda: now_ms  # type: ignore[method-assign]
    for _ in range(243):
        shell._out_of_descriptors(("10.0.0.1", 40_000))
    now_ms = REFUSED_PERIOD_MS
    shell._out_of_descriptors(("10.0.0.2", 40_000))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "10.0.0.1" in told[0]
    assert "242 more" in told[1]
    assert shell.metrics.connections_refused == 244


def test_a_step_that_fails_comes_again(shell: Server, caplog: pytest.LogCaptureFixture) -> None:
    comes_again = asyncio.Event()
    times = 0

    def step(now_ms: int) -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise ZeroDivisionError("oops")
        comes_again.set()

    async def scenario() -> None:
        shell.every(1, step)
        await asyncio.wait_for(comes_again.wait(), 60)
        await shell.close()
        assert shell._timers, "the next time was set"
        assert all(timer.cancelled() for timer in shell._timers), "it ends with the server"

    shell.loop.run_until_complete(scenario())
    assert "bug: a housekeeping step failed" in caplog.text


def test_closing_waits_for_what_runs_in_threads_and_for_what_follows(shell: Server) -> None:
    """A flush may lead to another; and a failed one must be heard of before the logs are closed."""
    may_end = threading.Event()
    outcomes: list[object] = []

    def failing() -> None:
        assert may_end.wait(60)
        raise OSError("the disk is gone")

    def first_done(result: int | None, error: Exception | None, now_ms: int) -> None:
        outcomes.append((result, error))
        shell.run_in_thread(failing, second_done)
        shell.loop.call_later(0.02, may_end.set)

    def second_done(_: None, error: Exception | None, now_ms: int) -> None:
        outcomes.append(str(error))

    async def scenario() -> None:
        shell.run_in_thread(lambda: 42, first_done)
        await shell.close()
        assert outcomes == [(42, None), "the disk is gone"]

    shell.loop.run_until_complete(scenario())


def test_after_a_request_the_loop_looks_for_more_before_it_sleeps(
    shell: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by a clock that passes only when it is looked at."""
    clock_s = 0.0

    def passing() -> float:
        nonlocal clock_s
        clock_s += LOOK_S / 10
        return clock_s

    async def turns_of_the_loop() -> float:
        monkeypatch.setattr(time, "perf_counter", passing)
        shell.expect_more()
        for _ in range(100):
            await asyncio.sleep(0)
        return clock_s / (LOOK_S / 10)

    assert 10 <= shell.loop.run_until_complete(turns_of_the_loop()) <= 15
