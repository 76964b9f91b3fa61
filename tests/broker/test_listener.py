"""Connections come in while there are descriptors for them; the others hear so at once."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator

import pytest
import uvloop

from oncelog.broker import listener as module
from oncelog.broker.listener import ACCEPTED_AT_ONCE, Listener

pytestmark = pytest.mark.real


class Greeting(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(b"hello")  # type: ignore[attr-defined]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with contextlib.closing(uvloop.new_event_loop()) as loop:
        yield loop


async def said(port: int, host: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await asyncio.wait_for(reader.read(5), 60)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def listener(
    loop: asyncio.AbstractEventLoop, may_keep: Callable[[int], bool], refused: list[object] | None = None
) -> Listener:
    told = refused if refused is not None else []
    return Listener(loop, Greeting, may_keep=may_keep, refused=told.append)


def test_more_than_are_taken_at_once(loop: asyncio.AbstractEventLoop) -> None:
    async def scenario() -> None:
        listening = listener(loop, lambda _: True)
        port = await listening.listen("127.0.0.1", 0)
        count = 3 * ACCEPTED_AT_ONCE + 1
        assert await asyncio.gather(*(said(port) for _ in range(count))) == [b"hello"] * count
        listening.close()
        await listening.settle()
        with pytest.raises(ConnectionRefusedError):
            await said(port)

    loop.run_until_complete(scenario())


def test_who_is_refused_hears_so_at_once_and_the_next_one_is_judged_anew(loop: asyncio.AbstractEventLoop) -> None:
    judged: list[int] = []
    refused: list[object] = []

    def may_keep(descriptor: int) -> bool:
        judged.append(descriptor)
        return len(judged) > 2

    async def scenario() -> None:
        listening = listener(loop, may_keep, refused)
        port = await listening.listen("127.0.0.1", 0)
        assert [await said(port) for _ in range(3)] == [b"", b"", b"hello"]
        listening.close()
        await listening.settle()

    loop.run_until_complete(scenario())
    assert len(refused) == 2
    assert all(descriptor > 2 for descriptor in judged)


class Failing(socket.socket):
    """The system has no descriptor for the first who comes."""

    failures = 1

    def accept(self) -> tuple[socket.socket, object]:
        if Failing.failures:
            Failing.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_the_system_cannot_accept_for_a_moment(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    monkeypatch.setattr(Failing, "failures", 1)

    async def scenario() -> None:
        monkeypatch.setattr(socket, "socket", Failing)
        listening = listener(loop, lambda _: True)
        port = await listening.listen("127.0.0.1", 0)
        monkeypatch.undo()
        assert await said(port) == b"hello"
        listening.close()
        await listening.settle()

    loop.run_until_complete(scenario())
    assert "no connection is accepted" in caplog.text


def test_all_addresses_share_a_port(loop: asyncio.AbstractEventLoop) -> None:
    async def scenario() -> None:
        listening = listener(loop, lambda _: True)
        port = await listening.listen(None, 0)
        assert await said(port) == b"hello"
        assert len({each.getsockname()[1] for each in listening._sockets}) == 1
        listening.close()
        await listening.settle()

    loop.run_until_complete(scenario())


def test_a_chosen_port_that_is_taken_on_another_address_is_chosen_again(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second address has whatever port the system chooses first."""
    real, taken = module._listening, []

    def listening(family: int, address: tuple[object, ...]) -> socket.socket:
        if address[1] and not taken:
            taken.append(address)
            raise OSError(errno.EADDRINUSE, "Address already in use")
        return real(family, address)

    async def addresses(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, None, None, None, (f"127.0.0.{last}", 0)) for last in (1, 2)]

    async def scenario() -> None:
        monkeypatch.setattr(module, "_listening", listening)
        open_ = listener(_Named(loop, addresses), lambda _: True)  # type: ignore[arg-type]
        port = await open_.listen("somewhere", 0)
        assert taken
        assert [await said(port, f"127.0.0.{last}") for last in (1, 2)] == [b"hello", b"hello"]
        open_.close()
        await open_.settle()

    loop.run_until_complete(scenario())


class _Named:
    """A loop to which a name means what the test says."""

    def __init__(self, loop: asyncio.AbstractEventLoop, getaddrinfo: object) -> None:
        self._loop = loop
        self.getaddrinfo = getaddrinfo

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)


def test_a_host_that_nobody_knows_is_named(loop: asyncio.AbstractEventLoop) -> None:
    async def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    listening = listener(_Named(loop, unknown), lambda _: True)  # type: ignore[arg-type]
    with pytest.raises(OSError, match=r"^cannot listen on foo\.bar\.invalid:9092: unknown host$"):
        loop.run_until_complete(listening.listen("foo.bar.invalid", 9092))
