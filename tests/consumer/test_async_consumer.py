"""`AsyncConsumer`: the main paths, with asyncio's own loop and with uvloop."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from oncelog.client.consumer_errors import ConsumerClosed, ConsumerInUse, RecordDeserializationError, WokenUp
from oncelog.client.consumer_records import OffsetAndMetadata
from oncelog.consumer.async_consumer import AsyncConsumer
from oncelog.consumer.consumer import Consumer
from oncelog.types import TopicPartition
from tests.consumer.scene import KINDS, PROTOCOLS, Topics, create, numbered, offsets_of, values_of, write
from tests.support.batches import TIMESTAMP_MS
from tests.support.broker import OncelogBroker
from tests.support.patience import PATIENCE_S
from tests.support.process import BrokerProcess

Run = Callable[[Coroutine[Any, Any, None]], None]

EARLIEST = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main, 2 * PATIENCE_S))

    return run


async def read(consumer: AsyncConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(records) < count:
            records += await consumer.poll(0.5)
    assert len(records) == count
    return records


async def until(condition: Callable[[], bool], *consumers: AsyncConsumer) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            for consumer in consumers:
                records += await consumer.poll(0.02)
    return records


@pytest.mark.on_both_brokers
def test_reading_by_hand(broker: BrokerProcess, new_topic: Topics, run: Run) -> None:
    (partition,) = create(broker, topic := new_topic())
    for step in range(3):
        write(broker, topic, numbered(10 * step, 10), base_timestamp=TIMESTAMP_MS + 1_000 * step)

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, **EARLIEST) as consumer:
            await consumer.assign([partition])
            assert offsets_of(await read(consumer, 30)) == list(range(30))
            await consumer.seek(partition, 27)
            assert await consumer.position(partition) == 27
            assert offsets_of(await read(consumer, 3)) == [27, 28, 29]
            await consumer.seek_to_beginning()
            table = await consumer.read_table(PATIENCE_S, max_records=5)
            assert table.column("value").to_pylist() == numbered(0, 5)
            await consumer.seek_to_timestamp(TIMESTAMP_MS + 1_500)
            assert await consumer.position(partition) == 20
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 30
            assert await consumer.beginning_offsets(partition) == {partition: 0}
            assert await consumer.end_offsets(partition) == {partition: 30}
            found = await consumer.offsets_for_times({partition: TIMESTAMP_MS + 500})
            assert found[partition] is not None
            await consumer.seek(partition, 0)
            await consumer.pause(partition)
            assert await consumer.poll(0.1) == []
            assert consumer.paused() == {partition}
            await consumer.resume(partition)
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 5:
                    break
            assert seen + offsets_of(await read(consumer, 25)) == list(range(30))
            assert consumer.lag(partition) == 0
            assert consumer.metrics()["records-consumed-total"] >= 30

    run(main())


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("kind", ["range", "cooperative-sticky", "consumer"])
def test_members_of_a_group(broker: BrokerProcess, new_topic: Topics, run: Run, kind: str) -> None:
    """They share, with coroutines as callbacks that commit; each record is read once."""
    create(broker, topic := new_topic(), 4)
    told: list[tuple[str, int]] = []

    async def on_assigned(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        told.append(("assigned", len(partitions)))

    async def on_revoked(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
        await consumer.commit()
        told.append(("revoked", len(partitions)))

    def member() -> AsyncConsumer:
        settings = {**EARLIEST, **KINDS[kind], "enable_auto_commit": False}
        return AsyncConsumer(broker.bootstrap, group_id=topic, **settings)

    async def main() -> None:
        async with member() as first:
            await first.subscribe(topic, on_assigned=on_assigned, on_revoked=on_revoked)
            seen = await until(lambda: len(first.assignment()) == 4, first)
            for index in range(4):
                write(broker, topic, numbered(0, 10), index)
            seen += await read(first, 40)
            async with member() as second:
                await second.subscribe([topic], on_revoked=on_revoked)
                seen += await until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
                for index in range(4):
                    write(broker, topic, numbered(10, 5), index)
                seen += await until(lambda: len(reached(first, second)) == 4, first, second)
            seen += await until(lambda: len(first.assignment()) == 4, first)
            assert first.group_metadata().group_id == topic
        places = [(record.partition, record.offset) for record in seen]
        assert sorted(places) == [(index, offset) for index in range(4) for offset in range(15)], "each once"

    def reached(*consumers: AsyncConsumer) -> list[TopicPartition]:
        positions = {
            one: consumer.lag(one) for consumer in consumers for one in consumer.assignment() if ends_at(consumer, one)
        }
        return list(positions)

    def ends_at(consumer: AsyncConsumer, partition: TopicPartition) -> bool:
        state = consumer._core.fetcher.states.get(partition)
        return state is not None and state.position == 15

    run(main())
    assert told[0] == ("assigned", 4)
    assert ("revoked", 4) in told or kind != "range"


@pytest.mark.on_both_brokers
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits(broker: BrokerProcess, new_topic: Topics, run: Run, protocol: str) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 30))
    told: list[Any] = []

    async def on_commit(offsets: Any, error: Exception | None) -> None:
        told.append((offsets[partition].offset, error))

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, group_id=topic, **EARLIEST, **PROTOCOLS[protocol]) as consumer:
            await consumer.subscribe(topic)
            assert len(await consumer.poll(PATIENCE_S, max_records=10)) == 10
            await consumer.commit({partition: OffsetAndMetadata(3, "note")})
            assert (await consumer.committed(partition))[partition] == OffsetAndMetadata(3, "note")
            consumer.commit_async({partition: 4}, on_commit)
            await until(lambda: told == [(4, None)], consumer)

    run(main())
    assert committed(broker, topic, partition) == 30, "close() commits what was handed out"


def committed(broker: BrokerProcess, group: str, partition: TopicPartition) -> int | None:
    with Consumer(broker.bootstrap, group_id=group) as consumer:
        found = consumer.committed(partition)[partition]
        return None if found is None else found.offset


def test_a_block_that_ends_by_an_exception(broker: BrokerProcess, new_topic: Topics, run: Run) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, numbered(0, 30))

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, group_id=topic, **EARLIEST) as consumer:
            await consumer.subscribe(topic)
            async for record in consumer:
                if record.offset == 15:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main())
    assert committed(broker, topic, partition) == 15


def test_cancelled_polls_lose_nothing(broker: BrokerProcess, new_topic: Topics, run: Run) -> None:
    """However often, and wherever they are cancelled."""
    (partition,) = create(broker, topic := new_topic())

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, group_id=topic, **EARLIEST) as consumer:
            await consumer.assign([partition])
            seen: list[bytes] = []
            for number in range(60):
                if number < 50:
                    await asyncio.to_thread(write, broker, topic, [b"%d" % number])
                task = asyncio.create_task(consumer.poll(PATIENCE_S))
                await asyncio.sleep(0.001 * (number % 7))
                task.cancel()
                outcome = (await asyncio.gather(task, return_exceptions=True))[0]
                if not isinstance(outcome, BaseException):
                    seen += values_of(outcome)
                else:
                    assert isinstance(outcome, asyncio.CancelledError)
            while len(seen) < 50:
                seen += values_of(await consumer.poll(PATIENCE_S))
            assert seen == numbered(0, 50)

    run(main())


def test_one_task_at_a_time_and_wakeup(broker: BrokerProcess, new_topic: Topics, run: Run) -> None:
    create(broker, topic := new_topic())

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, **EARLIEST) as consumer:
            await consumer.assign([(topic, 0)])
            waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
            await asyncio.sleep(0.05)
            with pytest.raises(ConsumerInUse, match="give each task its own"):
                await consumer.poll(0)
            with pytest.raises(ConsumerInUse):
                await consumer.close()
            consumer.wakeup()
            with pytest.raises(WokenUp):
                await waiting
            write(broker, topic, [b"1"])
            assert values_of(await read(consumer, 1)) == [b"1"]

    run(main())


def test_a_deserializer_that_raises(broker: BrokerProcess, new_topic: Topics, run: Run) -> None:
    (partition,) = create(broker, topic := new_topic())
    write(broker, topic, [b"1", b"rubbish", b"3"])

    async def main() -> None:
        async with AsyncConsumer(broker.bootstrap, value_deserializer=int, **EARLIEST) as consumer:
            await consumer.assign([partition])
            assert values_of(await read(consumer, 1)) == [1]
            with pytest.raises(RecordDeserializationError):
                await consumer.poll(PATIENCE_S)
            await consumer.seek(partition, 2)
            assert values_of(await read(consumer, 1)) == [3]

    run(main())


def test_after_the_end(broker: BrokerProcess, new_topic: Topics, run: Run) -> None:
    create(broker, topic := new_topic())

    async def main() -> None:
        consumer = AsyncConsumer(broker.bootstrap)
        await consumer.assign([(topic, 0)])
        await consumer.close()
        await consumer.close()
        with pytest.raises(ConsumerClosed):
            await consumer.poll(0)
        assert [record async for record in consumer] == []
        await AsyncConsumer(broker.bootstrap).close()  # one that was never used

    run(main())


def test_a_callback_that_raises_at_the_end_leaves_the_group_all_the_same(
    broker: BrokerProcess, new_topic: Topics, run: Run
) -> None:
    """Nobody waits for the member's session to end."""
    create(broker, topic := new_topic())
    settings = {"group_id": topic, "group_protocol": "classic", **EARLIEST}

    async def main() -> None:
        leaving = AsyncConsumer(broker.bootstrap, session_timeout_ms=1_800_000, **settings)
        await leaving.subscribe(topic, on_revoked=lambda *_: 1 // 0)
        await until(lambda: bool(leaving.assignment()), leaving)
        with pytest.raises(ZeroDivisionError):
            await leaving.close()
        async with AsyncConsumer(broker.bootstrap, **settings) as heir:
            await heir.subscribe(topic)
            await until(lambda: bool(heir.assignment()), heir)

    run(main())


def test_a_broker_that_is_gone_keeps_nobody_from_closing(tmp_path: Path, run: Run) -> None:
    patient = dict.fromkeys(("request_timeout_ms", "default_api_timeout_ms", "session_timeout_ms"), 1_800_000)

    async def main() -> None:
        with OncelogBroker(tmp_path, {"group.initial.rebalance.delay.ms": "0"}) as broker:
            create(broker, "orders")
            consumer = AsyncConsumer(broker.bootstrap, group_id="billing", **EARLIEST, **patient)
            await consumer.subscribe("orders")
            await until(lambda: bool(consumer.assignment()), consumer)
            broker.kill()
            async with asyncio.timeout(PATIENCE_S):
                await consumer.close(timeout=3_600)

    run(main())


def test_a_forgotten_consumer_sends_no_more_heartbeats(broker: BrokerProcess, new_topic: Topics, run: Run) -> None:
    create(broker, topic := new_topic())

    async def main() -> None:
        consumer = AsyncConsumer(broker.bootstrap, group_id=topic, **EARLIEST)
        await consumer.subscribe(topic)
        async with asyncio.timeout(PATIENCE_S):
            while not consumer.assignment():
                await consumer.poll(0.02)
        driver: Any = consumer._driver
        ended: Awaitable[None] = driver.join()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del consumer
            gc.collect()
        assert any("was not closed" in str(warning.message) for warning in caught)
        await asyncio.wait_for(ended, PATIENCE_S)

    run(main())
