"""The loop, with a consumer whose group the test moves about: what is retried, buried, dropped and given back."""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog import once
from oncelog.client.consumer_errors import WokenUp
from oncelog.client.producer_errors import DeliveryFailed
from oncelog.errors import CoordinatorNotAvailable, UnknownTopicOrPartition
from oncelog.once import dead_letters
from oncelog.once import runner as runner_module
from oncelog.records.model import RecordDeserializationError
from oncelog.types import TopicPartition
from tests.once.fake_consumer import Config, FakeConsumer, FakeProducer
from tests.once.shop import PARTITION, Order, Shop, orders

OTHER = TopicPartition("orders", 1)
IDLE = 0.0


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(str(tmp_path / "shop.db"))
    made.build()
    return made


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "Backoff", lambda: once.backoff.Backoff(first_s=0.001, longest_s=0.002))
    monkeypatch.setattr(dead_letters, "in_thread", lambda work: work())


def busy(locked_times: list[int]) -> sqlite3.OperationalError:
    locked_times.append(1)
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


def book_unless(shop: Shop, is_bad: Callable[[Any], bool]) -> Callable[[Any, Any], None]:
    def effect(connection: Any, record: Any) -> None:
        shop.book(connection, record)
        if is_bad(record):
            raise ValueError(f"no such item in {record.offset}")

    return effect


def runner_of(consumer: FakeConsumer, shop: Shop, effect: Any = None, **options: Any) -> once.Runner:
    database = once.Database.of(shop.url, prefix=shop.prefix)
    return once.Runner(consumer, database, effect or shop.book, topics=["orders"], **options)


def test_everything_is_done_and_then_committed(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: orders(7)})
    tally = runner_of(consumer, shop, batch_size=3).run(until_idle=IDLE)
    assert (tally.done, tally.total) == (7, 7)
    assert shop.booked() == list(range(7))
    assert consumer.committed == {PARTITION: 7}


def test_what_is_delivered_again_is_recognised_by_the_next_runner(shop: Shop) -> None:
    runner_of(FakeConsumer({PARTITION: orders(5)}), shop).run(until_idle=IDLE)
    tally = runner_of(FakeConsumer({PARTITION: orders(6)}), shop).run(until_idle=IDLE)
    assert (tally.done, tally.repeated) == (1, 5)
    assert shop.booked() == list(range(6))


def test_max_records_are_not_exceeded(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: orders(9)})
    runner = runner_of(consumer, shop, batch_size=4)
    assert runner.run(max_records=5).total == 5
    assert consumer.committed == {PARTITION: 5}
    assert runner.run(max_records=4).total == 9
    assert shop.booked() == list(range(9))


def test_a_consumer_that_commits_by_itself_is_refused(shop: Shop) -> None:
    with pytest.raises(once.OnceError, match="enable_auto_commit=False"):
        runner_of(FakeConsumer({}, Config(enable_auto_commit=True)), shop)


def test_a_consumer_with_nothing_to_read_is_refused(shop: Shop) -> None:
    with pytest.raises(once.OnceError, match="nothing to read"):
        once.Runner(FakeConsumer({}), shop.url, shop.book).run()


def test_partitions_assigned_by_hand_need_no_group(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: orders(3)}, Config(group_id=None))
    consumer.assign([PARTITION])
    once.Runner(consumer, shop.open(), shop.book, strategy=once.DatabaseOffsets()).run(until_idle=IDLE)
    assert shop.booked() == [0, 1, 2]
    assert not consumer.commits


def test_stop_ends_the_run_and_a_wakeup_does_not(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: orders(2)})
    runner = runner_of(consumer, shop)

    def wake() -> None:
        raise WokenUp("now")

    consumer.plan += [wake, lambda: None, runner.stop]
    assert runner.run().done == 2


# --- poison
# ------------------------------------------------------------------------------------------------------------


