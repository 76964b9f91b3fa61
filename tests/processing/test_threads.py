"""`process()` on both brokers: what it promises about batches, outputs, failures and dead letters."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest

import oncelog
from tests.processing.scene import PARTITIONS, RECORDS, Scene, double

pytestmark = pytest.mark.on_both_brokers
RECORDS_PER_PARTITION = RECORDS // PARTITIONS


def test_every_record_once(scene: Scene) -> None:
    scene.fill()
    batches: list[oncelog.BatchReport] = []
    report = scene.process(double, on_batch=batches.append)
    assert (report.records, report.outputs, report.aborted, report.failures) == (RECORDS, RECORDS, 0, 0)
    assert report.batches == len(batches)
    assert sum(batch.records for batch in batches) == RECORDS
    assert max(batch.records for batch in batches) <= 50
    assert scene.has_all_once()
    assert set(scene.committed().values()) == {RECORDS_PER_PARTITION}


def test_records_of_a_key_keep_their_order(scene: Scene) -> None:
    with oncelog.Producer(scene.broker.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(scene.source, value=str(number), key=f"key-{number % 5}")
    scene.process(lambda records: [(record.key, record.value) for record in records])
    by_key: dict[bytes, list[int]] = {}
    for record in scene.seen():
        by_key.setdefault(record.key, []).append(int(record.value))
    assert len(by_key) == 5
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_the_next_call_goes_on_where_the_last_one_stopped(scene: Scene) -> None:
    scene.fill()
    stop = threading.Event()
    first = scene.process(double, until_end=False, stop=stop, on_batch=lambda _: stop.set())
    assert 0 < first.records < RECORDS
    second = scene.process(double)
    assert first.records + second.records == RECORDS
    assert scene.has_all_once()


def test_all_kinds_of_outputs(scene: Scene) -> None:
    scene.fill(4)

    def function(records: list[oncelog.ConsumerRecord]) -> Any:
        for record in records:
            number = int(record.value)
            if number == 0:
                yield b"a value"
                yield "a text"
            elif number == 1:
                yield b"a key", None
            elif number == 2:
                headers = [("why", b"because")]
                yield oncelog.ProducerRecord(scene.dead, b"elsewhere", b"k", 1, headers, 1_700_000_000_000)
            else:
                yield record

    assert scene.process(function).outputs == 5
    seen = scene.seen()
    assert {(record.key, record.value) for record in seen} == {
        (None, b"a value"),
        (None, b"a text"),
        (b"a key", None),
        (b"3", b"3"),
    }
    (elsewhere,) = scene.seen(scene.dead)
    assert (elsewhere.partition, elsewhere.key, elsewhere.value) == (1, b"k", b"elsewhere")
    assert (elsewhere.headers, elsewhere.timestamp_ms) == ((("why", b"because"),), 1_700_000_000_000)


def test_offsets_are_committed_where_nothing_is_sent(scene: Scene) -> None:
    scene.fill()
    report = scene.process(lambda records: [])
    assert (report.records, report.outputs) == (RECORDS, 0)
    assert set(scene.committed().values()) == {RECORDS_PER_PARTITION}
    assert scene.process(double).records == 0


def test_a_function_that_raises_leaves_no_trace(scene: Scene) -> None:
    scene.fill()

    def function(records: list[oncelog.ConsumerRecord]) -> Any:
        for record in records:
            yield record.value
            if record.value == b"200":
                raise LookupError("200")

    with pytest.raises(LookupError, match="200") as raised:
        scene.process(function, retries=1)
    assert any(scene.source in note for note in raised.value.__notes__)
    before = scene.values()
    assert b"200" not in before
    scene.process(lambda records: [record.value for record in records])
    assert scene.values() == Counter(b"%d" % number for number in range(RECORDS))


def test_a_function_that_raises_is_called_again(scene: Scene) -> None:
    scene.fill()
    calls: Counter[bytes] = Counter()

    def function(records: list[oncelog.ConsumerRecord]) -> Any:
        calls.update(record.value for record in records)
        if calls[b"100"] in (1, 2):
            raise ConnectionError("not now")
        return double(records)

    report = scene.process(function)
    assert report.failures == 2
    assert calls[b"100"] == 3
    assert scene.has_all_once()


def test_what_cannot_be_processed_becomes_a_dead_letter(scene: Scene) -> None:
    scene.fill()
    bad = {b"17", b"18", b"250"}

    def function(records: list[oncelog.ConsumerRecord]) -> Any:
        if any(record.value in bad for record in records):
            raise ValueError("bad record")
        return double(records)

    report = scene.process(function, dead_letter=scene.dead, retries=0)
    assert (report.records, report.outputs, report.dead_letters) == (RECORDS, RECORDS - 3, 3)
    letters = {record.value: dict(record.headers) for record in scene.seen(scene.dead)}
    assert letters.keys() == bad
    assert letters[b"17"]["oncelog.dead.reason"] == b"ValueError: bad record"
    assert letters[b"17"]["oncelog.dead.topic"] == scene.source.encode()
    assert letters[b"17"]["oncelog.dead.offset"] == b"%d" % (17 // PARTITIONS)
    good = {b"%d" % (2 * number) for number in range(RECORDS) if b"%d" % number not in bad}
    assert scene.values() == Counter(good)


def test_outputs_that_cannot_be_sent_are_the_fault_of_their_record(scene: Scene) -> None:
    """Also if some of what was made of it was sent before: nothing of that is visible."""
    scene.fill(20)

    def function(records: list[oncelog.ConsumerRecord]) -> Any:
        for record in records:
            yield record.value
            if record.value == b"7":
                yield b"x" * 2_000_000  # more than max.request.size

    report = scene.process(function, dead_letter=scene.dead, retries=0)
    assert (report.records, report.outputs, report.dead_letters) == (20, 19, 1)
    assert scene.values() == Counter(b"%d" % number for number in range(20) if number != 7)
    assert scene.values(scene.dead) == Counter([b"7"])


def test_offsets_reach_the_end_of_a_source_that_is_written_in_transactions(scene: Scene) -> None:
    """What ends a transaction has an offset too, behind the last record."""
    scene.fill(transactional_id=f"writer-{scene.source}")
    scene.process(double)
    assert scene.has_all_once()
    assert set(scene.committed().values()) == {RECORDS_PER_PARTITION + 1}


def test_sources_by_pattern_and_settings_with_dots(scene: Scene) -> None:
    scene.fill(30)
    oncelog.process(
        re.compile(re.escape(scene.source)),
        double,
        scene.target,
        **scene.arguments(
            bootstrap_servers={"bootstrap.servers": scene.broker.bootstrap},
            consumer={"group.protocol": "consumer"},
            producer={"compression.type": "gzip"},
        ),
    )
    assert scene.has_all_once(30)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_that_matches_nothing_ends_with_nothing(
    scene: Scene, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    pattern = f"^{re.escape(scene.source)}-of-nobody-.*"
    settings = scene.arguments(workers=2, consumer={"group.protocol": protocol})
    report = oncelog.process(pattern, double, scene.target, **settings)
    assert report == oncelog.ProcessReport()
    said = [record.getMessage() for record in caplog.records]
    assert f"oncelog-consumer: no topic matches the pattern {pattern!r}: nothing is read until there is one" in said


class TestTables:
    def test_every_row_once(self, scene: Scene) -> None:
        scene.fill()

        def function(table: pa.Table) -> pa.Table:
            numbers = pc.cast(pc.cast(table["value"], pa.string()), pa.int64())
            doubled = pc.cast(pc.multiply(numbers, 2), pa.string())
            return pa.table({"key": table["key"], "value": doubled})

        report = scene.process(function, tables=True)
        assert (report.records, report.outputs) == (RECORDS, RECORDS)
        assert scene.has_all_once()
        assert set(scene.committed().values()) == {RECORDS_PER_PARTITION}

    def test_rows_that_cannot_be_processed(self, scene: Scene) -> None:
        scene.fill(60)

        def function(table: Any) -> Any:
            if b"41" in table["value"].to_pylist():
                raise ValueError("bad row")
            return table.select(["key", "value"]) if table.num_rows else None

        report = scene.process(function, tables=True, dead_letter=scene.dead, retries=0)
        assert (report.records, report.outputs, report.dead_letters) == (60, 59, 1)
        (letter,) = scene.seen(scene.dead)
        assert (letter.key, letter.value) == (b"41", b"41")
        assert dict(letter.headers)["oncelog.dead.offset"] == b"%d" % (41 // PARTITIONS)
