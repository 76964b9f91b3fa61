"""Spark writes into PostgreSQL: `oncelog.table`, each row once, against Spark's JDBC writer, which may repeat them."""

from __future__ import annotations

from bench.figures import OURS, Figure, Progress, at_least
from bench.peers import running
from bench.scale import Scale
from bench.spark_contest import both_formats, held
from tests.support.postgres import PostgresServer

PEER = "Spark's JDBC writer"


def measure(scale: Scale, progress: Progress) -> list[Figure]:
    with running(OURS) as broker, PostgresServer(settings=()) as server:
        entries = both_formats("book", database=f"{server.host}:{server.port}")
        results = held(scale.spark_rounds, {OURS: broker}, entries, scale.spark_booked_rows, progress)
    samples = {
        PEER: [one["rate"] for one in results[OURS, "book kafka"]],
        OURS: [one["rate"] for one in results[OURS, "book oncelog"]],
    }
    note = "a table with a primary key; both read with Spark's connector"
    return [Figure("Spark, topic to PostgreSQL", "rows/s", samples, at_least(1.0, 3.0), note, PEER)]
