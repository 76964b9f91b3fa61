"""Spark's session for a pipeline, and where its log goes.

A shell: starts the JVM. Everything that Spark, Java and the Python workers write to stderr goes to a log file, whatever
wrote it: the JVM is started while stderr is that file.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from oncelog.child_processes import none_left_by_an_interruption
from oncelog.errors import OncelogError
from oncelog.spark import register
from oncelog.spark.pipeline.values import Pipeline
from oncelog.spark.workers import check_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STDERR: Final = 2
MAX_LOG_BYTES: Final = 64 * 1024 * 1024
"""A larger log is put aside, in place of the one that was put aside before it."""
DEFAULTS: Final = {"spark.ui.showConsoleProgress": "false"}


class SparkMissing(OncelogError):
    """Spark cannot start on this machine, or did not stay."""


def check_parts() -> None:
    """Raises SparkMissing."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise SparkMissing("pyspark is not installed: pip install 'pyspark>=4.2' pyarrow") from None
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and os.access(os.path.join(home, "bin", "java"), os.X_OK)):
        raise SparkMissing(
            "Spark needs Java 17 or later, and there is no java: install it (Debian: apt install "
            "openjdk-17-jre-headless), or set JAVA_HOME"
        )


def log_file(pipeline: Pipeline, *, only_check: bool) -> str:
    """Beside the checkpoint; where that is not a folder of this machine, or must not be made, among temporary files."""
    parent = os.path.dirname(pipeline.checkpoint)
    if "://" in pipeline.checkpoint or (only_check and not os.path.isdir(parent)):
        return os.path.join(tempfile.gettempdir(), f"oncelog-{pipeline.name}.spark.log")
    os.makedirs(parent, exist_ok=True)
    return f"{pipeline.checkpoint}.spark.log"


@contextmanager
def open_session(pipeline: Pipeline, log: str) -> Iterator[SparkSession]:
    """Raises SparkMissing."""
    check_parts()
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from oncelog.spark.tools.ordering import PROVIDER, ROCKSDB

    if pipeline.master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(pipeline.name).master(pipeline.master)
    builder = builder.config(map={**DEFAULTS, PROVIDER: ROCKSDB, **pipeline.settings})
    try:
        with (
            _stderr_to(log),
            none_left_by_an_interruption(),
        ):  # PySpark would leave the JVM alone, which never ends then
            session = builder.getOrCreate()
    except PySparkException as error:
        raise SparkMissing(f"Spark did not start ({error.getCondition()}); its log says why: {log}") from error
    _keep_quiet()
    try:
        try:
            register(session)
            if not pipeline.master.startswith("local"):
                check_executors(session.sparkContext)
            yield session
        finally:
            session.stop()
    except (Py4JNetworkError, ConnectionError) as error:
        raise SparkMissing(f"Spark's JVM has ended (killed, or out of memory?); its log: {log}") from error


def _keep_quiet() -> None:
    """PySpark prints errors of queries as JSON, and Py4J those of its sockets, before they raise them. They are told in
    one line."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.handlers = [logging.NullHandler()]
    logger.propagate = False
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


@contextmanager
def _stderr_to(path: str) -> Iterator[None]:
    """A process that is started meanwhile keeps the file."""
    if os.path.exists(path) and os.path.getsize(path) > MAX_LOG_BYTES:
        os.replace(path, f"{path}.1")
    sys.stderr.flush()
    own = os.dup(STDERR)
    try:
        with open(path, "ab") as file:
            os.dup2(file.fileno(), STDERR)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(own, STDERR)
        os.close(own)
