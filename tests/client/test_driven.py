"""What both drivers promise: one suite, over real sockets, in a thread, on asyncio and on uvloop."""

from __future__ import annotations

import hashlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from oncelog.client.driven import MAX_POLL_MS, advance, sleep_ms
from oncelog.client.network_events import Answered, Event, Lost, LostKind
from oncelog.client.sockets import SocketOptions
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import decode_request_header
from oncelog.wire.produce import ProducePartition, ProduceRequest, ProduceTopic, decode_produce_request
from tests.client.driver_scene import (
    METADATA,
    Address,
    Asker,
    Hoper,
    Run,
    ScriptedServer,
    SilentAddress,
    answer_to,
    answering,
    requests_of,
    run_asyncio,
    run_selecting,
    run_uvloop,
    unused_address,
)
from tests.client.network_scene import Scene
from tests.support.batches import Record, make_batch
from tests.support.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(200)]

SMALL_BUFFERS = SocketOptions(send_buffer_bytes=64 * 1024, receive_buffer_bytes=64 * 1024)


@pytest.fixture(params=[run_selecting, run_asyncio, run_uvloop])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


def produce(topic: str, records: bytes, acks: int = -1) -> tuple[ApiKey, ProduceRequest]:
    partition = ProducePartition(0, memoryview(records))
    return ApiKey.PRODUCE, ProduceRequest(None, acks, 5_000, [ProduceTopic(topic, None, [partition])])


def answers_of(core: Asker) -> list[Answered]:
    assert core.failures == []
    answers = [event for event in core.events if isinstance(event, Answered)]
    assert answers == core.events
    return answers


def losses_of(core: Asker) -> list[Lost]:
    assert core.failures == []
    losses = [event for event in core.events if isinstance(event, Lost)]
    assert losses == core.events
    return losses


def records_of(frame: memoryview) -> bytes:
    """The records of a Produce request."""
    header, position = decode_request_header(frame)
    request = decode_produce_request(frame, position, header.api_version)
    records = request.topics[0].partitions[0].records
    assert records is not None
    return bytes(records)


# --- what goes well -------------------------------------------------------------------------------------------------


def test_many_questions_and_their_answers(run: Run, broker: BrokerProcess) -> None:
    core = Asker([broker.address], [METADATA] * 200)
    run(core)
    answers = answers_of(core)
    assert len(answers) == 200
    assert answers[-1].body["brokers"]
    assert core.network.connections_made == 1
    # Each pass does some work: a driver that goes round for nothing would poll far more often.
    assert core.polls < 2 * 200 + 20


