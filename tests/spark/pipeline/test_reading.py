from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncelog.spark.pipeline.document import read_document
from oncelog.spark.pipeline.example import EXAMPLE
from oncelog.spark.pipeline.reading import read_leniently
from oncelog.spark.pipeline.values import FunctionStep, SqlStep, Trigger
from tests.spark.pipeline.support import FILE, HEAD, SINK, SOURCE, problems, read


def test_a_pipeline_of_ten_lines_has_good_defaults() -> None:
    pipeline = read(HEAD + SOURCE + '[[step]]\nsql = "SELECT value FROM source"\n' + SINK)
    assert (pipeline.master, pipeline.trigger.text) == ("local[*]", "processing-time 1 second")
    assert pipeline.checkpoint == "/home/me/cp"
    [source], [step], [sink] = pipeline.sources, pipeline.steps, pipeline.sinks
    assert (source.name, source.format, source.streaming) == ("source", "oncelog", True)
    assert source.options == {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}
    assert isinstance(step, SqlStep)
    assert sink.input == step.name == "step1"
    assert sink.options == {
        "kafka.bootstrap.servers": "broker:9092",
        "topic": "paid",
        "mode": "exactly-once",
        "transactional.id.prefix": "billing.sink",
    }
    assert pipeline.checkpoint_of(sink) == "/home/me/cp/sink"


def test_the_example_is_a_pipeline_with_and_without_its_comments() -> None:
    assert len(read(EXAMPLE).sinks) == 1
    whole = re.sub(r"^# (?=\[\[|[\w.]+ = )", "", EXAMPLE, flags=re.MULTILINE)
    pipeline = read(whole)
    assert [source.name for source in pipeline.sources] == ["orders", "customers"]
    assert [sink.type for sink in pipeline.sinks] == ["topic", "files", "console"]
    assert pipeline.settings == {"spark.sql.shuffle.partitions": "8"}
    assert pipeline.sources[0].options["kafka.bootstrap.servers"] == "h1:9092"
    function = pipeline.steps[-1]
    assert isinstance(function, FunctionStep)
    assert (function.inputs, function.arguments) == (("parsed",), {"limit": 10})


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("available-now", Trigger("available-now", "availableNow", True)),
        ("once", Trigger("once", "once", True)),
        ("Processing-time  10 seconds", Trigger("processing-time 10 seconds", "processingTime", "10 seconds")),
        ("processing-time 1 minute", Trigger("processing-time 1 minute", "processingTime", "1 minute")),
        ("processing-time soon", None),
        ("10 seconds", None),
    ],
)
def test_triggers(text: str, trigger: Trigger | None) -> None:
    assert Trigger.parse(text) == trigger


def test_what_is_not_said_is_the_step_before_or_the_only_stream() -> None:
    text = (
        HEAD
        + '[[source]]\nname = "orders"\nsubscribe = "orders"\n'
        + '[[source]]\nname = "prices"\nformat = "csv"\npath = "prices.csv"\n'
        + '[[step]]\npython = "steps:first"\n'
        + '[[step]]\ntool = "dead_letter_split"\noutputs = ["good", "bad"]\n'
        + '[[sink]]\nname = "a"\ntype = "console"\nfrom = "good"\n'
        + '[[sink]]\nname = "b"\ntype = "files"\npath = "out"\nfrom = "bad"\npartition_by = "day"\n'
    )
    pipeline = read(text)
    assert [source.streaming for source in pipeline.sources] == [True, False]
    assert pipeline.sources[1].options == {"path": "/home/me/prices.csv"}
    first, second = pipeline.steps
    assert isinstance(first, FunctionStep)
    assert isinstance(second, FunctionStep)
    assert (first.inputs, first.outputs, second.inputs) == (("orders",), ("step1",), ("step1",))
    assert [sink.input for sink in pipeline.sinks] == ["good", "bad"]
    assert (pipeline.sinks[1].format, pipeline.sinks[1].partition_by) == ("parquet", ("day",))