def test_a_poison_record_goes_to_the_dead_letter_topic_and_the_others_are_done(shop: Shop) -> None:
    producer, tried = FakeProducer(), []

    def is_bad(record: Any) -> bool:
        tried.append(record.offset)
        return bool(record.offset == 2)

    consumer = FakeConsumer({PARTITION: orders(5)})
    letter = once.DeadLetter(producer, "orders.dead")
    tally = runner_of(consumer, shop, book_unless(shop, is_bad), attempts=3, dead_letter=letter).run(until_idle=IDLE)
    assert (tally.done, tally.failed) == (4, 1)
    assert shop.booked() == [0, 1, 3, 4]
    assert tried == [0, 1, 2, 0, 1, 2, 2, 2, 3, 4], "the batch, then one by one, the bad one three times"
    assert consumer.committed == {PARTITION: 5}
    (sent,) = producer.sent
    headers = dict(sent.headers)
    assert (sent.topic, sent.key, sent.value) == ("orders.dead", b"shop", b"1")
    assert headers["id"] == b"order-2", "its own headers stay"
    assert headers["oncelog.dead.id"] == b"billing/orders/0/2"
    assert headers["oncelog.dead.attempts"] == b"3"
    assert b"no such item in 2" in headers["oncelog.dead.reason"]


@pytest.mark.parametrize("strategy", [once.MessageTable(), once.StateGuard(), once.Token(), once.DatabaseOffsets()])
def test_a_failed_record_is_marked_and_not_tried_when_it_comes_again(shop: Shop, strategy: once.Strategy) -> None:
    producer = FakeProducer()
    bad = book_unless(shop, lambda record: record.offset == 1)
    options: dict[str, Any] = {"strategy": strategy, "attempts": 1, "dead_letter": once.DeadLetter(producer, "dead")}
    runner_of(FakeConsumer({PARTITION: orders(3)}), shop, bad, **options).run(until_idle=IDLE)
    tally = runner_of(FakeConsumer({PARTITION: orders(3)}), shop, bad, **options).run(until_idle=IDLE)
    assert tally.done == tally.failed == 0
    assert len(producer.sent) == 1
    assert shop.booked() == [0, 2]


def test_dead_letters_wait_in_the_database_while_they_cannot_be_sent(shop: Shop) -> None:
    producer = FakeProducer()
    producer.error = DeliveryFailed("the broker is away", may_be_written=False)
    bad, letter = book_unless(shop, lambda record: record.offset == 1), once.DeadLetter(producer, "dead")
    tally = runner_of(FakeConsumer({PARTITION: orders(3)}), shop, bad, attempts=1, dead_letter=letter).run(
        until_idle=IDLE
    )
    assert (tally.done, tally.failed, producer.sent) == (2, 1, [])
    producer.error = None
    runner_of(FakeConsumer({PARTITION: []}), shop, bad, dead_letter=letter).run(until_idle=IDLE)
    assert [dict(sent.headers)["oncelog.dead.offset"] for sent in producer.sent] == [b"1"]


def test_a_dead_letter_that_fails_does_not_repeat_those_behind_it(shop: Shop) -> None:
    producer = FakeProducer()
    producer.error, producer.refused = DeliveryFailed("too large", may_be_written=False), b"0"
    bad, letter = book_unless(shop, lambda record: True), once.DeadLetter(producer, "dead")
    records = [Order(offset, key=b"%d" % offset) for offset in range(3)]
    runner_of(FakeConsumer({PARTITION: records}), shop, bad, attempts=1, dead_letter=letter).run(until_idle=IDLE)
    producer.error = None
    runner_of(FakeConsumer({PARTITION: []}), shop, bad, dead_letter=letter).run(until_idle=IDLE)
    assert [sent.key for sent in producer.sent] == [b"1", b"2", b"0"]


def test_without_a_dead_letter_topic_the_runner_stops_before_the_poison_and_loses_nothing(shop: Shop) -> None:
    consumer, is_mended = FakeConsumer({PARTITION: orders(4)}), []
    bad = book_unless(shop, lambda record: record.offset == 2 and not is_mended)
    runner = runner_of(consumer, shop, bad, attempts=2)
    with pytest.raises(once.PoisonRecord, match="orders/0/2 failed 2 times"):
        runner.run(until_idle=IDLE)
    assert consumer.committed == {PARTITION: 2}
    is_mended.append(True)
    runner.run(until_idle=IDLE)
    assert shop.booked() == [0, 1, 2, 3]


