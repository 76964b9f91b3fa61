"""`AsyncProducer.send` in compiled form: plain records become futures of the loop, others go the long way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.client.accumulator import Accumulator
from oncelog.client.intake import Intake
from oncelog.client.loop_future import LoopFuture, LoopFutures
from oncelog.client.loop_intake import LoopIntake
from oncelog.client.placement import Placement
from oncelog.client.producer_config import ProducerConfig
from tests.client.accumulating import TOPIC, WALL_MS, accumulator, learned, put


class Producer(LoopIntake):
    def __init__(self, intake: Intake, memory: Accumulator, hurry: Callable[[], None]) -> None:
        super().__init__(intake, memory, hurry)
        self.slow: list[Any] = []

    def _send_slowly(self, *arguments: Any) -> Any:
        self.slow.append(arguments)
        return "slow"


class Scene:
    def __init__(self) -> None:
        self.memory = accumulator()
        self.queues = learned(self.memory, 1).queues
        put(self.memory, self.queues[0], b"first")
        self.hurries = 0
        placement = Placement(ProducerConfig.of("localhost:9092"), lambda _: 0)
        self.intake = Intake(self.memory, placement, lambda: WALL_MS / 1000)
        self.home = asyncio.new_event_loop()
        self.memory.futures = LoopFutures(self.home, self._hurry)
        self.producer = Producer(self.intake, self.memory, self._hurry)
        self.send: Any = self.producer.send
        self.slow = self.producer.slow

    def _hurry(self) -> None:
        self.hurries += 1


@pytest.fixture
def scene() -> Any:
    scene = Scene()
    yield scene
    scene.home.close()


def test_a_plain_record_has_a_future_of_the_loop(scene: Scene) -> None:
    future = scene.send(TOPIC, b"value", key=b"key")
    assert type(future) is LoopFuture
    assert future.get_loop() is scene.home
    batch = scene.queues[0].batches[0]
    batch.delivery.settle(7, -1)
    batch.delivery.announce()
    assert future.result() == (TOPIC, 0, 8, WALL_MS)
    assert scene.slow == []


def test_a_batch_that_is_large_enough_is_sent_early_and_once(scene: Scene) -> None:
    scene.memory.early_bytes = 500
    sizes = []
    for _ in range(8):
        scene.send(TOPIC, b"v" * 100)
        sizes.append((scene.queues[0].batches[0].size_bytes, scene.hurries))
    assert [hurries for size, hurries in sizes if size < 500] == [0] * len([1 for size, _ in sizes if size < 500])
    assert [hurries for size, hurries in sizes if size >= 500] == [1] * len([1 for size, _ in sizes if size >= 500])
    assert sizes[0][0] < 500 <= sizes[-1][0]


def test_everything_else_goes_the_long_way(scene: Scene) -> None:
    assert scene.send(TOPIC, 5) == "slow"
    assert scene.send(TOPIC, b"", on_delivery=print) == "slow"
    scene.intake.is_open = False
    assert scene.send(TOPIC, b"value", timestamp_ms=5) == "slow"
    assert scene.slow == [
        (TOPIC, 5, None, None, None, None, None),
        (TOPIC, b"", None, None, None, None, print),
        (TOPIC, b"value", None, None, None, 5, None),
    ]
    assert scene.queues[0].batches[0].record_count == 1
