"""What a user is told who has to decide: every number is a true one."""

from __future__ import annotations

from oncelog.client.spool.fate import Unknown
from oncelog.client.spool.ranges import EntryRanges
from oncelog.client.spool.recovery import DamageReport, Recovery
from oncelog.client.spool.refusal import MAX_NAMED, ranges_in_words, refusal
from oncelog.types import TopicPartition

A = TopicPartition("orders", 0)


class Entries:
    is_untouched = True

    def unreadable(self, partition: TopicPartition, first: int, end: int) -> list[tuple[int, int]]:
        return [(max(first, 853), end)] if end > 853 else []

    def settled_end(self, partition: TopicPartition) -> int:
        return 394


def test_what_is_lost_is_told_apart_from_what_may_be_stored() -> None:
    lost = EntryRanges()
    lost.add(853, 2001)
    found = Recovery(damages=(DamageReport("a.records", 20_000, 99, None),), lost={A: 1148}, lost_ranges={A: lost})
    said = str(refusal("spool", [Unknown(A, 394, 700, "why"), Unknown(A, 700, 981, "why")], found, Entries()))
    assert "587 for orders-0 (why): records 394 to 980, of which 853 to 980 cannot be read;" in said
    assert "records 981 to 2000, which were not sent, cannot be read either; those before 394 are settled." in said
    assert "a.records ends at position 20000, too early" in said
    assert "spool_unknown=resend (sends 459 records; may store them twice)" in said


def test_ranges_in_words_are_bounded() -> None:
    assert ranges_in_words([(1, 2), (4, 7)]) == "1, 4 to 6"
    assert ranges_in_words([(3 * each, 3 * each + 2) for each in range(MAX_NAMED + 2)]).endswith(" and 4 more")