def test_a_mistake_in_the_effect_does_not_move_the_whole_topic_away(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    producer, consumer, is_fixed = FakeProducer(), FakeConsumer({PARTITION: orders(30)}), []
    bad = book_unless(shop, lambda record: record.offset >= 5 and not is_fixed)
    letter = once.DeadLetter(producer, "orders.dead")
    runner = runner_of(consumer, shop, bad, attempts=1, dead_letter=letter, max_failures_in_a_row=4)
    with pytest.raises(
        oncelog.TooManyFailures, match=r"4 records in a row failed \(orders/0/5, .*, orders/0/8\), and now orders/0/9: "
    ) as raised:
        runner.run(until_idle=IDLE)
    assert "Those before went to the dead-letter topic; orders/0/9 and what is behind it stay" in str(raised.value)
    assert (runner.tally.done, runner.tally.failed) == (5, 4)
    assert consumer.committed == {PARTITION: 9}, "the one too many, and those behind it, stay where they are"
    told = [one.getMessage() for one in caplog.records if "goes to the dead-letter topic 'orders.dead'" in one.message]
    assert len(told) == 4
    assert told[0].startswith("orders/0/5 goes to the dead-letter topic 'orders.dead' after 1 attempt: ")
    is_fixed.append(True)
    assert runner_of(consumer, shop, bad, dead_letter=letter).run(until_idle=IDLE).done == 21


def test_failures_with_a_success_between_them_are_no_run(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    consumer = FakeConsumer({PARTITION: orders(60)})
    bad = book_unless(shop, lambda record: record.offset % 2 == 0)
    letter = once.DeadLetter(FakeProducer(), "dead")
    tally = runner_of(consumer, shop, bad, attempts=1, dead_letter=letter, max_failures_in_a_row=1).run(until_idle=IDLE)
    assert (tally.done, tally.failed) == (30, 30)
    told = [one for one in caplog.records if "goes to the dead-letter topic" in one.message]
    assert len(told) == runner_module.WARNINGS_AT_ONCE, "a flood of them is counted, not written"


def test_a_wrong_deserializer_does_not_move_the_whole_topic_away(shop: Shop) -> None:
    producer, consumer = FakeProducer(), FakeConsumer({PARTITION: orders(20)})

    def unreadable(*args: Any, **options: Any) -> list[Any]:
        if consumer.plan:
            consumer.plan.popleft()()
        raise RecordDeserializationError(PARTITION, consumer.positions[PARTITION], "value", ValueError("not JSON"))

    consumer.poll = unreadable  # type: ignore[method-assign]
    runner = runner_of(consumer, shop, dead_letter=once.DeadLetter(producer, "dead"), max_failures_in_a_row=3)
    with pytest.raises(oncelog.TooManyFailures, match="not JSON"):
        runner.run()
    assert consumer.positions == {PARTITION: 3}


@pytest.mark.parametrize(
    ("effect", "why"),
    [
        (lambda record: None, "too many positional arguments"),
        (lambda connection, record, clock: None, "missing a required argument: 'clock'"),
        (lambda *, connection, record: None, "too many positional arguments"),
        ("INSERT INTO orders", "is a function of"),
    ],
)
def test_an_effect_that_cannot_be_called_is_refused_at_the_start(shop: Shop, effect: Any, why: str) -> None:
    with pytest.raises(once.BadEffect, match=why):
        runner_of(FakeConsumer({PARTITION: orders(3)}), shop, effect)


def test_an_effect_that_nobody_would_await_is_refused(shop: Shop) -> None:
    async def effect(connection: Any, record: Any) -> None: ...

    class Effect:
        async def __call__(self, connection: Any, record: Any) -> None: ...

    for one in (effect, Effect()):
        with pytest.raises(once.BadEffect, match="coroutine function"):
            runner_of(FakeConsumer({PARTITION: orders(3)}), shop, one)


def test_effects_of_all_kinds_are_taken(shop: Shop) -> None:
    class Effect:
        def __call__(self, connection: Any, record: Any) -> None:
            shop.book(connection, record)

        def book(self, connection: Any, record: Any, clock: Any = None) -> None:
            shop.book(connection, record)

    for number, one in enumerate((Effect(), Effect().book, functools.partial(Effect().book, clock=1), print)):
        runner_of(FakeConsumer({PARTITION: orders(1)}), shop, one, scope=f"s{number}").run(until_idle=IDLE)
    assert shop.booked() == [0, 0, 0]


def test_a_record_without_an_id_is_buried_by_its_place_once(shop: Shop) -> None:
    producer = FakeProducer()
    nameless = [Order(0), *orders(2, start=1)]
    options: dict[str, Any] = {
        "strategy": once.MessageTable(once.header_id("id")),
        "attempts": 1,
        "dead_letter": once.DeadLetter(producer, "dead"),
    }
    for _ in range(2):
        runner_of(FakeConsumer({PARTITION: nameless}), shop, **options).run(until_idle=IDLE)
    assert shop.booked() == [1, 2]
    assert [dict(sent.headers)["oncelog.dead.offset"] for sent in producer.sent] == [b"0"]


def test_a_record_that_cannot_be_deserialized_is_buried_and_passed_over(shop: Shop) -> None:
    producer, consumer = FakeProducer(), FakeConsumer({PARTITION: orders(2)})
    poll = consumer.poll

    def poll_with_trouble(*args: Any, **options: Any) -> list[Any]:
        records = poll(*args, **options)
        if records and records[0].offset == 0:
            consumer.seek(PARTITION, 0)
            raise RecordDeserializationError(PARTITION, 0, "value", ValueError("not JSON"))
        return records

    consumer.poll = poll_with_trouble  # type: ignore[method-assign]
    tally = runner_of(consumer, shop, dead_letter=once.DeadLetter(producer, "dead")).run(max_records=2)
    assert (tally.done, tally.failed) == (1, 1)
    assert b"not JSON" in dict(producer.sent[0].headers)["oncelog.dead.reason"]


def test_content_that_is_no_bytes_needs_a_serializer(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: [Order(0, value={"item": 1})]})  # type: ignore[arg-type]
    bad = book_unless(shop, lambda record: True)
    with pytest.raises(once.OnceError, match="value_serializer"):
        runner_of(consumer, shop, bad, attempts=1, dead_letter=once.DeadLetter(FakeProducer(), "dead")).run(
            until_idle=IDLE
        )


# --- a database that is away
# --------------------------------------------------------------------------------------------


def test_records_wait_while_the_database_is_away_and_the_consumer_keeps_polling(shop: Shop) -> None:
    consumer, failures = FakeConsumer({PARTITION: orders(3)}), []
    polled_while_paused = []

    def effect(connection: Any, record: Any) -> None:
        if len(failures) < 3:
            consumer.plan.append(lambda: polled_while_paused.append(consumer.paused()))
            raise busy(failures)
        shop.book(connection, record)

    tally = runner_of(consumer, shop, effect, attempts=1).run(until_idle=IDLE)
    assert tally.done == 3
    assert polled_while_paused == [{PARTITION}] * 3
    assert consumer.paused() == frozenset()
    assert shop.booked() == [0, 1, 2]


def test_patience_ends_and_nothing_is_lost(shop: Shop) -> None:
    consumer, failures = FakeConsumer({PARTITION: orders(2)}), []

    def effect(connection: Any, record: Any) -> None:
        raise busy(failures)

    with pytest.raises(once.DatabaseUnavailable, match="Nothing is lost"):
        runner_of(consumer, shop, effect, patience_s=0.05).run(until_idle=IDLE)
    assert failures
    assert consumer.positions == {PARTITION: 0}
    assert not consumer.committed


@pytest.mark.parametrize("strategy", [once.MessageTable(), once.DatabaseOffsets()])
def test_what_the_user_paused_stays_paused(shop: Shop, strategy: once.Strategy) -> None:
    other = [Order(offset, partition=1) for offset in range(100, 102)]
    consumer, failures = FakeConsumer({PARTITION: orders(2), OTHER: other}), []
    consumer.assign([PARTITION, OTHER])
    consumer.pause(OTHER)

    def effect(connection: Any, record: Any) -> None:
        if not failures:
            raise busy(failures)
        shop.book(connection, record)

    database = once.Database.of(shop.url, prefix=shop.prefix)
    once.Runner(consumer, database, effect, strategy=strategy).run(until_idle=IDLE)
    assert shop.booked() == [0, 1]
    assert consumer.paused() == {OTHER}


# --- offset commits ---------------------------------------------------------------------------------------------------


def test_offsets_that_the_broker_did_not_take_are_part_of_the_next_commit(shop: Shop) -> None:
    consumer, failures = FakeConsumer({PARTITION: orders(2)}), []

    def refuse(offsets: Any, on_commit: Any) -> None:
        failures.append(offsets)
        on_commit(offsets, CoordinatorNotAvailable("its answer was lost"))

    consumer.commit_async = refuse  # type: ignore[assignment, method-assign]
    runner_of(consumer, shop).run(until_idle=IDLE)
    assert failures == [{PARTITION: 2}]
    assert consumer.committed == {PARTITION: 2}


def test_offsets_that_the_end_of_a_run_could_not_commit_are_committed_by_the_next(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: orders(2)})
    commit = consumer.commit

    def refuse(offsets: Any = None, **how: Any) -> None:
        raise CoordinatorNotAvailable("it is away")

    consumer.commit = refuse  # type: ignore[method-assign]
    consumer.commit_async = lambda offsets, on_commit: None  # type: ignore[assignment, method-assign]  # no answer
    runner = runner_of(consumer, shop)
    runner.run(until_idle=IDLE)
    consumer.commit = commit  # type: ignore[method-assign]
    runner.run(until_idle=IDLE)
    assert consumer.committed == {PARTITION: 2}


