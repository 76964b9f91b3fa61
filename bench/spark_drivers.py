"""Queries on Spark that are measured, each by a driver of its own with a fresh JVM, `local[2]`.

A driver runs its query first on a small topic, so that the clock sees neither the start of Spark nor the first
compilation, and then on the topic that counts. Spark's connector and ours read the same topic and do the same work.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.clients import create_topic
from bench.figures import percentile
from bench.peers import family, resident_kb
from bench.worker import Result, measured, serve
from tests.support import parts, spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THEIRS, OURS = "kafka", "oncelog"
"""Formats."""
PARTITIONS = 4
VALUE = b"v" * 100
CHUNK = 100_000
WARM_LATENCIES = 5
SAMPLE_S = 0.05
VISIBLE_TIMEOUT_S = 60.0
JVM_MEMORY = "2g"


@dataclass(frozen=True)
class Job:
    bootstrap: str
    source: str
    """The topic to read."""
    warm: str
    """A small one for the beginning."""
    rows: int
    broker_pid: int = 0
    database: str = ""
    """host:port of PostgreSQL."""

    def measured(self, program: str) -> Result:
        return measured("bench.spark_drivers", program, self)


# --- what queries are made of -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def session(*jars: Path) -> Iterator[tuple[SparkSession, Path]]:
    """Unlike the tests' sessions with the JVM's own choice of compilers and collector: it works for long."""
    from oncelog.spark import register

    folder = Path(tempfile.mkdtemp(prefix="oncelog-bench-spark-"))
    settings = {
        **spark.local_settings(folder, jvm=""),
        "spark.driver.memory": JVM_MEMORY,
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
        "spark.jars": ",".join(str(jar) for jar in (*parts.spark_connector(), *jars)),
    }
    try:
        with spark.session(settings) as running:
            register(running)
            yield running, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stream(running: SparkSession, kind: str, bootstrap: str, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return running.readStream.format(kind).options(**options).load()


def topic_writer(rows: DataFrame, kind: str, bootstrap: str, topic: str, checkpoint: Path) -> Any:
    """Theirs at least once, which is all that it can; ours exactly once."""
    promise = {"transactional.id.prefix": topic} if kind == OURS else {}
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "checkpointLocation": str(checkpoint), **promise}
    return rows.writeStream.format(kind).options(**options)


def run_to_end(writer: Any) -> float:
    """Seconds until all that is there is done."""
    begun = time.perf_counter()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    elapsed_s = time.perf_counter() - begun
    assert query.exception() is None, query.exception()
    return elapsed_s


@contextlib.contextmanager
def target(bootstrap: str) -> Iterator[str]:
    """A topic that is gone afterwards."""
    import oncelog

    name = f"target-{uuid.uuid4().hex[:12]}"
    create_topic(bootstrap, name, PARTITIONS)
    try:
        yield name
    finally:
        with oncelog.Admin(bootstrap) as admin:
            admin.delete_topic(name)


class WorkerMemory:
    """How much memory the largest of Spark's Python workers ever had, seen from outside."""

    def __init__(self) -> None:
        self.most_mb = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        assert gateway is not None
        while not self._is_over.wait(SAMPLE_S):
            for pid in family(gateway.proc.pid):
                with contextlib.suppress(OSError):  # workers come and go
                    if "python" in Path(f"/proc/{pid}/exe").resolve().name:
                        self.most_mb = max(self.most_mb, resident_kb(pid) / 1_000)


# --- programs ---------------------------------------------------------------------------------------------------------


def read(job: Job, kind: str) -> Result:
    """From a topic to nowhere, all columns."""
    with session() as (running, folder):

        def seconds(topic: str) -> float:
            rows = stream(running, kind, job.bootstrap, topic)
            return run_to_end(rows.writeStream.format("noop").option("checkpointLocation", str(folder / topic)))

        seconds(job.warm)
        elapsed_s = seconds(job.source)
    return {"rate": job.rows / elapsed_s}


def copy(job: Job, kind: str) -> Result:
    """From topic to topic, values only."""
    with session() as (running, folder):

        def seconds(topic: str) -> float:
            with target(job.bootstrap) as name:
                values = stream(running, kind, job.bootstrap, topic).select("value")
                return run_to_end(topic_writer(values, kind, job.bootstrap, name, folder / name))

        seconds(job.warm)
        with WorkerMemory() as memory:
            elapsed_s = seconds(job.source)
    return {"rate": job.rows / elapsed_s, "row_us": 1e6 * elapsed_s / job.rows, "worker_mb": memory.most_mb}


