"""The metrics page over real sockets: who holds on to a connection, who sends too much, how often a page is made."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from oncelog.broker.metrics_endpoint import MAX_SCRAPERS, MetricsEndpoint

HALF = b"GET /metrics HTTP/1.1\r\nHost: "
WHOLE = b"GET /metrics HTTP/1.1\r\n\r\n"
WAIT_S = 60


class Pages:
    """Each is made when the test lets it."""

    def __init__(self) -> None:
        self.made = 0
        self.may_end = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)

    def render(self) -> bytes:
        self.begun.release()
        assert self.may_end.acquire(timeout=WAIT_S)
        self.made += 1
        return b"page %d\n" % self.made


Scenario = Callable[[MetricsEndpoint, int], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def run(pages: Pages) -> Iterator[Run]:
    with contextlib.closing(uvloop.new_event_loop()) as loop:

        def run(scenario: Scenario) -> None:
            async def served() -> None:
                endpoint = MetricsEndpoint(loop, pages.render)
                port = await endpoint.listen("127.0.0.1", 0)
                try:
                    await asyncio.wait_for(scenario(endpoint, port), WAIT_S)
                finally:
                    pages.may_end.release(1000)
                    endpoint.close()
                    await asyncio.sleep(0)

            loop.run_until_complete(served())

        yield run


async def connected(port: int, sent: bytes) -> asyncio.StreamReader:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    reader.writer = writer  # type: ignore[attr-defined]  # it would be closed with the last reference
    return reader


async def body_of(reader: asyncio.StreamReader) -> bytes:
    return (await reader.read()).partition(b"\r\n\r\n")[2]


def test_a_page_is_read_and_the_connection_closed(run: Run, pages: Pages) -> None:
    async def scenario(endpoint: MetricsEndpoint, port: int) -> None:
        pages.may_end.release(2)
        answer = await (await connected(port, WHOLE)).read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\npage 1\n")
        head = await (await connected(port, WHOLE.replace(b"GET", b"HEAD"))).read()
        assert head.endswith(b"Content-Length: 7\r\nConnection: close\r\n\r\n")
        refused = await (await connected(port, b"DELETE /metrics HTTP/1.1\r\n\r\n")).read()
        assert refused.startswith(b"HTTP/1.1 405 ")

    run(scenario)


def test_whoever_says_that_it_has_said_everything_still_gets_the_answer(run: Run, pages: Pages) -> None:
    async def scenario(endpoint: MetricsEndpoint, port: int) -> None:
        reader = await connected(port, WHOLE)
        reader.writer.write_eof()  # type: ignore[attr-defined]
        pages.may_end.release()
        assert await body_of(reader) == b"page 1\n"
        silent = await connected(port, HALF)
        silent.writer.write_eof()  # type: ignore[attr-defined]
        assert await silent.read() == b"", "nothing more will come, so it is closed"

    run(scenario)


def test_those_who_send_half_a_request_make_way_and_those_who_ask_do_not(run: Run, pages: Pages) -> None:
    """Of hundreds of half requests only the newest few are kept, without waiting for a deadline."""

    async def scenario(endpoint: MetricsEndpoint, port: int) -> None:
        asking = await connected(port, WHOLE)
        assert await asyncio.to_thread(pages.begun.acquire, timeout=WAIT_S), "its request is there"
        half = [await connected(port, HALF) for _ in range(10 * MAX_SCRAPERS)]
        for reader in half[: 9 * MAX_SCRAPERS]:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert len(endpoint._connections) <= MAX_SCRAPERS
        pages.may_end.release()
        assert await body_of(asking) == b"page 1\n"

    run(scenario)


def test_all_who_ask_while_a_page_is_made_share_the_next(run: Run, pages: Pages) -> None:
    async def scenario(endpoint: MetricsEndpoint, port: int) -> None:
        first = await connected(port, WHOLE)
        assert await asyncio.to_thread(pages.begun.acquire, timeout=WAIT_S)
        others = [await connected(port, WHOLE) for _ in range(MAX_SCRAPERS - 1)]
        while len(endpoint._waiting) < len(others):
            await asyncio.sleep(0.001)
        pages.may_end.release(2)
        assert await body_of(first) == b"page 1\n", "what was read before the others asked would not do for them"
        assert {await body_of(reader) for reader in others} == {b"page 2\n"}
        assert pages.made == 2

    run(scenario)


def test_whoever_takes_too_long_is_cut_off(run: Run, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.broker.metrics_endpoint.SCRAPE_DEADLINE_S", 0.01)

    async def scenario(endpoint: MetricsEndpoint, port: int) -> None:
        with contextlib.suppress(ConnectionResetError):
            assert await (await connected(port, HALF)).read() == b""
        assert not endpoint._connections

    run(scenario)


def test_a_page_that_cannot_be_made(
    run: Run, pages: Pages, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(endpoint: MetricsEndpoint, port: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(endpoint, "_render", lambda: 1 // 0)
            assert (await (await connected(port, WHOLE)).read()).startswith(b"HTTP/1.1 500 ")
        pages.may_end.release()
        assert await body_of(await connected(port, WHOLE)) == b"page 1\n"

    run(scenario)
    assert "bug: the metrics could not be read" in caplog.text


def test_the_port_is_taken(run: Run) -> None:
    async def scenario(endpoint: MetricsEndpoint, port: int) -> None:
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            await MetricsEndpoint(endpoint.loop, bytes).listen("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port)):
            pass

    run(scenario)
