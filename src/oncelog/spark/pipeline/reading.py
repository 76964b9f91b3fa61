"""From sections to a pipeline: defaults, names, references, and keys that must stand together or must not.

Owns every rule that needs nothing but the file. Collects all problems before it refuses, so that a file is fixed in
one go. Never asks a broker, a disk or Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from oncelog.spark.pipeline import schema
from oncelog.spark.pipeline.data_sources import source_problem
from oncelog.spark.pipeline.document import Document, Entry, InvalidPipeline, Problem, Section, in_order
from oncelog.spark.pipeline.reading_sinks import read_sinks
from oncelog.spark.pipeline.section_reader import SectionReader, as_options
from oncelog.spark.pipeline.values import OUR_FORMAT, FunctionStep, Pipeline, Sink, Source, SqlStep, Step, Trigger

DEFAULT_MASTER: Final = "local[*]"
DEFAULT_TRIGGER: Final = "processing-time 1 second"
ALWAYS_STREAMING: Final = frozenset({"rate", "rate-micro-batch", "socket"})
STEP_BODIES: Final = ("sql", "python", "tool")


def read_pipeline(document: Document, *, folder: str, bootstrap_servers: str) -> Pipeline:
    """`folder` is the file's own: its paths are relative to it. The servers are those of who names none.

    Raises InvalidPipeline, with all that is wrong."""
    return read_leniently(document, folder=folder, bootstrap_servers=bootstrap_servers).sound()


@dataclass(frozen=True, slots=True)
class Reading:
    """`pipeline` is made of the sections without problems; the names in `unknown` are those of what was left out."""

    pipeline: Pipeline
    problems: tuple[Problem, ...]
    unknown: frozenset[str]
    is_startable: bool
    """Whether the section [pipeline] is right: where Spark runs, and how."""

    def sound(self) -> Pipeline:
        """Raises InvalidPipeline, with all that is wrong."""
        if self.problems:
            raise InvalidPipeline(self.problems)
        return self.pipeline


def read_leniently(document: Document, *, folder: str, bootstrap_servers: str) -> Reading:
    """As `read_pipeline`, but goes on with what is right, so that it can be checked further."""
    reader = SectionReader(document, folder, bootstrap_servers)
    whole = _read(reader, document)

    def is_right(member: Source | Step | Sink) -> bool:
        return all(section is not member.section for section in reader.spoiled)

    left_out = {one.name for one in whole.sources if not is_right(one)}
    left_out |= {name for step in whole.steps if not is_right(step) for name in step.outputs}
    pipeline = replace(
        whole,
        sources=tuple(filter(is_right, whole.sources)),
        steps=tuple(filter(is_right, whole.steps)),
        sinks=tuple(filter(is_right, whole.sinks)),
    )
    is_startable = all(section is not whole.section for section in reader.spoiled)
    return Reading(pipeline, tuple(in_order(reader.problems)), frozenset(left_out), is_startable)


def _read(reader: SectionReader, document: Document) -> Pipeline:
    section = document.pipeline
    reader.check_keys(section, schema.PIPELINE)
    name = reader.file_name(section, reader.required(section, "name", "it names its transactions and its checkpoint"))
    checkpoint = reader.required(section, "checkpoint", "the folder that remembers how far it is")
    sources = _read_sources(reader, document)
    latest = tuple(source.name for source in sources if source.streaming) or tuple(one.name for one in sources)
    steps = _read_steps(reader, document, latest)
    return Pipeline(
        section=section,
        name=name,
        master=reader.text(section, "master") or DEFAULT_MASTER,
        checkpoint=reader.path(checkpoint),
        trigger=_read_trigger(reader, section),
        settings=as_options(schema.below(section.entries, schema.SPARK, keep_prefix=True)),
        sources=sources,
        steps=steps,
        sinks=read_sinks(reader, document, name, steps[-1].outputs if steps else latest),
    )


def _read_trigger(reader: SectionReader, section: Section) -> Trigger:
    text = reader.text(section, "trigger") or DEFAULT_TRIGGER
    trigger = Trigger.parse(text)
    if trigger is None:
        reader.wrong(section, f'"trigger" is {schema.TRIGGER.meaning}, not {text!r}', "trigger")
        return Trigger(text, "availableNow", True)
    return trigger


# --- sources ----------------------------------------------------------------------------------------------------------


def _read_sources(reader: SectionReader, document: Document) -> tuple[Source, ...]:
    sections = document.sources
    if not sections:
        reader.wrong(document.pipeline, 'has no source: add [source] with subscribe = "TOPIC"')
    return tuple(_read_source(reader, section, alone=len(sections) == 1) for section in sections)


def _read_source(reader: SectionReader, section: Section, *, alone: bool) -> Source:
    spark_format = reader.text(section, "format") or OUR_FORMAT
    name = reader.new_view(section, reader.name(section, "source", alone=alone))
    streaming = reader.value(section, "streaming")
    if spark_format != OUR_FORMAT:
        return _read_spark_source(reader, section, name, spark_format, bool(streaming))
    has_good_keys = reader.check_keys(section, schema.TOPIC_SOURCE)
    options = reader.client_settings(section) | reader.options_of(section, schema.TOPIC_SOURCE)
    source = Source(section, name, spark_format, streaming is not False, options)
    if has_good_keys:
        reader.note(section, source_problem(source))
    return source


def _read_spark_source(reader: SectionReader, section: Section, name: str, spark_format: str, streams: bool) -> Source:
    reader.check_keys(section, schema.SPARK_SOURCE)
    options = as_options(schema.below(section.entries, schema.SPARK_OPTION))
    path = reader.text(section, "path")
    if path is not None:
        options["path"] = reader.path(path)
    columns = reader.text(section, "schema")
    if streams and path is not None and columns is None:
        reader.wrong(section, 'needs "schema": Spark does not guess the columns of files to come', "streaming")
    return Source(section, name, spark_format, streams or spark_format in ALWAYS_STREAMING, options, columns)


# --- steps ------------------------------------------------------------------------------------------------------------


def _read_steps(reader: SectionReader, document: Document, latest: Sequence[str]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for number, section in enumerate(document.steps, 1):
        step = _read_step(reader, section, section.name or f"step{number}", latest)
        latest = step.outputs
        steps.append(step)
    return tuple(steps)


def _read_step(reader: SectionReader, section: Section, name: str, latest: Sequence[str]) -> Step:
    has_good_keys = reader.check_keys(section, schema.STEP)
    bodies = [key for key in STEP_BODIES if key in section.entries]
    if len(bodies) != 1 and has_good_keys:
        found = f"not {' and '.join(bodies)} together" if bodies else "and it has none"
        reader.wrong(section, f"does one of {', '.join(STEP_BODIES)}, {found}", *bodies[1:])
    if "sql" in bodies or not bodies:
        return _read_sql(reader, section, name)
    inputs = reader.inputs(section, latest)
    outputs = schema.listed(reader.value(section, "outputs")) or (name,)
    return FunctionStep(
        section=section,
        name=name,
        key=bodies[0],
        function=reader.text(section, bodies[0]) or "",
        inputs=inputs,
        outputs=tuple(reader.new_view(section, output, "outputs") for output in outputs),
        arguments=schema.below(section.entries, schema.ARGUMENT),
    )


def _read_sql(reader: SectionReader, section: Section, name: str) -> SqlStep:
    for key in section.entries:
        if key in ("from", "outputs") or key.startswith(schema.ARGUMENT.name):
            reader.wrong(section, f'"{key}" is for functions; a query says it itself', key)
    sql = section.entries.get("sql", Entry("", section.where))
    return SqlStep(section, reader.new_view(section, name), sql)
