"""From sections to a pipeline: defaults, names, references, and keys that must stand together or must not.

Owns every rule that needs nothing but the file. Collects all problems before it refuses, so that a file is mended in
one go. Never asks a broker, a disk or Spark.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from oncelog.client.settings import nearest
from oncelog.spark.pipeline import schema
from oncelog.spark.pipeline.data_sources import source_problem, topic_sink_problem
from oncelog.spark.pipeline.document import Document, Entry, InvalidPipeline, Problem, Section
from oncelog.spark.pipeline.values import (
    BOOTSTRAP,
    OUR_FORMAT,
    TABLE_FORMAT,
    FunctionStep,
    Pipeline,
    Sink,
    Source,
    SqlStep,
    Step,
    Trigger,
)

DEFAULT_MASTER: Final = "local[*]"
DEFAULT_TRIGGER: Final = "processing-time 1 second"
DEFAULT_PARTITIONS: Final = 1
EXACTLY_ONCE: Final = "exactly-once"
WHICH_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
ALWAYS_STREAMING: Final = frozenset({"rate", "rate-micro-batch", "socket"})
DEFAULT_FILES_FORMAT: Final = "parquet"
STEP_BODIES: Final = ("sql", "python", "tool")

Checked = TypeVar("Checked", Source, Sink)

_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def read_pipeline(document: Document, *, folder: str, bootstrap_servers: str) -> Pipeline:
    """`folder` is the file's own: its paths are relative to it. The servers are those of who names none."""
    return _Reader(document, folder, bootstrap_servers).read()


