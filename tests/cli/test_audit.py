"""`oncelog audit`: topics against each other, reports, and what it says when it cannot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support import confluent
from tests.support.process import BrokerProcess


@pytest.fixture
def filled(broker: BrokerProcess, new_topic: Callable[[], str]) -> Callable[..., str]:
    """A new topic whose partitions hold records with these ids."""

    def fill(*partitions: list[str]) -> str:
        topic = new_topic()
        confluent.create_topic(broker, topic, partitions=len(partitions))
        messages = [
            {"value": text.encode(), "partition": partition}
            for partition, texts in enumerate(partitions)
            for text in texts
        ]
        confluent.send(confluent.make_producer(broker, linger_ms=20), topic, messages)
        return topic

    return fill


class TextOf(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_topics_are_judged_each_by_itself(oncelog: Run, broker: BrokerProcess, filled: Callable[..., str]) -> None:
    orders, payments = filled(["a/0", "a/1"]), filled(["a/0", "a/1"])
    done = oncelog("-b", broker.bootstrap, "audit", orders, payments, orders, "--json")
    assert done.code == 0
    assert [entry["topic"] for entry in done.json["partitions"]] == [orders, payments]


def test_what_was_lost_between_two_topics(oncelog: Run, broker: BrokerProcess, filled: Callable[..., str]) -> None:
    orders = filled([f"a/{number}" for number in range(10)], ["b/0", "b/1", "b/1"], ["c/0"])
    payments = filled(["b/0", "b/1"], [f"a/{number}" for number in (0, 1, 4, 5, 6)])
    assert oncelog("-b", broker.bootstrap, "audit", payments).code == 1  # it sees the hole, and neither tail nor "c"
    done = oncelog("-b", broker.bootstrap, "audit", payments, "--sent", orders, "--json")
    assert done.code == 1
    total = done.json["total"]
    assert (total["sent"], total["stored"], total["lost"], total["duplicated"]) == (13, 7, 6, 0)
    examples = {entry["topic"]: entry["examples"] for entry in done.json["partitions"] if entry["examples"]}
    assert examples == {payments: ["a/2 to 3 are missing", "a/7 to 9 are missing"], orders: ["c/0 is missing"]}


def test_a_report_for_people(oncelog: Run, broker: BrokerProcess, filled: Callable[..., str], tmp_path: Path) -> None:
    topic = filled(["<script>/0", "<script>/2", "<script>/2"])
    done = oncelog("-b", broker.bootstrap, "audit", topic, "--html", str(tmp_path / "report.html"))
    assert done.code == 1
    assert "total" in done.out
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page
    words = TextOf(page).words
    assert f"Audit of {topic}" in words
    assert "Found: 1 lost, 1 duplicated" in words
    assert f"{topic}-0: <script>/2 is stored again at offset 2" in words


def test_a_report_that_cannot_be_written(oncelog: Run, broker: BrokerProcess, filled: Callable[..., str]) -> None:
    done = oncelog("-b", broker.bootstrap, "audit", filled(["a/0"]), "--html", "/no/such/folder/report.html")
    assert done.code == 1
    assert done.err == "oncelog: /no/such/folder/report.html: No such file or directory\n"


def test_spark_is_not_installed(oncelog: Run, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("oncelog.spark.audit")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    done = oncelog("-b", broker.bootstrap, "audit", "orders", "--spark")
    assert done.code == 1
    assert done.err.startswith("oncelog: --spark needs PySpark")
    assert "pip install 'oncelog[spark]'" in done.err
