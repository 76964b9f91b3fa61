"""The job: asks the brokers where topics begin and end, lets Spark read and judge them, puts the answer together.

A clean topic is read once. One with findings is read a second time, for the first of them. A comparison with what was
sent reads both topics once more, and if something was lost, twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql import DataFrame, Row, SparkSession

from oncelog.audit.account import Gap
from oncelog.audit.bounds import Bounds, bins_of, bounds_of
from oncelog.audit.ids import RecordId
from oncelog.audit.spread import TopicAudit
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.spark import register
from oncelog.spark.audit import between, judging
from oncelog.spark.audit.assembly import Cell, Sent, Sheet, Wrong
from oncelog.spark.audit.ids import with_ids
from oncelog.spark.audit.session import audit_session
from oncelog.types import IsolationLevel, TopicPartition

AllBounds = dict[TopicPartition, Bounds]


def audit_topics(
    bootstrap_servers: str,
    topics: Iterable[str],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    sent: str | None = None,
    master: str = "local[*]",
) -> list[TopicAudit]:
    """Audit topics in a Spark session of their own, which ends with it."""
    with BlockingClient(ClientConfig.of(bootstrap_servers, client_id="oncelog-audit")) as client:
        for topic in [*topics, *([sent] if sent else [])]:
            client.topic(topic)  # a name that is wrong is better known before Spark starts
    with audit_session(master) as spark:
        return [audit_topic(spark, bootstrap_servers, topic, isolation, sent=sent) for topic in topics]


def audit_topic(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    sent: str | None = None,
) -> TopicAudit:
    """Audit one topic as it is now; with `sent`, against what that topic holds, instead of by the numbering alone."""
    register(spark)
    with BlockingClient(ClientConfig.of(bootstrap_servers, client_id="oncelog-audit")) as client:
        # What was sent is fixed first: nothing that comes later is then called lost.
        sent_bounds = bounds_of(client, sent, isolation) if sent else {}
        bounds = bounds_of(client, topic, isolation)
    stored_ids = _read(spark, bootstrap_servers, topic, isolation, bounds)
    if sent is None:
        return audit_ids(topic, bounds, stored_ids)
    return audit_ids(topic, bounds, stored_ids, sent, _read(spark, bootstrap_servers, sent, isolation, sent_bounds))


def audit_ids(
    topic: str, bounds: AllBounds, stored: DataFrame, sent_topic: str = "", sent: DataFrame | None = None
) -> TopicAudit:
    """Audit the ids that a topic holds (partition, offset, stream, number), if given against those that were sent."""
    sheet = Sheet(topic, bins_of(bounds), bounds)
    truncated = [partition.partition for partition, (start, _) in bounds.items() if start > 0]
    records = judging.judged(stored, truncated)
    for row in judging.counts(records, sheet.bins).collect():
        _add_count(sheet, row, by_numbering=sent is None)
    if sent is not None:
        _add_losses(sheet, sent_topic, between.compared(sent, stored))
    if sheet.has_wrong_records or (sent is None and sheet.has_losses):
        for row in judging.findings(records).collect():
            _add_finding(sheet, row, by_numbering=sent is None)
    return sheet.audit()


def _add_count(sheet: Sheet, row: Row, *, by_numbering: bool) -> None:
    if not row.is_home:
        sheet.cells.append(Cell(row.partition, row.bin, row.stored, row.unnumbered, row.duplicated, row.out_of_order))
    elif by_numbering and row.distinct:
        lost = int(row.lost)
        sheet.sent.append(Sent(TopicPartition(sheet.topic, row.home), row.distinct + lost, lost))


def _add_losses(sheet: Sheet, sent_topic: str, ids: DataFrame) -> None:
    def place(row: Row) -> TopicPartition:
        return TopicPartition(sheet.topic if row.is_stored else sent_topic, row.partition)

    streams = between.streams_of(ids).persist()  # few, and dear: both topics are read for them
    try:
        sheet.sent += [Sent(place(row), row.sent, row.lost) for row in between.losses(streams).collect()]
        if sheet.has_losses:
            gaps = between.gaps(ids, streams).collect()
            sheet.gaps += [(place(row), Gap(row.stream, row.number, row.last)) for row in gaps]
    finally:
        streams.unpersist()


def _add_finding(sheet: Sheet, row: Row, *, by_numbering: bool) -> None:
    place = TopicPartition(sheet.topic, row.partition)
    if not row.is_gap:
        highest = None if row.duplicated else row.highest
        sheet.wrong.append(Wrong(place, row.offset, RecordId(row.stream, row.number), highest))
    elif by_numbering:
        sheet.gaps.append((place, Gap(row.stream, row.number, row.last)))


def _read(
    spark: SparkSession, bootstrap_servers: str, topic: str, isolation: IsolationLevel, bounds: AllBounds
) -> DataFrame:
    def offsets(which: int) -> str:
        return json.dumps({topic: {str(partition.partition): each[which] for partition, each in bounds.items()}})

    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.isolation.level": isolation.name.lower(),
        "assign": json.dumps({topic: [partition.partition for partition in bounds]}),
        "startingOffsets": offsets(0),
        "endingOffsets": offsets(1),
        "includeHeaders": "true",
    }
    return with_ids(spark.read.format("oncelog").options(**options).load())
