"""Which kind a test is of, and that a deterministic one is held to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.support.kinds import DETERMINISTIC, REAL, NotDeterministicError, kind_of


def plain() -> int:
    return 1


def starts_a_process() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


class Server:
    def start(self) -> None:
        self.thread = threading.Thread(target=plain)


class TestDeriving:
    def test_plain_code(self, request: pytest.FixtureRequest) -> None:
        assert plain() == 1
        assert kind_of(request.node) == DETERMINISTIC

    def test_the_name_of_a_helper_that_starts_a_process(self, request: pytest.FixtureRequest) -> None:
        assert starts_a_process
        assert kind_of(request.node) == REAL

    def test_a_class_that_starts_threads(self, request: pytest.FixtureRequest) -> None:
        assert Server
        assert kind_of(request.node) == REAL

    def test_a_part_of_a_module(self, request: pytest.FixtureRequest) -> None:
        assert time.sleep
        assert kind_of(request.node) == REAL

    def test_another_part_of_it(self, request: pytest.FixtureRequest) -> None:
        assert time.monotonic
        assert kind_of(request.node) == DETERMINISTIC

    @pytest.mark.parametrize("given", [Server()])
    def test_a_parameter(self, request: pytest.FixtureRequest, given: Server) -> None:
        assert kind_of(request.node) == REAL

    @pytest.mark.deterministic
    def test_a_marker_counts_more(self, request: pytest.FixtureRequest) -> None:
        assert starts_a_process
        assert kind_of(request.node) == DETERMINISTIC

    @pytest.mark.real
    def test_in_both_directions(self, request: pytest.FixtureRequest) -> None:
        assert kind_of(request.node) == REAL


def connect() -> None:
    with socket.socket() as wanted:
        wanted.connect(("127.0.0.1", 9))


def bind() -> None:
    with socket.socket() as wanted:
        wanted.bind(("127.0.0.1", 0))


def let_a_timer_fire() -> None:
    asyncio.run(asyncio.sleep(0.001))


def wait_for_an_event() -> None:
    threading.Event().wait(0.001)


DEEDS = [
    starts_a_process,
    connect,
    bind,
    let_a_timer_fire,
    wait_for_an_event,
    lambda: threading.Thread(target=plain).start(),
    lambda: time.sleep(0),
    lambda: os.system("true"),
]


@pytest.mark.deterministic
@pytest.mark.parametrize("deed", DEEDS)
def test_a_deterministic_test_is_refused(deed: Callable[[], None], request: pytest.FixtureRequest) -> None:
    with pytest.raises(NotDeterministicError):
        deed()
    request.config.pluginmanager.getplugin("kinds").guard.forgive()


@pytest.mark.real
@pytest.mark.parametrize("deed", DEEDS)
def test_a_real_one_may(deed: Callable[[], None]) -> None:
    with contextlib.suppress(ConnectionRefusedError):
        deed()


@pytest.mark.deterministic
def test_an_event_loop_without_timers_that_fire() -> None:
    async def body() -> str:
        await asyncio.sleep(0)
        return await asyncio.wait_for(asyncio.sleep(0, "done"), 60)

    assert asyncio.run(body()) == "done"
