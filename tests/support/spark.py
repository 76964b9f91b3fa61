"""Spark as the tests start it: one small local session, from classes that a JVM left in memory's shape.

A session takes eleven seconds until its first stream has run, and five with `shared_classes`: the classes of Spark as a
JVM keeps them (class data sharing), so that the next need not read them from 280 jars. They fit only the jars, and the
folder, that they were made of, so they are kept in the virtual environment, beside those jars, and go with it.
`python -m tests.support.spark` makes them ahead of a run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PREPARE_TIMEOUT_S = 240
# Short-lived JVMs: the first compiler tier alone and the serial collector start fastest on two cores.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
QUIET_JVM = "-Xlog:disable -Xlog:all=error:stderr"

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "600m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.showConsoleProgress": "false",
}


def local_settings(folder: Path, master: str = "local[2]", jvm: str | None = None) -> dict[str, str]:
    """All that a driver on this machine needs; what it writes goes into `folder`."""
    options = f"{QUICK_JVM} {shared_classes() if jvm is None else jvm} -Djava.io.tmpdir={folder}"
    return {
        **SETTINGS,
        "spark.master": master,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": options,
    }


def connector_settings() -> dict[str, str]:
    """Spark's own Kafka connector, as `format("kafka")`."""
    return {"spark.jars": ",".join(str(jar) for jar in parts.spark_connector())}


def environment() -> dict[str, str]:
    """For every process of Spark: this Python, and the tests' modules, whose functions workers import by name."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": path,
        "OPENBLAS_NUM_THREADS": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
    }


@contextmanager
def session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session in a JVM of its own, which ends with it. A process has one at a time."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    running = builder.getOrCreate()
    try:
        yield running
    finally:
        running.stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when it reads the end of its input
        gateway.proc.wait(PREPARE_TIMEOUT_S)
        SparkContext._gateway = SparkContext._jvm = None


def shared_classes() -> str:
    """The option that lets a JVM begin with Spark's classes; the first who needs them has a JVM leave them behind."""
    import pyspark

    binary = parts.java().resolve().stat()
    archive = Path(sys.prefix) / f"spark-{pyspark.__version__}-{binary.st_size}-{binary.st_mtime_ns}.jsa"
    if not archive.exists():
        with parts.fetch_lock("spark-classes"):
            if not archive.exists():
                _leave_classes(archive)
    return f"-XX:SharedArchiveFile={archive} {QUIET_JVM}"


def _leave_classes(archive: Path) -> None:
    """Without them, where this JVM cannot do it, all goes on more slowly."""
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.support.spark_warmup", str(partial)]
    with tempfile.TemporaryDirectory() as folder:
        place = {"cwd": folder, "env": {**os.environ, **environment()}}
        done = subprocess.run(command, check=False, capture_output=True, timeout=PREPARE_TIMEOUT_S, **place)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    if partial.exists():
        partial.rename(archive)


if __name__ == "__main__":
    try:
        print(f"spark_classes: {shared_classes().split()[0].partition('=')[2]}")
    except parts.PartMissingError as reason:
        print(f"spark_classes: missing: {reason}")