@dataclass(slots=True)
class _Reader:
    document: Document
    folder: str
    bootstrap_servers: str
    problems: list[Problem] = field(default_factory=list)
    views: dict[str, str] = field(default_factory=dict)
    """Names that SQL may use so far, by their lower-case form: Spark does not tell them apart by case."""

    def read(self) -> Pipeline:
        section = self.document.pipeline
        self._check_keys(section, schema.PIPELINE)
        name = self._required(section, "name", "it names its transactions and its checkpoint")
        checkpoint = self._required(section, "checkpoint", "the folder that remembers how far it is")
        if _FILE_NAME.fullmatch(name) is None:
            self._wrong(section, f'"name" has letters, digits, ".", "_" and "-", not {name!r}', "name")
        sources = self._sources()
        steps = self._steps(sources)
        pipeline = Pipeline(
            section=section,
            file=self.document.file,
            name=name,
            master=self._text(section, "master") or DEFAULT_MASTER,
            checkpoint=self._path(checkpoint),
            trigger=self._trigger(section),
            settings=_as_options(schema.below(section.entries, schema.SPARK, keep_prefix=True)),
            sources=sources,
            steps=steps,
            sinks=self._sinks(name, sources, steps),
        )
        if self.problems:
            raise InvalidPipeline(sorted(self.problems, key=lambda problem: problem.where.line or 0))
        return pipeline

    # --- sources ------------------------------------------------------------------------------------------------------

    def _sources(self) -> tuple[Source, ...]:
        sections = self.document.sources
        if not sections:
            self._wrong(self.document.pipeline, 'has no source: add [source] with subscribe = "TOPIC"')
        return tuple(self._source(section, alone=len(sections) == 1) for section in sections)

    def _source(self, section: Section, *, alone: bool) -> Source:
        spark_format = self._text(section, "format") or OUR_FORMAT
        is_topic = spark_format == OUR_FORMAT
        self._check_keys(section, schema.TOPIC_SOURCE if is_topic else schema.SPARK_SOURCE)
        name = self._new_view(section, self._name(section, "source", alone=alone))
        streaming = self._value(section, "streaming")
        if is_topic:
            options = self._topic_source_options(section)
            return self._checked(Source(section, name, spark_format, streaming is not False, options), source_problem)
        options = _as_options(schema.below(section.entries, schema.SPARK_OPTION))
        path = self._text(section, "path")
        if path is not None:
            options["path"] = self._path(path)
        is_streaming = bool(streaming) or spark_format in ALWAYS_STREAMING
        columns = self._text(section, "schema")
        if is_streaming and path is not None and columns is None:
            self._wrong(
                section, 'needs "schema": Spark does not guess the columns of files that come later', "streaming"
            )
        return Source(section, name, spark_format, is_streaming, options, columns)

    def _topic_source_options(self, section: Section) -> dict[str, str]:
        options = self._client_settings(section)
        for key, entry in section.entries.items():
            known = schema.TOPIC_SOURCE.find(key)
            if known is not None and known.kind is schema.Kind.OPTION and known is not schema.KAFKA:
                options[known.name] = schema.option_text(entry.value)
        return options

    # --- steps --------------------------------------------------------------------------------------------------------

    def _steps(self, sources: Sequence[Source]) -> tuple[Step, ...]:
        latest = _outputs_of_sources(sources)
        steps: list[Step] = []
        for number, section in enumerate(self.document.steps, 1):
            step = self._step(section, number, latest)
            latest = step.outputs
            steps.append(step)
        return tuple(steps)

    def _step(self, section: Section, number: int, latest: Sequence[str]) -> Step:
        self._check_keys(section, schema.STEP)
        bodies = [key for key in STEP_BODIES if key in section.entries]
        if len(bodies) != 1:
            found = f"not {' and '.join(bodies)} together" if bodies else "and it has none"
            self._wrong(section, f"does one of {', '.join(STEP_BODIES)}, {found}", *bodies[1:])
            bodies = ["sql"]
        [body] = bodies
        name = section.name or f"step{number}"
        if body == "sql":
            for key in section.entries:
                if key in ("from", "outputs") or key.startswith(schema.ARGUMENT.name):
                    self._wrong(section, f'"{key}" is for functions; a query says it itself', key)
            self._new_view(section, name)
            return SqlStep(section, name, section.entries.get("sql", Entry("", section.where)))
        inputs = self._inputs(section, latest)
        outputs = schema.listed(self._value(section, "outputs")) or (name,)
        return FunctionStep(
            section=section,
            name=name,
            key=body,
            function=self._text(section, body) or "",
            inputs=inputs,
            outputs=tuple(self._new_view(section, output, "outputs", "name") for output in outputs),
            arguments=schema.below(section.entries, schema.ARGUMENT),
        )

    def _inputs(self, section: Section, latest: Sequence[str]) -> tuple[str, ...]:
        named = schema.listed(self._value(section, "from"))
        for name in named:
            self._check_reference(section, name)
        if not named and len(latest) != 1:
            self._wrong(section, f'needs "from": which of {", ".join(latest)} does it take?')
        return named or tuple(latest)

    def _check_reference(self, section: Section, name: str) -> None:
        if name.lower() in self.views:
            return
        near = nearest(name.lower(), self.views)
        hint = f'; did you mean "{self.views[near]}"?' if near else f"; there are {', '.join(self.views.values())}"
        self._wrong(section, f'"from": no source or earlier step is named "{name}"{hint}', "from")

    # --- sinks --------------------------------------------------------------------------------------------------------

    def _sinks(self, pipeline: str, sources: Sequence[Source], steps: Sequence[Step]) -> tuple[Sink, ...]:
        sections = self.document.sinks
        if not sections:
            self._wrong(self.document.pipeline, 'has no sink: add [sink] with type = "topic" and topic = "NAME"')
        latest = steps[-1].outputs if steps else _outputs_of_sources(sources)
        sinks = tuple(self._sink(section, pipeline, latest, alone=len(sections) == 1) for section in sections)
        self._check_apart(sinks)
        return sinks

    def _sink(self, section: Section, pipeline: str, latest: Sequence[str], *, alone: bool) -> Sink:
        kind = self._required(section, "type", f"one of {', '.join(schema.SINKS)}")
        keys = schema.SINKS.get(kind)
        self._check_keys(section, schema.TOPIC_SINK if keys is None else keys)
        name = self._name(section, "sink", alone=alone)
        if _FILE_NAME.fullmatch(name) is None:
            self._wrong(section, f'"name" has letters, digits, ".", "_" and "-", not {name!r}', "name")
        taken = self._inputs(section, latest)
        if len(taken) > 1:
            self._wrong(section, '"from" is one name: a sink writes one data frame', "from")
        output_mode = self._text(section, "output_mode") or "append"
        common = (section, name, kind)
        source = taken[0] if taken else ""
        match kind:
            case "table":
                options = self._options_of(section, schema.TABLE_SINK)
                return Sink(*common, TABLE_FORMAT, source, output_mode, options)
            case "files":
                return self._files_sink(common, source, output_mode)
            case "console":
                options = {"numRows": str(self._value(section, "rows") or 20)}
                options["truncate"] = schema.option_text(self._value(section, "truncate") is True)
                return Sink(*common, "console", source, output_mode, options)
        options = self._topic_sink_options(section, f"{pipeline}.{name}")
        partitions = self._create_partitions(section)
        sink = Sink(*common, OUR_FORMAT, source, output_mode, options, create_partitions=partitions)
        return self._checked(sink, topic_sink_problem)

    def _topic_sink_options(self, section: Section, prefix: str) -> dict[str, str]:
        options = self._client_settings(section)
        for key in ("topic", "atomic", "group.id"):
            value = self._text(section, key)
            if value is not None:
                options[key] = value
        options["mode"] = self._text(section, "mode") or EXACTLY_ONCE
        own_prefix = self._text(section, "transactional.id.prefix")
        if own_prefix is not None or options["mode"] == EXACTLY_ONCE:
            options["transactional.id.prefix"] = own_prefix or prefix
        return options

    def _create_partitions(self, section: Section) -> int | None:
        creates = self._value(section, "create") is True
        partitions = self._value(section, "partitions")
        if partitions is not None and not creates:
            self._wrong(section, '"partitions" is for a topic that is made: add create = true', "partitions")
        if creates and "topic" not in section.entries:
            self._wrong(section, '"create" makes the topic that "topic" names, and there is none', "create")
        return (partitions or DEFAULT_PARTITIONS) if creates else None

    def _files_sink(self, common: tuple[Section, str, str], source: str, output_mode: str) -> Sink:
        section = common[0]
        options = _as_options(schema.below(section.entries, schema.SPARK_OPTION))
        options["path"] = self._path(self._required(section, "path", "the folder for the files"))
        if output_mode != "append":
            self._wrong(section, f'files only grow: "output_mode" is "append", not "{output_mode}"', "output_mode")
        spark_format = self._text(section, "format") or DEFAULT_FILES_FORMAT
        partition_by = schema.listed(self._value(section, "partition_by"))
        return Sink(*common, spark_format, source, output_mode, options, partition_by)

    def _check_apart(self, sinks: Iterable[Sink]) -> None:
        """Two queries that share a name, a prefix or a folder would each undo what the other did."""
        seen: dict[tuple[str, str], Sink] = {}
        for sink in sinks:
            claims = [("name", sink.name.lower())]
            claims += [(key, sink.options[key]) for key in ("transactional.id.prefix", "path") if key in sink.options]
            for key, value in claims:
                if (key, value) in seen:
                    self._wrong(sink.section, f'"{key}" is "{value}", as for another sink', key, "name")
                seen[key, value] = sink

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _trigger(self, section: Section) -> Trigger:
        text = self._text(section, "trigger") or DEFAULT_TRIGGER
        trigger = Trigger.parse(text)
        if trigger is None:
            self._wrong(section, f'"trigger" is {schema.PIPELINE.find("trigger").meaning}, not {text!r}', "trigger")  # type: ignore[union-attr]
            return Trigger(text, "availableNow", True)
        return trigger

    def _client_settings(self, section: Section) -> dict[str, str]:
        """Those of the pipeline count for all that do not say otherwise."""
        everywhere = schema.below(self.document.pipeline.entries, schema.KAFKA, keep_prefix=True)
        own = schema.below(section.entries, schema.KAFKA, keep_prefix=True)
        return _as_options({BOOTSTRAP: self.bootstrap_servers, **everywhere, **own})

    def _checked(self, value: Checked, problem_of: Callable[[Checked], Problem | None]) -> Checked:
        problem = problem_of(value)
        if problem is not None:
            self.problems.append(problem)
        return value

    def _options_of(self, section: Section, keys: schema.Keys) -> dict[str, str]:
        found = ((keys.find(key), entry.value) for key, entry in section.entries.items())
        return {
            key.name: schema.option_text(value)
            for key, value in found
            if key is not None and key.kind is schema.Kind.OPTION
        }

    def _name(self, section: Section, default: str, *, alone: bool) -> str:
        if section.name is None and not alone:
            self._wrong(section, f'needs "name": there are several {default}s, and each is known by its own')
        return section.name or default

    def _new_view(self, section: Section, name: str, *keys: str) -> str:
        if _VIEW_NAME.fullmatch(name) is None:
            self._wrong(section, f'"{name}" is no name for SQL: letters, digits and "_", no digit first', *keys, "name")
        elif name.lower() in self.views:
            self._wrong(section, f'"{name}" is the name of another source or step', *keys, "name")
        self.views[name.lower()] = name
        return name

    def _path(self, path: str) -> str:
        return path if "://" in path else posixpath.normpath(posixpath.join(self.folder, path))

    def _required(self, section: Section, key: str, meaning: str) -> str:
        value = self._text(section, key)
        if value is None and key not in section.entries:
            self._wrong(section, f'needs "{key}": {meaning}')
        return value or "missing"

    def _text(self, section: Section, key: str) -> str | None:
        value = self._value(section, key)
        return value if isinstance(value, str) else None

    def _value(self, section: Section, key: str) -> Any:
        entry = section.entries.get(key)
        return None if entry is None else entry.value

    def _check_keys(self, section: Section, keys: schema.Keys) -> None:
        self.problems += schema.problems_of(section, keys)

    def _wrong(self, section: Section, text: str, *keys: str) -> None:
        self.problems.append(section.problem(text, *keys))


def _outputs_of_sources(sources: Sequence[Source]) -> tuple[str, ...]:
    """What is taken if nothing is said: tables to join with are not meant."""
    return tuple(source.name for source in sources if source.streaming) or tuple(source.name for source in sources)


def _as_options(values: dict[str, Any]) -> dict[str, str]:
    return {key: schema.option_text(value) for key, value in values.items()}
