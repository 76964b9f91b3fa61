"""A broker for tests of the client: a real socket, and answers that the test decides."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType

from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import FrameAssembler, RequestHeader, decode_request_header, encode_response

VERSIONS = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.METADATA: (0, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.PRODUCE: (0, 9),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
}

HANG_UP = object()
"""As an answer: close the connection instead."""
SILENCE = object()
"""As an answer: say nothing."""

Handler = Callable[[RequestHeader, Message], object]


def api_versions_answer(versions: dict[ApiKey, tuple[int, int]]) -> Message:
    return {
        "api_keys": [
            {"api_key": key, "min_version": lowest, "max_version": highest}
            for key, (lowest, highest) in versions.items()
        ]
    }


class FakeBroker:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()[:2]
        self.requests: list[tuple[RequestHeader, Message]] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        frames = FrameAssembler(1 << 20)
        with connection:
            while count := connection.recv_into(frames.get_buffer()):
                for frame in frames.received(count):
                    answer = self._answer(frame)
                    if answer is HANG_UP:
                        return
                    if isinstance(answer, bytes):
                        connection.sendall(answer)

    def _answer(self, frame: memoryview) -> object:
        header, position = decode_request_header(frame)
        name = ApiKey(header.api_key).schema_prefix
        if header.api_key == ApiKey.API_VERSIONS:
            return encode_response(header, codec.encode("ApiVersionsResponse", 4, api_versions_answer(VERSIONS)))
        message = codec.decode_exactly(f"{name}Request", header.api_version, frame, position)
        self.requests.append((header, message))
        answer = self._handler(header, message)
        if not isinstance(answer, dict):
            return answer
        return encode_response(header, codec.encode(f"{name}Response", header.api_version, answer))


def metadata_answer(broker: FakeBroker, topics: dict[str, int]) -> Message:
    """One node that leads every partition."""
    return {
        "brokers": [{"node_id": 1, "host": broker.host, "port": broker.port}],
        "controller_id": 1,
        "cluster_id": "fake",
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
                    for index in range(count)
                ],
            }
            for name, count in topics.items()
        ],
    }
