"""`send_table` when things go wrong: bad tables, missing topics, full memory, a silent broker, closing half way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import oncelog
from oncelog.client.accumulator import RecordTooLarge
from oncelog.client.partitioner import PartitionerError
from oncelog.client.producer_errors import TopicUnavailable
from oncelog.errors import InvalidTopicException
from oncelog.faults import FaultProxy, Rule
from tests.support.confluent import create_topic
from tests.support.patience import eventually, once_heard, once_heard_async
from tests.support.process import BrokerProcess

TIMEOUT_S = 60
FOREVER_MS = 600_000
NOBODY_THERE = "127.0.0.1:1"
IMPATIENT = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 2_500, "linger_ms": 0, "retry_backoff_ms": 10}
NUMBERS = pa.table({"value": [b"%06d" % number * 10 for number in range(20_000)]})


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    create_topic(broker, name, partitions=2)
    return name


@contextmanager
def silent(broker: BrokerProcess) -> Iterator[str]:
    """A broker that tells of its topics and takes records, but never says so."""
    with FaultProxy(broker.bootstrap, [Rule.stall("Produce", ms=FOREVER_MS, on="response")], seed=1) as proxy:
        yield proxy.bootstrap_servers


def warm_up(producer: oncelog.Producer, topic: str) -> None:
    """Until a record has left: then the producer has its id and a connection, and the next one leaves at once."""

    def has_left() -> bool:
        if producer.metrics()["produce-request-total"] > 0:
            return True
        producer.send(topic, value="early", partition=0)
        return False

    eventually(has_left, "a record leaves")


class TestBadTables:
    """Each is refused where it was given, and the producer goes on."""

    @pytest.mark.parametrize(
        ("table", "names", "error", "said"),
        [
            (pa.table({"a": [1]}), {}, oncelog.TableError, "no column is called 'value'.*the table has 'a'"),
            (pa.table({"a": [1]}), {"value": "a"}, oncelog.TableError, "column 'a', the value, is of type int64"),
            (pa.table({"value": ["v"]}), {"key": "id"}, oncelog.TableError, "key='id' names no column"),
            (pa.table({"value": ["v"]}), {"partition": 2}, PartitionerError, "2 is not a partition of"),
            (pa.table({"value": ["v"]}), {"partition": -1}, PartitionerError, "-1 is not a partition of"),
            (pa.table({"value": ["v"], "partition": [7]}), {}, PartitionerError, "7 is not a partition of"),
            (pa.table({"value": ["v", "w" * 2_000_000]}), {}, RecordTooLarge, "row 1 .* max.request.size"),
            ({"value": ["v"]}, {}, TypeError, "takes a pyarrow.Table, or .*; not dict"),
            (pa.table({"value": ["v"]}), {"partition": 1.0}, TypeError, "a number or the name of a column"),
        ],
        ids=lambda case: "",
    )
    def test_are_refused_before_anything_is_sent(
        self, broker: BrokerProcess, topic: str, table: Any, names: dict[str, Any], error: type[Exception], said: str
    ) -> None:
        with oncelog.Producer(broker.bootstrap) as producer:
            with pytest.raises(error, match=said):
                producer.send_table(topic, table, **names)
            assert producer.send_table(topic, pa.table({"value": ["good"]})).result(TIMEOUT_S).row_count == 1
            assert producer.metrics()["record-send-total"] == 1

    def test_async_likewise(self, broker: BrokerProcess, topic: str) -> None:
        async def main() -> None:
            async with oncelog.AsyncProducer(broker.bootstrap) as producer:
                with pytest.raises(oncelog.TableError, match="no column is called 'value'"):
                    producer.send_table(topic, pa.table({"a": [1]}))
                for names, error in (({"partition": 5}, PartitionerError), ({}, RecordTooLarge)):
                    with pytest.raises(error):
                        await producer.send_table(topic, pa.table({"value": ["w" * 2_000_000]}), **names)
                assert (await producer.send_table(topic, pa.table({"value": ["good"]}))).row_count == 1

        asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))

    def test_no_rows_are_no_trouble(self, broker: BrokerProcess, topic: str) -> None:
        empty = pa.table({"value": pa.array([], pa.binary())})

        async def main() -> oncelog.TableMetadata:
            async with oncelog.AsyncProducer(broker.bootstrap) as producer:
                return await producer.send_table(topic, empty)

        with oncelog.Producer(broker.bootstrap) as producer:
            assert producer.send_table(topic, empty).result(TIMEOUT_S) == oncelog.TableMetadata(topic, 0, ())
        assert asyncio.run(main()) == oncelog.TableMetadata(topic, 0, ())


class TestTopics:
    def test_one_that_cannot_be(self, broker: BrokerProcess) -> None:
        with oncelog.Producer(broker.bootstrap) as producer, pytest.raises(InvalidTopicException, match="bad/name"):
            producer.send_table("bad/name", NUMBERS)

    def test_one_that_nobody_tells_about(self) -> None:
        with (
            oncelog.Producer(NOBODY_THERE, max_block_ms=200) as producer,
            pytest.raises(TopicUnavailable, match=r"max\.block\.ms \(200\).*check bootstrap\.servers"),
        ):
            producer.send_table("orders", NUMBERS)

    def test_async_likewise(self, broker: BrokerProcess) -> None:
        async def main() -> None:
            async with oncelog.AsyncProducer(broker.bootstrap) as producer:
                with pytest.raises(InvalidTopicException, match="bad/name"):
                    await producer.send_table("bad/name", NUMBERS)
            async with oncelog.AsyncProducer(NOBODY_THERE, max_block_ms=200) as producer:
                with pytest.raises(TopicUnavailable, match=r"max\.block\.ms \(200\)"):
                    await producer.send_table("orders", NUMBERS)

        asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))

    def test_one_that_has_grown(self, broker: BrokerProcess, topic: str) -> None:
        table = pa.table({"value": ["v"], "partition": [4]})
        with oncelog.Producer(broker.bootstrap) as producer:
            assert producer.partitions_for(topic) == 2
            with oncelog.Admin(broker.bootstrap) as admin:
                admin.create_partitions(topic, 5)
            assert producer.send_table(topic, table).result(TIMEOUT_S).partitions[0].partition == 4


class TestFullMemory:
    SMALL = {"buffer_memory": 300_000, "max_request_size": 100_000, "batch_size": 20_000, "linger_ms": 0}

    def require_rest_failed(self, error: BaseException | None, cause: type[Exception]) -> None:
        """No row is missing in the account."""
        assert isinstance(error, oncelog.TableFailed)
        rows = sorted(row for failure in error.failures for run in failure.rows for row in run)
        assert error.delivered.row_count == 0
        assert rows == list(range(20_000))
        assert any(isinstance(failure.error, cause) for failure in error.failures)

    @pytest.mark.parametrize("policy", ["block", "fail", "drop"])
    def test_half_way_the_result_tells_which_rows_were_not_sent(
        self, broker: BrokerProcess, topic: str, policy: str
    ) -> None:
        with (
            silent(broker) as servers,
            oncelog.Producer(servers, **self.SMALL, buffer_full=policy, max_block_ms=100) as producer,
        ):
            once_heard(lambda: producer.partitions_for(topic))
            future = producer.send_table(topic, NUMBERS)
            producer.close(timeout=0)
            self.require_rest_failed(future.exception(TIMEOUT_S), oncelog.BufferExhausted)
            dropped = producer.metrics()["records-dropped-total"]
            assert (dropped > 0) == (policy == "drop")

    @pytest.mark.parametrize("policy", ["block", "fail"])
    def test_at_once_it_is_raised_as_send_does(self, broker: BrokerProcess, topic: str, policy: str) -> None:
        with (
            silent(broker) as servers,
            oncelog.Producer(servers, **self.SMALL, buffer_full=policy, max_block_ms=100) as producer,
        ):
            once_heard(lambda: producer.partitions_for(topic))
            first = producer.send_table(topic, NUMBERS)
            with pytest.raises(oncelog.BufferExhausted, match=r"buffer\.memory \(300000 bytes\) is full"):
                producer.send_table(topic, NUMBERS)
            producer.close(timeout=0)
            assert first.exception(TIMEOUT_S) is not None

    def test_async_half_way(self, broker: BrokerProcess, topic: str) -> None:
        async def main(servers: str) -> None:
            async with oncelog.AsyncProducer(servers, **self.SMALL, max_block_ms=100) as producer:
                empty = NUMBERS.slice(0, 0)
                await once_heard_async(lambda: producer.send_table(topic, empty))
                result = producer.send_table(topic, NUMBERS)
                while producer.metrics()["buffer-exhausted-total"] == 0:
                    await asyncio.sleep(0.01)
                await producer.close(timeout=0)
                with pytest.raises(oncelog.TableFailed) as raised:
                    await result
                self.require_rest_failed(raised.value, oncelog.BufferExhausted)

        with silent(broker) as servers:
            asyncio.run(asyncio.wait_for(main(servers), TIMEOUT_S))

    def test_waits_for_a_slow_broker_and_sends_everything(self, broker: BrokerProcess, topic: str) -> None:
        with (
            FaultProxy(broker.bootstrap, [Rule.delay("Produce", ms=20)], seed=1) as proxy,
            oncelog.Producer(proxy.bootstrap_servers, **self.SMALL) as producer,
        ):
            assert producer.send_table(topic, NUMBERS).result(TIMEOUT_S).row_count == 20_000
            assert producer.metrics()["bufferpool-wait-time-ns-total"] > 0


class TestDelivery:
    def test_rows_that_time_out_are_named_and_may_be_written(self, broker: BrokerProcess, topic: str) -> None:
        told: list[Any] = []
        with silent(broker) as servers, oncelog.Producer(servers, **IMPATIENT) as producer:
            warm_up(producer, topic)
            future = producer.send_table(
                topic, NUMBERS.slice(0, 10), partition=1, on_delivery=lambda *news: told.append(news)
            )
            error = future.exception(TIMEOUT_S)
        assert isinstance(error, oncelog.TableFailed)
        assert [(failure.partition, failure.rows) for failure in error.failures] == [(1, (range(10),))]
        assert error.may_be_written
        assert told == [(None, error)]

    def test_sending_from_a_callback_does_not_wait_for_itself(self, broker: BrokerProcess, topic: str) -> None:
        sent: list[oncelog.TableFuture] = []
        more = threading.Event()

        def send_more(*_: object) -> None:
            sent.append(producer.send_table(topic, NUMBERS))
            more.set()

        with oncelog.Producer(broker.bootstrap) as producer:
            producer.send(topic, value="first", on_delivery=send_more)
            assert more.wait(TIMEOUT_S)
            assert sent[0].result(TIMEOUT_S).row_count == 20_000


class TestClosing:
    def test_a_closed_producer_says_so(self, broker: BrokerProcess, topic: str) -> None:
        producer = oncelog.Producer(broker.bootstrap)
        producer.close()
        with pytest.raises(oncelog.ProducerClosed, match="closed"):
            producer.send_table(topic, NUMBERS)

    def test_closing_half_way_fails_the_rest(self, broker: BrokerProcess, topic: str) -> None:
        results: list[Any] = []
        with silent(broker) as servers:
            producer = oncelog.Producer(servers, **TestFullMemory.SMALL, max_block_ms=FOREVER_MS)
            sender = threading.Thread(target=lambda: results.append(producer.send_table(topic, NUMBERS)))
            sender.start()
            while producer.metrics()["waiting-threads"] == 0:
                sender.join(0.01)
            producer.close(timeout=0)
            sender.join(TIMEOUT_S)
        TestFullMemory().require_rest_failed(results[0].exception(TIMEOUT_S), oncelog.ProducerClosed)

    def test_async_closing_half_way_fails_the_rest(self, broker: BrokerProcess, topic: str) -> None:
        async def main(servers: str) -> Any:
            producer = oncelog.AsyncProducer(servers, **TestFullMemory.SMALL, max_block_ms=FOREVER_MS)
            result = producer.send_table(topic, NUMBERS)
            while producer.metrics()["waiting-threads"] == 0:
                await asyncio.sleep(0.01)
            await producer.close(timeout=0)
            with pytest.raises(oncelog.TableFailed) as raised:
                await result
            return raised.value

        with silent(broker) as servers:
            error = asyncio.run(asyncio.wait_for(main(servers), TIMEOUT_S))
        TestFullMemory().require_rest_failed(error, oncelog.ProducerClosed)


def run_without_pyarrow(code: str) -> subprocess.CompletedProcess[str]:
    hidden = "import sys; sys.modules['pyarrow'] = None\n"
    return subprocess.run(
        [sys.executable, "-c", hidden + code], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def test_without_pyarrow_only_send_table_is_missing_and_says_what_to_install() -> None:
    done = run_without_pyarrow(
        "import oncelog\n"
        "producer = oncelog.Producer('127.0.0.1:1')\n"
        "try: producer.send_table('t', None)\n"
        "except ImportError as error: print(error)\n"
        "producer.close(0)\n"
        "print(oncelog.TableError.__name__)"
    )
    assert "pip install 'oncelog[arrow]'" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "TableError"


def test_a_producer_imports_pyarrow_only_for_a_table() -> None:
    code = (
        "import sys, oncelog\n"
        "producer = oncelog.Producer('127.0.0.1:1')\n"
        "print([name for name in ('pyarrow', 'numpy', 'asyncio') if name in sys.modules])\n"
        "producer.close(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.stdout.strip() == "[]", done.stderr
