"""Apache Kafka's own answers and records: ours are the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from oncelog.coordinator.transactions.records import decode_record, encode_record
from oncelog.records import batch, kernel
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.coordinator.transactions.capture import ANSWERS, SEGMENT
from tests.coordinator.transactions.scenario import SHORT_TIMEOUT_MS, hold
from tests.coordinator.transactions.support import Rig


class RigConnection:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def ask(self, api_key: ApiKey, version: int, body: Message) -> Message:
        return self._rig.ask(api_key, body, version)

    def await_end(self, is_over: Callable[[], bool]) -> None:
        self._rig.write_markers()
        if not is_over():
            self._rig.pass_time(SHORT_TIMEOUT_MS)
            self._rig.write_markers()
        assert is_over()


def kafkas_records() -> Iterator[tuple[bytes, bytes | None]]:
    segment = SEGMENT.read_bytes()
    headers, good_bytes = kernel.scan(segment, 0, len(segment), True)
    assert good_bytes == len(segment)
    position = 0
    for header in headers:
        for record in batch.decode_records(segment[position : position + header.size_bytes]):
            assert record.key is not None
            yield bytes(record.key), None if record.value is None else bytes(record.value)
        position += header.size_bytes


def test_every_answer_is_kafkas() -> None:
    ours = json.loads(json.dumps(list(hold(RigConnection(Rig())))))
    kafkas = json.loads(ANSWERS.read_text())
    assert [title for title, _ in ours] == [title for title, _ in kafkas]
    different = [
        (title, mine, theirs) for (title, mine), (_, theirs) in zip(ours, kafkas, strict=True) if mine != theirs
    ]
    assert different == []


def test_kafkas_records_are_written_again_byte_for_byte() -> None:
    records = list(kafkas_records())
    assert len(records) > 50
    for key, value in records:
        record = decode_record(key, value)
        assert record is not None
        assert encode_record(record) == (key, value)


def test_the_same_conversation_leaves_the_same_records() -> None:
    rig = Rig()
    list(hold(RigConnection(rig)))
    ours, kafkas = histories(rig.log), histories(list(kafkas_records()))
    assert ours == kafkas


def histories(log: list[tuple[bytes, bytes | None]]) -> dict[str, list[object]]:
    """What became of each id, without what differs from one run to another: producer ids, times, orders of sets."""
    found: dict[str, list[object]] = {}
    for key, value in log:
        record = decode_record(key, value)
        assert record is not None
        assert record.transaction is not None
        transaction = record.transaction
        has_start = int(transaction.start_ms > 0)
        is_other_producer = int(transaction.producer_id != transaction.previous_producer_id)
        transaction = transaction._replace(producer_id=is_other_producer, previous_producer_id=0)
        transaction = transaction._replace(start_ms=has_start, last_update_ms=0)
        transaction = transaction._replace(partitions=tuple(sorted(transaction.partitions)))
        found.setdefault(record.transactional_id, []).append(transaction)
    return found


def test_a_log_that_kafka_left_is_taken_over() -> None:
    rig = Rig()
    rig.log = list(kafkas_records())
    rig.crash()
    assert rig.coordinator.open_count == 0
    assert rig.described("new")["transaction_state"] == "CompleteAbort"
    described = rig.described("new")
    code, producer_id, epoch = rig.init(transactional_id="new")
    assert (code, producer_id, epoch) == (0, described["producer_id"], described["producer_epoch"] + 1)
