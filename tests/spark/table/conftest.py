"""A real PostgreSQL for the tests of this folder, and a database of each kind for tests that want both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import parts
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    parts.required(parts.postgres)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """A database of the test's own."""
    name = f"db_{uuid.uuid4().hex}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"postgresql://postgres@{postgres.host}:{postgres.port}/{name}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/it's a shop.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def tables(spark: SparkSession) -> SparkSession:
    from oncelog.spark.table import OncelogTable

    spark.dataSource.register(OncelogTable)
    return spark
