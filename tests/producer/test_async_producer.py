"""`AsyncProducer` as its users meet it, on asyncio's loop and on uvloop. What its broker answers, the test decides."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
import uvloop

import oncelog
from oncelog.client.accumulator import RecordTooLarge
from oncelog.client.partitioner import PartitionerError
from oncelog.client.producer_errors import BufferExhausted, ProducerClosed, TopicUnavailable
from oncelog.errors import InvalidTopicException, TopicAuthorizationFailed, UnknownTopicOrPartition
from oncelog.producer import async_line
from oncelog.producer.async_producer import EARLY_BYTES, AsyncProducer
from oncelog.producer.serializers import SerializationError
from tests.producer.scripted_broker import ScriptedBroker
from tests.support.patience import PATIENCE_S, once_heard_async

TOPIC = "orders"
PARTITIONS = 3
SMALL_MEMORY = {"buffer_memory": 10_000, "max_request_size": 10_000, "batch_size": 1_000, "linger_ms": 0}

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({TOPIC: PARTITIONS, "other": 1}) as scripted:
        yield scripted
        scripted.gate.set()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine to its end in a loop of its own; whatever the loop complains about is an error."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(body: Coroutine[Any, Any, Any]) -> Any:
        complaints: list[Any] = []

        async def watched() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            return await asyncio.wait_for(body, PATIENCE_S)

        with asyncio.Runner(loop_factory=factory) as runner:
            result = runner.run(watched())
            gc.collect()  # futures that nobody looked at complain now
        assert complaints == []
        return result

    return run


def small(scripted: ScriptedBroker, **settings: Any) -> AsyncProducer:
    return AsyncProducer(scripted.bootstrap, **{**SMALL_MEMORY, **settings})


async def known(producer: AsyncProducer, *topics: str) -> None:
    for topic in topics or (TOPIC,):
        await once_heard_async(lambda topic=topic: producer.send(topic, b""))  # type: ignore[misc]


class TestResults:
    def test_a_future_tells_where_the_record_is(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap) as producer:
                first = await producer.send(TOPIC, "paid", partition=1, timestamp_ms=5)
                assert first == oncelog.RecordMetadata(TOPIC, 1, 0, 5)
                results = await asyncio.gather(*(producer.send(TOPIC, b"x", partition=1) for _ in range(100)))
                assert [result.offset for result in results] == list(range(1, 101))

        run(body())

    @pytest.mark.parametrize(("count", "is_sent"), [(200, True), (20, False)])
    def test_what_is_worth_a_request_leaves_before_it_is_waited_for(
        self, scripted: ScriptedBroker, run: Run, count: int, is_sent: bool
    ) -> None:
        """Less than that waits until the loop turns: others may send before."""

        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap, linger_ms=0) as producer:
                await known(producer)
                sent = [producer.send(TOPIC, bytes(100), partition=0) for _ in range(count)]
                requests = producer.metrics()["request-total"]
                waiting = sent[0].__await__()
                next(waiting)  # as `await` does
                assert producer.metrics()["request-total"] == requests + is_sent
                waiting.close()
                sent[0]._asyncio_future_blocking = False
                await asyncio.gather(*sent)

        run(body())

    def test_many_who_send_one_record_each_share_a_request(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap, linger_ms=0) as producer:
                await known(producer)
                requests = producer.metrics()["request-total"]

                async def one() -> None:
                    await producer.send(TOPIC, bytes(100), partition=0)

                await asyncio.gather(*(one() for _ in range(100)))
                assert producer.metrics()["request-total"] == requests + 1

        run(body())

    def test_who_overrides_send_still_has_the_producers_own(self, scripted: ScriptedBroker, run: Run) -> None:
        class Shouting(AsyncProducer):
            def send(self, topic: str, value: Any = None, *arguments: Any, **fields: Any) -> Any:
                return super().send(topic, value.upper(), *arguments, **fields)

        async def body() -> None:
            async with Shouting(scripted.bootstrap) as producer:
                assert (await producer.send(TOPIC, "paid", partition=1)).offset == 0
                assert (await producer.send(TOPIC, "paid", partition=1)).offset == 1

        run(body())

    def test_a_result_does_not_keep_its_producer(self, scripted: ScriptedBroker, run: Run) -> None:
        """Results are hidden from the garbage collector, so they must not lead to what may lead to them."""

        class Keeping(AsyncProducer):
            kept: Any = None

        async def body() -> weakref.ref[Keeping]:
            async with Keeping(scripted.bootstrap) as producer:
                await known(producer)
                producer.kept = producer.send(TOPIC, b"value")
                await producer.flush()
            return weakref.ref(producer)

        producer = run(body())
        gc.collect()
        assert producer() is None

    def test_a_failure_is_raised_where_it_is_awaited_and_told(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            told: list[Any] = []
            async with AsyncProducer(scripted.bootstrap) as producer:
                scripted.produce_codes = [29]
                with pytest.raises(TopicAuthorizationFailed) as caught:
                    await producer.send(TOPIC, b"", on_delivery=lambda *outcome: told.append(outcome))
                assert told == [(None, caught.value)]

        run(body())

    def test_nobody_need_look_at_a_result(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap) as producer:
                scripted.produce_codes = [29]
                producer.send(TOPIC, b"")
                await producer.flush()

        run(body())

    @pytest.mark.parametrize("has_callback", [True, False])
    def test_a_cancelled_wait_does_not_call_the_record_back(
        self, scripted: ScriptedBroker, run: Run, has_callback: bool
    ) -> None:
        async def body() -> None:
            told: list[Any] = []
            on_delivery = (lambda *outcome: told.append(outcome)) if has_callback else None
            async with AsyncProducer(scripted.bootstrap) as producer:
                await known(producer)
                scripted.hold()
                future = producer.send(TOPIC, b"wanted", partition=0, on_delivery=on_delivery)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(future, 0.001)
                assert future.cancelled()
                scripted.gate.set()
                await producer.flush()
            assert b"wanted" in scripted.log[TOPIC, 0]
            assert len(told) == has_callback

        run(body())

    def test_a_callback_that_raises_breaks_nothing(
        self, scripted: ScriptedBroker, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        def raise_cancelled(*_: Any) -> None:
            raise asyncio.CancelledError

        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap) as producer:
                await producer.send(TOPIC, b"", on_delivery=lambda *_: 1 / 0)
                await producer.send(TOPIC, b"", on_delivery=raise_cancelled)
                await producer.send(TOPIC, b"")

        run(body())
        assert len([one for one in caplog.records if "callback raised" in one.message]) == 2

    def test_a_callback_may_send(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            seconds: list[Awaitable[Any]] = []
            async with AsyncProducer(scripted.bootstrap) as producer:
                for _ in range(20):
                    producer.send(TOPIC, b"1", on_delivery=lambda *_: seconds.append(producer.send(TOPIC, b"2")))
                await producer.flush()
                await asyncio.gather(*seconds)
            assert len(seconds) == 20

        run(body())

    def test_interceptors_serializers_and_partitioners_have_their_say(self, scripted: ScriptedBroker, run: Run) -> None:
        heard: list[Any] = []

        class Tagging:
            def on_send(self, record: oncelog.ProducerRecord) -> oncelog.ProducerRecord:
                return record._replace(value={"tagged": record.value})

            def on_acknowledgement(self, metadata: Any, error: Any) -> None:
                heard.append((metadata and metadata.partition, type(error)))

        async def body() -> None:
            own = {"interceptors": [Tagging()], "value_serializer": "json", "partitioner": lambda *_: 2}
            async with AsyncProducer(scripted.bootstrap, **own) as producer:
                await producer.send(TOPIC, 5)
                with pytest.raises(SerializationError):
                    producer.send(TOPIC, object())

        run(body())
        assert scripted.log[TOPIC, 2] == [b'{"tagged":5}']
        assert [kind for _, kind in heard] == [type(None), heard[1][1]]
        assert issubclass(heard[1][1], SerializationError)


class TestTheLine:
    def test_keeps_the_order_of_records_while_memory_is_full(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with small(scripted) as producer:
                await known(producer)
                base = len(scripted.log.get((TOPIC, 0), []))
                results = await asyncio.gather(
                    *(producer.send(TOPIC, b"x" * (10 + 480 * (number % 2)), partition=0) for number in range(200))
                )
                assert [result.offset - base for result in results] == list(range(200))
                assert producer.metrics()["buffer-available-bytes"] == 10_000
                assert producer.metrics()["waiting-threads"] == 0

        run(body())

    def test_of_an_unknown_topic_holds_up_no_other(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap, max_block_ms=600_000, linger_ms=0) as producer:
                lost = producer.send("missing", b"")
                results = await asyncio.gather(*(producer.send(TOPIC, b"") for _ in range(50)))
                assert len(results) == 50
                assert not lost.done()
                scripted.topics["missing"] = 1
                assert (await lost).topic == "missing"

        run(body())

    @pytest.mark.parametrize("buffer_full", ["block", "fail", "drop"])
    def test_of_an_unknown_topic_is_no_matter_of_memory(
        self, scripted: ScriptedBroker, run: Run, buffer_full: str
    ) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap, buffer_full=buffer_full, linger_ms=0) as producer:
                results = await asyncio.gather(*(producer.send(TOPIC, b"", partition=0) for _ in range(50)))
                assert [result.offset for result in results] == list(range(50))

        run(body())

    def test_ends_after_max_block_ms(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with small(scripted, max_block_ms=200) as producer:
                with pytest.raises(UnknownTopicOrPartition, match="'missing' does not exist"):
                    await once_heard_async(lambda: producer.send("missing", b""))
                await known(producer)
                scripted.hold()
                futures = [producer.send(TOPIC, b"x" * 500) for _ in range(60)]
                await asyncio.wait(futures, timeout=PATIENCE_S, return_when=asyncio.FIRST_EXCEPTION)
                scripted.gate.set()
                outcomes = await asyncio.gather(*futures, return_exceptions=True)
                failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
                assert failures
                assert all(isinstance(failure, BufferExhausted) for failure in failures)
                assert producer.metrics()["buffer-exhausted-total"] == len(failures)

        run(body())

    def test_is_bounded(self, scripted: ScriptedBroker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(async_line, "MAX_WAITING_SENDS", 10)

        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap) as producer:
                futures = [producer.send(TOPIC, b"") for _ in range(10)]
                with pytest.raises(BufferExhausted):
                    producer.send(TOPIC, b"")
                await asyncio.gather(*futures)
                await producer.send(TOPIC, b"")

        run(body())

    def test_can_be_left_by_whoever_waits(self, scripted: ScriptedBroker, run: Run) -> None:
        """Cancelled waits neither stop nor spin flush() and close(); the records are sent all the same."""

        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap, linger_ms=0) as producer:
                futures = [producer.send(TOPIC, b"x", partition=0) for _ in range(5)]
                for future in futures:
                    future.cancel()
                await producer.flush()
                assert len(scripted.log[TOPIC, 0]) == 5

        run(body())

    def test_fails_at_once_if_the_user_wants_that(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with small(scripted, buffer_full="fail") as producer:
                await known(producer)
                scripted.hold()
                accepted = []
                with contextlib.suppress(BufferExhausted):
                    for _ in range(60):
                        accepted.append(producer.send(TOPIC, b"x" * 500))
                assert 0 < len(accepted) < 60
                scripted.gate.set()
                await asyncio.gather(*accepted)

        run(body())

    def test_drops_and_counts_if_the_user_wants_that(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            told: list[Any] = []
            async with small(scripted, buffer_full="drop") as producer:
                await known(producer)
                scripted.hold()
                futures = [
                    producer.send(TOPIC, b"x" * 500, on_delivery=lambda *outcome: told.append(outcome))
                    for _ in range(60)
                ]
                dropped = [future for future in futures if future.done()]
                assert {type(future.exception()) for future in dropped} == {BufferExhausted}
                assert producer.metrics()["records-dropped-total"] == len(dropped) == len(told)
                scripted.gate.set()
                await producer.flush()
                assert len(told) == 60

        run(body())

    def test_waits_for_a_topic_that_grows(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap) as producer:
                await known(producer)
                with pytest.raises(PartitionerError, match="5 is not a partition of orders, which has 3"):
                    await producer.send(TOPIC, b"", partition=5)
                scripted.topics[TOPIC] = 6
                assert (await producer.send(TOPIC, b"", partition=5)).partition == 5

        run(body())


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"topic": 5}, TypeError),
            ({"topic": "no such/name"}, InvalidTopicException),
            ({"topic": "\ud800"}, InvalidTopicException),
            ({"value": 5}, TypeError),
            ({"key": "\ud800"}, SerializationError),
            ({"partition": True}, TypeError),
            ({"timestamp_ms": -1}, ValueError),
            ({"headers": "ab"}, TypeError),
            ({"on_delivery": 5}, TypeError),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_is_refused_where_the_mistake_is_made(
        self, scripted: ScriptedBroker, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap) as producer:
                for _ in range(2):  # before the topic is known, and after
                    with pytest.raises(error):
                        producer.send(**{"topic": TOPIC, "value": b"", **arguments})
                    await producer.send(TOPIC, b"")

        asyncio.run(body())

    def test_records_too_large_are_told_of(self, scripted: ScriptedBroker) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap) as producer:
                with pytest.raises(RecordTooLarge):
                    await producer.send(TOPIC, b"x" * 2_000_000)
                with pytest.raises(RecordTooLarge):
                    producer.send(TOPIC, b"x" * 2_000_000)

        asyncio.run(body())

    def test_no_broker_at_all(self, run: Run) -> None:
        async def body() -> None:
            async with AsyncProducer("127.0.0.1:1", max_block_ms=200) as producer:
                with pytest.raises(TopicUnavailable, match=r"Connection refused.*check bootstrap\.servers"):
                    await once_heard_async(lambda: producer.send(TOPIC, b""), "Connection refused")

        run(body())

    def test_a_spool_is_for_the_other_producer(self, tmp_path: Any) -> None:
        with pytest.raises(oncelog.OncelogError, match="use Producer"):
            AsyncProducer("127.0.0.1:1", spool_dir=tmp_path)


class TestEnds:
    def test_flush_waits_for_what_was_sent_and_for_nothing_later(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap, linger_ms=0) as producer:
                is_over = False

                async def send_on() -> None:
                    while not is_over:
                        producer.send(TOPIC, b"")
                        await asyncio.sleep(0)

                futures = [producer.send(TOPIC, b"") for _ in range(10)]
                busy = asyncio.create_task(send_on())
                await producer.flush()
                assert all(future.done() for future in futures)
                is_over = True
                await busy

        run(body())

    def test_flush_waits_for_tables(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with small(scripted, linger_ms=60_000) as producer:
                rows = pa.table({"value": [b"x" * 100] * 300})
                first = producer.send_table(TOPIC, rows)  # more than memory holds, and the topic is not known yet
                assert await producer.flush() == 0
                assert first.done()
                scripted.hold()
                second = producer.send_table(TOPIC, rows)
                assert await producer.flush(0.05) == 300
                scripted.gate.set()
                assert await producer.flush() == 0
                assert (await second).row_count == 300

        run(body())

    def test_flush_returns_when_close_gives_up(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            producer = AsyncProducer(scripted.bootstrap, linger_ms=0)
            await known(producer)
            lost = producer.send("missing", b"")
            flushing = asyncio.create_task(producer.flush())
            await asyncio.sleep(0)
            await producer.close(0)
            assert await flushing == 0
            assert lost.done()

        run(body())

    def test_flush_does_not_wait_for_linger(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap, linger_ms=60_000) as producer:
                future = producer.send(TOPIC, b"")
                await producer.flush()
                assert future.done()

        run(body())

    def test_close_delivers_what_was_accepted(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            producer = AsyncProducer(scripted.bootstrap, linger_ms=60_000)
            futures = [producer.send(TOPIC, b"") for _ in range(100)]
            await producer.close()
            assert all(future.exception() is None for future in futures)

        run(body())

    @pytest.mark.parametrize("topic", [TOPIC, "missing"])
    def test_close_gives_up_after_its_timeout_and_says_so(self, scripted: ScriptedBroker, run: Run, topic: str) -> None:
        async def body() -> None:
            producer = AsyncProducer(scripted.bootstrap, linger_ms=0)
            await known(producer)
            scripted.hold()
            future = producer.send(topic, b"")
            await producer.close(0.2)
            scripted.gate.set()
            assert "closed" in str(future.exception())

        run(body())

    def test_close_twice_and_use_after_it(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            producer = AsyncProducer(scripted.bootstrap)
            await producer.close()
            with pytest.raises(ProducerClosed):
                producer.send(TOPIC, b"")
            producer = AsyncProducer(scripted.bootstrap)
            await producer.send(TOPIC, b"")
            await producer.close()
            await producer.close()
            await producer.flush()
            with pytest.raises(ProducerClosed, match="closed; make a new one"):
                producer.send(TOPIC, b"")

        run(body())

    @pytest.mark.parametrize("topic", [TOPIC, "missing"])
    def test_close_that_is_cancelled_leaves_nothing_without_a_result(
        self, scripted: ScriptedBroker, run: Run, topic: str
    ) -> None:
        async def body() -> None:
            producer = AsyncProducer(scripted.bootstrap, linger_ms=0)
            await known(producer)
            scripted.hold()
            future = producer.send(topic, b"")
            table = producer.send_table(topic, pa.table({"value": [b""] * 3}))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.close(), 0.2)
            await producer.close()  # gives it no more time: it was given up
            assert "closed" in str(future.exception())
            assert "closed" in str(table.exception())
            scripted.gate.set()

        run(body())

    def test_close_of_a_producer_that_broke_returns(
        self, scripted: ScriptedBroker, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def body() -> None:
            producer = AsyncProducer(scripted.bootstrap, linger_ms=0)
            await known(producer)

            def broken(core: object, now_ms: int) -> int:
                raise ZeroDivisionError("a bug")

            monkeypatch.setattr("oncelog.client.streaming.advance", broken)
            with pytest.raises(ProducerClosed, match="a bug"):
                await producer.send(TOPIC, b"")
            with pytest.raises(ProducerClosed, match="gave up"):
                producer.send(TOPIC, b"")
            await producer.close()

        run(body())

    def test_a_producer_belongs_to_one_loop(self, scripted: ScriptedBroker) -> None:
        producer = AsyncProducer(scripted.bootstrap)
        failures: list[BaseException] = []

        async def elsewhere() -> None:
            for use in (lambda: producer.send(TOPIC, b""), producer.flush, producer.close):
                try:
                    started = use()
                    if asyncio.iscoroutine(started):
                        await started
                except RuntimeError as error:
                    failures.append(error)

        async def body() -> None:
            await producer.send(TOPIC, b"")
            other = threading.Thread(target=asyncio.run, args=(elsewhere(),))
            other.start()
            await asyncio.to_thread(other.join)
            assert len(failures) == 3
            assert all("belongs to another event loop" in str(failure) for failure in failures)

        asyncio.run(body())

    def test_nothing_is_sent_from_another_thread(self, scripted: ScriptedBroker, run: Run) -> None:
        async def body() -> None:
            async with AsyncProducer(scripted.bootstrap, linger_ms=0, batch_size=2 * EARLY_BYTES) as producer:
                await known(producer)
                producer.send(TOPIC, b"in its loop", partition=0)
                with ThreadPoolExecutor() as other, pytest.raises(RuntimeError, match="no running event loop"):
                    other.submit(producer.send, TOPIC, bytes(EARLY_BYTES), partition=0).result()

        run(body())

    def test_outside_of_a_loop_it_cannot_send(self) -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            AsyncProducer("127.0.0.1:1").send(TOPIC, b"")

    def test_a_forgotten_one_warns(self, scripted: ScriptedBroker) -> None:
        async def body() -> None:
            await AsyncProducer(scripted.bootstrap).send(TOPIC, b"")

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.run(body())
            gc.collect()
        assert any("was not closed" in str(one.message) for one in caught if one.category is ResourceWarning)


def test_flush_tells_how_many_are_left(scripted: ScriptedBroker) -> None:
    async def flush_twice() -> tuple[int, int]:
        async with AsyncProducer(scripted.bootstrap) as producer:
            await producer.send(TOPIC, b"")
            scripted.hold()
            futures = [producer.send(TOPIC, b"") for _ in range(3)]
            left = await producer.flush(0.05)
            scripted.gate.set()
            after = await producer.flush()
            assert all(future.done() for future in futures)
            return left, after

    assert asyncio.run(flush_twice()) == (3, 0)
