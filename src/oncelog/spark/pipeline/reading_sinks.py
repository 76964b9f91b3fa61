"""The sinks of a pipeline, from sections to values: their defaults, and what tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from oncelog.spark.pipeline import schema
from oncelog.spark.pipeline.data_sources import table_sink_problem, topic_sink_problem
from oncelog.spark.pipeline.document import Document, Section
from oncelog.spark.pipeline.section_reader import SectionReader, as_options
from oncelog.spark.pipeline.values import EXACTLY_ONCE, OUR_FORMAT, TABLE_FORMAT, Sink
from oncelog.spark.table.settings import SQLITE

DEFAULT_PARTITIONS: Final = 1
DEFAULT_CONSOLE_ROWS: Final = 20
DEFAULT_FILES_FORMAT: Final = "parquet"
FORMATS: Final = {"topic": OUR_FORMAT, "table": TABLE_FORMAT, "console": "console"}
TOPIC_OPTIONS: Final = ("topic", "mode", "atomic", "transactional.id.prefix", "group.id")
IDENTITIES: Final = ("transactional.id.prefix", "sink.name", "path")


def read_sinks(reader: SectionReader, document: Document, pipeline: str, latest: Sequence[str]) -> tuple[Sink, ...]:
    """`latest` are the outputs that a sink takes that says nothing."""
    sections = document.sinks
    if not sections:
        reader.wrong(document.pipeline, 'has no sink: add [sink] with type = "topic" and topic = "NAME"')
    sinks = tuple(_read_sink(reader, section, pipeline, latest, alone=len(sections) == 1) for section in sections)
    _check_apart(reader, sinks)
    return sinks


def _read_sink(reader: SectionReader, section: Section, pipeline: str, latest: Sequence[str], *, alone: bool) -> Sink:
    kind = reader.required(section, "type", f"one of {', '.join(schema.SINKS)}")
    has_good_keys = reader.check_keys(section, schema.SINKS.get(kind, schema.ANY_SINK))
    name = reader.file_name(section, reader.name(section, "sink", alone=alone))
    taken = reader.inputs(section, latest)
    if len(taken) > 1:
        reader.wrong(section, '"from" is one name: a sink writes one data frame', "from")
    sink = Sink(
        section=section,
        name=name,
        type=kind,
        format=FORMATS.get(kind) or reader.text(section, "format") or DEFAULT_FILES_FORMAT,
        input=taken[0] if taken else "",
        output_mode=reader.text(section, "output_mode") or "append",
        options=_options(reader, section, kind, f"{pipeline}.{name}"),
        partition_by=schema.listed(reader.value(section, "partition_by")),
        create_partitions=_create_partitions(reader, section) if kind == "topic" else None,
    )
    if has_good_keys and kind == "topic":
        reader.note(section, topic_sink_problem(sink))
    elif has_good_keys and kind == "table":
        reader.note(section, table_sink_problem(sink))
    elif kind == "files" and sink.output_mode != "append":
        reader.wrong(section, f'files only grow: "output_mode" is "append", not "{sink.output_mode}"', "output_mode")
    return sink


def _options(reader: SectionReader, section: Section, kind: str, own_name: str) -> dict[str, str]:
    """Those of the data source. `own_name` is what nothing else is called."""
    match kind:
        case "topic":
            return _topic_options(reader, section, own_name)
        case "table":
            return _table_options(reader, section, own_name)
        case "files":
            path = reader.path(reader.required(section, "path", "the folder for the files"))
            return as_options(schema.below(section.entries, schema.SPARK_OPTION)) | {"path": path}
        case "console":
            rows = reader.value(section, "rows") or DEFAULT_CONSOLE_ROWS
            return as_options({"numRows": rows, "truncate": reader.value(section, "truncate") is True})
    return {}


def _topic_options(reader: SectionReader, section: Section, own_name: str) -> dict[str, str]:
    given = {key: reader.text(section, key) for key in TOPIC_OPTIONS}
    given["mode"] = given["mode"] or EXACTLY_ONCE
    if given["mode"] == EXACTLY_ONCE:
        given["transactional.id.prefix"] = given["transactional.id.prefix"] or own_name
    return reader.client_settings(section) | {key: value for key, value in given.items() if value is not None}


def _create_partitions(reader: SectionReader, section: Section) -> int | None:
    creates = reader.value(section, "create") is True
    partitions: int | None = reader.value(section, "partitions")
    if partitions is not None and not creates:
        reader.wrong(section, '"partitions" is for a topic that is made: add create = true', "partitions")
    if creates and "topic" not in section.entries:
        reader.wrong(section, '"create" makes the topic that "topic" names, and there is none', "create")
    return (partitions or DEFAULT_PARTITIONS) if creates else None


def _table_options(reader: SectionReader, section: Section, own_name: str) -> dict[str, str]:
    options = {"sink.name": own_name, **reader.options_of(section, schema.TABLE_SINK)}
    url = options.get("url", "")
    path = url.removeprefix(SQLITE)
    if path not in (url, "", ":memory:"):
        options["url"] = SQLITE + reader.path(path)
    return options


def _check_apart(reader: SectionReader, sinks: Iterable[Sink]) -> None:
    """Two queries that share a name, a prefix or a folder would each undo what the other did."""
    seen: set[tuple[str, str]] = set()
    for sink in sinks:
        claims = {"name": sink.name.lower()}
        claims |= {key: sink.options[key] for key in IDENTITIES if key in sink.options}
        for claim in claims.items():
            if claim in seen:
                reader.wrong(sink.section, f'"{claim[0]}" is "{claim[1]}", as for another sink', claim[0], "name")
            seen.add(claim)
