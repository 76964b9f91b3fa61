"""`oncelog run pipeline.toml`: a pipeline on Spark from a file: checked, planned, run, and stopped cleanly."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from oncelog.cli.ending import INTERRUPTED
from oncelog.cli.options import WrongUsage, key_value
from oncelog.cli.output import say_text
from oncelog.errors import OncelogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.cli.run_screen import Screen
    from oncelog.spark.pipeline.document import Problem
    from oncelog.spark.pipeline.functions import Function
    from oncelog.spark.pipeline.reading import Reading
    from oncelog.spark.pipeline.running import StopRequest
    from oncelog.spark.pipeline.values import Pipeline

EPILOG = """\
A pipeline is a file:

  [pipeline]
  name = "billing"
  checkpoint = "checkpoints/billing"       # remembers how far it is

  [source]
  subscribe = "orders"                     # a topic

  [[step]]
  sql = "SELECT key, upper(CAST(value AS STRING)) AS value FROM source"

  [sink]
  type = "topic"                           # exactly-once
  topic = "paid"

It is checked in full before anything starts; each problem names its line. Then the plan is printed: what flows where,
and whether exactly once. SIGTERM and Ctrl-C let the running batches end and exit with 0; the next run goes on there.
Spark's own log is the file CHECKPOINT.spark.log.

