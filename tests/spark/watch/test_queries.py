"""What is kept of queries, and what Prometheus reads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from oncelog.spark.watch.queries import MAX_QUERIES, METRICS, Queries, prometheus_text


def report(run: str = "run-1", batch: int = 0, rows: int = 3, latest: int = 10, **more: Any) -> dict[str, Any]:
    source = {"endOffset": {"t": {"0": 4, "1": 10}}, "latestOffset": {"t": {"0": latest, "1": latest}}}
    return {
        "runId": run,
        "id": "query-1",
        "name": "paid",
        "batchId": batch,
        "numInputRows": 5,
        "durationMs": {"triggerExecution": 1500},
        "sink": {"numOutputRows": rows},
        "sources": [source],
        **more,
    }


def samples(queries: Queries) -> dict[str, dict[str, float]]:
    """By name, and by the query's name."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(prometheus_text(queries.states())):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, {})[sample.labels["query"]] = sample.value
    return found


def test_a_querys_numbers() -> None:
    queries = Queries()
    queries.started("run-1", "query-1", "paid", 100.0)
    assert samples(queries)["oncelog_spark_query_active"] == {"paid": 1}
    queries.progressed(report(), 101.5)
    queries.progressed(report(batch=1, rows=4), 102.5)
    found = {name: values["paid"] for name, values in samples(queries).items()}
    assert found == {
        "oncelog_spark_query_active": 1,
        "oncelog_spark_query_failed": 0,
        "oncelog_spark_batch_id": 1,
        "oncelog_spark_input_rows_total": 10,
        "oncelog_spark_output_rows_total": 7,
        "oncelog_spark_batch_duration_seconds": 1.5,
        "oncelog_spark_last_progress_timestamp_seconds": 102.5,
        "oncelog_spark_records_lag": 6,
        "oncelog_spark_min_offsets_behind_latest": 0,
        "oncelog_spark_max_offsets_behind_latest": 6,
        "oncelog_spark_avg_offsets_behind_latest": 3,
    }
    assert found.keys() == METRICS.keys()


def test_a_query_that_ended_or_failed_and_its_next_run() -> None:
    queries = Queries()
    queries.progressed(report(), 1.0)
    queries.ended("run-1", "out of memory")
    queries.ended("nobody knows it", None)
    assert samples(queries)["oncelog_spark_query_failed"] == {"paid": 1}
    queries.started("run-2", "query-1", "paid", 2.0)
    found = samples(queries)
    assert found["oncelog_spark_query_failed"] == {"paid": 0}
    assert found["oncelog_spark_input_rows_total"] == {"paid": 0}
    assert "oncelog_spark_records_lag" not in found, "not known yet"


def test_a_query_without_a_name_is_known_by_its_id_and_names_are_escaped() -> None:
    queries = Queries()
    queries.started("a", "id-a", None, 1.0)
    queries.started("b", "id-b", 'say "hi"\n\\', 1.0)
    assert samples(queries)["oncelog_spark_query_active"] == {"id-a": 1, 'say "hi"\n\\': 1}


def test_what_is_remembered_has_an_end() -> None:
    queries = Queries()
    for number in range(MAX_QUERIES):
        queries.started(f"run-{number}", f"id-{number}", None, 1.0)
    queries.ended("run-7", None)
    queries.started("more", "more", None, 1.0)
    runs = [state.run_id for state in queries.states()]
    assert len(runs) == MAX_QUERIES
    assert "run-7" not in runs
    assert "run-0" in runs
    queries.started("one more", "one more", None, 1.0)
    assert "run-0" not in [state.run_id for state in queries.states()]


@pytest.mark.real
def test_the_end_of_a_query_can_be_waited_for() -> None:
    queries = Queries()
    queries.started("ends", "a", None, 1.0)
    queries.started("goes on", "b", None, 1.0)
    assert not queries.await_ends({"goes on"}, 0.0)
    telling = threading.Thread(target=queries.ended, args=("ends", None))
    telling.start()
    assert queries.await_ends({"goes on"}, 60.0)
    telling.join()
