"""Spark's audit and the one in Python find the same, whatever is planted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.audit.account import Audit, Ledger
from oncelog.audit.bounds import Bounds, bins_of
from oncelog.audit.ids import ID_HEADER, MAX_ID_BYTES, RecordId, id_of_record
from oncelog.audit.spread import SpreadCounter, TopicAudit
from oncelog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDS = "partition int, offset bigint, stream string, number bigint"
RECORDS = "partition int, offset bigint, value binary, headers array<struct<key string, value binary>>"
Log = dict[int, list[RecordId | None]]
"""What each partition holds, in order."""
STARTS = {0: 0, 1: 7, 2: 0}


def frame(spark: SparkSession, log: Log) -> DataFrame:
    rows = [
        (partition, STARTS[partition] + at, *(record_id or (None, None)))
        for partition, ids in log.items()
        for at, record_id in enumerate(ids)
    ]
    return spark.createDataFrame(rows, IDS).repartition(3)  # in no order


def bounds(topic: str, log: Log) -> dict[TopicPartition, Bounds]:
    return {
        TopicPartition(topic, partition): Bounds(start, start + len(log.get(partition, [])))
        for partition, start in STARTS.items()
    }


def audited_in_python(log: Log, ledger: Ledger | None = None) -> TopicAudit:
    where = bounds("orders", log)
    audit, counter = Audit(ledger), SpreadCounter(bins_of(where))
    for partition, (start, _) in where.items():
        audit.open_partition(partition, start)
        for offset, record_id in enumerate(log.get(partition.partition, []), start):
            counter.add(offset, audit.observe(partition, offset, record_id))
    return TopicAudit("orders", audit.report(), counter.spread())


def ledger_of(log: Log) -> Ledger:
    ledger = Ledger()
    for partition, ids in sorted(log.items()):
        for record_id in ids:
            if record_id is not None and not ledger.has(record_id):
                ledger.sent(record_id, TopicPartition("sent", partition))
                ledger.acknowledged(record_id, TopicPartition("sent", partition))
    return ledger


def clean_log() -> Log:
    return {partition: [RecordId(f"p/{partition}", number) for number in range(400)] for partition in STARTS}


def damaged(log: Log, seed: int) -> Log:
    """Losses alone and in rows, doubles near and far and in other partitions, late records, records without ids, and
    streams that live in several partitions."""
    chance = random.Random(seed)
    ids = {partition: [each for each in held if chance.random() > 0.05] for partition, held in log.items()}
    for held in ids.values():
        del held[50 : 50 + chance.randrange(30)]
        for _ in range(chance.randrange(12)):
            at = chance.randrange(len(held))
            held.insert(chance.randrange(len(held)), held[at])
            ids[chance.choice(list(ids))].append(held[at])
        for _ in range(chance.randrange(8)):
            held.insert(chance.randrange(len(held)), held.pop(chance.randrange(len(held))))
        held[chance.randrange(len(held))] = None
        held.append(RecordId("p/0", 10**18 - 1 - chance.randrange(5)))
        held += [RecordId(f"key-{chance.randrange(3)}", chance.randrange(20)) for _ in range(30)]
    return ids


def test_a_clean_topic(spark: SparkSession) -> None:
    from oncelog.spark.audit.job import audit_ids

    log = clean_log()
    log[1] = log[1][7:]  # its head is gone, and its log says so
    found = audit_ids("orders", bounds("orders", log), frame(spark, log))
    assert found == audited_in_python(log)
    assert found.report.clean
    assert found.report.total.stored == 1_193


@pytest.mark.parametrize("seed", range(3))
def test_both_audits_find_the_same(spark: SparkSession, seed: int) -> None:
    from oncelog.spark.audit.job import audit_ids

    log = damaged(clean_log(), seed)
    found = audit_ids("orders", bounds("orders", log), frame(spark, log))
    assert found == audited_in_python(log)
    total = found.report.total
    assert min(total.lost, total.duplicated, total.out_of_order, total.unnumbered) > 0


def test_both_audits_find_the_same_losses_between_topics(spark: SparkSession) -> None:
    from oncelog.spark.audit.job import audit_ids

    sent = clean_log()
    sent[2] += [RecordId("gone", number) for number in range(5)] + sent[0][:3]
    log = damaged(clean_log(), 4)
    log[0] = [each for each in log[0] if each is None or each.number < 390]  # a tail, which no numbering shows
    found = audit_ids("orders", bounds("orders", log), frame(spark, log), "sent", frame(spark, sent))
    assert found == audited_in_python(log, ledger_of(sent))
    assert found.report.partitions[-1].examples == ("gone/0 to 4 are missing",)


TEXTS = [
    b"a/1", b"a/b/17 and more", b"/1", b"a/", b"a", b"", b" a/1", b"a/1\n", b"a/01", b"a/+1", b"a/-1", b"a/1x", b"a/1/",
    b"a/" + b"9" * 18, b"a/" + b"9" * 19, "ä/ö/3".encode(), "a/٣".encode(), b"\xff/1", b"a/1 \xff", b"\xff a/1",
    b"x" * (MAX_ID_BYTES - 2) + b"/1", b"x" * (MAX_ID_BYTES - 1) + b"/1", b"x" * (MAX_ID_BYTES - 2) + b"/1 ",
    b"x" * (MAX_ID_BYTES - 1) + b"/1 ", "ä".encode() * 300 + b"/1", b"a//1", b"a/1 b/2", b"a\tb/1",
    b"a/1\xc2", b"a/\xc2\xb2", b"a\x00/1",
]  # fmt: skip


def test_ids_are_read_as_the_audit_reads_them(spark: SparkSession) -> None:
    from oncelog.spark.audit.ids import with_ids

    records: list[tuple[bytes | None, Any]] = [(text, None) for text in [*TEXTS, None]]
    records += [(b"value/9", [(ID_HEADER, text)]) for text in [*TEXTS, None]]
    records += [
        (b"value/9", [("other", b"a/1")]),
        (b"value/9", [("other", b"a/1"), (ID_HEADER, b"b/2"), (ID_HEADER, b"c/3")]),
        (b"value/9", [(ID_HEADER, None), (ID_HEADER, b"c/3")]),
        (None, []),
    ]
    rows = [(0, offset, value, headers) for offset, (value, headers) in enumerate(records)]
    read = with_ids(spark.createDataFrame(rows, RECORDS)).orderBy("offset").collect()
    found = [None if row.stream is None else RecordId(row.stream, row.number) for row in read]
    assert found == [id_of_record(value, headers or ()) for value, headers in records]
    assert sum(each is not None for each in found) > 20