# --- rebalances
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("move", ["take_away", "lose"])
def test_what_is_in_hand_of_a_partition_that_goes_is_dropped(shop: Shop, move: str) -> None:
    other = [Order(offset, partition=1) for offset in range(100, 102)]
    consumer, failures = FakeConsumer({PARTITION: orders(2), OTHER: other}), []

    def effect(connection: Any, record: Any) -> None:
        if not failures:
            consumer.plan.append(lambda: getattr(consumer, move)(PARTITION))
            raise busy(failures)
        shop.book(connection, record)

    runner_of(consumer, shop, effect).run(until_idle=IDLE)
    assert shop.booked() == [100, 101]
    assert consumer.committed == {OTHER: 102}


def test_offsets_are_committed_before_a_partition_goes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "COMMIT_INTERVAL_S", 1_000.0)
    consumer = FakeConsumer({PARTITION: orders(2)})
    seen: list[dict[TopicPartition, int]] = []
    runner = runner_of(consumer, shop)
    runner._next_commit = float("inf")
    consumer.plan += [
        lambda: None,
        lambda: consumer.take_away(PARTITION),
        lambda: seen.append(dict(consumer.committed)),
    ]
    runner.run(until_idle=IDLE)
    runner.run(until_idle=IDLE)
    assert seen == [{PARTITION: 2}]


