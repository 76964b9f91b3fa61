"""Effects per second in batch mode against a bare loop: the same consumer, effect and batches, without a guarantee."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text

import oncelog
from bench.clients import create_topic
from bench.figures import OURS, Figure, Progress, at_least
from bench.peers import running
from bench.scale import Scale
from bench.worker import Result, measured, serve
from oncelog import once
from tests.support.postgres import PostgresServer

TOPIC, PARTITIONS, BATCH, PEER = "effects", 1, 500, "a bare loop"
POSTGRES_SHARE = 5
"""PostgreSQL gets so many times fewer records: each effect is a conversation with its server."""
STRATEGIES = {"message table": once.MessageTable(), "offsets in the database": once.DatabaseOffsets()}
INSERT = "INSERT INTO bookings (customer, item) VALUES (:customer, :item)"
CREATE = "CREATE TABLE bookings (customer {bytes}, item {bytes})"


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    figures = []
    with running("oncelog") as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        write_bookings(broker.bootstrap, scale.effects)
        for kind, count in (("SQLite", scale.effects), ("PostgreSQL", scale.effects // POSTGRES_SHARE)):
            samples: dict[str, list[float]] = {}
            for turn in range(scale.rounds):
                order = [PEER, *STRATEGIES] if turn % 2 == 0 else [*reversed(STRATEGIES), PEER]
                for name in order:
                    rate = effects_a_second(Job(broker.bootstrap, kind, name, count))["rate"]
                    samples.setdefault(name, []).append(rate)
                    progress(f"effects on {kind}, {name}: {rate:,.0f}/s")
            figures += [
                Figure(
                    f"effects once on {kind}, {name}",
                    "effects/s",
                    {PEER: samples[PEER], OURS: samples[name]},
                    at_least(0.5, 0.8),
                    f"one INSERT each, {BATCH} in a transaction; both loops read with oncelog's consumer",
                    PEER,
                )
                for name in STRATEGIES
            ]
    return figures


@dataclass(frozen=True)
class Job:
    bootstrap: str
    database: str
    strategy: str
    count: int

    def measured(self, program: str, source: Path | None = None) -> Result:
        return measured("bench.rows.effects", program, self, source)


def effects_a_second(job: Job) -> Result:
    count = job.count
    with _database(job.database) as (database, effect), _consumer(job.bootstrap) as consumer:
        if job.strategy == PEER:
            return {"rate": _timed(count, lambda: _bare_loop(consumer, database, effect, count))}
        runner = once.Runner(consumer, database, effect, strategy=STRATEGIES[job.strategy], batch_size=BATCH)
        return {"rate": _timed(count, lambda: runner.run(max_records=count))}


def write_bookings(bootstrap: str, count: int) -> None:
    with oncelog.Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(TOPIC, value=b"x" * 100, key=b"customer-%d" % (number % 1_000))


def _timed(count: int, act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return count / (time.perf_counter() - begun)


def _bare_loop(consumer: Any, database: once.Database, effect: once.Effect, count: int) -> None:
    done = 0
    while done < count:
        records = consumer.poll(1.0, max_records=min(BATCH, count - done))
        with database.transaction() as transaction:
            connection = transaction.connection
            for record in records:
                effect(connection, record)
        done += len(records)


@contextlib.contextmanager
def _consumer(bootstrap: str) -> Iterator[Any]:
    with oncelog.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([oncelog.TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        consumer.seek_to_beginning()
        yield consumer


@contextlib.contextmanager
def _database(kind: str) -> Iterator[tuple[once.Database, once.Effect]]:
    """A new database with an empty table, and the effect as one would write it there."""
    with contextlib.ExitStack() as stack:
        if kind == "SQLite":
            folder = Path(tempfile.mkdtemp(prefix="oncelog-bench-"))
            stack.callback(shutil.rmtree, folder)
            database = once.Database.of(folder / "shop.db")
            effect, bytes_type = _insert_by_sqlite3, "BLOB"
        else:
            server = stack.enter_context(PostgresServer(settings=()))
            database = once.Database.of(server.engine())
            effect, bytes_type = _insert_by_sqlalchemy, "BYTEA"
        stack.callback(database.close)
        with database.transaction() as transaction:
            transaction.run(CREATE.format(bytes=bytes_type))
        yield database, effect


def _insert_by_sqlite3(connection: Any, record: Any) -> None:
    connection.execute(INSERT, {"customer": record.key, "item": record.value})


_STATEMENT = text(INSERT)


def _insert_by_sqlalchemy(connection: Any, record: Any) -> None:
    connection.execute(_STATEMENT, {"customer": record.key, "item": record.value})


JOBS = {"effects": effects_a_second}


if __name__ == "__main__":
    serve(JOBS, Job)
