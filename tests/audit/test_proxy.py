"""The proxy between an echo server and plain sockets."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from oncelog.audit.proxy import CuttingProxy

TIMEOUT_S = 5


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.server.seen.append(data)
            self.request.sendall(data)


class EchoServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.seen: list[bytes] = []

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with EchoServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(echo.server_address) as running:
        yield running


def connect(proxy: CuttingProxy) -> socket.socket:
    return socket.create_connection(proxy.address, timeout=TIMEOUT_S)


def round_trip(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    received = b""
    while len(received) < len(data):
        received += client.recv(65536)
    return received


def is_broken(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_forwards_both_ways(proxy: CuttingProxy) -> None:
    with connect(proxy) as client:
        data = bytes(range(256)) * 2_000
        assert round_trip(client, data) == data


def test_cut_breaks_every_connection_and_lets_new_ones_in(proxy: CuttingProxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        round_trip(first, b"x")
        round_trip(second, b"x")
        assert proxy.cut() == 2
        assert is_broken(first)
        assert is_broken(second)
    assert proxy.cut() == 0
    with connect(proxy) as client:
        assert round_trip(client, b"again") == b"again"


def test_swallowed_answers_leave_the_request_done(proxy: CuttingProxy, echo: EchoServer) -> None:
    with connect(proxy) as client:
        round_trip(client, b"first")
        proxy.swallow_answers()
        client.sendall(b"second")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert b"".join(echo.seen) == b"firstsecond"
        with connect(proxy) as other:
            assert round_trip(other, b"third") == b"third"


def test_clients_are_turned_away_while_nothing_listens_upstream(proxy: CuttingProxy, echo: EchoServer) -> None:
    proxy.upstream = None
    with connect(proxy) as client:
        assert is_broken(client)
    proxy.upstream = echo.server_address
    with connect(proxy) as client:
        assert round_trip(client, b"back") == b"back"


def test_a_closed_proxy_frees_its_port(echo: EchoServer) -> None:
    with CuttingProxy(echo.server_address) as first:
        client = connect(first)
        round_trip(client, b"x")
        port = first.address[1]
    assert is_broken(client)
    client.close()
    with CuttingProxy(echo.server_address, port=port) as second, connect(second) as client:
        assert round_trip(client, b"y") == b"y"


def test_a_taken_port_is_an_error(proxy: CuttingProxy) -> None:
    with pytest.raises(OSError, match="in use"):
        CuttingProxy(port=proxy.address[1]).start()