def test_records_of_a_new_partition_that_arrive_meanwhile_have_their_turn(shop: Shop) -> None:
    other = [Order(offset, partition=1) for offset in range(100, 102)]
    consumer, failures = FakeConsumer({PARTITION: orders(2), OTHER: other}), []
    consumer.subscribe(["orders"])
    consumer.plan.clear()
    consumer.plan.append(lambda: consumer.give(PARTITION))

    def effect(connection: Any, record: Any) -> None:
        if not failures:
            consumer.plan.append(lambda: consumer.give(OTHER))
            raise busy(failures)
        shop.book(connection, record)

    runner_of(consumer, shop, effect).run(until_idle=IDLE)
    assert shop.booked() == [0, 1, 100, 101]


# --- positions in the database ----------------------------------------------------------------------------------------


def test_reading_goes_on_where_the_database_says(shop: Shop) -> None:
    options: dict[str, Any] = {"strategy": once.DatabaseOffsets()}
    runner_of(FakeConsumer({PARTITION: orders(5)}), shop, **options).run(until_idle=IDLE)
    consumer = FakeConsumer({PARTITION: orders(8)})
    tally = runner_of(consumer, shop, **options).run(until_idle=IDLE)
    assert (tally.done, tally.repeated) == (3, 0), "nothing was even read twice"
    assert shop.booked() == list(range(8))


