"""What tables ask of the sender, for how long, and that each has a result. The way of the rows is in tests/client."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_errors import ProducerClosed
from oncelog.errors import TopicAuthorizationFailed
from oncelog.producer.assembly import Serialized, assemble
from oncelog.producer.async_line import Lines
from oncelog.producer.async_table import AsyncTables
from oncelog.producer.table import columns_of

TOPIC = "orders"
SMALL = {"buffer_memory": 10_000, "max_request_size": 5_000, "batch_size": 2_000}
NOW_MS = 1_000


class Scene:
    """Tables without a sender: what is in batches stays there."""

    def __init__(self, **settings: Any) -> None:
        config = ProducerConfig.of("localhost:9092", **{"max_block_ms": 600_000, **SMALL, **settings})
        self.parts = assemble(config, None, pytest.fail, lambda batch: None, lambda: None)
        self.tables = AsyncTables(self.parts, lambda: None)
        self.told: list[Any] = []

    def send(self, rows: int = 3, topic: str = TOPIC) -> asyncio.Future[Any]:
        columns = columns_of(pa.table({"value": [b"." * 100] * rows}), None, None, None, None, None)
        return self.tables.send(topic, columns, lambda *told: self.told.append(told))

    def learn(self, topic: str = TOPIC) -> None:
        self.parts.accumulator.learn_partitions(topic, [(0, UUID(int=1), 1, 0)])
        self.tables.tell()

    @property
    def asked(self) -> tuple[dict[str, int], int]:
        """Topics, and for how many memory."""
        return self.parts.core.awaited_topics, self.parts.accumulator.are_waiting_for_memory


async def turns() -> None:
    """Whatever can go on does."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_topic_is_asked_for_only_while_a_table_waits_for_it() -> None:
    async def body() -> None:
        scene = Scene()
        scene.send()
        scene.send()
        await turns()
        assert scene.asked == ({TOPIC: 2}, 0)
        scene.learn()
        await scene.tables.all_accepted()
        assert scene.asked == ({}, 0)

    asyncio.run(body())


def test_memory_is_asked_for_only_while_a_table_waits_for_it() -> None:
    async def body() -> None:
        scene = Scene()
        scene.learn()
        result = scene.send(rows=1_000)
        await turns()
        assert scene.asked == ({}, 1)
        assert 0 < scene.tables.waiting_rows < 1_000
        scene.tables.give_up(ProducerClosed("enough"))
        await scene.tables.all_accepted()
        assert scene.asked == ({}, 0)
        assert not result.done(), "some rows are on their way"

    asyncio.run(body())


def test_tables_and_records_in_line_ask_side_by_side() -> None:
    async def body() -> None:
        scene = Scene()
        lines = Lines(scene.parts, lambda record, future: False)
        for topic in (TOPIC, "other"):
            lines.send(Serialized(topic, None, None, b"", (), 0), asyncio.Future(), NOW_MS)
        scene.send()
        await turns()
        assert scene.asked == ({TOPIC: 2, "other": 1}, 0)
        lines.fail_all(ProducerClosed("enough"))
        assert scene.asked == ({TOPIC: 1}, 0), "the table still waits"
        scene.tables.give_up(ProducerClosed("enough"))
        await scene.tables.all_accepted()
        assert scene.asked == ({}, 0)

    asyncio.run(body())


def test_a_topic_that_was_refused_once_is_asked_for_again() -> None:
    async def body() -> None:
        scene = Scene()
        errors = scene.parts.core.metadata.topic_errors
        errors[TOPIC] = TopicAuthorizationFailed.code
        result = scene.send()
        await turns()
        assert not result.done()
        errors[TOPIC] = TopicAuthorizationFailed.code
        scene.tables.tell()
        with pytest.raises(TopicAuthorizationFailed):
            await result
        assert scene.asked == ({}, 0)
        assert [type(error) for _, error in scene.told] == [TopicAuthorizationFailed]

    asyncio.run(body())


@pytest.mark.parametrize("began", [True, False])
def test_a_table_that_its_loop_leaves_behind_has_a_result(began: bool) -> None:
    scene = Scene()

    async def body() -> asyncio.Future[Any]:
        result = scene.send()
        if began:
            await turns()
        return result

    result = asyncio.run(body())
    assert isinstance(result.exception(), ProducerClosed)
    assert [type(error) for _, error in scene.told] == [ProducerClosed]
    assert scene.asked == ({}, 0)


def test_giving_up_leaves_later_tables_alone() -> None:
    async def body() -> None:
        scene = Scene()
        early = scene.send()
        scene.tables.give_up(ProducerClosed("enough"))
        later = scene.send()
        await turns()
        assert isinstance(early.exception(), ProducerClosed)
        assert not later.done()
        assert scene.tables.waiting_rows == 3

    asyncio.run(body())
