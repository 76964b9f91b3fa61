"""`process()` among others: rebalances, a member that was put out of its group, a producer that was fenced, asyncio's
twin. Whatever happens, readers of committed records see every result once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import oncelog
from tests.processing.scene import RECORDS, WAIT_S, Scene, double
from tests.support.raw import RawClient

pytestmark = pytest.mark.on_both_brokers
QUICK = {"heartbeat.interval.ms": 200}
"""Members of classic groups hear soon that something moves."""
PROTOCOLS = {
    "classic": QUICK,
    "cooperative": {**QUICK, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class Caller(threading.Thread):
    """A call of `process()` in a thread of its own."""

    def __init__(self, call: Callable[[], oncelog.ProcessReport]) -> None:
        super().__init__()
        self.report: oncelog.ProcessReport | None = None
        self.error: BaseException | None = None
        self._call = call
        self.start()

    def run(self) -> None:
        try:
            self.report = self._call()
        except BaseException as error:
            self.error = error

    def ended(self) -> oncelog.ProcessReport:
        self.join(WAIT_S)
        assert not self.is_alive(), "the call does not end"
        if self.error is not None:
            raise self.error
        assert self.report is not None
        return self.report


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_that_joins_while_another_works(scene: Scene, protocol: str) -> None:
    """Partitions move in the middle of the work, and again when both leave."""
    scene.fill()
    has_begun, has_joined, stop = threading.Event(), threading.Event(), threading.Event()
    total = RECORDS

    def first(records: list[oncelog.ConsumerRecord]) -> Any:
        has_begun.set()
        return double(records)

    def second(records: list[oncelog.ConsumerRecord]) -> Any:
        has_joined.set()
        return double(records)

    common: dict[str, Any] = {"until_end": False, "batch_records": 5, "consumer": PROTOCOLS[protocol], "stop": stop}
    early = Caller(lambda: scene.process(first, **common))
    assert has_begun.wait(WAIT_S)
    late = Caller(lambda: scene.process(second, transactional_id=f"other-{scene.source}", **common))
    deadline = time.monotonic() + WAIT_S
    while not has_joined.wait(0.05):  # there is always something left for the second
        assert time.monotonic() < deadline, "the second call gets no work"
        scene.fill(30, start=total)
        total += 30
    stop.set()
    reports = [early.ended(), late.ended(), scene.process(double)]
    assert sum(report.records for report in reports) == total
    assert scene.has_all_once(total)


def test_workers_share_the_work(scene: Scene) -> None:
    scene.fill()
    workers: set[int] = set()
    stop = threading.Event()
    total = RECORDS
    common: dict[str, Any] = {"workers": 2, "batch_records": 10, "consumer": QUICK}
    common["on_batch"] = lambda batch: workers.add(batch.worker)
    call = Caller(lambda: scene.process(double, until_end=False, stop=stop, **common))
    try:
        deadline = time.monotonic() + WAIT_S
        while workers != {0, 1}:  # there is always something left for the other
            assert time.monotonic() < deadline, "only one gets work"
            scene.fill(30, start=total)
            total += 30
    finally:
        stop.set()
    report = call.ended()
    scene.fill(start=total)
    total += RECORDS
    assert scene.process(double, **common).records == total - report.records
    assert scene.has_all_once(total)


def test_an_error_of_one_worker_ends_all(scene: Scene) -> None:
    scene.fill()

    def function(records: list[oncelog.ConsumerRecord]) -> Any:
        if any(record.value == b"150" for record in records):
            raise LookupError("150")
        return double(records)

    with pytest.raises(LookupError, match="150"):
        scene.process(function, workers=2, until_end=False, retries=0)
    scene.process(double, workers=2)
    assert scene.has_all_once()


def expel_all_members(scene: Scene, group: str) -> None:
    with RawClient(scene.broker.address) as client:
        (described,) = client.request("describe_groups", 5, {"groups": [group]})["groups"]
        members = [{"member_id": member["member_id"]} for member in described["members"]]
        assert members
        left = client.request("leave_group", 5, {"group_id": group, "members": members})
        assert left["error_code"] == 0


def test_whoever_was_put_out_of_the_group_commits_nothing(scene: Scene) -> None:
    """The records in its hands are another's by then: its transaction is aborted, and they are processed again."""
    scene.fill()
    group = scene.arguments()["group"]
    calls: Counter[bytes] = Counter()

    def function(records: list[oncelog.ConsumerRecord]) -> Any:
        if not calls:
            expel_all_members(scene, group)
        calls.update(record.value for record in records)
        return double(records)

    report = scene.process(function, consumer=QUICK)
    assert report.aborted >= 1
    assert report.records == RECORDS
    assert calls.total() > RECORDS  # there was something to do again
    assert scene.has_all_once()


def test_a_successor_fences_whoever_had_the_transactional_id(scene: Scene) -> None:
    scene.fill()
    is_working, may_go_on = threading.Event(), threading.Event()

    def zombie(records: list[oncelog.ConsumerRecord]) -> Any:
        is_working.set()
        assert may_go_on.wait(WAIT_S)
        return double(records)

    early = Caller(lambda: scene.process(zombie, group=f"another-{scene.source}"))
    assert is_working.wait(WAIT_S)
    scene.process(double)
    may_go_on.set()
    with pytest.raises(oncelog.TransactionalProducerFenced, match="another producer"):
        early.ended()
    assert scene.has_all_once()
    assert set(scene.committed(f"another-{scene.source}").values()) == {None}
