"""Sources and steps as Spark analyses them; nothing runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.spark import register
from oncelog.spark.pipeline.building import build
from oncelog.spark.pipeline.document import read_document
from oncelog.spark.pipeline.functions import load_function
from oncelog.spark.pipeline.reading import read_pipeline
from oncelog.spark.pipeline.values import FunctionStep
from tests.spark.pipeline.support import FILE, HEAD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.spark.pipeline.building import Frames

RATE = '[source]\nname = "ticks"\nformat = "rate"\n'
STEP = '[[step]]\nname = "counted"\n'
CONSOLE = '[sink]\ntype = "console"\n'
TOPIC = '[sink]\ntype = "topic"\ntopic = "paid"\n'


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    for view in spark.catalog.listTables():
        if view.isTemporary:
            spark.catalog.dropTempView(view.name)


def built(spark: SparkSession, folder: Path, text: str) -> Frames:
    pipeline = read_pipeline(read_document(text, FILE), folder=str(folder), bootstrap_servers="127.0.0.1:1")
    functions = {
        step.name: load_function(step, str(folder)) for step in pipeline.steps if isinstance(step, FunctionStep)
    }
    return build(spark, pipeline, functions)


STEPS_FILE = """\
def plain(frame): return frame.selectExpr("CAST(value AS STRING) AS value")
def two(frame, other): return frame, other
def nothing(frame): pass
def broken(frame): raise KeyError("amount")
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (RATE + STEP + 'sql = """\nSELECT timestamp,\n  valu\nFROM ticks"""\n' + CONSOLE,
            "11: [step counted] A column, variable, or function parameter with name `valu` cannot be resolved."),
        (RATE + STEP + 'sql = """\nSELECT 1\nFROM orders"""\n' + CONSOLE,
            "11: [step counted] The table or view `orders` cannot be found. Sources and earlier steps are ticks."),
        (RATE + STEP + 'sql = "SELEC 1"\n' + CONSOLE, "9: [step counted] Syntax error at or near 'SELEC'."),
        (RATE + STEP + 'sql = "SELECT count(*) FROM ticks"\n' + CONSOLE,
            "10: [sink] Invalid streaming output mode: append."),
        (RATE + TOPIC, "8: [sink] the oncelog sink: the column 'value' is string or binary, not bigint"),
        (RATE + STEP + 'sql = "SELECT timestamp FROM ticks"\n' + TOPIC,
            "11: [sink] the oncelog sink needs a column 'value' (string or binary), and there is only 'timestamp'"),
        (RATE + '[sink]\ntype = "files"\npath = "x"\npartition_by = "dya"\n', '10: [sink] "partition_by": "ticks" has'),
        (RATE + '[sink]\ntype = "table"\nurl = "sqlite:///a.db"\ntable = "t"\nkey = "id"\ncreate = true\n',
            "11: [sink] the query has no column 'id'"),
        (RATE + '[sink]\ntype = "table"\nurl = "sqlite:///a.db"\ntable = "t"\nkey = "value"\n',
            "9: [sink] the SQLite database "),
        (RATE + STEP + 'sql = "SELECT 1 AS value"\n' + CONSOLE, '10: [sink] "counted" is not a stream'),
        (RATE + STEP + 'python = "steps.py:nothing"\n' + CONSOLE, "9: [step counted] steps.py:nothing returned"),
        (RATE + STEP + 'python = "steps.py:broken"\n' + CONSOLE,
            "9: [step counted] steps.py:broken raised KeyError: 'amount'"),
        (RATE + STEP + 'python = "steps.py:two"\nfrom = ["ticks", "ticks"]\n' + CONSOLE,
            "9: [step counted] steps.py:two returned 2 data frames: name as many in \"outputs\""),
        (RATE + STEP + 'tool = "deduplicate"\nwith = { ids = "idd", event_time = "timestamp" }\n' + CONSOLE,
            "9: [step counted] "),
        ('[source]\nformat = "nosuch"\n' + CONSOLE, "5: [source] "),
    ],
)  # fmt: skip
def test_what_spark_refuses_is_said_with_the_line_of_the_file(
    session: SparkSession, tmp_path: Path, lines: str, expected: str
) -> None:
    (tmp_path / "steps.py").write_text(STEPS_FILE)
    [problem] = built(session, tmp_path, HEAD + lines).problems
    assert str(problem).startswith(f"{FILE}:{expected}")
    assert not (tmp_path / "a.db").exists(), "looking makes nothing"


def test_sources_steps_and_outputs_are_views_for_those_after_them(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS_FILE)
    (tmp_path / "names.csv").write_text("id,name\n1,ann\n")
    lines = (
        '[[source]]\nname = "ticks"\nformat = "rate"\n'
        '[[source]]\nname = "names"\nformat = "csv"\npath = "names.csv"\nschema = "id BIGINT, name STRING"\n'
        "options.header = true\n"
        '[[step]]\npython = "steps.py:two"\nfrom = ["ticks", "names"]\noutputs = ["one", "other"]\n'
        '[[step]]\nname = "joined"\nsql = "SELECT name AS key, CAST(value AS STRING) AS value FROM one JOIN other ON '
        'id = value"\n'
    )
    frames = built(session, tmp_path, HEAD + lines + TOPIC)
    assert frames.problems == []
    assert list(frames.columns()) == ["ticks", "names", "one", "other", "joined"]
    assert frames.columns()["joined"] == [("key", "string"), ("value", "string")]


def test_the_complete_example_of_the_page_is_analysed(session: SparkSession, tmp_path: Path) -> None:
    register(session)
    (tmp_path / "customers.csv").write_text("customer,country\n")
    (tmp_path / "steps.py").write_text(
        "def with_watermark(frame): return frame.withWatermark('timestamp', '10 minutes')\n"
    )
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    text = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[-1]
    assert "postgresql://" in text
    here = text.replace('"postgresql://shop@db/shop"', '"sqlite:///shop.db"\ncreate = true')
    frames = built(session, tmp_path, here)
    assert frames.problems == []
    assert frames.columns()["per_hour"] == [("key", "string"), ("value", "string")]


def test_one_round_finds_all_that_does_not_depend_on_something_wrong(session: SparkSession, tmp_path: Path) -> None:
    lines = (
        RATE
        + '[[step]]\nname = "bad"\nsql = "SELECT valu FROM ticks"\n'
        + '[[step]]\nname = "after_bad"\nsql = "SELECT * FROM bad"\n'
        + '[[step]]\nname = "tool_after_bad"\ntool = "decode_json"\nfrom = "bad"\nwith = { schema = "id BIGINT" }\n'
        + '[[step]]\nname = "of_spoiled"\nsql = "SELECT * FROM spoiled"\n'
        + '[[step]]\nname = "also_bad"\nsql = "SELECT 1 FROM nowhere"\n'
        + '[[sink]]\nname = "one"\ntype = "topic"\ntopic = "paid"\nfrom = "ticks"\n'
        + '[[sink]]\nname = "two"\ntype = "console"\nfrom = "after_bad"\n'
    )
    document = read_document(HEAD + lines, FILE)
    pipeline = read_pipeline(document, folder=str(tmp_path), bootstrap_servers="127.0.0.1:1")
    frames = build(session, pipeline, {}, unknown=["spoiled"])
    told = [str(problem).partition(": ")[2] for problem in frames.problems]
    assert [text.split("]")[0] for text in told] == ["[step bad", "[step also_bad", "[sink one"]
    assert frames.unknown == {"bad", "after_bad", "tool_after_bad", "of_spoiled", "also_bad", "spoiled"}
