"""What oncelog's own data sources say of their options and columns, as problems with lines of the file.

The rules are theirs; here is only who is asked, and which key an answer is about.
"""

from __future__ import annotations

import re
from typing import Final

from oncelog.errors import OncelogError
from oncelog.spark.options import CLIENT_PREFIX, Options
from oncelog.spark.pipeline.columns import Columns
from oncelog.spark.pipeline.document import Problem, Section
from oncelog.spark.pipeline.values import Sink, Source
from oncelog.spark.sink.settings import sink_settings
from oncelog.spark.source.settings import batch_settings, stream_settings
from oncelog.spark.table.columns import columns_of
from oncelog.spark.table.settings import check_columns, read_settings

ANY_COLUMNS: Final[Columns] = (("value", "binary"), ("topic", "string"))
"""Those of a sink whose rows are not known yet: good for any options."""

_NAME = re.compile(r"\w+(?:\.\w+)*")


def source_problem(source: Source) -> Problem | None:
    """Of a source that reads topics."""
    settings_of = stream_settings if source.streaming else batch_settings
    try:
        settings_of(Options(source.options, "a topic source"))
    except OncelogError as error:
        return problem_at(source.section, str(error))
    return None


def topic_sink_problem(sink: Sink, columns: Columns = ANY_COLUMNS) -> Problem | None:
    try:
        sink_settings(Options(sink.options, "a topic sink"), dict(columns))
    except OncelogError as error:
        return problem_at(sink.section, str(error), "from", "type")
    return None


def table_sink_problem(sink: Sink, columns: Columns | None = None) -> Problem | None:
    """Without columns: of its options alone."""
    try:
        settings = read_settings(Options(sink.options, "a table sink"))
        if columns is not None:
            check_columns(settings.write, columns_of(columns))
    except OncelogError as error:
        return problem_at(sink.section, str(error), *(("url",) if columns is None else ("from", "type")))
    return None


def problem_at(section: Section, text: str, *otherwise: str) -> Problem:
    """At the first key that the text names, by itself or by its value, and that the section has."""
    keys = {entry.value: key for key, entry in section.entries.items() if isinstance(entry.value, str)}
    keys |= {key.lower(): key for key in section.entries}
    words = [name.lower() for word in _NAME.findall(text) for name in (word, f"{CLIENT_PREFIX}{word}")]
    return section.problem(text, *(keys[word] for word in words if word in keys), *otherwise)
