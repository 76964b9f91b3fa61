"""Queries that run to their end, and queries that fail."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import oncelog
from oncelog.cli.reader import Start, TopicReader
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.spark import register
from oncelog.spark.pipeline.building import build
from oncelog.spark.pipeline.document import read_document
from oncelog.spark.pipeline.functions import load_function
from oncelog.spark.pipeline.progress import Progress
from oncelog.spark.pipeline.reading import read_pipeline
from oncelog.spark.pipeline.running import QueryFailed, StopRequest, run_queries
from oncelog.spark.pipeline.values import FunctionStep
from oncelog.spark.pipeline.world import prepare
from oncelog.spark.watch.listener import QUERIES
from oncelog.spark.watch.queries import prometheus_text
from oncelog.types import IsolationLevel
from tests.spark.pipeline.support import FILE
from tests.support.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD = '[pipeline]\nname = "orders"\ncheckpoint = "cp"\ntrigger = "available-now"\n'


def run_text(spark: SparkSession, folder: Path, bootstrap: str, text: str) -> list[Progress]:
    register(spark)
    pipeline = read_pipeline(read_document(text, FILE), folder=str(folder), bootstrap_servers=bootstrap)
    functions = {
        step.name: load_function(step, str(folder)) for step in pipeline.steps if isinstance(step, FunctionStep)
    }
    frames = build(spark, pipeline, functions)
    assert frames.problems == []
    prepare(pipeline)
    shown: list[Progress] = []
    run_queries(spark, pipeline, frames.by_name, StopRequest(), shown.append, print)
    print("\n".join(progress.line() for progress in shown))
    return shown


def test_good_rows_become_a_table_and_bad_ones_records(
    spark: SparkSession, oncelog_broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    bootstrap, source, letters = oncelog_broker.bootstrap, new_topic(), new_topic()
    with oncelog.Admin(bootstrap) as admin:
        admin.create_topic(source, partitions=2)
    with oncelog.Producer(bootstrap) as producer:
        for number in range(40):
            value = json.dumps({"id": number % 20, "version": number, "item": f"item {number}"})
            producer.send(source, value=value, key=str(number % 20))
        producer.send(source, value="not JSON at all", key="bad")
    shown = run_text(
        spark,
        tmp_path,
        bootstrap,
        HEAD
        + f'[source]\nname = "records"\nsubscribe = "{source}"\nstartingOffsets = "earliest"\n'
        + '[[step]]\nname = "decoded"\ntool = "decode_json"\n'
        + 'with = { schema = "id BIGINT, version BIGINT, item STRING", on_error = "keep" }\n'
        + '[[step]]\ntool = "dead_letter_split"\noutputs = ["good", "bad"]\n'
        + '[[step]]\nname = "items"\nsql = "SELECT data.* FROM good"\n'
        + '[[sink]]\nname = "table"\ntype = "table"\nurl = "sqlite:///shop.db"\ntable = "items"\nkey = "id"\n'
        + 'version = "version"\ncreate = true\n'
        + f'[[sink]]\nname = "letters"\ntype = "topic"\ntopic = "{letters}"\ncreate = true\nfrom = "bad"\n',
    )
    with sqlite3.connect(tmp_path / "shop.db") as database:
        rows = database.execute("SELECT id, version, item FROM items ORDER BY id").fetchall()
    assert rows == [(number, number + 20, f"item {number + 20}") for number in range(20)]
    assert values(bootstrap, letters) == [b"not JSON at all"]
    totals = {name: sum(one.rows or 0 for one in shown if one.sink == name) for name in ("table", "letters")}
    assert totals == {"table": 40, "letters": 1}
    assert sum(one.rows_read for one in shown if one.sink == "letters") >= 41
    assert shown[-1].lag == 0
    page = prometheus_text(QUERIES.states())
    assert re.search(r'oncelog_spark_max_offsets_behind_latest\{query="letters",id="[^"]+"\} 0', page)
    assert re.search(r'oncelog_spark_output_rows_total\{query="table",id="[^"]+"\} 40', page)
    assert spark.streams.active == []


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    with BlockingClient(ClientConfig.of(bootstrap)) as client:
        reader = TopicReader(client, topic, None, IsolationLevel.READ_COMMITTED)
        reader.start(Start(0), until_end=True)
        found = []
        while not reader.finished:
            found += [record.value for _, record in reader.poll()]
    return found


def test_a_query_that_fails_says_why_in_one_line_and_ends_the_others(
    spark: SparkSession, oncelog_broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "steps.py").write_text(
        "from pyspark.sql.functions import udf\n"
        "@udf('string')\n"
        "def inverse(number): return str(1 / number)\n"
        "def inverted(frame): return frame.select(inverse('value').alias('value'))\n"
    )
    text = (
        '[pipeline]\nname = "rates"\ncheckpoint = "cp"\ntrigger = "processing-time 100 milliseconds"\n'
        '[source]\nformat = "rate"\noptions.rowsPerSecond = 20\n'
        '[[step]]\nname = "inverted"\npython = "steps.py:inverted"\n'
        '[[sink]]\nname = "calm"\ntype = "files"\nformat = "json"\npath = "calm"\nfrom = "source"\n'
        '[[sink]]\nname = "bold"\ntype = "files"\nformat = "json"\npath = "bold"\n'
    )
    with pytest.raises(QueryFailed) as raised:
        run_text(spark, tmp_path, oncelog_broker.bootstrap, text)
    assert str(raised.value) == "sink bold: ZeroDivisionError: division by zero"
    assert spark.streams.active == []
