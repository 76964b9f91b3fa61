"""Whether a table sink will find its database and a table that fits, asked before anything starts.

A shell: it connects. It makes nothing: neither a table nor, for SQLite, the file.
"""

from __future__ import annotations

import os
from contextlib import closing

from oncelog.errors import OncelogError
from oncelog.spark.options import Options
from oncelog.spark.pipeline.columns import Columns
from oncelog.spark.pipeline.data_sources import problem_at
from oncelog.spark.pipeline.document import Problem
from oncelog.spark.pipeline.values import Sink
from oncelog.spark.table.columns import columns_of
from oncelog.spark.table.errors import UnfitTable, UnreachableDatabase
from oncelog.spark.table.layout import Layout, check_creatable, check_fit
from oncelog.spark.table.settings import SQLITE, Settings, read_settings


def table_problem(sink: Sink, columns: Columns) -> Problem | None:
    settings = read_settings(Options(sink.options, "a table sink"))
    try:
        _look(settings, columns)
    except UnreachableDatabase as error:
        return sink.problem(str(error), "url")
    except OncelogError as error:
        return problem_at(sink.section, str(error), "table")
    return None


def _look(settings: Settings, columns: Columns) -> None:
    from oncelog.spark.table.writer import open_store

    layout = Layout(settings.table, columns_of(columns), settings.write)
    if settings.create and settings.url.startswith(SQLITE) and not os.path.exists(settings.url.removeprefix(SQLITE)):
        check_creatable(layout.columns)
        return
    with closing(open_store(settings)) as store, store.explaining(), store.transaction() as session:
        found = store.find(session, settings.table)
        if found is None:
            store.check_schema(session, settings.table)
        if found is not None:
            _, misfits = store.dialect.casts(layout, found)
            check_fit(layout, found, misfits)
        elif settings.create:
            check_creatable(layout.columns)
        else:
            raise UnfitTable(f"there is no table {settings.table}: create it, or set create = true")
