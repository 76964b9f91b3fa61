"""The database goes away: before the commit, and between its COMMIT and the answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from oncelog.spark.table import writer
from oncelog.spark.table.errors import StagingLost, UnreachableDatabase
from oncelog.spark.table.writer import BatchTableWriter, TableMessage
from tests.spark.table.support import ORDER_TYPES, Job, settings_of
from tests.support import parts
from tests.support.postgres import PostgresServer

ALL = "SELECT id FROM orders ORDER BY id"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Of its own: it is killed."""
    parts.required(parts.postgres)
    with PostgresServer() as running:
        yield running


def job_on(server: PostgresServer) -> Job:
    url = f"postgresql://postgres@{server.host}:{server.port}/postgres"
    return Job(settings_of(url, write="insert"), ORDER_TYPES)


def test_a_server_that_crashes_after_rows_were_staged(server: PostgresServer) -> None:
    """It comes back with an empty staging area. That is not taken for a batch without rows."""
    job = job_on(server)
    job.run(0, [[(1, 1, "a")]])
    planned = job.plan()
    reports = job.stage(planned, 1, [[(2, 1, "b")], [(3, 1, "c")]])
    server.kill()
    server.start()
    with pytest.raises(StagingLost, match="of which 0 are there"):
        job.commit(planned, reports)
    job.run(1, [[(2, 1, "b")], [(3, 1, "c")]])
    assert job.look(ALL) == [(1,), (2,), (3,)]


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_commit_whose_answer_is_lost_is_asked_for_again(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    job, real, calls = job_on(server), writer.commit, []

    def losing(*given: Any) -> None:
        calls.append(given)
        if len(calls) > 1 or is_committed:
            real(*given)
        if len(calls) == 1:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(writer, "commit", losing)
    monkeypatch.setattr(writer, "COMMIT_PAUSES_S", (0.0,))
    planned = job.plan()
    messages = [TableMessage(planned, report) for report in job.stage(planned, 0, [[(1, 1, "a")], [(2, 1, "b")]])]
    BatchTableWriter(job.settings, planned).commit(messages)
    assert len(calls) == 2
    assert job.look(ALL) == [(1,), (2,)]
    assert job.areas(planned) == []


def test_a_python_without_the_driver_of_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "oncelog.spark.table.postgres_store", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UnreachableDatabase, match=r"no psycopg.*oncelog\[postgres\]"):
        writer.open_store(settings_of("postgresql://db/shop"))
