"""The short way of a plain record; everything else is declined without a trace, and goes the long way."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.accumulator import Accumulator
from oncelog.client.intake import Intake
from oncelog.client.placement import Placement
from oncelog.client.producer_config import ProducerConfig
from oncelog.records.batch import decode_records
from oncelog.records.kernel import partition_of
from tests.client.accumulating import TOPIC, WALL_MS, accumulator, learned, put

PARTITIONS = 3


class Scene:
    def __init__(self, **settings: Any) -> None:
        self.memory: Accumulator = accumulator(**settings)
        self.queues = learned(self.memory, PARTITIONS).queues
        for queue in self.queues:
            put(self.memory, queue, b"first")  # every partition has an open batch
        self.slow: list[Any] = []
        placement = Placement(ProducerConfig.of("localhost:9092"), lambda _: 0)
        self.intake = Intake(self.memory, placement, lambda: WALL_MS / 1000, self._send_slowly)

    def _send_slowly(self, *arguments: Any) -> str:
        self.slow.append(arguments)
        return "slow"

    def offer(self, **fields: Any) -> Any:
        given = {"topic": TOPIC, "value": b"", "key": None, "headers": None, "partition": None, "timestamp_ms": None}
        return self.intake.offer(*{**given, **fields}.values(), None)

    def state(self) -> Any:
        return self.memory.used_bytes, [(queue.queued_bytes, len(queue.batches)) for queue in self.queues]

    def last(self, partition: int) -> Any:
        return decode_records(self.queues[partition].batches[-1].sealed(0, None))[-1]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"value": None},
        {"value": "text"},
        {"key": b"k"},
        {"key": "k"},
        {"partition": 2},
        {"timestamp_ms": 0},
        {"headers": []},
        {"headers": [("a", b"1"), ("b", None)]},
        {"headers": (("a", b"1"),)},
    ],
    ids=str,
)
def test_plain_records_are_taken(fields: dict[str, Any]) -> None:
    scene = Scene()
    assert scene.offer(**fields) is not None
    assert sum(batch.record_count for queue in scene.queues for batch in queue.batches) == PARTITIONS + 1


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "unknown"},
        {"topic": 5},
        {"topic": [TOPIC]},
        {"value": 5},
        {"value": bytearray(b"")},
        {"value": "\ud800"},
        {"key": 5},
        {"key": "\ud800"},
        {"partition": -1},
        {"partition": PARTITIONS},
        {"partition": "1"},
        {"partition": True},
        {"partition": 1.0},
        {"timestamp_ms": -1},
        {"timestamp_ms": "now"},
        {"timestamp_ms": True},
        {"timestamp_ms": 2**63},
        {"headers": {"ab": b"1"}},
        {"headers": iter([("a", b"1")])},
        {"headers": ["ab"]},
        {"headers": [("a", "1")]},
        {"headers": [("a", b"1", b"2")]},
        {"headers": [(b"a", b"1")]},
        {"headers": [("\ud800", b"1")]},
        {"value": b"x" * 900},  # no room in the open batch
        {"value": b"x" * 9_000},
    ],
    ids=lambda fields: f"{fields!a:.40}",
)
def test_everything_else_is_declined_and_changes_nothing(fields: dict[str, Any]) -> None:
    scene = Scene()
    before = scene.state()
    assert scene.offer(**fields) is None
    assert scene.state() == before


def test_nothing_is_taken_where_memory_is_full_or_the_way_is_closed() -> None:
    scene = Scene(buffer_memory=5_000, max_request_size=5_000)
    scene.memory.used_bytes = 4_999
    assert scene.offer() is None
    scene.memory.used_bytes = 0
    scene.intake.is_open = False
    assert scene.offer() is None


def test_the_record_is_what_the_user_gave() -> None:
    scene = Scene()
    scene.offer(value="ü", key="k", headers=[("h", b"1")], timestamp_ms=5)
    scene.offer(value=b"v", partition=1)
    keyed = scene.last(partition_of(b"k", PARTITIONS))
    assert (keyed.key, keyed.value, keyed.timestamp_ms, list(keyed.headers)) == (b"k", "ü".encode(), 5, [("h", b"1")])
    assert (scene.last(1).value, scene.last(1).timestamp_ms) == (b"v", WALL_MS)


def test_send_goes_the_long_way_with_the_same_arguments() -> None:
    scene = Scene()
    assert scene.intake.send(TOPIC, b"v", partition=0).index == 1
    arguments = ("unknown", b"v", b"k", [("h", b"")], 1, 5, print)
    assert scene.intake.send(*arguments) == "slow"
    assert scene.slow == [arguments]


def test_a_callback_that_would_misunderstand_is_refused_before_anything_is_taken() -> None:
    scene = Scene()
    for callback in (5, lambda err, msg: None):
        for _ in range(2):
            with pytest.raises(TypeError, match="on_delivery is"):
                scene.intake.send(TOPIC, b"v", partition=0, on_delivery=callback)  # type: ignore[arg-type]
    assert scene.intake.send(TOPIC, b"v", partition=0, on_delivery=lambda metadata, error: None).index == 1
    assert not scene.slow


def test_callbacks_come_along() -> None:
    scene = Scene()
    told: list[Any] = []
    scene.intake.send(TOPIC, b"v", partition=0, on_delivery=lambda *outcome: told.append(outcome))
    batch = scene.memory.take(scene.queues[0])
    batch.delivery.settle(10, -1)
    batch.run_callbacks(pytest.fail)
    assert [metadata.offset for metadata, _ in told] == [11]


def test_a_value_must_be_given() -> None:
    scene = Scene()
    before = scene.state()
    with pytest.raises(TypeError, match="give value=None to write a tombstone"):
        scene.intake.send(TOPIC)
    assert scene.state() == before
    assert not scene.slow
    assert scene.intake.send(TOPIC, None) is not None
    assert scene.intake.send(TOPIC, value=None, key="k") is not None


def test_arguments_of_confluent_kafka_say_what_they_are_called_here() -> None:
    scene = Scene()
    with pytest.raises(TypeError, match=r"^send\(\) takes no timestamp: use timestamp_ms"):
        scene.intake.send(TOPIC, b"", timestamp=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^send\(\) takes no callback: use on_delivery"):
        scene.intake.send(TOPIC, b"", callback=print)  # type: ignore[arg-type]
