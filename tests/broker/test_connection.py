"""One connection without a loop: what it holds, what ends it, and what it leaves alone."""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.broker import connection
from oncelog.broker.connection import KafkaConnection
from oncelog.broker.held_answers import MAX_HELD_BYTES, HeldAnswers
from oncelog.broker.request import Answer, Pending, Piecewise, Stepwise, Wait
from oncelog.broker.unfinished_frames import UnfinishedFrames
from oncelog.broker.workbench import SLICE_S, Workbench
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, encode
from oncelog.wire.encoder import EncodedTooLarge
from oncelog.wire.frame import RequestHeader, encode_request

REQUEST = encode_request(ApiKey.METADATA, 12, 7, "test", encode("MetadataRequest", 12, {"topics": []}))
MIB = 1 << 20


class Loop:
    """Calls come when the test turns it."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.writers: set[object] = set()
        self.later: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return 0.0

    def call_at(self, when_s: float, call: Callable[[], None]) -> Any:
        self.later.append((when_s, call))
        return SimpleNamespace(when=lambda: when_s, cancel=lambda: None)

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def add_writer(self, client: object, _: object) -> None:
        self.writers.add(client)

    def remove_writer(self, client: object) -> None:
        self.writers.discard(client)

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for call in due:
            call()


class Transport:
    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self.is_aborted = self._closing = False

    def get_extra_info(self, name: str) -> Any:
        return self._socket if name == "socket" else ("client", 1)

    def write(self, data: bytes) -> None:
        raise AssertionError("answers leave by the outbox")

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self.is_aborted = self._closing = True

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Dispatcher:
    """Answers what the test says; an exception is raised while the answer is framed."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.served = 0

    def dispatch(self, *_: Any) -> tuple[RequestHeader, Answer]:
        self.served += 1
        answer = self.answers.pop(0) if self.answers else [b"answer"]
        if isinstance(answer, ZeroDivisionError):
            raise answer
        return RequestHeader(ApiKey.METADATA, 12, 7, "test"), answer

    def frame(self, _: RequestHeader, answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def make(self, _: RequestHeader, answer: Piecewise) -> Any:
        def step() -> Message | None:
            element = next(answer.elements)
            if isinstance(element, Exception):
                raise element
            return element

        return Stepwise(from_steps(step))


def from_steps(step: Callable[[], Any]) -> Any:
    while True:
        answer = step()
        if answer is not None:
            return answer
        yield None


class Server:
    def __init__(self) -> None:
        self.loop = Loop()
        self.dispatcher = Dispatcher()
        self.config = SimpleNamespace(socket_request_max_bytes=MIB)
        self.buffers = None
        self.metrics = SimpleNamespace(malformed_requests=0)
        self.quotas = SimpleNamespace(active=False)
        self.workbench = Workbench(self.loop.call_soon)
        self.held_answers: HeldAnswers[KafkaConnection] = HeldAnswers()
        self.unfinished_frames: UnfinishedFrames[KafkaConnection] = UnfinishedFrames(MIB)
        self.told: list[str] = []

    def tell(self, what: str, _: object, reason: str, *, is_news: bool = True) -> None:
        assert is_news
        self.told.append(f"{what}: {reason}")

    def admit(self, _: object) -> bool:
        return True

    def forget(self, _: object) -> None: ...

    def answered(self, *_: object) -> None: ...

    def expect_more(self) -> None: ...

    def now_ms(self) -> int:
        return 0

    wall_ms = now_ms


class Client:
    """A connection, and the other end of its socket."""

    def __init__(self, server: Server) -> None:
        ours, self.socket = socket.socketpair()
        ours.setblocking(False)
        self.socket.setblocking(False)
        self._ours = ours
        self.transport = Transport(ours)
        self.connection = KafkaConnection(server)  # type: ignore[arg-type]
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, data: bytes = REQUEST) -> None:
        buffer = self.connection.get_buffer(-1)
        buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def arrive(self, data: bytes) -> None:
        """In as many parts as there is room for at once."""
        while data:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def received(self) -> bytes:
        try:
            return self.socket.recv(4 * MIB)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.connection.connection_lost(None)
        self._ours.close()
        self.socket.close()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[[], Client]]:
    clients: list[Client] = []

    def connect() -> Client:
        clients.append(Client(server))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()
    assert server.held_answers.total_bytes == 0
    assert server.unfinished_frames.total_bytes == 0


Connect = Callable[[], Client]


