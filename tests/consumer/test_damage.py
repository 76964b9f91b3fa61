"""A log that was damaged while its broker was away: what is good in front of the damage always comes first, then each
`poll()` says once where it is, and reading may go on behind it. One that cannot be served at all has no leader: whoever
asks for its offsets hears that, and which partition it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.records import kernel
from oncelog.types import TopicPartition

COUNT = 40
DAMAGED = 25
PARTITION = TopicPartition("orders", 0)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """One record in a batch; one of them has a flipped bit."""
    with oncelog.Broker(data_dir=tmp_path) as broker, oncelog.Producer(broker.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send("orders", value=b"%d" % number).result(timeout=60)
    (log,) = (tmp_path / "orders-0").glob("*.log")
    data = bytearray(log.read_bytes())
    position = 0
    for header in kernel.scan(data, 0, len(data), True)[0]:
        if header.base_offset == DAMAGED:
            data[position + header.size_bytes - 3] ^= 4
        position += header.size_bytes
    log.write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("max_poll_records", [7, 500])
def test_what_is_good_comes_first_and_then_each_poll_says_where_the_damage_is(
    damaged: Path, max_poll_records: int
) -> None:
    with oncelog.Broker(data_dir=damaged) as broker:
        servers = broker.bootstrap_servers
        with oncelog.Consumer(servers, auto_offset_reset="earliest", max_poll_records=max_poll_records) as consumer:
            consumer.assign([PARTITION])
            read: list[int] = []
            while len(read) < DAMAGED:
                read += [record.offset for record in consumer.poll(60)]
            assert read == list(range(DAMAGED))
            for _ in range(3):
                with pytest.raises(oncelog.CorruptMessage, match=f"^orders-0 at offset {DAMAGED}: the broker's log is"):
                    consumer.poll(60)
                assert consumer.position(PARTITION) == DAMAGED
            consumer.seek(PARTITION, DAMAGED + 1)
            while len(read) < COUNT - 1:
                read += [record.offset for record in consumer.poll(60)]
            assert read == [offset for offset in range(COUNT) if offset != DAMAGED]


@pytest.fixture(scope="module")
def without_leader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last bytes of its log are gone, though its broker was stopped cleanly."""
    folder = tmp_path_factory.mktemp("data")
    with oncelog.Broker(data_dir=folder) as broker, oncelog.Producer(broker.bootstrap_servers) as producer:
        for topic in ("orders", "refunds"):
            producer.send(topic, value=b"paid").result(timeout=60)
    (log,) = (folder / "orders-0").glob("*.log")
    log.write_bytes(log.read_bytes()[:-1])
    return folder


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "end_offsets": lambda consumer: consumer.end_offsets(PARTITION, timeout=2),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets(PARTITION, timeout=2),
    "both of them": lambda consumer: consumer.end_offsets(PARTITION, TopicPartition("refunds", 0), timeout=2),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({PARTITION: 1_000}, timeout=2),
    "position": lambda consumer: consumer.position(PARTITION, timeout=2),
}
TOLD = "partition 0 of topic 'orders' has no leader: its broker is down, or has taken it offline"


@pytest.mark.parametrize("question", QUESTIONS)
def test_whoever_asks_for_offsets_hears_which_partition_has_no_leader(without_leader: Path, question: str) -> None:
    ask = QUESTIONS[question]

    async def ask_async(servers: str) -> None:
        async with oncelog.AsyncConsumer(servers) as consumer:
            await consumer.assign([PARTITION])
            with pytest.raises(oncelog.ConsumerTimedOut, match=TOLD):
                await ask(consumer)

    with oncelog.Broker(data_dir=without_leader) as broker:
        with oncelog.Consumer(broker.bootstrap_servers) as consumer:
            consumer.assign([PARTITION])
            with pytest.raises(oncelog.ConsumerTimedOut, match=TOLD):
                ask(consumer)
        asyncio.run(ask_async(broker.bootstrap_servers))


def test_an_admin_and_a_producer_hear_it_too(without_leader: Path) -> None:
    with oncelog.Broker(data_dir=without_leader) as broker:
        servers = broker.bootstrap_servers
        with (
            oncelog.Admin(servers, default_api_timeout_ms=2_000) as admin,
            pytest.raises(oncelog.LeaderNotAvailable, match=TOLD),
        ):
            admin.list_offsets({PARTITION: "latest"})
        with oncelog.Producer(servers, delivery_timeout_ms=2_000, request_timeout_ms=1_000) as producer:
            sent = producer.send("orders", value=b"more", partition=0)
            with pytest.raises(oncelog.DeliveryTimedOut, match=TOLD):
                sent.result(timeout=60)


def test_a_partition_that_does_not_exist_is_no_slow_broker(without_leader: Path) -> None:
    told = r"topic 'refunds' has 1 partition \(0\), and no partition 7"
    with (
        oncelog.Broker(data_dir=without_leader) as broker,
        oncelog.Consumer(broker.bootstrap_servers) as consumer,
        pytest.raises(oncelog.UnknownTopicOrPartition, match=told),
    ):
        consumer.end_offsets(TopicPartition("refunds", 7))
