"""A Spark session for one audit: quiet, without a web page, stopped at the end."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from oncelog.errors import OncelogError

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def audit_session(master: str) -> Iterator[SparkSession]:
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise OncelogError("Spark needs Java 17 or newer (Debian: apt-get install default-jre-headless)")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("oncelog audit")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
