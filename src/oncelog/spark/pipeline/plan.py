"""What a pipeline will do, told before it does it: what flows where, and what happens to a row when something fails.

Owns the words for the guarantees. Pure text of values; runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oncelog.printable import counted
from oncelog.spark.pipeline.columns import Columns
from oncelog.spark.pipeline.values import BOOTSTRAP, EXACTLY_ONCE, Pipeline, Sink, Source, SqlStep, Step

WHICH_TOPICS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Guarantee:
    exactly_once: bool
    why: str

    def __str__(self) -> str:
        return f"{'exactly-once' if self.exactly_once else 'not exactly-once'}: {self.why}"


def guarantee(pipeline: Pipeline, sink: Sink) -> Guarantee:
    forgetful = [source.name for source in pipeline.sources if source.format == "socket"]
    if forgetful:
        return Guarantee(False, f"the source {', '.join(forgetful)} cannot be read again after a crash")
    match sink.type:
        case "topic" if sink.options["mode"] == EXACTLY_ONCE:
            prefix = sink.options["transactional.id.prefix"]
            return Guarantee(True, f"a batch becomes visible by Kafka transactions ({prefix}-*) that are decided once")
        case "topic":
            return Guarantee(False, f'mode is "{sink.options["mode"]}": a batch that is repeated is written again')
        case "table":
            return Guarantee(True, "rows and the batch's number are one transaction of the database")
        case "files":
            return Guarantee(
                True, "the folder lists the files of each batch once; readers must be Spark, or use that list"
            )
    return Guarantee(False, "a batch that is repeated is shown again")


def plan_lines(pipeline: Pipeline, columns: Mapping[str, Columns]) -> Iterator[str]:
    """`columns` of each source and output, as far as they are known."""
    yield f"pipeline {pipeline.name}: Spark at {pipeline.master}, {pipeline.trigger.text}"
    yield f"  checkpoint {pipeline.checkpoint}"
    for source in pipeline.sources:
        yield f"  source {source.name}: {_source_text(source)}{_columns_text(columns.get(source.name))}"
    for step in pipeline.steps:
        yield f"  step {step.name}: {_step_text(step)}{_outputs_text(step, columns)}"
    for sink in pipeline.sinks:
        yield f"  sink {sink.name}: {sink.input} -> {_target_text(sink)}"
        yield f"    {guarantee(pipeline, sink)}"


def plan_event(pipeline: Pipeline, columns: Mapping[str, Columns]) -> dict[str, Any]:
    return {
        "event": "plan",
        "pipeline": pipeline.name,
        "master": pipeline.master,
        "trigger": pipeline.trigger.text,
        "checkpoint": pipeline.checkpoint,
        "sources": [{"name": source.name, "format": source.format} for source in pipeline.sources],
        "steps": [{"name": step.name, "outputs": list(step.outputs)} for step in pipeline.steps],
        "sinks": [_sink_event(pipeline, sink) for sink in pipeline.sinks],
        "columns": {name: dict(found) for name, found in columns.items()},
    }


def _sink_event(pipeline: Pipeline, sink: Sink) -> dict[str, Any]:
    promise = guarantee(pipeline, sink)
    return {
        "name": sink.name,
        "type": sink.type,
        "from": sink.input,
        "target": _target_text(sink),
        "exactly_once": promise.exactly_once,
        "why": promise.why,
    }


def _source_text(source: Source) -> str:
    if source.is_topic:
        topics = next(f"{key} {source.options[key]}" for key in WHICH_TOPICS if key in source.options)
        return f"{topics} at {source.options[BOOTSTRAP]}{'' if source.streaming else ', read once'}"
    kind = "stream" if source.streaming else "table, read once"
    path = f" {source.options['path']}" if "path" in source.options else ""
    return f"{source.format}{path} ({kind})"


def _step_text(step: Step) -> str:
    if isinstance(step, SqlStep):
        return "SQL"
    return f"{step.key} {step.function}({', '.join(step.inputs)})"


def _outputs_text(step: Step, columns: Mapping[str, Columns]) -> str:
    if len(step.outputs) == 1:
        return _columns_text(columns.get(step.outputs[0]))
    return "".join(f"\n    {name}{_columns_text(columns.get(name))}" for name in step.outputs)


def _columns_text(columns: Columns | None) -> str:
    return "" if columns is None else " -> " + ", ".join(f"{name} {kind}" for name, kind in columns)


def _target_text(sink: Sink) -> str:
    match sink.type:
        case "topic":
            topic = "the topics that rows name" if sink.topic is None else f"topic {sink.topic}"
            made = (
                f", made with {counted(sink.create_partitions, 'partition')} if missing"
                if sink.create_partitions
                else ""
            )
            return f"{topic} at {sink.options[BOOTSTRAP]}{made}"
        case "table":
            return f"table {sink.options.get('table', '?')}"
        case "files":
            return f"{sink.format} files in {sink.options['path']}"
    return "the console"
