"""Pipelines from texts, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.spark.pipeline.document import InvalidPipeline, read_document
from oncelog.spark.pipeline.reading import read_pipeline
from oncelog.spark.pipeline.values import Pipeline

FILE = "pipeline.toml"
HEAD = '[pipeline]\nname = "billing"\ncheckpoint = "cp"\n'
SOURCE = '[source]\nsubscribe = "orders"\n'
SINK = '[sink]\ntype = "topic"\ntopic = "paid"\n'


def read(text: str, overrides: Iterable[tuple[str, str]] = ()) -> Pipeline:
    document = read_document(text, FILE, overrides)
    return read_pipeline(document, folder="/home/me", bootstrap_servers="broker:9092")


def problems(text: str, overrides: Iterable[tuple[str, str]] = ()) -> list[str]:
    try:
        read(text, overrides)
    except InvalidPipeline as error:
        return [str(problem) for problem in error.problems]
    return []
