"""The page of an audit shows what the audit found, and nothing else."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from oncelog.audit.account import Audit
from oncelog.audit.ids import RecordId
from oncelog.audit.spread import Bins, SpreadCounter, TopicAudit
from oncelog.report.audit_page import audit_page
from oncelog.report.values import MAX_ROWS
from oncelog.types import TopicPartition


def audited(topic: str, ids: list[str | None]) -> TopicAudit:
    audit, counter = Audit(), SpreadCounter(Bins.over(0, len(ids)))
    for offset, text in enumerate(ids):
        record_id = None if text is None else RecordId(text.rpartition("/")[0], int(text.rpartition("/")[2]))
        counter.add(offset, audit.observe(TopicPartition(topic, 0), offset, record_id))
    return TopicAudit(topic, audit.report(), counter.spread())


def shown(*audits: TopicAudit) -> Element:
    return ElementTree.fromstring(audit_page(audits))


def tables(root: Element) -> dict[str | None, list[list[str]]]:
    return {
        table.findtext("caption"): [["".join(cell.itertext()) for cell in row] for row in table.findall("tbody/tr")]
        for table in root.iter("table")
    }


def test_a_clean_topic() -> None:
    root = shown(audited("orders", [f"a/{number}" for number in range(1_234)]))
    assert root.find(".//div[@class='verdict tone-good']") is not None
    assert tables(root)["Audit"] == [["orders-0", "1,234", "1,234", "0", "0", "0", "0"]]
    assert [heading.text for heading in root.iter("h2")] == ["Verdict", "Partitions", "How to read this"]


def test_a_damaged_topic_shows_each_finding_and_where_it_lies() -> None:
    root = shown(audited("orders", ["a/0", "a/1", "a/1", "a/4", "a/3", "a/9", None]))
    headline = root.findtext(".//p[@class='headline']")
    assert headline == "Found: 5 lost, 1 duplicated, 1 out of order"
    found = tables(root)
    assert found["Audit"] == [["orders-0", "10", "6", "5", "1", "1", "1"]]
    assert found["Gaps"] == [["a", "orders-0", "2", "2", "1"], ["a", "orders-0", "5", "8", "4"]]
    assert found["Findings"][0] == ["orders-0", "a/1 is stored again at offset 2"]
    assert found["Duplicated and out of order over offsets: the numbers"] == [
        ["2 to 3", "1", "0"],
        ["4 to 5", "0", "1"],
    ]
    missing = found["Missing numbers: the numbers"]
    assert sum(int(count) for _, count in missing) == 5


def test_a_gap_wider_than_a_bin_is_spread_over_its_bins() -> None:
    root = shown(audited("orders", ["a/0", "a/1000"]))
    assert sum(int(count) for _, count in tables(root)["Missing numbers: the numbers"]) == 999


def test_of_many_partitions_those_with_findings_are_shown() -> None:
    audit = Audit()
    for partition in range(MAX_ROWS + 10):
        audit.observe(TopicPartition("orders", partition), 0, RecordId(f"a/{partition}", 0))
    audit.observe(TopicPartition("orders", MAX_ROWS + 9), 1, RecordId(f"a/{MAX_ROWS + 9}", 2))
    root = shown(TopicAudit("orders", audit.report(), SpreadCounter(Bins()).spread()))
    rows = tables(root)["Audit"]
    assert len(rows) == MAX_ROWS
    assert rows[0][:4] == [f"orders-{MAX_ROWS + 9}", "3", "2", "1"]


def test_each_topic_has_a_place_of_its_own() -> None:
    root = shown(audited("orders", ["a/1"]), audited("<b>paid</b>", ["a/2"]))
    headings = [heading.text for heading in root.iter("h2")]
    assert headings == ["Verdict", "Partitions", "Where in orders", "Where in <b>paid</b>", "How to read this"]
