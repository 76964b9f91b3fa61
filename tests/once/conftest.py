"""Real servers for the tests of this folder: one of each kind serves all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.once.crashing import Helper
from tests.support import parts
from tests.support.postgres import PostgresServer
from tests.support.redis import RedisServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    parts.required(parts.postgres)
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    parts.required(parts.redis_server)
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def helper() -> Iterator[Helper]:
    started = Helper()
    yield started
    started.close()