def test_a_client_that_is_gone_when_its_answer_leaves_is_no_news(
    server: Server, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    server.dispatcher.answers = [[b"an answer"]]
    client.socket.close()
    with caplog.at_level(logging.DEBUG):
        client.send()
    assert client.transport.is_closing()
    assert server.told == []
    assert [record.levelname for record in caplog.records if "is lost" in record.message] == ["DEBUG"]


@pytest.mark.parametrize("error", [EncodedTooLarge("more than 5 bytes"), ValueError("a bug")])
def test_an_answer_that_cannot_be_framed_ends_its_connection_alone(
    server: Server, connect: Connect, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = connect(), connect()
    server.dispatcher.answers = [error]
    client.send()
    assert client.transport.is_closing()
    assert ("bug" in caplog.text) == isinstance(error, ValueError)
    other.send()
    assert (other.transport.is_closing(), other.received()) == (False, b"answer")


def test_a_dispatcher_that_fails_ends_the_connection_alone(
    server: Server, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    server.dispatcher.answers = [ZeroDivisionError()]
    client.send()
    assert client.transport.is_closing()
    assert "bug: a request or its answer could not be dealt with" in caplog.text


def test_an_answer_that_came_late_and_cannot_be_framed(server: Server, connect: Connect) -> None:
    """Whoever completes it is in the middle of serving somebody else."""
    client = connect()
    pending = Pending()
    server.dispatcher.answers = [pending]
    client.send()
    pending.complete(ValueError("a bug"))  # type: ignore[arg-type]
    assert client.transport.is_closing()


def test_a_long_answer_is_made_while_others_are_served(server: Server, connect: Connect) -> None:
    client, other = connect(), connect()
    made: list[int] = []

    def elements() -> Iterator[Any]:
        for number in range(3):
            made.append(number)
            yield None
        yield [b"long"]

    server.dispatcher.answers = [Piecewise({}, "x", elements()), [b"other"], [b"after"]]
    client.send()
    client.send()
    assert (made, client.received()) == ([], b"")
    other.send()
    assert other.received() == b"other"
    while server.loop.soon:
        server.loop.turn()
    assert made == [0, 1, 2]
    assert client.received() == b"longafter"


def test_long_answers_of_a_client_are_made_one_at_a_time(server: Server, connect: Connect) -> None:
    """Those that wait for their turn would take memory: their requests stay in the socket."""
    client = connect()
    server.dispatcher.answers = [Piecewise({}, "x", iter([[b"long"]])) for _ in range(3)]  # type: ignore[list-item]
    for _ in range(3):
        client.send()
    assert (server.dispatcher.served, len(server.workbench)) == (1, 1)
    while server.loop.soon:
        server.loop.turn()
    assert client.received() == b"longlonglong"


@pytest.mark.parametrize("error", [EncodedTooLarge("more than 5 bytes"), ValueError("a bug")])
def test_a_long_answer_that_fails_half_way(server: Server, connect: Connect, error: Exception) -> None:
    client = connect()
    server.dispatcher.answers = [Piecewise({}, "x", iter([None, error]))]  # type: ignore[list-item]
    client.send()
    while server.loop.soon:
        server.loop.turn()
    assert client.transport.is_closing()
    assert len(server.workbench) == 0


def test_a_long_answer_for_nobody_is_not_made(server: Server, connect: Connect) -> None:
    client = connect()
    server.dispatcher.answers = [Piecewise({}, "x", iter([]))]
    client.send()
    client.transport.close()
    server.loop.turn()
    assert len(server.workbench) == 0


def test_an_answer_that_takes_steps_waits_for_others_on_the_way(server: Server, connect: Connect) -> None:
    client, other = connect(), connect()
    wait, made, pending = Wait(), list[str](), Pending()

    def steps() -> Any:
        made.append("begun")
        yield wait
        made.append("goes on")
        yield None
        return pending

    server.dispatcher.answers = [Stepwise(steps()), Piecewise({}, "x", iter([[b"other"]])), [b"behind"]]  # type: ignore[list-item]
    client.send()
    other.send()
    client.send()
    while server.loop.soon:
        server.loop.turn()
    assert (made, len(server.workbench)) == (["begun"], 0)  # nobody waits for it
    assert other.received() == b"other"
    wait.end()
    while server.loop.soon:
        server.loop.turn()
    assert made == ["begun", "goes on"]
    assert client.received() == b""
    pending.complete(Stepwise(from_steps(lambda: [b"late"])))
    while server.loop.soon:
        server.loop.turn()
    assert client.received() == b"latebehind"


def test_steps_for_nobody_are_given_up(server: Server, connect: Connect) -> None:
    client = connect()
    ended: list[str] = []

    def steps() -> Any:
        try:
            yield wait
        finally:
            ended.append("steps")

    wait = Wait()
    server.dispatcher.answers = [Stepwise(steps(), lambda: ended.append("told"))]
    client.send()
    server.loop.turn()
    client.close()
    assert ended == ["steps", "told"]
    wait.end()
    while server.loop.soon:
        server.loop.turn()
    assert len(server.workbench) == 0


def test_a_large_request_is_answered_before_the_next_one_is_looked_at(server: Server, connect: Connect) -> None:
    """What was made of each of them would be in memory at once."""
    clients = [connect() for _ in range(3)]
    served_by_then: list[int] = []

    def steps() -> Any:
        served_by_then.append(server.dispatcher.served)
        yield None
        return [b"answer"]

    server.dispatcher.answers = [Stepwise(steps()) for _ in range(3)]
    for client in clients:
        client.arrive(named(ApiKey.METADATA, connection.LARGE_REQUEST_BYTES + 1))
    while server.loop.soon:
        server.loop.turn()
    assert served_by_then == [1, 2, 3]


def test_answers_behind_one_that_is_to_come_are_bounded(server: Server, connect: Connect) -> None:
    """A client may send many small requests behind a fetch that waits, and each may have a large answer."""
    client = connect()
    server.dispatcher.answers = [Pending(), *([bytes(MAX_HELD_BYTES // 2)] for _ in range(20))]
    for _ in range(20):
        client.send()
    assert server.dispatcher.served == 4
    assert server.held_answers.total_bytes == 3 * (MAX_HELD_BYTES // 2)


def test_a_client_that_does_not_read_is_served_no_further(server: Server, connect: Connect) -> None:
    client = connect()
    server.dispatcher.answers = [[bytes(2 * MIB)] for _ in range(20)]
    for _ in range(20):
        client.send()
    assert server.dispatcher.served == 1
    assert server.held_answers.total_bytes == 2 * MIB
    sent = 0
    while sent < 2 * MIB:
        sent += len(client.received())
        client.connection._writable()
    assert server.dispatcher.served == 2


def test_who_holds_most_of_too_many_answers_is_cut_off(server: Server, connect: Connect) -> None:
    server.held_answers = HeldAnswers(max_bytes=10 * MIB)
    clients = [connect() for _ in range(4)]
    for client, mebibytes in zip(clients, (3, 5, 2, 1), strict=True):
        server.dispatcher.answers = [[bytes(mebibytes * MIB)]]
        client.send()
    assert [client.transport.is_aborted for client in clients] == [False, True, False, False]
    assert server.held_answers.total_bytes == 6 * MIB
    assert "cutting off: too many answers wait for clients to read" in server.told[-1]


def test_what_is_partly_sent_counts_until_all_of_it_is(server: Server, connect: Connect) -> None:
    client = connect()
    server.dispatcher.answers = [[bytes(2 * MIB)]]
    client.send()
    assert client.received()
    client.connection._writable()
    assert server.held_answers.total_bytes == 2 * MIB


def test_a_client_whose_request_took_long_pauses_while_others_do_not(
    server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = connect(), connect()
    monkeypatch.setattr(connection, "LONG_S", -1.0)
    client.send()
    monkeypatch.setattr(connection, "LONG_S", 1e9)
    client.send()
    other.send()
    assert (client.received(), other.received()) == (b"answer", b"answer")
    ((when_s, pause_is_over),) = server.loop.later
    assert when_s <= connection.MAX_PAUSE_S
    pause_is_over()
    assert client.received() == b"answer"


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_others_have_their_turn_between_requests_that_were_sent_at_once(
    server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by a clock that passes only when it is looked at."""
    clock_s = 1.0

    def passing() -> float:
        nonlocal clock_s
        clock_s += SLICE_S / 4
        return clock_s

    monkeypatch.setattr(time, "perf_counter", passing)
    client, other = connect(), connect()
    client.send(REQUEST * 40)
    served_at_once = server.dispatcher.served
    assert 1 <= served_at_once < 10
    other.send()
    assert server.dispatcher.served == served_at_once + 1, "it did not have to wait for the rest"
    turns = 0
    while server.loop.soon:
        server.loop.turn()
        turns += 1
    assert turns > 3
    assert server.dispatcher.served == 41
    assert client.received() == b"answer" * 40


def test_half_requests_of_many_are_given_up_and_one_that_grows_is_not(server: Server, connect: Connect) -> None:
    half = struct.pack(">i", 300_000) + bytes(150_000)
    growing, *others = [connect() for _ in range(12)]
    growing.arrive(half)
    for other in others:
        other.arrive(half)
        growing.arrive(bytes(1_000))
    assert not growing.transport.is_aborted
    assert sum(other.transport.is_aborted for other in others) >= 5
    assert server.unfinished_frames.total_bytes <= MIB
    assert any("have not arrived in full" in told for told in server.told)
    growing.arrive(bytes(300_000 - 150_000 - 1_000 * len(others)))
    assert server.dispatcher.served == 1


def named(api_key: int, size_bytes: int) -> bytes:
    return struct.pack(">ih", size_bytes, api_key) + bytes(size_bytes - 2)


def test_requests_that_name_much_take_turns_and_others_are_served_between(server: Server, connect: Connect) -> None:
    large = named(ApiKey.METADATA, connection.LARGE_REQUEST_BYTES + 1)
    crowd, other = [connect() for _ in range(5)], connect()
    for one in crowd:
        one.arrive(large + REQUEST)
    assert server.dispatcher.served == 0
    for turn in range(len(crowd)):
        server.loop.turn()
        small = 2 * turn  # of those that had their turn, and of the other
        assert server.dispatcher.served == turn + 1 + small, "one of them at a time"
        other.send()
        assert other.received() == b"answer"
    server.loop.turn()
    assert [one.received() for one in crowd] == [b"answer" * 2] * len(crowd), "in the order of each connection"


def test_what_is_long_because_of_its_records_does_not_wait(server: Server, connect: Connect) -> None:
    client = connect()
    client.arrive(named(ApiKey.PRODUCE, 500_000))
    client.arrive(named(ApiKey.FETCH, connection.LARGE_FETCH_BYTES))
    assert server.dispatcher.served == 2
    client.arrive(named(ApiKey.FETCH, connection.LARGE_FETCH_BYTES + 1))
    assert server.dispatcher.served == 2


def test_requests_that_wait_for_their_turn_are_bounded_together(server: Server, connect: Connect) -> None:
    crowd = [connect() for _ in range(12)]
    for one in crowd:
        one.arrive(named(ApiKey.METADATA, 150_000))
    assert server.unfinished_frames.total_bytes <= MIB
    served = [one for one in crowd if not one.transport.is_aborted]
    assert 0 < len(served) < len(crowd)
    while server.loop.soon:
        server.loop.turn()
    assert server.dispatcher.served == len(served)
    assert server.unfinished_frames.total_bytes == 0


def test_requests_that_are_worked_on_and_those_that_arrive_meanwhile_are_bounded_together(
    server: Server, connect: Connect
) -> None:
    worked_on, arriving, other = connect(), connect(), connect()
    pending = Pending(holds_connection=True)
    server.dispatcher.answers = [pending]
    worked_on.arrive(named(ApiKey.PRODUCE, 700_000))
    assert server.unfinished_frames.total_bytes >= 700_000
    for client in (arriving, other):
        client.arrive(struct.pack(">i", 300_000) + bytes(200_000))
    assert [client.transport.is_aborted for client in (worked_on, arriving, other)] == [False, True, False]
    pending.complete([b"answer"])
    assert worked_on.received() == b"answer"
    assert server.unfinished_frames.total_bytes < 300_000, "only what arrives"


def test_nothing_counts_of_who_is_gone_whatever_was_still_to_be_called(server: Server, connect: Connect) -> None:
    client = connect()
    pending = Pending(holds_connection=True)
    server.dispatcher.answers = [pending]
    client.send()
    client.arrive(struct.pack(">i", MIB // 2) + bytes(MIB // 4))
    assert server.unfinished_frames.total_bytes > 0
    pending.complete([b"answer"])
    client.connection.connection_lost(None)
    assert server.unfinished_frames.total_bytes == 0
    server.loop.turn()
    assert server.unfinished_frames.total_bytes == 0


def test_of_too_many_requests_that_wait_for_their_turn_the_last_is_given_up(server: Server, connect: Connect) -> None:
    """For one that is arriving; the next in turn is served, whoever comes."""
    large = struct.pack(">i", 400_000) + struct.pack(">h", ApiKey.METADATA) + bytes(400_000 - 2)
    first, second, third = (connect() for _ in range(3))
    for client in (first, second, third):
        client.arrive(large)
    assert [client.transport.is_aborted for client in (first, second, third)] == [False, True, False]
    assert server.told == ["cutting off: too many requests wait for their turn, and this one came last"]
    while server.loop.soon:
        server.loop.turn()
    assert server.dispatcher.served == 2


def test_a_request_that_could_not_be_finished_ends_its_connection(server: Server, connect: Connect) -> None:
    client = connect()
    pending = Pending(holds_connection=True)
    server.dispatcher.answers = [pending]
    client.send()

    def failing() -> None:
        raise ZeroDivisionError

    pending.attempt(failing)
    assert client.transport.is_closing()
    assert server.told == ["closing: the broker failed; its log says why"]
    pending.complete([b"too late"])
    assert client.received() == b""