def test_records_are_stored(run: Run, broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    creation = (ApiKey.METADATA, {"topics": [{"name": topic}], "allow_auto_topic_creation": True})
    while True:  # Kafka creates it in its own time
        core = Asker([broker.address], [creation])
        run(core)
        if answers_of(core)[0].body["topics"][0]["error_code"] == 0:
            break
    small, large = make_batch([Record()]), make_batch([Record(value=b"x" * 300_000)] * 3)
    core = Asker([broker.address], [produce(topic, small), produce(topic, large)], max_in_flight=1)
    run(core)
    stored = [answer.body.topics[0].partitions[0] for answer in answers_of(core)]
    assert [(one.error_code, one.base_offset) for one in stored] == [(0, 0), (0, 1)]


def test_a_name_is_looked_up(run: Run) -> None:
    with ScriptedServer(answering) as server:
        core = Asker([("localhost", server.address[1])], [METADATA])
        run(core)
    answers_of(core)


def test_large_requests_arrive_whole(run: Run) -> None:
    """More than fits the sockets, so that writes are cut somewhere."""
    digests: list[bytes] = []

    def read(connection: socket.socket) -> None:
        for frame in requests_of(connection):
            digests.append(hashlib.sha256(records_of(frame)).digest())
            connection.sendall(answer_to(frame))

    contents = [random.Random(number).randbytes(400_000 + number) for number in range(6)]
    with ScriptedServer(read) as server:
        core = Asker([server.address], [produce("t", content) for content in contents], max_in_flight=3)
        run(core, SMALL_BUFFERS)
    assert len(answers_of(core)) == 6
    assert digests == [hashlib.sha256(content).digest() for content in contents]


def test_more_buffers_than_one_write_takes(run: Run) -> None:
    arrived: list[int] = []

    def count(connection: socket.socket) -> None:
        for frame in requests_of(connection):
            header, position = decode_request_header(frame)
            (topic,) = decode_produce_request(frame, position, header.api_version).topics
            assert all(bytes(records or b"") == bytes([index % 256]) * 1024 for index, records in topic.partitions)
            arrived.append(len(topic.partitions))
            connection.sendall(answer_to(frame))

    partitions = [ProducePartition(index, memoryview(bytes([index % 256]) * 1024)) for index in range(2_000)]
    with ScriptedServer(count) as server:
        core = Asker(
            [server.address],
            [(ApiKey.PRODUCE, ProduceRequest(None, -1, 5, [ProduceTopic("t", None, partitions)]))],
        )
        run(core)
    answers_of(core)
    assert arrived == [2_000]


def test_what_nobody_answers_has_left_before_the_driver_ends(run: Run) -> None:
    received: list[int] = []
    is_over = threading.Event()

    def read_late(connection: socket.socket) -> None:
        for frame in requests_of(connection):
            assert core.has_asked_all.wait(30)
            received.append(len(records_of(frame)))
        is_over.set()

    with ScriptedServer(read_late) as server:
        questions = [produce("t", bytes(500_000), acks=0)] * 12
        core = Asker([server.address], questions, answered=False, max_in_flight=12)
        run(core, SMALL_BUFFERS)
        assert is_over.wait(30)
    assert received == [500_000] * 12
    assert core.failures == []
    assert core.events == []


def test_the_sockets_are_closed_when_the_core_is_finished(run: Run) -> None:
    is_over = threading.Event()

    def answer_until_the_end(connection: socket.socket) -> None:
        answering(connection)
        is_over.set()

    with ScriptedServer(answer_until_the_end) as server:
        run(Asker([server.address], [METADATA]))
        assert is_over.wait(30)


def test_a_core_that_wants_nothing_ends_the_driver_at_once(run: Run) -> None:
    core = Asker([], [])
    run(core)
    assert core.failures == []
    assert core.events == []


def test_the_core_is_polled_again_when_it_asked_for_it(run: Run) -> None:
    class Ticker(Asker):
        is_finished = False

        def poll(self, now_ms: int) -> int:
            self.polls += 1
            self.is_finished = self.polls == 5
            return 10

    core = Ticker([], [])
    run(core)
    assert core.polls == 5


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_nobody_listens(run: Run) -> None:
    host, port = unused_address()
    core = Hoper([(host, port)], [METADATA])
    run(core)
    assert core.network.why_unreachable() == f"{host}:{port}: Connection refused"
    assert core.failures == []


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("no.such.host.invalid", 9092),
        ("a..b", 9092),
        ("x" * 70, 9092),
        ("\udcff", 9092),
        ("nul\0byte", 9092),
        ("127.0.0.1", -1),
        ("127.0.0.1", 0),
        ("localhost", 65_536),
    ],
)
def test_there_is_no_such_host(run: Run, host: str, port: int) -> None:
    """Brokers may advertise anything."""
    core = Hoper([(host, port)], [METADATA])
    run(core)
    assert core.network.why_unreachable().startswith(f"{host}:{port}: unknown host (")
    assert core.failures == []


def test_the_next_server_is_asked_when_the_first_is_down(run: Run) -> None:
    with ScriptedServer(answering) as server:
        core = Asker([unused_address(), server.address], [METADATA] * 3)
        run(core)
    assert {answer.node_id for answer in answers_of(core)} == {-2}


def several_addresses(monkeypatch: pytest.MonkeyPatch, *addresses: Address) -> None:
    """The host "several" has all of these."""
    look_up = socket.getaddrinfo

    def pretend(host: str, port: int, *args: Any, **options: Any) -> list[Any]:
        if host != "several":
            return look_up(host, port, *args, **options)
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", pretend)


