"""Data frames from values: sources are loaded and steps analysed, which Spark does without running anything.

A shell over Spark's session. Problems carry lines of the file; a step or sink that takes what a wrong one gives is not
looked at, and every other one is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from oncelog.errors import OncelogError
from oncelog.spark.pipeline.columns import Columns, missing_folder_column
from oncelog.spark.pipeline.data_sources import table_sink_problem, topic_sink_problem
from oncelog.spark.pipeline.document import Problem
from oncelog.spark.pipeline.functions import Function
from oncelog.spark.pipeline.sql_errors import line_in_query, sentence
from oncelog.spark.pipeline.tables import table_problem
from oncelog.spark.pipeline.values import FunctionStep, Pipeline, Sink, Source, SqlStep, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


NOT_FOUND: Final = re.compile(r"TABLE_OR_VIEW_NOT_FOUND[^`]*`(?P<name>[^`]+)`")


@dataclass(slots=True)
class Frames:
    """By the name of their source or output."""

    by_name: dict[str, DataFrame] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    """Names of sources and outputs that could not be built, and of all that take them."""

    def columns(self) -> dict[str, Columns]:
        return {name: frame.dtypes for name, frame in self.by_name.items()}

    def add(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self.by_name[name] = frame


def build(
    spark: SparkSession, pipeline: Pipeline, functions: Mapping[str, Function], unknown: Iterable[str] = ()
) -> Frames:
    """`functions` by the name of their step; `unknown` are names whose sections are wrong."""
    frames = Frames(unknown=set(unknown))
    for source in pipeline.sources:
        _add_source(spark, source, frames)
    for step in pipeline.steps:
        _add_step(spark, step, functions, frames)
        frames.unknown |= {name for name in step.outputs if name not in frames.by_name}
    for sink in pipeline.sinks:
        if sink.input in frames.by_name:
            problem = _sink_problem(spark, sink, frames.by_name[sink.input])
            frames.problems += [] if problem is None else [problem]
    return frames


def _add_source(spark: SparkSession, source: Source, frames: Frames) -> None:
    reader = (spark.readStream if source.streaming else spark.read).format(source.format).options(**source.options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    try:
        frames.add(source.name, reader.load())
    except Exception as error:  # Spark's, and whatever a data source raises in a worker
        frames.problems.append(source.section.problem(sentence(str(error)), "schema", "format"))
        frames.unknown.add(source.name)


def _add_step(spark: SparkSession, step: Step, functions: Mapping[str, Function], frames: Frames) -> None:
    if isinstance(step, SqlStep):
        try:
            frames.add(step.name, spark.sql(step.sql.value))
        except Exception as error:
            if not _takes_what_is_unknown(str(error), frames):
                frames.problems.append(_sql_problem(step, str(error), frames))
        return
    if step.name not in functions or not all(name in frames.by_name for name in step.inputs):
        return  # what is wrong was told already
    key = step.key
    try:
        result = functions[step.name](*(frames.by_name[name] for name in step.inputs), **step.arguments)
    except OncelogError as error:  # a tool that says what is wrong
        frames.problems.append(step.section.problem(str(error), key))
        return
    except Exception as error:  # a user's function may raise anything
        text = f"{step.function} raised {type(error).__name__}: {sentence(str(error))}"
        frames.problems.append(step.section.problem(text, key))
        return
    problem = _keep_results(step, result, frames)
    if problem is not None:
        frames.problems.append(step.section.problem(problem, "outputs", key))


def _takes_what_is_unknown(message: str, frames: Frames) -> bool:
    """Whether a query fails only because something before it does."""
    found = NOT_FOUND.search(message)
    return found is not None and found["name"].lower() in {name.lower() for name in frames.unknown}


def _sql_problem(step: SqlStep, message: str, frames: Frames) -> Problem:
    text = sentence(message)
    if NOT_FOUND.search(message):
        text += f" Sources and earlier steps are {', '.join(frames.by_name)}."
    where = step.sql.line_of(line_in_query(message) or 0)
    return Problem(where, f"{step.section.label} {text}")


def _keep_results(step: FunctionStep, result: Any, frames: Frames) -> str | None:
    from pyspark.sql import DataFrame

    results = (result,) if isinstance(result, DataFrame) else result
    if not isinstance(results, tuple | list) or not all(isinstance(one, DataFrame) for one in results):
        return f"{step.function} returned {type(result).__name__}, not a DataFrame"
    if len(results) != len(step.outputs):
        return f'{step.function} returned {len(results)} data frames: name as many in "outputs"'
    for name, frame in zip(step.outputs, results, strict=True):
        frames.add(name, frame)
    return None


def _sink_problem(spark: SparkSession, sink: Sink, frame: DataFrame) -> Problem | None:
    if not frame.isStreaming:
        return sink.problem(f'"{sink.input}" is not a stream: it comes from sources that are read once', "from")
    problem = _column_problem(sink, frame.dtypes)
    if problem is not None:
        return problem
    try:
        _check_streaming(spark, frame, sink.output_mode)
    except Exception as error:
        return sink.problem(sentence(str(error)), "output_mode", "from")
    return None


def _column_problem(sink: Sink, columns: Columns) -> Problem | None:
    if sink.type == "topic":
        return topic_sink_problem(sink, columns)
    if sink.type == "table":
        return table_sink_problem(sink, columns) or table_problem(sink, columns)
    text = missing_folder_column(sink, columns)
    return None if text is None else sink.problem(text, "partition_by")


def _check_streaming(spark: SparkSession, frame: DataFrame, output_mode: str) -> None:
    """Spark's own check at the start of a query, before there is one: raises AnalysisException."""
    jvm: Any = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = modes.Complete() if output_mode == "complete" else modes.Append()
    plan = frame._jdf.queryExecution().analyzed()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
