"""Rows that delete: tombstones of a topic, in a table with one row for each key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.spark.table.columns import columns_of
from oncelog.spark.table.errors import BadValue, UnfitTable
from oncelog.spark.table.settings import Upsert, check_columns
from oncelog.spark.table.writer import open_store
from tests.spark.table.support import Job, settings_of

TYPES = {"id": "string", "version": "bigint", "state": "string", "gone": "boolean"}
ALL = "SELECT id, version, state FROM orders ORDER BY id"


def versioned(url: str) -> Job:
    return Job(settings_of(url, key="id", version="version", delete_when="gone"), TYPES)


def test_a_row_that_deletes_leaves_none_of_its_key(url: str) -> None:
    job = versioned(url)
    job.run(0, [[("a", 1, "new", False), ("b", 1, "new", False)], [("c", 1, "new", False)]])
    job.run(1, [[("a", 2, None, True), ("never there", 2, None, True)], [("c", 2, "paid", False)]])
    assert job.look(ALL) == [("b", 1, "new"), ("c", 2, "paid")]
    assert job.look("SELECT rows, applied FROM oncelog_batches WHERE batch = 1") == [(3, 2)]


def test_a_batch_that_comes_again_deletes_nothing_that_came_later(url: str) -> None:
    """By the ledger, also without a version: the replay is not applied at all."""
    job = Job(settings_of(url, key="id", delete_when="gone"), TYPES)
    job.run(0, [[("a", 1, "new", False)]])
    job.run(1, [[("a", 2, None, True)]])
    other = replace(job, query="query-2")
    other.run(0, [[("a", 3, "again", False)]])
    job.run(1, [[("a", 2, None, True)]])
    assert job.look(ALL) == [("a", 3, "again")]


def test_of_one_key_the_newest_row_of_a_batch_decides(url: str) -> None:
    job = versioned(url)
    job.run(0, [[("a", 5, "old", False), ("b", 5, "old", False), ("c", 5, "old", False)]])
    job.run(
        1,
        [
            [("a", 7, None, True), ("a", 6, "late", False), ("b", 6, None, True)],
            [("b", 7, "back", False), ("c", 5, None, True), ("d", 2, None, True), ("d", 1, "never seen", False)],
        ],
    )
    assert job.look(ALL) == [("b", 7, "back"), ("c", 5, "old")], "of equal versions the one that is there stays"
    job.run(2, [[("b", 6, None, True)]])
    assert job.look(ALL) == [("b", 7, "back"), ("c", 5, "old")], "an older tombstone deletes nothing"


def test_without_a_version_the_last_row_of_a_task_decides(url: str) -> None:
    job = Job(settings_of(url, key="id", delete_when="gone"), TYPES)
    job.run(0, [[("a", 1, "new", False), ("a", 2, None, True), ("b", 1, None, True), ("b", 1, "new", False)]])
    assert job.look(ALL) == [("b", 1, "new")]
    job.run(1, [[("b", 1, "more", False), ("b", 1, None, True)]])
    assert job.look(ALL) == []


def test_keys_of_several_columns_and_names_that_need_quotes(url: str) -> None:
    types = {"c0": "bigint", '50% "key"': "string", "known": "bigint", "x": "date", "attempt": "boolean"}
    job = Job(
        settings_of(url, table='"Orders %s; DROP"', key='c0,50% "key"', version="known", delete_when="attempt"), types
    )
    job.run(0, [[(1, "a", 1, None, False), (1, "b", 1, None, False), (2, "a", 1, None, False)]])
    job.run(1, [[(1, "b", 2, None, True), (2, "a", 0, None, True)]])
    found = job.look('SELECT c0, "50% ""key""" FROM "Orders %s; DROP" ORDER BY 1, 2'.replace("%", job_escape(url)))
    assert found == [(1, "a"), (2, "a")]


def job_escape(url: str) -> str:
    """A statement of psycopg with values has its per cent signs doubled."""
    return "%%" if url.startswith("postgresql") else "%"


def test_keys_that_are_cast_or_have_a_collation_of_their_own(postgres_url: str) -> None:
    job = Job(
        settings_of(postgres_url, key="id,tag", version="version", delete_when="gone"), {**TYPES, "tag": "string"}
    )
    with open_store(job.settings).transaction() as session:
        session.change(
            'CREATE TABLE orders (id uuid, tag text COLLATE "C", version bigint, state text, gone text NOT NULL '
            "DEFAULT 'the table has a column of that name, too', PRIMARY KEY (id, tag))"
        )
    one, other = (f"00000000-0000-0000-0000-00000000000{number}" for number in (1, 2))
    job.run(0, [[(one, 1, "new", False, "x"), (other, 1, "new", False, "x")]])
    job.run(1, [[(one, 2, None, True, "x"), (other, 2, None, True, "y")]])
    assert [str(row[0]) for row in job.look("SELECT id FROM orders")] == [other]


def test_a_complete_result_has_no_rows_that_delete(url: str) -> None:
    job = versioned(url)
    job.run(0, [[("a", 1, "new", False)]])
    planned = job.plan(overwrite=True)
    job.commit(planned, job.stage(planned, 1, [[("b", 1, "new", False), ("a", 1, None, True)]]))
    assert job.look(ALL) == [("b", 1, "new")]


def test_a_row_must_say_whether_it_deletes_and_which(url: str) -> None:
    job = versioned(url)
    with pytest.raises(BadValue, match=r"the row with id='a', .* has no 'gone', which says whether it deletes"):
        job.run(0, [[("a", 1, "new", None)]])
    with pytest.raises(BadValue, match="has no 'id', which tells rows apart"):
        job.run(0, [[(None, 1, None, True)]])


def test_the_column_is_a_boolean_of_the_query_and_not_of_the_table(url: str) -> None:
    job = versioned(url)
    assert [column.name for column in job.plan().layout.written] == ["id", "version", "state"]
    assert job.look("SELECT * FROM orders") == []
    with pytest.raises(UnfitTable, match="has no column 'gone'"):
        check_columns(Upsert(("id",), None, "gone"), columns_of([("id", "bigint")]))
    with pytest.raises(UnfitTable, match="which is of type string: make it a boolean"):
        check_columns(Upsert(("id",), None, "gone"), columns_of([("id", "bigint"), ("gone", "string")]))


def test_deleting_must_be_allowed(postgres_url: str) -> None:
    job = versioned(postgres_url)
    job.plan()
    with open_store(job.settings).transaction() as session:
        session.change("CREATE ROLE no_deleter LOGIN")
        session.change("GRANT ALL ON SCHEMA public TO no_deleter")
        session.change("GRANT INSERT, SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO no_deleter")
    limited = replace(job, settings=replace(job.settings, user="no_deleter"))
    with pytest.raises(UnfitTable, match="may not DELETE on"):
        limited.plan()