def test_settings_of_clients_are_the_pipelines_unless_a_section_says_otherwise() -> None:
    text = (
        HEAD + 'kafka.client.id = "all"\nkafka.request.timeout.ms = 5000\n' + SOURCE + 'kafka.client.id = "s"\n' + SINK
    )
    pipeline = read(text)
    assert pipeline.sources[0].options["kafka.client.id"] == "s"
    assert pipeline.sinks[0].options["kafka.client.id"] == "all"
    assert pipeline.sinks[0].options["kafka.request.timeout.ms"] == "5000"


def test_a_table_sink_is_named_after_the_pipeline_and_finds_its_file_beside_the_pipeline() -> None:
    table = '[sink]\ntype = "table"\nurl = "sqlite:///shop.db"\ntable = "paid"\nkey = ["id", "day"]\ncreate = true\n'
    [sink] = read(HEAD + SOURCE + table).sinks
    assert sink.format == "oncelog.table"
    assert sink.options == {
        "sink.name": "billing.sink", "url": "sqlite:////home/me/shop.db", "table": "paid", "key": "id,day",
        "create": "true",
    }  # fmt: skip


SOURCES = '[[source]]\nsubscribe = "a"\n[[source]]\nname = "b"\nsubscribe = "b"\n'
CSV = '[source]\nformat = "csv"\n'
STEP = "[[step]]\n"
TWO_FILES = '[[sink]]\nname = "a"\ntype = "files"\npath = "x"\n[[sink]]\nname = "{}"\ntype = "files"\npath = "{}"\n'


def with_head(lines: str) -> str:
    return HEAD + lines + SOURCE + SINK


def with_source(lines: str) -> str:
    return HEAD + lines + SINK


def with_step(lines: str) -> str:
    return HEAD + SOURCE + STEP + lines + SINK


def with_sink(lines: str) -> str:
    return HEAD + SOURCE + lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + SINK, '1: [pipeline] has no source: add [source] with subscribe = "TOPIC"'),
        (HEAD + SOURCE, '1: [pipeline] has no sink: add [sink] with type = "topic" and topic = "NAME"'),
        (with_head("").replace("billing", "my bill"), '2: [pipeline] "name" has letters, digits, ".", "_"'),
        (with_head('triger = "once"\n'), '4: [pipeline] "triger": did you mean "trigger"?'),
        (with_head("sprak.ui.enabled = false\n"), '4: [pipeline] "sprak.ui.enabled": did you mean "spark.ui.enabled"?'),
        (with_head('trigger = "daily"\n'), '4: [pipeline] "trigger" is "available-now", "once" or'),
        (with_head("master = 5\n"), '4: [pipeline] "master" is a string, not 5'),
        (with_source(SOURCE + 'startingOfset = "x"\n'), '6: [source] "startingOfset": did you mean "startingOffsets"?'),
        (with_source(SOURCE + 'assign = "x"\n'), "5: [source] a topic source"),
        (with_source(SOURCE + 'startingOffsets = "soon"\n'), "6: [source] "),
        (
            with_source(SOURCE + 'kafka.much = "1"\n'),
            "6: [source] a topic source, options kafka.*: unknown setting",
        ),
        (with_source(SOURCE + "kafka.enable.auto.commit = true\n"), "6: [source] a topic source does not take"),
        (with_source(CSV + 'path = "x"\nstreaming = true\n'), '7: [source] needs "schema"'),
        (with_source(CSV + 'subscribe = "x"\n'), '6: [source] "subscribe" is not a key here; there are name, format'),
        (with_source(SOURCE + 'name = "my-orders"\n'), '6: [source my-orders] "my-orders" is not a name for SQL'),
        (with_step('name = "a"\n'), "6: [step a] does one of sql, python, tool, and it has none"),
        (with_step('sql = "x"\ntool = "y"\n'), "8: [step] does one of sql, python, tool, not sql and tool together"),
        (with_step('sql = ""\n'), '7: [step] "sql" is empty; it is a query'),
        (with_step('sql = "x"\nwith.a = 1\n'), '8: [step] "with.a" is for functions; a query says it itself'),
        (with_step('name = "Source"\nsql = "x"\n'), '7: [step Source] "Source" is the name of another source or step'),
        (
            with_step('python = "a:b"\nfrom = "sorce"\n'),
            '8: [step] "from": no source or earlier step is named "sorce"; ',
        ),
        (
            with_sink('[sink]\ntype = "topci"\n'),
            "7: [sink] \"type\" is one of topic, table, files, console, not 'topci'",
        ),
        (with_sink('[sink]\ntopic = "x"\n'), '6: [sink] needs "type": one of topic, table, files, console'),
        (
            with_sink(SINK + "partitions = 0\ncreate = true\n"),
            '9: [sink] "partitions" is a whole number above 0, not 0',
        ),
        (with_sink(SINK + "partitions = 3\n"), '9: [sink] "partitions" is for a topic that is made'),
        (with_sink('[sink]\ntype = "topic"\ncreate = true\n'), '8: [sink] "create" makes the topic that'),
        (
            with_sink(SINK + 'mode = "idempotent"\natomic = "batch"\n'),
            "10: [sink] the oncelog sink: atomic=batch needs",
        ),
        (with_sink(SINK + 'from = ["source", "source"]\n'), '9: [sink] "from" is one name'),
        (with_sink('[sink]\ntype = "files"\n'), '6: [sink] needs "path": the folder for the files'),
        (with_sink('[sink]\ntype = "files"\npath = "x"\noutput_mode = "complete"\n'), "9: [sink] files only grow"),
        (
            with_sink('[sink]\ntype = "table"\nurl = "oracle://x"\ntable = "t"\n'),
            "8: [sink] the oncelog.table sink knows",
        ),
        (with_sink(TWO_FILES.format("b", "./x")), '13: [sink b] "path" is "/home/me/x", as for another sink'),
        (with_sink(TWO_FILES.format("A", "y")), '11: [sink A] "name" is "a", as for another sink'),
    ],
)
def test_what_is_wrong_is_said_once_with_its_line(text: str, expected: str) -> None:
    [problem] = problems(text)
    assert problem.startswith(f"pipeline.toml:{expected}")