def test_every_address_of_a_host_is_tried(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(answering) as server:
        several_addresses(monkeypatch, unused_address(), unused_address(), server.address)
        core = Asker([("several", 1)], [METADATA])
        run(core)
    answers_of(core)


def test_an_address_that_keeps_silent_is_not_waited_for_long(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.client.selecting.ADDRESS_PATIENCE_MS", 50)
    monkeypatch.setattr("oncelog.client.streaming.ADDRESS_PATIENCE_MS", 50)
    with SilentAddress() as silence, ScriptedServer(answering) as server:
        several_addresses(monkeypatch, silence.address, server.address)
        core = Asker([("several", 1)], [METADATA])
        run(core)
    answers_of(core)
    assert core.network.connections_made == 1


def test_why_every_address_failed_is_said_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    several_addresses(monkeypatch, unused_address(), unused_address())
    core = Hoper([("several", 1)], [METADATA])
    run(core)
    assert core.network.why_unreachable() == "several:1: Connection refused"


def test_a_server_that_never_accepts(run: Run) -> None:
    with SilentAddress() as silence:
        core = Hoper([silence.address], [METADATA], socket_connection_setup_timeout_ms=100)
        run(core)
    assert "does not accept the connection" in core.network.why_unreachable()


def test_a_server_that_hangs_up(run: Run) -> None:
    def hang_up(connection: socket.socket) -> None:
        next(requests_of(connection))

    with ScriptedServer(hang_up) as server:
        core = Asker([server.address], [METADATA] * 3)
        run(core)
    losses = losses_of(core)
    assert len(losses) == 3
    assert {loss.kind for loss in losses} <= {LostKind.CONNECTION, LostKind.NEVER_SENT}
    assert losses[0].kind is LostKind.CONNECTION


def test_a_server_that_resets_the_connection(run: Run) -> None:
    def reset(connection: socket.socket) -> None:
        next(requests_of(connection))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with ScriptedServer(reset) as server:
        core = Asker([server.address], [METADATA])
        run(core)
    (loss,) = losses_of(core)
    assert loss.kind is LostKind.CONNECTION
    assert "Connection reset by peer" in loss.reason


def test_a_server_that_stalls(run: Run) -> None:
    def stall(connection: socket.socket) -> None:
        for _ in requests_of(connection):
            pass

    with ScriptedServer(stall) as server:
        core = Asker([server.address], [METADATA] * 3, request_timeout_ms=100)
        run(core)
    losses = losses_of(core)
    assert [loss.kind for loss in losses] == [LostKind.TIMEOUT] * 3


def test_a_server_that_reads_nothing(run: Run) -> None:
    is_over = threading.Event()

    def read_nothing(connection: socket.socket) -> None:
        next(requests_of(connection), None)
        is_over.wait(60)

    with ScriptedServer(read_nothing) as server:
        core = Asker([server.address], [produce("t", bytes(20_000_000))] * 3, request_timeout_ms=300)
        run(core, SMALL_BUFFERS)
    is_over.set()
    assert {loss.kind for loss in losses_of(core)} == {LostKind.TIMEOUT}


def test_a_server_that_speaks_something_else(run: Run) -> None:
    def speak_http(connection: socket.socket) -> None:
        next(requests_of(connection), None)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.recv(1)

    with ScriptedServer(speak_http) as server:
        core = Asker([server.address], [METADATA])
        run(core)
    (loss,) = losses_of(core)
    assert loss.kind is LostKind.RUBBISH


def test_lost_connections_are_made_again(run: Run) -> None:
    class Persistent(Asker):
        def handle(self, event: Event, now_ms: int) -> None:
            if isinstance(event, Lost):
                self.outstanding -= 1
                self.questions.append(METADATA)
            else:
                super().handle(event, now_ms)

    def answer_one(connection: socket.socket) -> None:
        for frame in islice(requests_of(connection), 1):
            connection.sendall(answer_to(frame))

    with ScriptedServer(answer_one) as server:
        core = Persistent([server.address], [METADATA] * 5, max_in_flight=1, reconnect_backoff_ms=5)
        run(core)
    assert len(answers_of(core)) == 5
    assert core.network.connections_made == 5


class Bug(Exception):
    pass


def test_a_core_that_raises_when_polled_ends_its_driver(run: Run) -> None:
    class Broken(Asker):
        def poll(self, now_ms: int) -> int:
            raise Bug

    core = Broken([], [METADATA])
    run(core)
    assert [type(error) for error in core.failures] == [Bug]


def test_a_core_that_raises_at_an_answer_ends_its_driver(run: Run) -> None:
    is_over = threading.Event()

    def answer_until_the_end(connection: socket.socket) -> None:
        answering(connection)
        is_over.set()

    class Broken(Asker):
        def handle(self, event: Event, now_ms: int) -> None:
            raise Bug

    with ScriptedServer(answer_until_the_end) as server:
        core = Broken([server.address], [METADATA])
        run(core)
        assert is_over.wait(30)
    assert [type(error) for error in core.failures] == [Bug]


# --- the part without sockets ---------------------------------------------------------------------------------------


def test_time_decides_first_then_the_core_then_how_long_to_wait() -> None:
    scene = Scene()
    scene.connect(1)
    scene.send(1, "late")

    class Core(Asker):
        network = scene.network

        def poll(self, now_ms: int) -> int:
            assert [event.tag for event in self.events] == ["late"]
            return 777_777

    core = Core.__new__(Core)
    core.events, core.outstanding, core.questions, core.is_open_ended = [], 0, [], True
    scene.now_ms += 30_000
    assert advance(core, scene.now_ms) == 777_777
    assert sleep_ms(scene.network, 777_777, scene.now_ms) == 50  # the backoff of the lost connection
    assert sleep_ms(scene.network, 7, scene.now_ms) == 7
    assert sleep_ms(scene.network, 7, scene.now_ms + 99) == 0
    scene.now_ms += 50
    advance(core, scene.now_ms)
    assert sleep_ms(scene.network, 777_777, scene.now_ms) == MAX_POLL_MS
