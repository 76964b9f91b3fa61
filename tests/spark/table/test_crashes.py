"""Any sequence of crashes, at any statement, ends exactly-once: a model of Spark over the sink on SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.spark.table import sqlite_store
from oncelog.spark.table.errors import TableError
from oncelog.spark.table.ledger import Report
from oncelog.spark.table.procedure import Plan
from tests.spark.table.support import ORDER_TYPES, Job, settings_of
from tests.support.sizes import IS_SOAK

MORE = 20 if IS_SOAK else 1
STATEMENTS = 60
"""More than a batch has: a crash may also come too late to matter."""


class Crash(BaseException):
    """The process is gone: whatever it would still do, it does not."""


@dataclass
class Fuse:
    """Burns by one at each statement. When it is out the process dies, before or after that statement."""

    left: int | None = None
    is_after: bool = False

    def run(self, statement: Any) -> Any:
        if self.left is None:
            return statement()
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.is_after):
            raise Crash
        result = statement()
        if self.left == 0:
            result.close()  # a dead process reads nothing any more
            raise Crash
        return result


FUSE = Fuse()


class CrashingConnection(sqlite3.Connection):
    def execute(self, *given: Any) -> sqlite3.Cursor:
        found: sqlite3.Cursor = FUSE.run(lambda: super(CrashingConnection, self).execute(*given))
        return found


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sqlite_store, "CONNECTION", CrashingConnection)
    monkeypatch.setattr(sqlite_store, "BUSY_TIMEOUT_S", 5.0)
    yield
    FUSE.left = None


@dataclass(frozen=True)
class Try:
    """One run of a batch: where it dies, how its rows are spread, which attempts lose, and whether Spark dies after it
    before it has noted the batch as complete."""

    crash_at: int | None
    is_after: bool
    slots: int
    losers: int
    is_noted: bool


TRIES = st.builds(
    Try,
    st.none() | st.integers(1, STATEMENTS),
    st.booleans(),
    st.integers(1, 3),
    st.integers(0, 2),
    st.booleans(),
)
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=6)


@dataclass
class Spark:
    """Replays a batch until it is noted; remembers committers that may wake up later."""

    job: Job
    tries: Iterator[Try]
    zombies: list[tuple[Plan, list[Report]]] = field(default_factory=list)

    def process(self, batch: int, rows: Sequence[tuple[Any, ...]]) -> None:
        while True:
            each = next(self.tries, Try(None, False, 2, 0, True))
            FUSE.left, FUSE.is_after = each.crash_at, each.is_after
            try:
                self._run(batch, rows, each)
            except Crash:
                continue
            finally:
                FUSE.left = None
                self._wake()
            if each.is_noted:
                return

    def _run(self, batch: int, rows: Sequence[tuple[Any, ...]], each: Try) -> None:
        planned = self.job.plan()
        for slot in range(each.losers):
            self.job.stage_slot(planned, batch, slot, rows)
        reports = self.job.stage(planned, batch, [rows[slot :: each.slots] for slot in range(each.slots)])
        self.zombies.append((planned, reports))
        self.job.commit(planned, reports, digest=f"offsets of {batch}")

    def _wake(self) -> None:
        """The oldest committer that was thought dead tries again."""
        if len(self.zombies) > 1:
            with contextlib.suppress(TableError):
                self.job.commit(*self.zombies.pop(0))


def written(batches: list[list[tuple[int, int]]]) -> list[list[tuple[int, int, str]]]:
    return [
        [(key, version, f"{batch}.{n}") for n, (key, version) in enumerate(rows)] for batch, rows in enumerate(batches)
    ]


def run_all(folder: Path, tries: list[Try], batches: list[list[tuple[int, int, str]]], **options: str) -> Job:
    job = Job(settings_of(f"sqlite:///{folder}/shop.db", **options), ORDER_TYPES)
    spark = Spark(job, iter(tries))
    for batch, rows in enumerate(batches):
        spark.process(batch, rows)
    return job


def no_area_is_left(job: Job) -> bool:
    last = job.plan()
    return job.areas(last) == [last.stage.name]


@pytest.mark.usefixtures("crashing")
@settings(max_examples=80 * MORE, deadline=None)
@given(tries=st.lists(TRIES, max_size=8), batches=st.lists(ROWS, min_size=1, max_size=3))
def test_inserted_rows_are_there_once(tries: list[Try], batches: list[list[tuple[int, int]]]) -> None:
    rows = written(batches)
    with tempfile.TemporaryDirectory() as folder:
        job = run_all(Path(folder), tries, rows, write="insert")
        found = job.look("SELECT id, version, state FROM orders")
        assert Counter(found) == Counter(chain.from_iterable(rows))
        lines = job.look("SELECT batch, rows, applied FROM oncelog_batches ORDER BY batch")
        assert lines == [(batch, len(each), len(each)) for batch, each in enumerate(rows) if each]
        assert no_area_is_left(job)


@pytest.mark.usefixtures("crashing")
@settings(max_examples=40 * MORE, deadline=None)
@given(tries=st.lists(TRIES, max_size=8), batches=st.lists(ROWS, min_size=1, max_size=3))
def test_upserted_rows_are_the_newest(tries: list[Try], batches: list[list[tuple[int, int]]]) -> None:
    rows = written(batches)
    with tempfile.TemporaryDirectory() as folder:
        job = run_all(Path(folder), tries, rows, key="id", version="version")
        newest: dict[int, int] = {}
        for key, version, _ in chain.from_iterable(rows):
            newest[key] = max(version, newest.get(key, version))
        assert dict(job.look("SELECT id, version FROM orders")) == newest
        assert no_area_is_left(job)


@pytest.mark.usefixtures("crashing")
@settings(max_examples=40 * MORE, deadline=None)
@given(tries=st.lists(TRIES, max_size=8), batches=st.lists(ROWS, min_size=1, max_size=4))
def test_rows_that_delete_do_so_once(tries: list[Try], batches: list[list[tuple[int, int]]]) -> None:
    """Every third version deletes. A deletion that was repeated would take what a later batch has brought back."""
    expected: dict[int, int] = {}
    for rows in batches:
        for key in {key for key, _ in rows}:
            version = max(each for other, each in rows if other == key)
            if key not in expected or version > expected[key]:
                expected.pop(key, None)
                expected |= {key: version} if version % 3 else {}
    with tempfile.TemporaryDirectory() as folder:
        options = {"key": "id", "version": "version", "delete_when": "gone"}
        job = Job(settings_of(f"sqlite:///{folder}/shop.db", **options), {**ORDER_TYPES, "gone": "boolean"})
        spark = Spark(job, iter(tries))
        for batch, rows in enumerate(batches):
            spark.process(batch, [(key, version, "x", version % 3 == 0) for key, version in rows])
        assert dict(job.look("SELECT id, version FROM orders")) == expected
        assert no_area_is_left(job)


@pytest.mark.usefixtures("crashing")
def test_the_model_does_crash() -> None:
    """A crash just before and just after COMMIT: the batch is not there, and is there."""
    outcomes = set()
    for crash_at in range(1, STATEMENTS):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(settings_of(f"sqlite:///{folder}/shop.db", write="insert"), ORDER_TYPES)
            planned = job.plan()
            reports = job.stage(planned, 0, [[(1, 1, "a")]])
            FUSE.left, FUSE.is_after = crash_at, True
            with contextlib.suppress(Crash):
                job.commit(planned, reports)
                break
            FUSE.left = None
            outcomes.add(len(job.look("SELECT * FROM orders")))
    assert outcomes == {0, 1}
