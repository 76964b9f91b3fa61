"""What is special to the driver on a loop: many wakes are one pass, and its end leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from oncelog.client.driven import MAX_POLL_MS
from oncelog.client.network_events import Event, Lost
from oncelog.client.sockets import SocketOptions
from oncelog.client.streaming import StreamingDriver
from oncelog.wire.api import ApiKey
from oncelog.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from tests.client.driver_scene import (
    METADATA,
    Asker,
    ScriptedServer,
    SilentAddress,
    answering,
    requests_of,
    unused_address,
)

pytestmark = pytest.mark.timeout(200)

PATIENCE_S = 60


def run_on_asyncio(main: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(main())  # type: ignore[arg-type]


def run_on_uvloop(main: Callable[[], Awaitable[Any]]) -> Any:
    return uvloop.run(main())  # type: ignore[arg-type]


Loop = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(params=[run_on_asyncio, run_on_uvloop])
def on_loop(request: pytest.FixtureRequest) -> Loop:
    found: Loop = request.param
    return found


class Counter(Asker):
    def __init__(self) -> None:
        super().__init__([], [])
        self.is_open_ended = True
        self.errands = 0
        self.done = 0

    def poll(self, now_ms: int) -> int:
        self.polls += 1
        self.done = self.errands
        if self.done == 1_000:
            self.is_open_ended = False
        return MAX_POLL_MS


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost wake is noticed: nobody else would wake the driver before the test gives up."""
    monkeypatch.setattr("oncelog.client.driven.MAX_POLL_MS", 100 * PATIENCE_S * 1000)
    monkeypatch.setattr("tests.client.test_streaming.MAX_POLL_MS", 100 * PATIENCE_S * 1000)


@pytest.mark.usefixtures("impatient")
def test_many_wakes_are_one_pass(on_loop: Loop) -> None:
    async def main() -> None:
        core = Counter()
        driver = StreamingDriver(core, asyncio.get_running_loop())
        driver.start()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert core.polls == 1
        for core.errands in range(1, 1001):
            driver.wake()
        await asyncio.wait_for(driver.join(), PATIENCE_S)
        assert core.polls == 2
        await driver.close()

    on_loop(main)


@pytest.mark.usefixtures("impatient")
def test_who_is_in_a_hurry_takes_the_place_of_a_wake(on_loop: Loop) -> None:
    async def main() -> None:
        core = Counter()
        driver = StreamingDriver(core, asyncio.get_running_loop())
        driver.start()
        driver.hurry()
        assert core.polls == 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert core.polls == 1, "the pass that was scheduled is not needed any more"
        core.errands = 1_000
        driver.wake()
        await asyncio.wait_for(driver.join(), PATIENCE_S)
        assert core.polls == 2
        driver.hurry()  # after the end: nothing
        assert core.polls == 2
        await driver.close()

    on_loop(main)


@pytest.mark.usefixtures("impatient")
def test_a_thousand_wakes_from_another_thread(on_loop: Loop) -> None:
    core = Counter()

    async def main() -> None:
        driver = StreamingDriver(core, asyncio.get_running_loop())
        driver.start()

        def hurry() -> None:
            for number in range(1, 1001):
                core.errands = number
                driver.wake()

        thread = threading.Thread(target=hurry)
        thread.start()
        await asyncio.wait_for(driver.join(), PATIENCE_S)
        thread.join()
        driver.wake()  # after the end: nothing
        await driver.close()

    on_loop(main)
    assert core.done == 1_000
    assert core.failures == []


def test_closing_ends_the_driver_and_its_requests(on_loop: Loop) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        has_asked, is_over = asyncio.Event(), threading.Event()

        def keep_silent(connection: Any) -> None:
            for _ in requests_of(connection):
                loop.call_soon_threadsafe(has_asked.set)
            is_over.set()

        with ScriptedServer(keep_silent) as server:
            core = Asker([server.address], [METADATA])
            driver = StreamingDriver(core, loop)
            driver.start()
            await asyncio.wait_for(has_asked.wait(), PATIENCE_S)
            await driver.close()
            await driver.close()
            assert is_over.wait(PATIENCE_S)  # the socket is closed when `close` returns
        (event,) = core.events
        assert isinstance(event, Lost)
        assert "the client was closed" in event.reason
        assert core.failures == []
        await driver.join()

    on_loop(main)


@pytest.mark.parametrize("steps", range(10))
def test_closing_at_any_moment_leaves_nothing_behind(on_loop: Loop, steps: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        complaints: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        with ScriptedServer(answering) as server, SilentAddress() as silence:
            for address in (server.address, ("localhost", server.address[1]), silence.address, unused_address()):
                core = Asker([address], [METADATA])
                core.is_open_ended = True
                driver = StreamingDriver(core, loop)
                driver.start()
                for _ in range(steps):
                    await asyncio.sleep(0)
                await asyncio.wait_for(driver.close(), PATIENCE_S)
                assert core.failures == []
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert complaints == []

    on_loop(main)


def test_a_driver_that_never_started_can_be_closed(on_loop: Loop) -> None:
    async def main() -> None:
        driver = StreamingDriver(Asker([], [METADATA]), asyncio.get_running_loop())
        await asyncio.wait_for(driver.close(), PATIENCE_S)

    on_loop(main)


def test_a_core_that_raises_at_the_very_end_is_reported(on_loop: Loop) -> None:
    class Broken(Asker):
        def handle(self, event: Event, now_ms: int) -> None:
            raise ValueError("at the end")

    async def main() -> None:
        def keep_silent(connection: Any) -> None:
            for _ in requests_of(connection):
                pass

        with ScriptedServer(keep_silent) as server:
            core = Broken([server.address], [METADATA])
            driver = StreamingDriver(core, asyncio.get_running_loop())
            driver.start()
            while not core.outstanding:
                await asyncio.sleep(0.001)
            await asyncio.wait_for(driver.close(), PATIENCE_S)
        assert [str(error) for error in core.failures] == ["at the end"]

    on_loop(main)


def test_join_may_be_given_up_without_harm(on_loop: Loop) -> None:
    async def main() -> None:
        with ScriptedServer(answering) as server:
            core = Asker([server.address], [METADATA])
            core.is_open_ended = True
            driver = StreamingDriver(core, asyncio.get_running_loop())
            driver.start()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(driver.join(), 0.01)
            core.is_open_ended = False
            driver.wake()
            await asyncio.wait_for(driver.join(), PATIENCE_S)
            await driver.close()
        assert len(core.events) == 1

    on_loop(main)


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_takes_data_again_gets_more(on_loop: Loop) -> None:
    """Nothing else wakes the core here: no answers come."""
    received: list[int] = []
    is_over = threading.Event()

    def read(connection: Any) -> None:
        received.extend(len(frame) for frame in requests_of(connection))
        is_over.set()

    request = ProduceRequest(None, 0, 5, [ProduceTopic("t", None, [ProducePartition(0, memoryview(bytes(100_000)))])])

    async def main() -> None:
        with ScriptedServer(read) as server:
            core = Asker([server.address], [(ApiKey.PRODUCE, request)] * 5, answered=False, max_in_flight=1)
            driver = StreamingDriver(core, asyncio.get_running_loop(), SocketOptions(send_buffer_bytes=4096))
            driver.start()
            await asyncio.wait_for(driver.join(), PATIENCE_S)
            await driver.close()
            assert is_over.wait(PATIENCE_S)

    on_loop(main)
    assert len(received) == 5
