"""Sinks that are checked when their query starts, with or without rows to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.errors import OncelogError
from oncelog.spark import register
from oncelog.spark.options import BadOption
from oncelog.spark.sink.checkpoint import OWNER_FILE
from oncelog.spark.sink.errors import ForeignCheckpoint
from oncelog.spark.start_check import check_sink
from oncelog.spark.table.errors import UnfitTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = [("id", "bigint"), ("value", "string")]
TOPIC = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "paid", "transactional.id.prefix": "billing"}
TABLE = {"url": "sqlite:////no/such/folder.db", "table": "orders", "sink.name": "shop", "key": "id"}


@pytest.fixture
def foreign(tmp_path: Path) -> str:
    """A checkpoint of the prefix `shipping`."""
    (tmp_path / OWNER_FILE).write_text(json.dumps({"transactional.id.prefix": "shipping"}))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("data_source", "options", "error", "said"),
    [
        ("oncelog", {**TOPIC, "topci": "x"}, BadOption, "did you mean 'topic'"),
        ("oncelog.table", {**TABLE, "kye": "id"}, BadOption, "did you mean 'key'"),
        ("oncelog.table", {**TABLE, "run.id": "monday"}, BadOption, "names a batch write"),
        ("oncelog.table", {**TABLE, "key": "other"}, UnfitTable, "has no column 'other'"),
    ],
)
def test_what_is_wrong_is_told(data_source: str, options: dict[str, str], error: type[OncelogError], said: str) -> None:
    with pytest.raises(error, match=said):
        check_sink(data_source, options, COLUMNS)


def test_what_is_right_or_not_ours_starts(tmp_path: Path) -> None:
    check_sink("oncelog", {**TOPIC, "checkpointLocation": str(tmp_path)}, COLUMNS)
    check_sink("oncelog.table", TABLE, COLUMNS)
    check_sink("console", {"anything": "goes"}, [])
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


def test_a_checkpoint_of_another_prefix(foreign: str) -> None:
    options = {**TOPIC, "checkpointLocation": foreign}
    with pytest.raises(ForeignCheckpoint, match=r"belongs to the transactional.id.prefix 'shipping'"):
        check_sink("oncelog", options, COLUMNS)
    check_sink("oncelog", {**options, "transactional.id.prefix": "shipping"}, COLUMNS)


def test_a_query_without_rows_does_not_start_with_a_checkpoint_of_another_prefix(
    spark: SparkSession, foreign: str, tmp_path: Path
) -> None:
    register(spark)
    register(spark)  # checks once, all the same
    (inbox := tmp_path / "inbox").mkdir()
    stream = spark.readStream.schema("value string").json(str(inbox))
    writer = stream.writeStream.format("oncelog").options(**TOPIC)
    with pytest.raises(ForeignCheckpoint, match="shipping"):
        writer.option("checkpointLocation", foreign).trigger(availableNow=True).start()
    with pytest.raises(BadOption, match="no option 'atomik'"):
        stream.writeStream.start(format="oncelog", atomik=True, **TOPIC)
    query = writer.option("transactional.id.prefix", "shipping").trigger(availableNow=True).start()
    assert query.awaitTermination(200)
