"""Reports from rows: what the driver does with the little that comes back from the executors."""

from oncelog.audit.account import Counts, Gap
from oncelog.audit.ids import RecordId
from oncelog.audit.spread import Bins
from oncelog.spark.audit.assembly import Cell, Sent, Sheet, Wrong
from oncelog.types import TopicPartition

P0, P1, SENT = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("sent", 4)


def sheet() -> Sheet:
    return Sheet("orders", Bins.over(0, 100), [P0, P1])


def test_an_empty_partition_is_reported() -> None:
    audit = sheet().audit()
    assert [(entry.partition, entry.counts) for entry in audit.report.partitions] == [(P0, Counts()), (P1, Counts())]
    assert audit.report.clean


def test_cells_are_added_up_by_partition_and_by_bin() -> None:
    filled = sheet()
    filled.cells += [Cell(0, 0, 2, 1, 1, 0), Cell(0, 7, 2, 0, 0, 1), Cell(1, 7, 5, 0, 0, 0)]
    filled.sent += [Sent(P0, 4, 1), Sent(P1, 5, 0)]
    audit = filled.audit()
    assert audit.report.partitions[0].counts == Counts(4, 4, 1, 1, 1, 0, 1)
    assert audit.report.partitions[1].counts == Counts(5, 5)
    assert (audit.spread.stored[0], audit.spread.stored[7], audit.spread.out_of_order[7]) == (2, 7, 1)
    assert filled.has_losses
    assert filled.has_wrong_records


def test_a_stream_of_which_nothing_arrived_is_lost_where_it_was_sent() -> None:
    filled = sheet()
    filled.sent.append(Sent(SENT, 3, 3))
    filled.gaps.append((SENT, Gap("a", 0, 2)))
    (last,) = filled.audit().report.partitions[2:]
    assert (last.partition, last.counts, last.examples) == (SENT, Counts(sent=3, lost=3), ("a/0 to 2 are missing",))


def test_findings_are_quoted_by_offset_and_then_gaps_by_stream() -> None:
    filled = sheet()
    filled.wrong += [Wrong(P0, 9, RecordId("a", 1), 5), Wrong(P0, 3, RecordId("a", 2), None)]
    filled.gaps += [(P0, Gap("b", 1, 1)), (P0, Gap("a", 7, 8)), (P0, Gap("a", 3, 4))]
    (first, _) = filled.audit().report.partitions
    assert first.examples == (
        "a/2 is stored again at offset 3",
        "a/1 at offset 9 comes after a/5",
        "a/3 to 4 are missing",
        "a/7 to 8 are missing",
        "b/1 is missing",
    )
