"""Plans, commits and aborts on real databases, without Spark."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from oncelog.spark.table.errors import Disagreement, RolledBack, SinkTaken, StagingLost, UnfitTable, UnknownQuery
from oncelog.spark.table.ledger import RUNS
from oncelog.spark.table.names import ABANDONED_MS
from oncelog.spark.table.procedure import abort
from oncelog.spark.table.writer import open_store
from tests.spark.table.support import ORDER_TYPES, Job, settings_of

ALL = "SELECT id, version, state FROM orders ORDER BY id, version"
LEDGER = "SELECT query, batch, rows, applied FROM oncelog_batches ORDER BY at_ms, batch"


def upserts(url: str) -> Job:
    return Job(settings_of(url, key="id", version="version"), ORDER_TYPES)


def inserts(url: str, **options: str) -> Job:
    return Job(settings_of(url, write="insert", **options), ORDER_TYPES)


def test_a_batch_is_published_once_however_its_rows_are_spread(url: str) -> None:
    job = inserts(url)
    job.run(0, [[(1, 1, "a"), (2, 1, "b")], [], [(3, 1, "c")]])
    job.run(0, [[(3, 1, "c")], [(2, 1, "b")], [(1, 1, "a")]])
    job.run(1, [[(1, 1, "a")]])
    assert job.look(ALL) == [(1, 1, "a"), (1, 1, "a"), (2, 1, "b"), (3, 1, "c")]
    assert job.look(LEDGER) == [("query-1", 0, 3, 3), ("query-1", 1, 1, 1)]


def test_only_newer_versions_replace_a_row(url: str) -> None:
    job = upserts(url)
    job.run(0, [[(1, 5, "five"), (1, 7, "seven"), (1, 6, "six")], [(2, 1, "one"), (2, 1, "one again")]])
    job.run(1, [[(1, 6, "late"), (1, 7, "seven again")], [(2, 2, "two"), (3, 1, "new")]])
    assert job.look(ALL) == [(1, 7, "seven"), (2, 2, "two"), (3, 1, "new")]
    assert job.look("SELECT applied FROM oncelog_batches WHERE batch = 1") == [(2,)]


def test_without_a_version_the_last_row_of_a_task_stays(url: str) -> None:
    job = Job(settings_of(url, key="id"), ORDER_TYPES)
    job.run(0, [[(1, 5, "first"), (1, 4, "last")]])
    job.run(1, [[(1, 1, "later")]])
    assert job.look(ALL) == [(1, 1, "later")]


def test_rows_with_a_known_message_id_are_ignored_and_counted(url: str) -> None:
    job = inserts(url, message_id="id")
    job.run(0, [[(1, 1, "a"), (2, 1, "b")]])
    again = replace(job, query="query-2")  # a deleted checkpoint
    again.run(0, [[(1, 1, "a"), (2, 1, "b"), (3, 1, "c"), (3, 1, "c")]])
    assert job.look(ALL) == [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]
    assert job.look(LEDGER)[-1] == ("query-2", 0, 4, 1)


def test_attempts_that_nobody_names_are_not_published(url: str) -> None:
    job = inserts(url)
    planned = job.plan()
    job.stage_slot(planned, 0, 0, [(1, 1, "of a loser")])
    winner = job.stage_slot(planned, 0, 0, [(1, 1, "of the winner")])
    job.commit(planned, [winner])
    assert job.look(ALL) == [(1, 1, "of the winner")]
    assert job.areas(planned) == []


def test_a_plan_sweeps_what_a_killed_driver_left(url: str) -> None:
    job = inserts(url)
    for _ in range(3):
        job.stage(job.plan(), 0, [[(1, 1, "a")]])
    last = job.plan()
    assert job.areas(last) == [last.stage.name]
    other = Job(settings_of(url, write="insert", sink_name="another", table="others"), ORDER_TYPES).plan()
    job.plan()
    assert other.stage.name in job.areas(other)
    with closing(open_store(job.settings)) as store:
        abort(store, other)
    assert other.stage.name not in job.areas(other)


def test_a_committer_of_an_older_plan_publishes_nothing(url: str) -> None:
    job = inserts(url)
    zombie = job.plan()
    reports = job.stage(zombie, 0, [[(1, 1, "zombie")]])
    planned = job.plan()
    with pytest.raises((SinkTaken, StagingLost)):
        job.commit(zombie, reports)
    job.commit(planned, job.stage(planned, 0, [[(1, 1, "driver")]]))
    assert job.look(ALL) == [(1, 1, "driver")]


def test_two_queries_on_one_sink_stop_each_other(url: str) -> None:
    one, other = upserts(url), replace(upserts(url), query="query-2")
    planned = one.plan()
    reports = one.stage(planned, 0, [[(1, 1, "one")]])
    elsewhere = other.plan()
    with pytest.raises((SinkTaken, StagingLost)):
        one.commit(planned, reports)
    other.commit(elsewhere, other.stage(elsewhere, 0, [[(2, 1, "other")]]))
    assert one.look(ALL) == [(2, 1, "other")]


def test_staged_rows_that_are_gone_are_missed(url: str) -> None:
    job = inserts(url)
    planned = job.plan()
    reports = job.stage(planned, 0, [[(1, 1, "a")], [(2, 1, "b")]])
    with closing(open_store(job.settings)) as store, store.publishing(planned.stage) as (session, stage):
        session.change(f"DELETE FROM {stage} WHERE attempt = 2")
    with pytest.raises(StagingLost, match="slot 1 of batch 0 staged 1 rows, of which 0"):
        job.commit(planned, reports)
    assert job.look(ALL) == []
    assert job.look(LEDGER) == []


def test_a_rolled_back_checkpoint_stops_the_query(url: str) -> None:
    job = upserts(url)
    job.run(4, [[(1, 1, "a")]], digest="offsets 4")
    job.run(4, [[(1, 1, "a")]], digest="offsets 4")
    with pytest.raises(RolledBack, match="other source offsets"):
        job.run(4, [[(9, 1, "x")]], digest="other offsets")
    with pytest.raises(RolledBack, match="batch 3 of query query-1 comes again"):
        job.run(3, [[(9, 1, "x")]])
    assert job.look(ALL) == [(1, 1, "a")]


def test_a_new_query_may_not_insert_a_second_time(url: str) -> None:
    job = inserts(url)
    job.run(0, [[(1, 1, "a")]])
    again = replace(job, query="query-2")
    with pytest.raises(UnknownQuery, match="query-2 is new to the sink 'shop'"):
        again.run(0, [[(1, 1, "a")]])
    with pytest.raises(UnknownQuery):
        again.plan(query="query-2")
    again.settings = replace(job.settings, accept_new_query=True)
    again.run(0, [[(2, 1, "b")]])
    job.run(1, [[(3, 1, "c")]])
    assert [row[0] for row in job.look(ALL)] == [1, 2, 3]


def test_a_sink_that_was_renamed_is_noticed(url: str) -> None:
    job = upserts(url)
    job.run(0, [[(1, 1, "a")]])
    renamed = replace(job, settings=replace(job.settings, sink="boutique"))
    with pytest.raises(SinkTaken, match="as the sink 'shop', and is now named 'boutique'"):
        renamed.run(1, [[(2, 1, "b")]])


def test_a_sink_keeps_its_table(url: str) -> None:
    upserts(url).run(0, [[(1, 1, "a")]])
    with pytest.raises(SinkTaken, match="fills the table"):
        Job(settings_of(url, key="id", table="others"), ORDER_TYPES).plan()


def test_a_sink_that_has_published_nothing_may_take_another_table(url: str) -> None:
    """So a job that was refused, or that failed, keeps nobody from using its name."""
    mistaken = Job(settings_of(url, key="id", table="mistaken"), ORDER_TYPES)
    early = mistaken.plan()
    reports = mistaken.stage(early, 0, [[(1, 1, "a")]])
    job = upserts(url)
    planned = job.plan()
    with pytest.raises((SinkTaken, StagingLost)):
        mistaken.commit(early, reports)
    job.commit(planned, job.stage(planned, 0, [[(1, 1, "a")]]))
    assert job.look("SELECT sink, target FROM oncelog_sinks") == [("shop", planned.layout.target.sql)]
    with pytest.raises(SinkTaken, match="fills the table"):
        mistaken.plan()


@pytest.mark.parametrize("run", [RUNS, f"{RUNS}monday"])
def test_batch_jobs_of_different_names_append_to_one_table(url: str, run: str) -> None:
    jobs = [Job(settings_of(url, write="insert", sink_name=name), ORDER_TYPES, run) for name in ("one", "other")]
    for _ in range(2):
        for number, job in enumerate(jobs):
            planned = job.plan()
            batch = planned.epoch if run == RUNS else 0
            job.commit(planned, job.stage(planned, batch, [[(number, 1, "a")]]))
    assert [row[0] for row in jobs[0].look(ALL)] == ([0, 0, 1, 1] if run == RUNS else [0, 1])


def test_a_query_that_is_refused_leaves_its_sink_to_others(url: str) -> None:
    job = upserts(url)
    job.run(0, [[(1, 1, "a")]])
    renamed = replace(job, settings=replace(job.settings, sink="boutique"))
    for refused in (lambda: renamed.plan(query=job.query), lambda: renamed.run(1, [[(2, 1, "b")]])):
        with pytest.raises(SinkTaken, match="as the sink 'shop'"):
            refused()
    elsewhere = Job(settings_of(url, key="id", sink_name="boutique", table="others"), ORDER_TYPES, "query-2")
    elsewhere.run(0, [[(3, 1, "c")]])
    assert elsewhere.look("SELECT id FROM others") == [(3,)]


def test_a_plan_sweeps_what_another_sink_has_left_long_ago(url: str) -> None:
    gone = Job(settings_of(url, write="insert", sink_name="never again"), ORDER_TYPES)
    left = gone.plan()
    job = inserts(url)
    assert left.stage.name in job.areas(job.plan())
    with closing(open_store(job.settings)) as store, store.transaction() as session:
        session.change(f"UPDATE oncelog_sinks SET at_ms = at_ms - {ABANDONED_MS} WHERE sink = 'never again'")
    planned = job.plan()
    assert job.areas(planned) == [planned.stage.name]


def test_batch_writes_are_new_each_time_or_named(url: str) -> None:
    job = inserts(url)
    for _ in range(2):
        planned = job.plan()
        job.query = RUNS
        job.commit(planned, job.stage(planned, planned.epoch, [[(1, 1, "a")]]))
    job.query = f"{RUNS}monday"
    job.run(0, [[(2, 1, "b")]])
    job.run(0, [[(2, 1, "b")]])
    job.query = "query-1"
    job.run(0, [[(3, 1, "c")]])
    assert [row[0] for row in job.look(ALL)] == [1, 1, 2, 3]


def test_overwriting_replaces_all_rows_at_once(url: str) -> None:
    job = inserts(url)
    job.run(0, [[(1, 1, "old")]])
    planned = job.plan(overwrite=True)
    reports = job.stage(planned, 1, [[(2, 1, "new")]])
    assert job.look(ALL) == [(1, 1, "old")]
    job.commit(planned, reports)
    assert job.look(ALL) == [(2, 1, "new")]


def test_a_batch_without_rows_leaves_no_line(url: str) -> None:
    job = inserts(url)
    job.run(0, [[], []])
    assert job.look(LEDGER) == []
    assert job.areas(job.plan()) != []


def test_reports_of_different_batches_are_refused(url: str) -> None:
    job = inserts(url)
    planned = job.plan()
    reports = [job.stage_slot(planned, 0, 0, [(1, 1, "a")]), job.stage_slot(planned, 1, 1, [(2, 1, "b")])]
    with pytest.raises(Disagreement):
        job.commit(planned, reports)
    with pytest.raises(Disagreement, match="two tasks report for one slot"):
        job.commit(planned, [reports[0], reports[0]])


def test_a_table_that_does_not_fit_is_refused_before_anything_is_staged(url: str) -> None:
    job = upserts(url)
    with closing(open_store(job.settings)) as store, store.transaction():
        pass  # makes SQLite's file, so that only the table is missing
    with pytest.raises(UnfitTable, match="create it, or set the option create=true"):
        Job(replace(job.settings, create=False), ORDER_TYPES).plan()
    job.plan()
    with pytest.raises(UnfitTable, match="no column 'note'"):
        Job(job.settings, {**ORDER_TYPES, "note": "string"}).plan()
    with pytest.raises(UnfitTable, match="'state'"):
        Job(job.settings, {**ORDER_TYPES, "state": "double"}).plan()
    with pytest.raises(UnfitTable, match="unique index is on exactly"):
        Job(settings_of(url, key="state"), ORDER_TYPES).plan()
    with closing(open_store(job.settings)) as store, store.transaction() as session:
        session.change("CREATE TABLE strict (id BIGINT, must BIGINT NOT NULL)")
    with pytest.raises(UnfitTable, match="NOT NULL and has no default"):
        Job(settings_of(url, table="strict", write="insert"), {"id": "bigint"}).plan()


@pytest.mark.parametrize("create", ["true", "false"])
def test_a_schema_that_does_not_exist_is_named(postgres_url: str, create: str) -> None:
    with pytest.raises(UnfitTable, match=r"there is no schema 'shop' for the table .*: CREATE SCHEMA"):
        Job(settings_of(postgres_url, table="shop.orders", create=create), ORDER_TYPES).plan()


def test_errors_of_drivers_are_put_into_words(url: str) -> None:
    job = inserts(url)
    job.plan()
    with closing(open_store(job.settings)) as store:
        with (
            pytest.raises(UnfitTable, match="refuses what the sink asks"),
            store.explaining(),
            store.transaction() as one,
        ):
            one.change("INSERT INTO nowhere VALUES (1)")
        with pytest.raises(ZeroDivisionError), store.explaining():
            raise ZeroDivisionError
        with pytest.raises(SinkTaken), store.explaining():
            raise SinkTaken("as it is")


def test_names_that_need_quotes(url: str) -> None:
    types = {
        'a "quoted" name': "bigint",
        "50%, (all)": "string",
        "attempt": "bigint",
        "select": "string",
        "c0": "bigint",
    }
    job = Job(settings_of(url, table='"Orders; DROP TABLE x"', key='a "quoted" name', version="attempt"), types)
    job.run(0, [[(1, "100% 'sure'", 1, "x", 5), (1, "%(sink)s :sink", 2, "y\n\t\\N", 6)]])
    assert job.look('SELECT * FROM "Orders; DROP TABLE x"') == [(1, "%(sink)s :sink", 2, "y\n\t\\N", 6)]
