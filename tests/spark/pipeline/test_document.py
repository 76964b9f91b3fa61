from __future__ import annotations

import pytest

from oncelog.spark.pipeline.document import InvalidPipeline, Where, read_document
from tests.spark.pipeline.support import FILE, HEAD, SINK, SOURCE, problems, read


@pytest.mark.parametrize(
    "line",
    [
        'kafka.security.protocol = "PLAINTEXT"',
        '"kafka.security.protocol" = "PLAINTEXT"',
        'kafka = { security = { protocol = "PLAINTEXT" } }',
        '[source.kafka]\nsecurity.protocol = "PLAINTEXT"',
    ],
)
def test_a_dotted_key_is_the_same_however_it_is_written(line: str) -> None:
    [section] = read_document(f'[source]\nsubscribe = "a"\n{line}\n', FILE).sources
    assert {key: entry.value for key, entry in section.entries.items()} == {
        "subscribe": "a",
        "kafka.security.protocol": "PLAINTEXT",
    }


def test_a_key_that_is_written_in_two_ways_is_given_twice() -> None:
    text = '[source]\nkafka.a = "1"\n"kafka.a" = "2"\n'
    with pytest.raises(InvalidPipeline, match=r'^pipeline.toml:3: \[source\] "kafka.a" is given twice$'):
        read_document(text, FILE)


def test_arguments_keep_their_tables() -> None:
    [step] = read_document('[[step]]\nwith = { limits = { a = 1 }, names = ["b"] }\n', FILE).steps
    assert {key: entry.value for key, entry in step.entries.items()} == {"with.limits": {"a": 1}, "with.names": ["b"]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[pipeline]\nname = "a\n', "pipeline.toml:2: this is no TOML: "),
        ("[pipeline]\nname = \n", "pipeline.toml:2: this is no TOML: "),
        ('[pipeline]\nname = """\na\n', "pipeline.toml:4: this is no TOML: "),
        ('[sinks]\ntype = "topic"\n', 'pipeline.toml:1: "sinks": did you mean "sink"?'),
        ("\n\n[whatever]\n", 'pipeline.toml:3: "whatever": a pipeline has [pipeline], [source], [step], [sink]'),
        ("sink = 5\n", 'pipeline.toml:1: "sink" is a table: write [sink]'),
        ('[[pipeline]]\nname = "a"\n[[pipeline]]\n', "pipeline.toml:3: a file describes one [pipeline]"),
    ],
)
def test_what_is_wrong_with_a_text_names_its_line(text: str, problem: str) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        read_document(text, FILE)
    assert str(raised.value).startswith(problem)


def test_a_line_of_a_text_has_its_own_place() -> None:
    [step] = read_document('[[step]]\nsql = """\nSELECT 1,\n  x\n"""\n', FILE).steps
    entry = step.entries["sql"]
    assert [entry.line_of(index) for index in (0, 1, 99)] == [Where(FILE, 3), Where(FILE, 4), Where(FILE, 5)]


SINKS = '[[sink]]\nname = "a"\ntype = "console"\n[[sink]]\nname = "b"\ntype = "console"\n'


def test_overrides_win_and_are_read_as_in_the_file() -> None:
    overrides = [
        ("pipeline.trigger", "available-now"),
        ("source.kafka.client.id", "me"),
        ("source.subscribe", "other"),
        ("sink.b.rows", "3"),
        ("sink.a.from", "source"),
    ]
    pipeline = read(HEAD + SOURCE + '"kafka.client.id" = "x"\n' + SINKS, overrides)
    assert pipeline.trigger.text == "available-now"
    assert pipeline.sources[0].options["subscribe"] == "other"
    assert pipeline.sources[0].options["kafka.client.id"] == "me"
    assert [sink.options["numRows"] for sink in pipeline.sinks] == ["20", "3"]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("trigger", "-o trigger: write SECTION.KEY=VALUE, where SECTION is one of pipeline, source, step, sink"),
        ("sink.rows", "-o sink.rows: which sink? Write sink.NAME.KEY=VALUE; there is a, b"),
        ("step.sql", "-o step.sql: which step? Write step.NAME.KEY=VALUE; there is none"),
        ("sink.a.rowz", '-o sink.a.rowz: [sink a] "rowz": did you mean "rows"?'),
    ],
)
def test_a_wrong_override_names_itself(key: str, problem: str) -> None:
    assert problems(HEAD + SOURCE + SINKS, [(key, "1")]) == [problem]


def test_overrides_can_supply_what_the_file_leaves_open() -> None:
    assert read(SOURCE + SINK, [("pipeline.name", "a"), ("pipeline.checkpoint", "b")]).checkpoint == "/home/me/b"
