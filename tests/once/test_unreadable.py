"""Records that cannot be deserialized, and all that may come between them and their dead letter: none is passed over
without one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncelog import once
from oncelog.once import dead_letters
from oncelog.once import runner as runner_module
from oncelog.once.strategy import Strategy
from oncelog.records.model import RecordDeserializationError
from oncelog.types import TopicPartition
from tests.once.fake_consumer import FakeConsumer, FakeProducer
from tests.once.shop import PARTITION, Order, Shop, orders, version_of
from tests.once.test_runner import busy, runner_of

IDLE = 0.0
OTHER = TopicPartition("orders", 1)
STRATEGIES: list[Strategy] = [
    once.MessageTable(),
    once.MessageTable(once.header_id("id")),
    once.StateGuard(),
    once.Token(),
    once.Version(version=version_of, entity=lambda record: str(record.offset)),
    once.DatabaseOffsets(),
]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(str(tmp_path / "shop.db"))
    made.build()
    return made


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "Backoff", lambda: once.backoff.Backoff(first_s=0.001, longest_s=0.002))
    monkeypatch.setattr(dead_letters, "in_thread", lambda work: work())


class Garbled(FakeConsumer):
    """Cannot deserialize some records of the first partition: as a real one, it stays at each until it is told to
    seek, and hands out what is before it first."""

    def __init__(self, log: Any, unreadable: set[int]) -> None:
        super().__init__(log)
        self.unreadable = unreadable

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[Any]:
        before = {**self.positions, PARTITION: self.positions.get(PARTITION, 0)}
        records = super().poll(timeout, max_records=max_records)
        bad = [each.offset for each in records if each.partition == 0 and each.offset in self.unreadable]
        if not bad:
            return records
        self.seek(PARTITION, bad[0])
        good = [each for each in records if each.partition == 0 and each.offset < bad[0]]
        for partition in self.positions.keys() - {PARTITION}:
            self.positions[partition] = before.get(partition, 0)
        if good:
            return good
        raise RecordDeserializationError(PARTITION, bad[0], "value", ValueError("not JSON"))


class Letters:
    """A dead-letter topic. The database is away for the first times that a dead letter is to be written to it."""

    def __init__(self, *away: Callable[[], object]) -> None:
        self.producer = FakeProducer()
        self.letter = once.DeadLetter(self.producer, "orders.dead", value_serializer=self._serialize)
        self.away = list(away)

    def _serialize(self, content: Any) -> Any:
        if self.away:
            self.away.pop(0)()
            raise busy([])
        return content

    @property
    def offsets(self) -> list[int]:
        return [int(dict(sent.headers)["oncelog.dead.offset"]) for sent in self.producer.sent]


@pytest.mark.real
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("move", ["take_away", "lose"])
def test_the_partition_goes_and_comes_back_meanwhile(shop: Shop, strategy: Strategy, move: str) -> None:
    consumer = Garbled({PARTITION: orders(4)}, {1})

    def move_about() -> None:
        getattr(consumer, move)(PARTITION)
        consumer.give(PARTITION)

    letters = Letters(lambda: consumer.plan.append(move_about))
    runner_of(consumer, shop, strategy=strategy, dead_letter=letters.letter).run(until_idle=IDLE)
    assert letters.offsets == [1]
    assert shop.booked() == [0, 2, 3]
    assert consumer.committed == {PARTITION: 4}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("move", ["take_away", "lose"])
def test_the_partition_goes_for_good_meanwhile(shop: Shop, strategy: Strategy, move: str) -> None:
    consumer = Garbled({PARTITION: orders(4)}, {1})
    letters = Letters(lambda: consumer.plan.append(lambda: getattr(consumer, move)(PARTITION)))
    tally = runner_of(consumer, shop, strategy=strategy, dead_letter=letters.letter).run(until_idle=IDLE)
    assert (tally.done, tally.failed, letters.offsets) == (1, 0, [])
    assert max(consumer.committed.values(), default=0) <= 1, "whoever has it now finds the record"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_runner_is_stopped_meanwhile_and_runs_again(shop: Shop, strategy: Strategy) -> None:
    consumer = Garbled({PARTITION: orders(4)}, {1})
    letters = Letters()
    runner = runner_of(consumer, shop, strategy=strategy, dead_letter=letters.letter)
    letters.away.append(runner.stop)
    runner.run(until_idle=IDLE)
    assert (consumer.positions, consumer.committed, letters.offsets) == ({PARTITION: 1}, {PARTITION: 1}, [])
    runner.run(until_idle=IDLE)
    assert letters.offsets == [1]
    assert shop.booked() == [0, 2, 3]


@pytest.mark.real
def test_the_partition_came_back_while_the_batch_before_it_was_in_hand(shop: Shop) -> None:
    """What is dropped of the batch before says nothing of what is read since."""
    consumer, letters = Garbled({PARTITION: orders(3)}, set()), Letters()
    failures: list[int] = []

    def move_about() -> None:
        consumer.take_away(PARTITION)
        consumer.unreadable = {0}
        consumer.give(PARTITION)

    def effect(connection: Any, record: Any) -> None:
        if not failures:
            consumer.plan.append(move_about)
            raise busy(failures)
        shop.book(connection, record)

    runner_of(consumer, shop, effect, dead_letter=letters.letter).run(until_idle=IDLE)
    assert letters.offsets == [0]
    assert shop.booked() == [1, 2]


def test_another_claims_the_partition_meanwhile_without_the_right_to(shop: Shop) -> None:
    consumer, letters = Garbled({PARTITION: orders(3)}, {0}), Letters()
    robbed: list[int] = []
    consumer.generation = 7
    original = consumer.poll

    def poll_and_be_robbed(*args: Any, **options: Any) -> list[Any]:
        try:
            return original(*args, **options)
        except RecordDeserializationError:
            if not robbed:
                robbed.append(1)
                late = once.Worker(shop.open(), shop.book, once.DatabaseOffsets(), scope="billing")
                late.guard.claim([PARTITION], 3)
            raise

    consumer.poll = poll_and_be_robbed  # type: ignore[method-assign]
    runner = runner_of(consumer, shop, strategy=once.DatabaseOffsets(), dead_letter=letters.letter)
    runner.run(until_idle=IDLE)
    runner.run(until_idle=IDLE)
    assert letters.offsets == [0]
    assert shop.booked() == [1, 2]


def test_a_run_is_not_idle_while_it_waits_to_bury_a_record(shop: Shop) -> None:
    consumer = Garbled({PARTITION: orders(4)}, {1, 2})
    letters = Letters()
    tally = runner_of(consumer, shop, batch_size=1, dead_letter=letters.letter).run(until_idle=IDLE)
    assert (tally.done, tally.failed) == (2, 2)
    assert letters.offsets == [1, 2]


# --- records that are spare while others are in hand ------------------------------------------------------------------


def test_spare_records_stay_when_another_partition_goes(shop: Shop) -> None:
    other = [Order(offset, partition=1) for offset in range(100, 102)]
    consumer = FakeConsumer({PARTITION: orders(3), OTHER: other})
    failures: list[int] = []

    def come_back() -> None:
        consumer.take_away(PARTITION)
        consumer.give(PARTITION)

    def effect(connection: Any, record: Any) -> None:
        if len(failures) < 2:
            consumer.plan.append(come_back if not failures else lambda: consumer.take_away(OTHER))
            raise busy(failures)
        shop.book(connection, record)

    runner_of(consumer, shop, effect).run(until_idle=IDLE)
    assert shop.booked() == [0, 1, 2]


def test_spare_records_go_with_their_partition(shop: Shop) -> None:
    other = [Order(offset, partition=1) for offset in range(100, 102)]
    consumer = FakeConsumer({PARTITION: orders(3), OTHER: other})
    failures: list[int] = []
    consumer.subscribe(["orders"])
    consumer.plan.clear()
    consumer.plan.append(lambda: consumer.give(PARTITION))

    def effect(connection: Any, record: Any) -> None:
        if len(failures) < 2:
            consumer.plan.append(partial(consumer.take_away if failures else consumer.give, OTHER))
            raise busy(failures)
        shop.book(connection, record)

    runner_of(consumer, shop, effect).run(until_idle=IDLE)
    assert shop.booked() == [0, 1, 2]
    assert consumer.committed == {PARTITION: 3}, "nothing is said of a partition that is another's"


def by_content(record: Any) -> str:
    """As users write it: it does not fail for a record without a value, and is the same for all of those."""
    return f"id-{record.value and record.offset}"


@pytest.mark.parametrize(
    "strategy",
    [
        once.MessageTable(by_content),
        once.StateGuard(by_content),
        once.Token(by_content),
        once.Version(version=lambda record: 7, entity=by_content),
    ],
)
def test_those_that_seem_to_have_one_id_are_told_apart_by_their_places(shop: Shop, strategy: Strategy) -> None:
    consumer = Garbled({PARTITION: orders(4)}, {1, 2})
    letters = Letters()
    runner_of(consumer, shop, strategy=strategy, dead_letter=letters.letter).run(until_idle=IDLE)
    assert letters.offsets == [1, 2]
    assert shop.booked() == [0, 3]
