"""The columns that a step gives, by name and type, and those that a sink of files needs."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.client.settings import nearest
from oncelog.spark.pipeline.values import Sink

Columns = Sequence[tuple[str, str]]
"""Names and Spark's types, as `DataFrame.dtypes` has them."""


def missing_folder_column(sink: Sink, columns: Columns) -> str | None:
    names = [name.lower() for name, _ in columns]
    for name in sink.partition_by:
        if name.lower() not in names:
            near = nearest(name.lower(), names)
            hint = f'; did you mean "{near}"?' if near else f"; it has {', '.join(names)}"
            return f'"partition_by": "{sink.input}" has no column "{name}"{hint}'
    return None
