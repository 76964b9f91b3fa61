"""`process_async()` on both brokers."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

import oncelog
from tests.processing.scene import RECORDS, WAIT_S, Scene, double

pytestmark = pytest.mark.on_both_brokers


def test_every_record_once_by_a_coroutine_function(scene: Scene) -> None:
    scene.fill()
    batches: list[int] = []

    async def function(records: list[oncelog.ConsumerRecord]) -> Any:
        await asyncio.sleep(0)
        return double(records)

    async def on_batch(batch: oncelog.BatchReport) -> None:
        await asyncio.sleep(0)
        batches.append(batch.records)

    report = asyncio.run(scene.process_async(function, workers=2, on_batch=on_batch))
    assert report.records == sum(batches) == RECORDS
    assert scene.has_all_once()


def test_failures_dead_letters_and_many_outputs(scene: Scene) -> None:
    scene.fill(50)

    def function(records: list[oncelog.ConsumerRecord]) -> Any:
        for record in records:
            if record.value == b"33":
                raise ValueError("bad record")
            yield from ((record.key, b"%s-%d" % (record.value, copy)) for copy in range(150))

    report = asyncio.run(scene.process_async(function, dead_letter=scene.dead, retries=1))
    assert (report.outputs, report.dead_letters, report.failures) == (49 * 150, 1, 2)
    values = scene.values()
    assert len(values) == 49 * 150
    assert set(values.values()) == {1}
    assert set(scene.values(scene.dead)) == {b"33"}


def test_a_pattern_that_matches_nothing_ends_with_nothing(scene: Scene) -> None:
    pattern = f"^{re.escape(scene.source)}-of-nobody-.*"
    report = asyncio.run(oncelog.process_async(pattern, double, scene.target, **scene.arguments()))
    assert report == oncelog.ProcessReport()


def test_tables(scene: Scene) -> None:
    scene.fill()
    report = asyncio.run(scene.process_async(lambda table: table.select(["key", "value"]), tables=True))
    assert report.outputs == RECORDS
    assert set(scene.values()) == {b"%d" % number for number in range(RECORDS)}


def test_stopping_and_cancelling_in_the_middle(scene: Scene) -> None:
    """What is in hand is committed or aborted; the next call goes on."""
    scene.fill()

    async def session() -> None:
        stop = asyncio.Event()
        first = await scene.process_async(double, until_end=False, stop=stop, on_batch=lambda _: stop.set())
        assert 0 < first.records < RECORDS
        has_begun = asyncio.Event()
        endless = scene.process_async(double, until_end=False, batch_records=10, on_batch=lambda _: has_begun.set())
        task = asyncio.ensure_future(endless)
        await asyncio.wait_for(has_begun.wait(), WAIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await scene.process_async(double)

    asyncio.run(session())
    assert scene.has_all_once()