def test_a_zombie_is_refused_and_waits_for_its_group(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: orders(4)})
    stolen: list[int] = []

    def steal() -> None:
        successor = once.Worker(shop.open(), shop.book, once.DatabaseOffsets(), scope="billing")
        successor.guard.claim([PARTITION], consumer.generation + 1)
        successor.process(orders(2))
        stolen.append(1)

    # The records are in the zombie's hands when its successor claims the partition.
    original, taken = consumer.poll, []

    def poll_then_steal(*args: Any, **options: Any) -> list[Any]:
        records = original(*args, **options)
        if records and not taken:
            taken.append(records)
            steal()
        return records

    consumer.poll = poll_then_steal  # type: ignore[method-assign]
    runner = runner_of(consumer, shop, strategy=once.DatabaseOffsets())
    tally = runner.run(until_idle=IDLE)
    assert tally.total == 0
    assert shop.booked() == [0, 1], "what the successor did"
    assert consumer.paused() == {PARTITION}
    # The group notices, and later gives the partition back: reading goes on where the successor ended.
    consumer.plan += [lambda: consumer.lose(PARTITION), lambda: consumer.give(PARTITION)]
    runner.run(until_idle=IDLE)
    runner.run(until_idle=IDLE)
    assert shop.booked() == [0, 1, 2, 3]


def test_who_has_the_newer_generation_claims_again(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: orders(4)})
    consumer.generation = 7
    original, taken = consumer.poll, []

    def poll_then_be_robbed(*args: Any, **options: Any) -> list[Any]:
        records = original(*args, **options)
        if records and not taken:
            taken.append(records)
            late = once.Worker(shop.open(), shop.book, once.DatabaseOffsets(), scope="billing")
            late.guard.claim([PARTITION], 3)
        return records

    consumer.poll = poll_then_be_robbed  # type: ignore[method-assign]
    assert runner_of(consumer, shop, strategy=once.DatabaseOffsets()).run(max_records=4).done == 4
    assert shop.booked() == [0, 1, 2, 3]


def test_a_partition_that_two_claim_with_the_same_right_is_an_error(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: orders(4)}, Config(group_id=None))
    consumer.assign([PARTITION])
    rival = once.Worker(shop.open(), shop.book, once.DatabaseOffsets())

    def effect(connection: Any, record: Any) -> None:
        raise AssertionError("refused before any effect")

    original = consumer.poll

    def poll_then_be_robbed(*args: Any, **options: Any) -> list[Any]:
        rival.guard.claim([PARTITION])
        return original(*args, **options)

    consumer.poll = poll_then_be_robbed  # type: ignore[method-assign]
    with pytest.raises(once.PartitionTakenTwice, match="orders-0"):
        once.Runner(consumer, shop.open(), effect, strategy=once.DatabaseOffsets()).run(until_idle=IDLE)


def test_a_topic_that_was_created_anew_is_noticed(shop: Shop) -> None:
    options: dict[str, Any] = {"strategy": once.DatabaseOffsets()}
    runner_of(FakeConsumer({PARTITION: orders(5)}), shop, **options).run(until_idle=IDLE)
    with pytest.raises(once.PositionBeyondEnd, match="created anew"):
        runner_of(FakeConsumer({PARTITION: orders(2)}), shop, **options).run(until_idle=IDLE)


# --- cleaning
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [-1, -0.5, float("nan"), "60", True])
def test_an_age_that_would_take_every_mark_is_refused(shop: Shop, age: Any) -> None:
    with pytest.raises(ValueError, match="keep_s is a number of seconds, 0 or more, not"):
        runner_of(FakeConsumer({PARTITION: []}), shop, keep_s=age)
    with pytest.raises(ValueError, match="older_than_s is a number of seconds, 0 or more, not"):
        once.clean(shop.open(), "messages", older_than_s=age)