examples:
  oncelog run --example > pipeline.toml               a file with every section, to start from
  oncelog run pipeline.toml --check                   find mistakes, show the plan, run nothing
  oncelog run pipeline.toml
  oncelog run pipeline.toml -o pipeline.trigger=available-now     work off what is there, then end
  oncelog run pipeline.toml --master spark://host:7077
  oncelog run pipeline.toml -o source.subscribe=orders-test -o sink.topic=paid-test
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "run",
        help="run a pipeline on Spark from a file: topics, SQL, tables, exactly once",
        description="Run a pipeline on Spark: sources, SQL or Python functions, and sinks, as a TOML file says.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", metavar="PIPELINE.toml")
    parser.add_argument("--check", action="store_true", help="check everything, print the plan, and run nothing")
    parser.add_argument("--example", action="store_true", help="print a pipeline file with comments")
    parser.add_argument("--master", metavar="URL", help="Spark's master, instead of the file's (default: local[*])")
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", help="serve lag, rows and times of each sink there, for Prometheus"
    )
    parser.add_argument(
        "-o", dest="overrides", metavar="SECTION.KEY=VALUE", type=key_value, action="append", default=[],
        help="any key of the file; SECTION.NAME.KEY where there are several",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.example:
        from oncelog.spark.pipeline.example import EXAMPLE

        say_text(EXAMPLE)
        return 0
    if args.file is None:
        raise WrongUsage("which pipeline? oncelog run PIPELINE.toml (oncelog run --example prints one to start from)")
    if find_spec("pyspark") is None:
        raise OncelogError("a pipeline runs on Spark, and PySpark is not installed: pip install 'oncelog[spark]'")
    from oncelog.cli.run_screen import open_screen
    from oncelog.spark.pipeline.document import InvalidPipeline
    from oncelog.spark.pipeline.running import StoppedEarly, StopRequest

    with open_screen(as_json=args.json) as screen, StopRequest().on_signals() as stop:
        try:
            _check_and_run(args, screen, stop)
        except InvalidPipeline as error:
            screen.problems(error.problems)
            return 1
        except StoppedEarly:
            if args.check:
                return INTERRUPTED  # nobody knows whether it is in order
            screen.note("stopped before the first batch; the next run begins or goes on here")
    return 0


def _check_and_run(args: argparse.Namespace, screen: Screen, stop: StopRequest) -> None:
    from oncelog.spark.pipeline import building, running, session, world
    from oncelog.spark.pipeline.document import InvalidPipeline
    from oncelog.spark.watch.endpoint import serve

    session.check_parts()
    if args.check:
        _check(args, screen, stop)
        return
    pipeline = _read(args).sound()
    functions, problems = _checked_outside(pipeline, args)
    if problems:
        raise InvalidPipeline(problems)
    if args.metrics is not None:
        screen.note("serving metrics", url=f"http://{serve(args.metrics).address}/metrics")
    log = session.log_file(pipeline, only_check=False)
    screen.note("starting Spark", log=log)
    with _session(pipeline, log, screen, stop) as spark:
        frames = building.build(spark, pipeline, functions)
        if frames.problems:
            raise InvalidPipeline(frames.problems)
        screen.plan(pipeline, frames.columns())
        for made in world.prepare(pipeline):
            screen.note(f"made {made}")
        try:
            running.run_queries(spark, pipeline, frames.by_name, stop, screen.progress, screen.note)
        except running.QueryFailed as error:
            raise OncelogError(f"{error}; the next run goes on after the last batch; Spark's log: {log}") from error
        screen.note("stopped; the next run goes on here" if stop.count else "done: all that was there is processed")


@contextmanager
def _session(pipeline: Pipeline, log: str, screen: Screen, stop: StopRequest) -> Iterator[SparkSession]:
    from oncelog.spark.pipeline import session
    from oncelog.spark.pipeline.running import StoppedEarly

    with session.open_session(pipeline, log) as spark, stop.on_signals():  # Spark has put its own handlers into place
        try:
            yield spark
        except StoppedEarly:
            screen.note("stopping Spark; another signal ends the process at once")
            raise


def _check(args: argparse.Namespace, screen: Screen, stop: StopRequest) -> None:
    """All that can be found in one round: whatever is wrong, what does not depend on it is still looked at."""
    from oncelog.spark.pipeline import building, session, world
    from oncelog.spark.pipeline.document import InvalidPipeline, in_order

    reading = _read(args)
    pipeline = reading.pipeline
    functions, problems = _checked_outside(pipeline, args, is_startable=reading.is_startable)
    problems += reading.problems
    if not reading.is_startable or list(world.master_problems(pipeline)):
        raise InvalidPipeline(in_order(problems))
    log = session.log_file(pipeline, only_check=True)
    screen.note("starting Spark", log=log)
    with _session(pipeline, log, screen, stop) as spark:
        frames = building.build(spark, pipeline, functions, reading.unknown)
        problems += frames.problems
        if problems:
            raise InvalidPipeline(in_order(problems))
        screen.plan(pipeline, frames.columns())
        screen.note("everything is in order; nothing was started")


def _read(args: argparse.Namespace) -> Reading:
    from oncelog.spark.pipeline.document import read_document
    from oncelog.spark.pipeline.reading import read_leniently

    try:
        with open(args.file, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError:
        raise OncelogError(f"{args.file} is not a text file in UTF-8") from None
    overrides = [*args.overrides, *([("pipeline.master", args.master)] if args.master else [])]
    document = read_document(text, args.file, overrides)
    return read_leniently(document, folder=_folder(args), bootstrap_servers=args.bootstrap_server)


def _folder(args: argparse.Namespace) -> str:
    return os.path.dirname(os.path.abspath(str(args.file)))


def _checked_outside(
    pipeline: Pipeline, args: argparse.Namespace, *, is_startable: bool = True
) -> tuple[dict[str, Function], list[Problem]]:
    """The functions of its steps by their names, and all that is wrong outside the file before Spark is needed."""
    from oncelog.spark.pipeline.functions import NoFunction, load_function
    from oncelog.spark.pipeline.values import FunctionStep
    from oncelog.spark.pipeline.world import problems_outside

    functions: dict[str, Function] = {}
    problems = problems_outside(pipeline, is_startable=is_startable)
    for step in pipeline.steps:
        if isinstance(step, FunctionStep):
            try:
                functions[step.name] = load_function(step, _folder(args))
            except NoFunction as error:
                problems.append(step.section.problem(str(error), step.key))
    return functions, problems
