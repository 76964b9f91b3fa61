"""A Spark session for one audit: without a web page, stopped at the end, its log in a file of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oncelog.child_processes import none_left_by_an_interruption
from oncelog.errors import OncelogError
from oncelog.spark.pipeline.session import check_parts

STDERR = 2
SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}


class AuditFailed(OncelogError):
    """Spark could not start, or could not read the topics to their end. Nothing is known about them."""


@contextmanager
def audit_session(master: str) -> Iterator[SparkSession]:
    """Raises SparkMissing and AuditFailed."""
    check_parts()
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("oncelog audit").config(map=SETTINGS)
    with tempfile.NamedTemporaryFile("ab", prefix="oncelog-audit-", suffix=".spark.log", delete=False) as log:
        try:
            with _stderr_to(log.fileno()), none_left_by_an_interruption():
                spark = builder.getOrCreate()
            try:
                yield spark
            finally:
                spark.stop()
        except PySparkException as error:
            reason = str(error).strip().splitlines()[0]
            raise AuditFailed(f"Spark failed: {reason}; its log says more: {log.name}") from error
    os.unlink(log.name)


@contextmanager
def _stderr_to(file: int) -> Iterator[None]:
    """The JVM that is started meanwhile, and its workers, keep writing there."""
    sys.stderr.flush()
    own = os.dup(STDERR)
    os.dup2(file, STDERR)
    try:
        yield
    finally:
        os.dup2(own, STDERR)
        os.close(own)
