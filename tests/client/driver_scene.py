"""What tests of the drivers share: cores that a test can see through, servers that it scripts, and ways to run."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import uvloop

from oncelog.client.driven import MAX_POLL_MS, Driven
from oncelog.client.network import Network, bootstrap_nodes
from oncelog.client.network_events import Event
from oncelog.client.network_settings import NetworkSettings
from oncelog.client.selecting import SelectingDriver
from oncelog.client.sockets import SYSTEM_DEFAULTS, SocketOptions
from oncelog.client.streaming import StreamingDriver
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import FrameAssembler, decode_request_header, encode_response
from tests.client.fake_broker import VERSIONS, api_versions_answer
from tests.client.network_scene import SETTINGS
from tests.support.ports import refusing_port

MAX_FRAME_BYTES = 1 << 30

Address = tuple[str, int]
Question = tuple[ApiKey, Any]

MAX_VERSIONS = {ApiKey.PRODUCE: 12}
"""Topics by name: these cores do not learn their ids."""

METADATA: Question = (ApiKey.METADATA, {"topics": []})


class Asker:
    """Asks its questions, each once and as many at a time as allowed; finished when all have ended."""

    def __init__(self, servers: list[Address], questions: list[Question], *, answered: bool = True, **settings: Any):
        self.network = Network(NetworkSettings(**{**SETTINGS, "max_in_flight": 5, **settings}), lambda: 0.5)
        self.network.set_nodes(bootstrap_nodes(servers))
        self.questions = list(reversed(questions))
        self.answered = answered
        self.is_open_ended = False
        """Goes on although all questions have ended, until this is cleared."""
        self.outstanding = 0
        self.events: list[Event] = []
        self.failures: list[BaseException] = []
        self.polls = 0
        self.has_asked_all = threading.Event()

    @property
    def is_finished(self) -> bool:
        return not self.questions and not self.outstanding and not self.is_open_ended

    def poll(self, now_ms: int) -> int:
        self.polls += 1
        while self.questions and (node_id := self.network.least_loaded(now_ms)) is not None:
            api_key, body = self.questions.pop()
            cap = MAX_VERSIONS.get(api_key)
            self.network.send(node_id, api_key, body, now_ms, tag=body, answered=self.answered, max_version=cap)
            self.outstanding += self.answered
        if not self.questions:
            self.has_asked_all.set()
        return MAX_POLL_MS

    def handle(self, event: Event, now_ms: int) -> None:
        self.outstanding -= 1
        self.events.append(event)

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)


class Hoper(Asker):
    """Gives up when a node could not be connected to."""

    @property
    def is_finished(self) -> bool:
        return bool(self.network.why_unreachable())


# --- ways to run ----------------------------------------------------------------------------------------------------

Run = Callable[..., None]


def run_selecting(core: Driven, options: SocketOptions = SYSTEM_DEFAULTS) -> None:
    SelectingDriver(core, options).run()


async def stream(core: Driven, options: SocketOptions = SYSTEM_DEFAULTS) -> None:
    driver = StreamingDriver(core, asyncio.get_running_loop(), options)
    driver.start()
    await driver.join()
    await driver.close()


def run_asyncio(core: Driven, options: SocketOptions = SYSTEM_DEFAULTS) -> None:
    asyncio.run(stream(core, options))


def run_uvloop(core: Driven, options: SocketOptions = SYSTEM_DEFAULTS) -> None:
    uvloop.run(stream(core, options))


# --- servers --------------------------------------------------------------------------------------------------------


class ScriptedServer:
    """Runs the script for each connection, in a thread, and closes the connection behind it."""

    def __init__(self, script: Callable[[socket.socket], None]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError):
            self._script(connection)


def requests_of(connection: socket.socket) -> Iterator[memoryview]:
    """Every request but the first, which is answered: which versions are spoken."""
    frames = FrameAssembler(MAX_FRAME_BYTES)
    while count := connection.recv_into(frames.get_buffer()):
        for frame in frames.received(count):
            header, _ = decode_request_header(frame)
            if header.api_key == ApiKey.API_VERSIONS:
                answer = codec.encode("ApiVersionsResponse", header.api_version, api_versions_answer(VERSIONS))
                connection.sendall(encode_response(header, answer))
            else:
                yield frame


def answer_to(frame: memoryview, message: codec.Message | None = None) -> bytes:
    header, _ = decode_request_header(frame)
    name = f"{ApiKey(header.api_key).schema_prefix}Response"
    return encode_response(header, codec.encode(name, header.api_version, message or {}))


def answering(connection: socket.socket) -> None:
    """A script: a broker that answers everything."""
    for frame in requests_of(connection):
        connection.sendall(answer_to(frame))


def unused_address() -> Address:
    return "127.0.0.1", refusing_port()


class SilentAddress:
    """Somewhere that neither accepts nor refuses a connection: a listener whose queue is full."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self.address: Address = self._listener.getsockname()[:2]
        self._waiting: list[socket.socket] = []

    def __enter__(self) -> SilentAddress:
        timeouts = 0
        while timeouts < 2:  # after one, the machine may have been busy, and the queue not be full yet
            visitor = socket.socket()
            visitor.settimeout(0.1)
            self._waiting.append(visitor)
            try:
                visitor.connect(self.address)
                timeouts = 0
            except TimeoutError:
                timeouts += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for one in [*self._waiting, self._listener]:
            one.close()
