import pytest

from oncelog.audit import account
from oncelog.audit.account import Audit, Counts, Found, Gap, Ledger, TooManyStreams
from oncelog.audit.ids import RecordId
from oncelog.types import NO_OFFSET, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def observe(audit: Audit, partition: TopicPartition, stream: str, numbers: list[int]) -> None:
    for offset, number in enumerate(numbers):
        audit.observe(partition, offset, RecordId(stream, number))


def counts(audit: Audit, partition: TopicPartition) -> Counts:
    return next(entry.counts for entry in audit.report().partitions if entry.partition == partition)


def test_a_complete_topic_is_clean() -> None:
    audit = Audit()
    observe(audit, P0, "a/0", [0, 1, 2])
    observe(audit, P1, "a/1", [0, 1])
    report = audit.report()
    assert report.clean
    assert report.total == Counts(sent=5, stored=5)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0, 2, 3], Counts(sent=4, stored=3, lost=1)),
        ([2, 3], Counts(sent=4, stored=2, lost=2)),
        ([0, 1, 1, 2], Counts(sent=3, stored=4, duplicated=1)),
        ([0, 1, 2, 0], Counts(sent=3, stored=4, duplicated=1)),
        ([0, 2, 1, 3], Counts(sent=4, stored=4, out_of_order=1)),
        ([3, 2, 1, 0], Counts(sent=4, stored=4, out_of_order=3)),
        ([0, 3, 1, 1], Counts(sent=4, stored=4, lost=1, duplicated=1, out_of_order=1)),
    ],
)
def test_damage_within_a_stream_is_counted(numbers: list[int], expected: Counts) -> None:
    audit = Audit()
    observe(audit, P0, "a", numbers)
    assert counts(audit, P0) == expected
    assert not audit.report().clean


def test_streams_of_one_partition_may_interleave() -> None:
    audit = Audit()
    for offset, (stream, number) in enumerate([("a", 0), ("b", 0), ("b", 1), ("a", 1), ("b", 2)]):
        audit.observe(P0, offset, RecordId(stream, number))
    assert audit.report().clean


def test_a_duplicate_in_another_partition_is_found() -> None:
    audit = Audit()
    observe(audit, P0, "a", [0, 1])
    observe(audit, P1, "a", [1, 2])
    assert counts(audit, P1).duplicated == 1


def test_what_retention_removed_is_not_lost() -> None:
    audit = Audit()
    audit.open_partition(P0, log_start_offset=5)
    observe(audit, P0, "a", [5, 6, 8])
    assert counts(audit, P0) == Counts(sent=4, stored=3, lost=1)


def test_an_empty_partition_is_reported() -> None:
    audit = Audit()
    audit.open_partition(P1)
    assert counts(audit, P1) == Counts()


def test_records_without_an_id_are_counted_apart() -> None:
    audit = Audit()
    audit.observe(P0, 0, None)
    assert counts(audit, P0) == Counts(unnumbered=1)


def test_a_ledger_shows_a_lost_tail_and_a_wholly_lost_stream() -> None:
    ledger = Ledger()
    for number in range(4):
        ledger.sent(RecordId("a", number), P0)
        ledger.acknowledged(RecordId("a", number), P0)
    ledger.sent(RecordId("b", 0), P1)
    ledger.acknowledged(RecordId("b", 0), P1)
    audit = Audit(ledger)
    observe(audit, P0, "a", [0, 1, 2])
    assert counts(audit, P0) == Counts(sent=4, stored=3, lost=1)
    assert counts(audit, P1) == Counts(sent=1, lost=1)


def test_a_ledger_names_what_is_missing_where_the_stream_begins() -> None:
    ledger = Ledger()
    for number in range(10):
        ledger.acknowledged(RecordId("a", number), TopicPartition("sent", 0))
    ledger.acknowledged(RecordId("b", 0), TopicPartition("sent", 1))
    audit = Audit(ledger.elsewhere())
    observe(audit, P1, "a", [5, 6])
    observe(audit, P0, "a", [1])
    losses = {entry.partition: entry.gaps for entry in audit.report().partitions if entry.gaps}
    assert losses == {
        P0: (Gap("a", 0, 0), Gap("a", 2, 4), Gap("a", 7, 9)),
        TopicPartition("sent", 1): (Gap("b", 0, 0),),
    }
    assert audit.report().total.lost == 8


def test_a_loss_is_reported_where_the_stream_begins() -> None:
    audit = Audit()
    observe(audit, P0, "a", [4, 5])
    observe(audit, P1, "a", [1, 2])
    assert counts(audit, P1) == Counts(sent=6, stored=2, lost=2)
    assert counts(audit, P0) == Counts(stored=2)


def test_each_record_is_judged_as_it_is_seen() -> None:
    audit = Audit()
    ids = [RecordId("a", 0), RecordId("a", 2), RecordId("a", 2), RecordId("a", 1), None]
    found = [audit.observe(P0, offset, record_id) for offset, record_id in enumerate(ids)]
    assert found == [Found.FRESH, Found.FRESH, Found.DUPLICATED, Found.OUT_OF_ORDER, Found.UNNUMBERED]


def test_what_was_never_acknowledged_may_be_missing() -> None:
    ledger = Ledger()
    for number in range(3):
        ledger.sent(RecordId("a", number), P0)
    ledger.acknowledged(RecordId("a", 0), P0)
    audit = Audit(ledger)
    observe(audit, P0, "a", [0, 2])
    assert audit.report().clean
    assert (ledger.sent_count, ledger.acknowledged_count) == (3, 1)


def test_a_record_must_stand_where_its_sender_was_told() -> None:
    ledger = Ledger()
    for number, offset in enumerate([0, 7, NO_OFFSET]):
        ledger.acknowledged(RecordId("a", number), P0, offset)
    audit = Audit(ledger)
    observe(audit, P0, "a", [0, 1, 2])
    assert counts(audit, P0).misplaced == 1
    assert not audit.report().clean
    assert audit.report().partitions[0].examples == ("a/1 was acknowledged at offset 7 and stands at 1",)


def test_findings_are_quoted_and_bounded() -> None:
    audit = Audit()
    observe(audit, P0, "a", [0, 2] + [0] * 50)
    (partition,) = audit.report().partitions
    assert partition.examples[0] == "a/0 is stored again at offset 2"
    assert len(partition.examples) == account.MAX_EXAMPLES


def test_gaps_are_named_by_stream_and_bounded() -> None:
    audit = Audit()
    observe(audit, P0, "b", [1])
    observe(audit, P0, "a", list(range(1, 1_000, 2)))
    (partition,) = audit.report().partitions
    assert partition.gaps[:2] == (Gap("a", 0, 0), Gap("a", 2, 2))
    assert len(partition.gaps) == account.MAX_GAPS
    assert partition.counts.lost == 501


def test_a_hole_is_quoted() -> None:
    audit = Audit()
    observe(audit, P0, "a", [0, 2, 5])
    assert audit.report().partitions[0].examples == ("a/1 is missing", "a/3 to 4 are missing")


def test_the_number_of_streams_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "MAX_STREAMS", 2)
    audit = Audit()
    audit.observe(P0, 0, RecordId("key-0", 0))
    audit.observe(P0, 1, RecordId("key-1", 0))
    with pytest.raises(TooManyStreams, match="more than 2 streams"):
        audit.observe(P0, 2, RecordId("key-2", 0))
