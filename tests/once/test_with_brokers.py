"""The runner with real consumers, on oncelog's broker and on Apache Kafka: rebalances, dead letters, going on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog import once
from tests.once.shop import Shop
from tests.support.patience import eventually
from tests.support.process import BrokerProcess

PARTITIONS, RECORDS = 4, 300
pytestmark = pytest.mark.on_both_brokers


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(str(tmp_path / "shop.db"))
    made.build()
    return made


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    with oncelog.Producer(broker.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(name, value=str(number), key=str(number))
    return name


def consumer_of(broker: BrokerProcess, topic: str, **settings: Any) -> oncelog.Consumer:
    options = {"group_id": f"billing-{topic}", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    return oncelog.Consumer(broker.bootstrap, **{**options, **settings})


def booking(shop: Shop) -> Callable[[Any, Any], None]:
    """Books the number that the record carries."""

    def effect(connection: Any, record: Any) -> None:
        number = int(record.value)
        connection.execute(f"INSERT INTO {shop.prefix}bookings VALUES ('shop', ?)", (number,))
        connection.execute(f"UPDATE {shop.prefix}balance SET amount = amount + 1")

    return effect


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_gets_nothing_is_idle(broker: BrokerProcess, topic: str, shop: Shop, protocol: str) -> None:
    """A pattern that matches nothing, as more members than partitions: nobody tells `on_assigned` of nothing."""
    with consumer_of(broker, topic, group_protocol=protocol, max_poll_interval_ms=3_600_000) as consumer:
        runner = once.Runner(consumer, shop.open(), booking(shop), topics=f"^{topic}-of-nobody-.*")
        assert runner.run(until_idle=0.5) == once.Tally()


@pytest.mark.parametrize("chosen", [once.MessageTable(), once.StateGuard(), once.Token(), once.DatabaseOffsets()])
def test_a_group_of_runners_does_everything_once_through_rebalances(
    broker: BrokerProcess, topic: str, shop: Shop, chosen: once.Strategy
) -> None:
    """A second member joins while the first works; the first leaves; what it left undone is done by the second."""
    joined = threading.Event()

    def slow(connection: Any, record: Any) -> None:
        if int(record.value) % 20 == 0:
            joined.wait(0.05)
        booking(shop)(connection, record)

    def work(runners: list[once.Runner]) -> None:
        with consumer_of(broker, topic) as consumer:
            options: dict[str, Any] = {"topics": [topic], "strategy": chosen, "batch_size": 10, "scope": "billing"}
            runners.append(once.Runner(consumer, shop.open(), slow, **options))
            runners[0].run()
            runners[0].close()

    first: list[once.Runner] = []
    second: list[once.Runner] = []
    threads = [threading.Thread(target=work, args=(runners,)) for runners in (first, second)]
    threads[0].start()
    eventually(lambda: bool(first) and first[0].tally.total > 0, "the first member works")
    threads[1].start()
    eventually(lambda: bool(second), "the second one is there")
    eventually(lambda: len(shop.booked()) >= RECORDS // 2, "half of it is done")
    first[0].stop()
    threads[0].join()
    eventually(lambda: len(shop.booked()) >= RECORDS, "all of it is done")
    second[0].stop()
    threads[1].join()
    assert shop.booked() == list(range(RECORDS))


def test_a_poison_record_reaches_the_dead_letter_topic(broker: BrokerProcess, topic: str, shop: Shop) -> None:
    def effect(connection: Any, record: Any) -> None:
        booking(shop)(connection, record)
        if record.value == b"13":
            raise ValueError("unlucky")

    dead = f"{topic}.dead"
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.create_topic(dead, partitions=1)
    with oncelog.Producer(broker.bootstrap) as producer, consumer_of(broker, topic) as consumer:
        letter = once.DeadLetter(producer, dead)
        runner = once.Runner(consumer, shop.open(), effect, topics=[topic], attempts=2, dead_letter=letter)
        tally = runner.run(max_records=RECORDS)
        committed = consumer.committed(*consumer.assignment())
    assert (tally.done, tally.failed) == (RECORDS - 1, 1)
    assert sum(each.offset for each in committed.values() if each is not None) == RECORDS
    with oncelog.Consumer(broker.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([oncelog.TopicPartition(dead, 0)])
        letters: list[Any] = []
        eventually(lambda: bool(letters.extend(reader.poll(1.0)) or letters), "the dead letter arrives")
    assert [(each.key, each.value) for each in letters] == [(b"13", b"13")]
    assert b"unlucky" in dict(letters[0].headers)["oncelog.dead.reason"]


def test_the_database_says_where_to_go_on_whatever_the_group_committed(
    broker: BrokerProcess, topic: str, shop: Shop
) -> None:
    options: dict[str, Any] = {"topics": [topic], "strategy": once.DatabaseOffsets(), "scope": "billing"}
    with consumer_of(broker, topic) as consumer:
        once.Runner(consumer, shop.open(), booking(shop), **options).run(max_records=RECORDS // 3)
    # Another group has committed nothing, and would begin at the beginning.
    with consumer_of(broker, topic, group_id=f"other-{topic}") as consumer:
        tally = once.Runner(consumer, shop.open(), booking(shop), **options).run(max_records=RECORDS - RECORDS // 3)
    assert tally.repeated == 0
    assert shop.booked() == list(range(RECORDS))