def wait(job: Job, kind: str) -> Result:
    """One record after the other through a query that runs: milliseconds from its acknowledgement in the source until a
    reader of committed records has it from the target."""
    import oncelog

    with (
        session() as (running, folder),
        target(job.bootstrap) as source,
        target(job.bootstrap) as name,
        oncelog.Producer(job.bootstrap, linger_ms=0) as producer,
        oncelog.Consumer(job.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([oncelog.TopicPartition(name, partition) for partition in range(PARTITIONS)])
        values = stream(running, kind, job.bootstrap, source).select("value")
        query = topic_writer(values, kind, job.bootstrap, name, folder / name).start()
        took_ms = []
        for number in range(job.rows + WARM_LATENCIES):
            value = b"%d" % number
            producer.send(source, value, partition=number % PARTITIONS).result(VISIBLE_TIMEOUT_S)
            begun = time.perf_counter()
            while value not in [record.value for record in consumer.poll(1.0)]:
                assert time.perf_counter() < begun + VISIBLE_TIMEOUT_S, f"{value!r} did not come: {query.exception()}"
            took_ms.append((time.perf_counter() - begun) * 1_000)
        query.stop()
    counted = took_ms[WARM_LATENCIES:]
    return {"p50": percentile(counted, 0.5), "p95": percentile(counted, 0.95)}


COLUMNS = ("cast(offset * 1000 + partition as long) as id", "cast(value as string) as item", "timestamp as at")
CREATE = "CREATE TABLE {} (id bigint PRIMARY KEY, item text, at timestamptz)"


def book(job: Job, kind: str) -> Result:
    """From a topic, read by Spark's connector, into a table of PostgreSQL with a primary key: by `oncelog.table`, which
    inserts each row once, or by Spark's JDBC writer, which inserts."""
    import psycopg

    with (
        session(parts.postgres_jdbc()) as (running, folder),
        psycopg.connect(f"postgresql://postgres@{job.database}/postgres", autocommit=True) as database,
    ):

        def seconds(topic: str) -> float:
            table = f"t{uuid.uuid4().hex[:12]}"
            database.execute(CREATE.format(table))
            rows = stream(running, THEIRS, job.bootstrap, topic).selectExpr(*COLUMNS)
            writer = rows.writeStream.option("checkpointLocation", str(folder / table))
            url = f"postgresql://{job.database}/postgres"
            if kind == OURS:
                options = {"url": url, "user": "postgres", "table": table, "message.id": "id", "sink.name": table}
                writer = writer.format("oncelog.table").options(**options)
            else:
                properties = {"user": "postgres", "driver": "org.postgresql.Driver"}
                writer = writer.foreachBatch(
                    lambda batch, _: batch.write.jdbc(f"jdbc:{url}", table, "append", properties)
                )
            elapsed_s = run_to_end(writer)
            (found,) = database.execute(f"SELECT count(*) FROM {table}").fetchone() or (0,)
            assert topic == job.warm or found == job.rows, f"{found} rows of {job.rows} are in the table"
            database.execute(f"DROP TABLE {table}")
            return elapsed_s

        seconds(job.warm)
        elapsed_s = seconds(job.source)
    return {"rate": job.rows / elapsed_s}


PROGRAMS = {"read": read, "copy": copy, "wait": wait, "book": book}
JOBS = {
    f"{name} {kind}": lambda job, program=program, kind=kind: program(job, kind)
    for name, program in PROGRAMS.items()
    for kind in (THEIRS, OURS)
}


def fill(bootstrap: str, topic: str, count: int) -> None:
    """A new topic with so many values of 100 B, as many in each partition."""
    import pyarrow as pa  # type: ignore[import-untyped]

    import oncelog

    create_topic(bootstrap, topic, PARTITIONS)
    chunk = min(CHUNK, count)
    places = pa.array([number % PARTITIONS for number in range(chunk)], pa.int32())
    rows = pa.table({"value": pa.array([VALUE] * chunk, pa.binary()), "partition": places})
    with oncelog.Producer(bootstrap) as producer:
        for begin in range(0, count, chunk):
            producer.send_table(topic, rows.slice(0, min(chunk, count - begin))).result(VISIBLE_TIMEOUT_S)


if __name__ == "__main__":
    serve(JOBS, Job)