def test_several_sources_are_known_by_their_names() -> None:
    assert problems(HEAD + SOURCES + SINK) == [
        'pipeline.toml:4: [source] needs "name": there are several sources, and each is known by its own',
        'pipeline.toml:9: [sink] needs "from": which of source, b does it take?',
    ]


def test_all_problems_are_told_at_once_in_the_order_of_the_lines() -> None:
    text = '[pipeline]\nnmae = "x"\ncheckpoint = "c"\n' + SOURCE + "[sink]\ntype = 'topic'\ntopci = 'x'\n"
    lines = [int(problem.split(":")[1]) for problem in problems(text)]
    assert lines == sorted(lines)
    assert len(lines) == 3


def test_the_pipelines_of_the_page_are_pipelines() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
    blocks = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [len(read(text).sinks) for text in blocks if "[pipeline]" in text] == [1, 3]


def test_what_is_right_is_read_beside_what_is_wrong() -> None:
    text = (
        HEAD
        + '[[source]]\nname = "good"\nsubscribe = "a"\n'
        + '[[source]]\nname = "bad"\nsubscribe = "b"\nstartingOffset = "earliest"\n'
        + '[[step]]\nname = "one"\nsql = "SELECT 1"\nfrom = "good"\n'
        + '[[sink]]\nname = "x"\ntype = "console"\nfrom = "good"\n'
        + '[[sink]]\nname = "y"\ntype = "console"\nfrom = "godo"\n'
    )
    found = read_leniently(read_document(text, FILE), folder="/home/me", bootstrap_servers="broker:9092")
    assert [one.name for one in found.pipeline.sources] == ["good"]
    assert [one.name for one in found.pipeline.steps] == []
    assert [one.name for one in found.pipeline.sinks] == ["x"]
    assert found.unknown == {"bad", "one"}
    assert found.is_startable
    assert [problem.where.line for problem in found.problems] == [10, 14, 22]
    headless = read_leniently(read_document(SOURCE + SINK, FILE), folder="/", bootstrap_servers="broker:9092")
    assert not headless.is_startable
    assert len(headless.pipeline.sinks) == 1
