"""A network with everything around it played by the test: the shell, the clock, and brokers that answer when told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from oncelog.client.metadata import Node
from oncelog.client.network import Network
from oncelog.client.network_events import Close, Connect, Effect, Event, Write
from oncelog.client.network_settings import NetworkSettings
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import FrameAssembler, RequestHeader, decode_request_header, encode_response
from tests.client.fake_broker import VERSIONS, api_versions_answer

SETTINGS: dict[str, Any] = {
    "client_id": "test",
    "max_in_flight": 3,
    "request_timeout_ms": 30_000,
    "socket_connection_setup_timeout_ms": 10_000,
    "socket_connection_setup_timeout_max_ms": 30_000,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1_000,
    "connections_max_idle_ms": 540_000,
    "max_answer_bytes": 1 << 20,
}

NODES = [Node(1, "one", 9092), Node(2, "two", 9092), Node(3, "three", 9092)]


class Scene:
    def __init__(self, nodes: Iterable[Node] = NODES, *, jitter: float = 0.5, **settings: Any) -> None:
        self.jitter = jitter
        self.network = Network(NetworkSettings(**{**SETTINGS, **settings}), lambda: self.jitter)
        self.network.set_nodes(nodes)
        self.now_ms = 1_000_000
        self.dialed: list[Connect] = []
        self.closed: list[int] = []
        self.questions: dict[int, list[tuple[RequestHeader, bytes]]] = defaultdict(list)
        """By link: the requests that arrived and were not answered."""
        self._frames: dict[int, FrameAssembler] = {}

    def perform(self) -> list[Effect]:
        """The shell, with sockets that take everything at once."""
        effects = self.network.take_effects()
        for effect in effects:
            if isinstance(effect, Connect):
                self.dialed.append(effect)
                self._frames[effect.link] = FrameAssembler(1 << 30)
            elif isinstance(effect, Write):
                self._arrive(effect.link, b"".join(effect.buffers))
            else:
                assert isinstance(effect, Close)
                self.closed.append(effect.link)
        return effects

    def _arrive(self, link: int, data: bytes) -> None:
        frames = self._frames[link]
        rest = memoryview(data)
        while rest:
            buffer = frames.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            for frame in frames.received(count):
                header, position = decode_request_header(frame)
                self.questions[link].append((header, bytes(frame[position:])))

    def connect(self, node_id: int) -> int:
        """A node that is ready, as far as connecting makes it so. Returns its link."""
        self.network.connect(node_id, self.now_ms)
        self.perform()
        return self.agree(self.dialed[-1].link)

    def agree(self, link: int, versions: dict[ApiKey, tuple[int, int]] = VERSIONS) -> int:
        self.network.opened(link, self.now_ms)
        self.perform()
        assert self.answer(link, api_versions_answer(versions)) == []
        return link

    def send(self, node_id: int, tag: object, **options: Any) -> int:
        version = self.network.send(node_id, ApiKey.METADATA, {"topics": None}, self.now_ms, tag=tag, **options)
        self.perform()
        return version

    def answer(self, link: int, message: codec.Message | None = None) -> list[Event]:
        """The oldest question is answered."""
        header, _ = self.questions[link].pop(0)
        name = f"{ApiKey(header.api_key).schema_prefix}Response"
        return self.feed(link, encode_response(header, codec.encode(name, header.api_version, message or {})))

    def feed(self, link: int, data: bytes) -> list[Event]:
        events: list[Event] = []
        rest = memoryview(data)
        while rest:
            buffer = self.network.get_buffer(link)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            events += self.network.received(link, count, self.now_ms)
        return events

    def lose(self, link: int, reason: str = "reset") -> list[Event]:
        return self.network.lost(link, reason, self.now_ms)

    def pass_time(self, duration_ms: int) -> list[Event]:
        self.now_ms += duration_ms
        events = self.network.tick(self.now_ms)
        self.perform()
        return events

    def is_ready(self, node_id: int) -> bool:
        return self.network.is_ready(node_id, self.now_ms)

    def wait_ms(self) -> int:
        """How long until the network must be told the time."""
        deadline_ms = self.network.next_deadline_ms(self.now_ms)
        assert deadline_ms is not None
        return deadline_ms - self.now_ms

    def dials(self, node_id: int) -> bool:
        """Ask for a connection; has an attempt begun?"""
        count = len(self.dialed)
        self.network.connect(node_id, self.now_ms)
        self.perform()
        return len(self.dialed) > count

    def pause_before_dialing(self, node_id: int) -> int:
        """How long the network waits before it begins to connect."""
        began_ms = self.now_ms
        while not self.dials(node_id):
            assert self.pass_time(self.wait_ms()) == []
        return self.now_ms - began_ms