def test_times_are_what_they_are_in_every_call(shop: Shop) -> None:
    """-1 waits without end, as None does; what is no time is refused."""
    log: list[Any] = []
    consumer = FakeConsumer({PARTITION: log})
    runner = runner_of(consumer, shop)
    consumer.plan += [int, int, lambda: log.extend(orders(3)), int, runner.stop]  # nothing comes for a while
    assert runner.run(until_idle=-1).done == 3
    with pytest.raises(TypeError, match="until_idle is a number of seconds"):
        runner.run(until_idle="5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="patience_s is a number of seconds"):
        runner_of(FakeConsumer({PARTITION: []}), shop, patience_s="5")


def test_marks_are_cleaned_by_age(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "CLEAN_INTERVAL_S", 0.0)
    runner_of(FakeConsumer({PARTITION: orders(5)}), shop, keep_s=3_600).run(until_idle=IDLE)
    count = "SELECT count(*) FROM {prefix}messages"
    assert shop.rows(count) == [(5,)], "they are young"
    shop.rows("UPDATE {prefix}messages SET changed_at_ms = changed_at_ms - 3600001")
    runner_of(FakeConsumer({PARTITION: orders(2, start=5)}), shop, keep_s=3_600).run(until_idle=IDLE)
    assert shop.rows(count) == [(2,)]


def test_topics_of_which_none_exists_are_an_error(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: []})
    consumer.missing_topics = frozenset({"orders"})  # type: ignore[attr-defined]
    with pytest.raises(UnknownTopicOrPartition, match="there is nothing to read: no topic orders exists"):
        runner_of(consumer, shop).run(until_idle=IDLE)


def test_a_pattern_that_matches_no_topic_ends_well(shop: Shop) -> None:
    consumer = FakeConsumer({PARTITION: []})
    database = once.Database.of(shop.url, prefix=shop.prefix)
    runner = once.Runner(consumer, database, shop.book, topics=re.compile("^nothing-.*"))
    assert runner.run(until_idle=IDLE).total == 0


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (once.MessageTable, r"^strategy is the class MessageTable: make an object of it, once\.MessageTable\("),
        ("message_table", r"^strategy is an object such as once\.MessageTable\(\).*, not 'message_table' \(str\)$"),
    ],
)
def test_a_strategy_is_an_object(shop: Shop, strategy: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        runner_of(FakeConsumer({}), shop, strategy=strategy)


def test_a_dead_letter_is_an_object(shop: Shop) -> None:
    with pytest.raises(TypeError, match=r"^dead_letter is a once\.DeadLetter\(producer, topic\), not 'dead' \(str\)$"):
        runner_of(FakeConsumer({}), shop, dead_letter="dead")


def test_words_of_process_say_what_they_are_called_here(shop: Shop) -> None:
    runner = runner_of(FakeConsumer({}), shop)
    with pytest.raises(TypeError, match=r"^Runner\.run\(\) takes no until_end: use until_idle"):
        runner.run(until_end=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"takes no group_id: it is the consumer's"):
        runner_of(FakeConsumer({}), shop, group_id="g")


def test_an_effect_that_is_turned_round_is_refused(shop: Shop) -> None:
    with pytest.raises(once.BadEffect, match=r"is called as f\(connection, record\), the other way round"):
        runner_of(FakeConsumer({}), shop, lambda record, connection: None)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    effect = Shop.book
    with pytest.raises(once.DatabaseUnavailable, match=r"nowhere/shop\.db' cannot be opened.*: there is no folder '"):
        once.Worker(tmp_path / "nowhere" / "shop.db", lambda connection, record: effect)
    with pytest.raises(once.DatabaseUnavailable, match="cannot be opened as a database of SQLite: it is a folder"):
        once.Worker(tmp_path, lambda connection, record: effect)
    (tmp_path / "notes.txt").write_text("no database" * 100)
    with pytest.raises(once.UnsupportedDatabase, match=r"notes\.txt' cannot be opened.*: file is not a database"):
        once.Worker(tmp_path / "notes.txt", lambda connection, record: effect)
