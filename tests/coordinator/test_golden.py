"""Apache Kafka's own answers and records: ours are the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from oncelog.coordinator.effects import GroupSettings
from oncelog.coordinator.records import decode_record, encode_record
from oncelog.records import batch, kernel
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.coordinator.scenario import PARTITIONS, TOPICS, hold
from tests.coordinator.support import Logged, Rig, Topics
from tests.golden.capture_groups import ANSWERS, SEGMENT


class RigConnection:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def send(self, api_key: ApiKey, version: int, body: Message) -> Callable[[], Message]:
        ticket = self._rig.send(api_key, body, version)
        self._rig.pass_time(0)

        def answer() -> Message:
            assert ticket.answer is not None, "nobody has answered"
            return ticket.answer

        return answer


def new_rig() -> Rig:
    return Rig(GroupSettings(group_initial_rebalance_delay_ms=0), Topics(**dict.fromkeys(TOPICS, PARTITIONS)))


def kafkas_records() -> Iterator[tuple[bytes, bytes | None, int]]:
    segment = SEGMENT.read_bytes()
    headers, good_bytes = kernel.scan(segment, 0, len(segment), True)
    assert good_bytes == len(segment)
    position = 0
    for header in headers:
        for record in batch.decode_records(segment[position : position + header.size_bytes]):
            assert record.key is not None
            yield bytes(record.key), None if record.value is None else bytes(record.value), record.timestamp_ms
        position += header.size_bytes


def test_every_answer_is_kafkas() -> None:
    rig = new_rig()
    ours = json.loads(json.dumps(list(hold(RigConnection(rig), RigConnection(rig)))))
    kafkas = json.loads(ANSWERS.read_text())
    assert [title for title, _ in ours] == [title for title, _ in kafkas]
    different = [
        (title, mine, theirs) for (title, mine), (_, theirs) in zip(ours, kafkas, strict=True) if mine != theirs
    ]
    assert different == []


def test_kafkas_records_are_written_again_byte_for_byte() -> None:
    records = list(kafkas_records())
    assert len(records) > 20
    for key, value, _ in records:
        record = decode_record(key, value)
        assert record is not None
        assert encode_record(record) == (key, value)


def test_a_log_that_kafka_left_is_taken_over() -> None:
    rig = new_rig()
    rig.log = [Logged(*record) for record in kafkas_records()]
    rig.topics.ids.clear()
    rig.crash()
    described = rig.described()
    assert described["group_state"] == "Stable"
    (member,) = described["members"]
    assert (member["group_instance_id"], bytes(member["member_assignment"])) == ("L", b"Z")
    assert rig.committed() == 5
