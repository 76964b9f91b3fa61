"""The sink on real brokers, called as Spark calls it, by a driver that fails at every moment there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import oncelog
from oncelog import clock
from oncelog.admin.values import ResourceType
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark import moments as hooks
from oncelog.spark.moments import Moment
from oncelog.spark.options import BadOption, Options
from oncelog.spark.sink import driver
from oncelog.spark.sink.attempts import Nothing, Prepared
from oncelog.spark.sink.errors import (
    ForeignCheckpoint,
    JournalFenced,
    NearExpiry,
    PrefixInUse,
    RecordsGone,
    RolledBack,
    TooLate,
    UnreadableJournal,
)
from oncelog.spark.sink.identity import salvage_id, slot_id
from oncelog.spark.sink.settings import WHAT, sink_settings
from oncelog.spark.sink.task import Place, write_slot
from oncelog.types import TopicPartition
from tests.spark.sink.on_brokers import Rig, Rows, numbered
from tests.spark.support.moments import Moments
from tests.support.confluent import create_topic, make_producer, send
from tests.support.patience import eventually
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.on_both_brokers

FIRST, SECOND, THIRD = numbered("first", 40), numbered("second", 30), numbered("third", 20)
SHORT_MS = (1_000, 6_000, 30_000)


@pytest.fixture
def rig(broker: BrokerProcess, new_topic: Callable[[], str]) -> Rig:
    topic = new_topic()
    create_topic(broker, topic, partitions=3)
    return Rig(broker, topic)


@pytest.fixture
def moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Moments:
    """In this process."""
    armed = Moments(tmp_path / "moments")
    monkeypatch.setattr(hooks, "_FOLDER", str(armed.folder))
    return armed


def prepared(rig: Rig, slot: int = 0) -> PreparedTransaction:
    name = slot_id(rig.prefix, slot)
    with oncelog.Admin(rig.broker.bootstrap) as admin:
        found = admin.describe_transactions([name])[name]
    return PreparedTransaction(name, found.producer_id, found.producer_epoch)


def await_state(rig: Rig, transactional_id: str, state: str) -> None:
    with oncelog.Admin(rig.broker.bootstrap) as admin:

        def is_so() -> bool:
            return bool(admin.describe_transactions([transactional_id])[transactional_id].state == state)

        eventually(is_so, f"{transactional_id} is {state}")


def test_rows_are_visible_when_the_batch_is_committed_and_not_before(rig: Rig) -> None:
    results = rig.write(rig.plan(), 0, FIRST, SECOND)
    assert rig.visible() == []
    rig.commit(0, results)
    rig.check(FIRST, SECOND)
    rig.run(1, THIRD, [])
    rig.check(FIRST, SECOND, THIRD)


def test_a_slot_without_rows_has_no_transaction(rig: Rig) -> None:
    results = rig.write(rig.plan(), 0, [], [])
    assert [one.outcome for one in results] == [Nothing.EMPTY, Nothing.EMPTY]
    rig.commit(0, results)
    rig.check()


@pytest.mark.parametrize(
    "moment",
    [Moment.COMMITTING, Moment.DECIDED, Moment.ENDING, Moment.ENDED_SOME, Moment.ENDED_ALL, Moment.DONE],
)
def test_a_commit_that_fails_anywhere_is_made_good_by_the_replay(rig: Rig, moments: Moments, moment: Moment) -> None:
    rig.run(0, FIRST)
    moments.arm(moment, "raise")
    slots = [numbered(f"slot {number}", 3) for number in range(20)]
    with pytest.raises(OSError, match=moment.value):
        rig.run(1, *slots)
    rig.run(1, *reversed(slots))  # the same rows, but not in the same slots
    rig.run(2, SECOND)
    rig.check(FIRST, *slots, SECOND)


def test_a_driver_that_dies_with_its_tasks_leaves_nothing_open(rig: Rig) -> None:
    rig.write(rig.plan(), 0, FIRST, SECOND, THIRD)
    rig.run(0, [*FIRST, *SECOND, *THIRD])  # fewer slots
    rig.check(FIRST, SECOND, THIRD)


def test_of_two_attempts_of_a_task_the_one_that_reports_counts(rig: Rig) -> None:
    plan = rig.plan()
    rig.write_slot(plan, 0, 0, FIRST[:10])
    rig.commit(0, rig.write(plan, 0, FIRST, SECOND))
    rig.check(FIRST, SECOND)


def test_an_attempt_that_wakes_after_the_decision_cannot_take_the_rows_away(rig: Rig, moments: Moments) -> None:
    results = rig.write(rig.plan(), 0, FIRST, SECOND)
    moments.arm(Moment.DECIDED, "raise")
    with pytest.raises(OSError, match="decided"):
        rig.commit(0, results)
    with oncelog.Producer(rig.broker.bootstrap, transactional_id=slot_id(rig.prefix, 0)) as late:
        late.init_transactions()  # aborts what was decided
    rig.run(0, FIRST, SECOND)
    rig.check(FIRST, SECOND)


def test_an_attempt_that_takes_its_slot_before_the_commit_and_dies_keeps_no_reader_waiting(rig: Rig) -> None:
    """It took its slot before the commit began, and wrote; with its process its transaction is nobody's."""
    results = rig.write(rig.plan(), 0, FIRST, SECOND)
    with oncelog.Producer(rig.broker.bootstrap, transactional_id=slot_id(rig.prefix, 0)) as late:
        late.init_transactions()
        late.begin()
        late.send(rig.topic, b"late", partition=0)
        late.prepare()  # stays open when the producer is closed
    rig.commit(0, results)
    rig.check(FIRST, SECOND)


def test_an_attempt_that_comes_after_the_commit_began_writes_nothing(rig: Rig) -> None:
    plan = rig.plan()
    rig.commit(0, rig.write(plan, 0, FIRST, SECOND))
    with pytest.raises(TooLate, match=r"slot 1 of batch 0 was taken after the batch's commit had begun"):
        rig.write_slot(plan, 0, 1, THIRD)
    rig.check(FIRST, SECOND)


def decided_and_left(rig: Rig, moments: Moments, *slots: Rows) -> Rig:
    """Batch 0 is decided and nothing more, and its transactions time out soon. On a slow machine the shortest time is
    over before: then on another topic, with more of it."""
    for timeout_ms in SHORT_MS:
        short = replace(rig, topic=f"{rig.topic}-{timeout_ms}").with_options(
            kafka_transaction_timeout_ms=str(timeout_ms)
        )
        create_topic(short.broker, short.topic, partitions=3)
        with suppress(NearExpiry, oncelog.TransactionError):
            results = short.write(short.plan(), 0, *slots)
            moments.arm(Moment.DECIDED, "raise")
            with pytest.raises(OSError, match="decided"):
                short.commit(0, results)
            return short
    raise AssertionError(f"a batch took longer than {timeout_ms} ms")


def test_decided_rows_that_a_timeout_aborted_are_salvaged(rig: Rig, moments: Moments) -> None:
    short = decided_and_left(rig, moments, FIRST, SECOND)
    for slot in (0, 1):
        await_state(short, slot_id(short.prefix, slot), "CompleteAbort")
    assert short.visible() == []
    for moment in (Moment.COPYING, Moment.COPIED, Moment.COPY_DECIDED):
        moments.arm(moment, "raise")
        with pytest.raises(OSError, match=moment.value):
            short.plan()
    plan = short.plan()
    assert plan.planned.last_done[short.query_id].batch_id == 0
    short.check(FIRST, SECOND)


def test_a_salvaged_record_is_what_it_was(rig: Rig, moments: Moments) -> None:
    """Key, headers, timestamp and place in its partition's order; and nobody else's records between."""
    short = decided_and_left(rig, moments, FIRST[:20])
    send(make_producer(short.broker), short.topic, [{"key": "foreign", "value": "foreign", "partition": 0}])
    written = _stored(short, read="read_uncommitted")
    await_state(short, slot_id(short.prefix, 0), "CompleteAbort")
    short.plan()
    short.check_nothing_is_open()
    assert sorted(_stored(short, read="read_committed")) == sorted(written)
    with oncelog.Admin(short.broker.bootstrap) as admin:
        assert salvage_id(short.prefix, 0) in admin.describe_transactions([salvage_id(short.prefix, 0)])


def _stored(rig: Rig, read: str) -> list[tuple[int, bytes, bytes, int]]:
    return [
        (one.partition(), one.key(), one.value(), one.timestamp()[1])
        for one in rig.visible(isolation=read)
        if one.value() != b"foreign"
    ]


def test_decided_rows_that_retention_has_taken_stop_the_query(rig: Rig, moments: Moments) -> None:
    short = decided_and_left(rig, moments, FIRST)
    await_state(short, slot_id(short.prefix, 0), "CompleteAbort")
    with oncelog.Admin(short.broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(short.topic, index): -1 for index in range(3)})
    for _ in range(2):
        with pytest.raises(RecordsGone, match="retention"):
            short.plan()


def test_a_second_driver_stops_the_first(rig: Rig) -> None:
    results = rig.write(rig.plan(), 0, FIRST)
    other = replace(rig, query_id="other")
    plan = other.plan()
    with pytest.raises(PrefixInUse, match="two queries"):
        rig.commit(0, results)
    other.commit(0, other.write(plan, 0, SECOND))
    rig.check(SECOND)


def test_a_committer_that_outlives_its_driver_decides_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has taken the journal over and sleeps; meanwhile a new driver plans."""
    results = rig.write(rig.plan(), 0, FIRST)
    planned_meanwhile = []

    def reach(moment: Moment) -> None:
        if moment is Moment.COMMITTING and not planned_meanwhile:
            planned_meanwhile.append(rig.plan())

    monkeypatch.setattr("oncelog.spark.sink.journal_topic.reach", reach)
    with pytest.raises(JournalFenced):
        rig.commit(0, results)
    rig.commit(0, rig.write(planned_meanwhile[0], 0, FIRST))
    rig.check(FIRST)


def test_a_committer_that_slept_too_long_decides_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transactions are about to time out; they were not when it began."""
    results = rig.write(rig.plan(), 0, FIRST)

    taken_over: list[Moment] = []
    wall_ms = clock.wall_ms
    monkeypatch.setattr(clock, "wall_ms", lambda: 2**62 if taken_over else wall_ms())
    monkeypatch.setattr("oncelog.spark.sink.journal_topic.reach", taken_over.append)
    with pytest.raises(NearExpiry, match="smaller"):
        rig.commit(0, results)
    monkeypatch.undo()
    rig.run(0, FIRST)
    rig.check(FIRST)


def test_an_abort_after_the_decision_changes_nothing(rig: Rig, moments: Moments) -> None:
    results = rig.write(rig.plan(), 0, FIRST)
    moments.arm(Moment.DECIDED, "raise")
    with pytest.raises(OSError, match="decided"):
        rig.commit(0, results)
    driver.abort_batch(rig.settings, results)
    rig.plan()
    rig.check(FIRST)


def test_an_abort_before_it_ends_the_transactions(rig: Rig) -> None:
    results = rig.write(rig.plan(), 0, FIRST)
    driver.abort_batch(rig.settings, results)
    rig.check()


def test_a_new_query_under_an_old_prefix_writes_from_its_batch_0(rig: Rig) -> None:
    rig.run(0, FIRST)
    rig.run(1, SECOND)
    replace(rig, query_id="after the checkpoint was deleted").run(0, THIRD)
    rig.check(FIRST, SECOND, THIRD)


def test_an_earlier_batch_stops_the_query(rig: Rig) -> None:
    rig.run(0, FIRST)
    rig.run(1, SECOND)
    with pytest.raises(RolledBack, match="rolled back"):
        rig.run(0, FIRST)
    rig.check(FIRST, SECOND)


def test_the_last_batch_with_other_offsets_stops_the_query(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    keeping = rig.with_options(checkpointLocation=str(tmp_path))
    _note_offsets(tmp_path, {rig.topic: {"0": 40}})
    keeping.run(0, FIRST)
    _note_offsets(tmp_path, {rig.topic: {"0": 40}})
    keeping.run(0, FIRST)  # a replay
    _note_offsets(tmp_path, {rig.topic: {"0": 41}})
    with pytest.raises(RolledBack, match="other source offsets"):
        keeping.run(0, FIRST)
    rig.check(FIRST)


def test_offsets_of_a_group_follow_the_batches(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    _note_offsets(tmp_path, {rig.topic: {"0": 40, "1": 2}})
    group = f"{rig.topic}-group"
    rig.with_options(checkpointLocation=str(tmp_path), group_id=group).run(0, FIRST)
    with oncelog.Admin(rig.broker.bootstrap) as admin:
        committed = admin.list_group_offsets(group)
    assert {one: found.offset for one, found in committed.items()} == {
        TopicPartition(rig.topic, 0): 40,
        TopicPartition(rig.topic, 1): 2,
    }


def _note_offsets(checkpoint: Path, offsets: dict[str, dict[str, int]]) -> None:
    (checkpoint / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offsets)}')


def test_a_checkpoint_belongs_to_one_prefix(rig: Rig, tmp_path: Path) -> None:
    keeping = rig.with_options(checkpointLocation=str(tmp_path))
    keeping.run(0, FIRST)
    with pytest.raises(ForeignCheckpoint, match=rig.prefix):
        keeping.with_options(transactional_id_prefix=f"{rig.prefix}2").plan()


def test_what_cannot_work_is_refused_at_the_start(rig: Rig, new_topic: Callable[[], str]) -> None:
    with pytest.raises(BadOption, match="does not exist"):
        rig.with_options(topic="no-such-topic").plan()
    with pytest.raises(BadOption, match=r"transaction\.max\.timeout\.ms"):
        rig.with_options(kafka_transaction_timeout_ms="900001").plan()
    taken = new_topic()
    create_topic(rig.broker, f"{taken}-journal", partitions=1)
    with pytest.raises(UnreadableJournal, match="is not a sink's"):
        rig.with_options(transactional_id_prefix=taken).plan()
    rig.check()


def test_transactions_last_as_long_as_the_broker_allows(rig: Rig) -> None:
    plan = rig.plan()
    assert plan.timeout_ms == 900_000
    (result,) = rig.write(plan, 0, FIRST)
    assert isinstance(result.outcome, Prepared)
    assert result.outcome.transaction == prepared(rig)
    rig.commit(0, [result])


def test_a_topic_that_is_missing_is_created_where_the_query_says_so(rig: Rig, new_topic: Callable[[], str]) -> None:
    missing = new_topic()
    making = replace(rig, topic=missing).with_options(create="true", create_partitions="2")
    making = making.with_options(**{"create.config.max.message.bytes": "2000000"})
    making.run(0, FIRST)
    making.run(1, SECOND)
    making.check(FIRST, SECOND)
    with oncelog.Admin(rig.broker.bootstrap) as admin:
        assert len(admin.describe_topic(missing).partitions) == 2
        configs = admin.describe_configs(ResourceType.TOPIC, missing)
        assert configs["max.message.bytes"].value == "2000000"
    with pytest.raises(BadOption, match="cannot be created"):
        making.with_options(topic=new_topic(), **{"create.config.max.message.bytes": "many"}).plan()


def test_a_topic_that_a_row_names_is_not_left_to_the_broker(rig: Rig, new_topic: Callable[[], str]) -> None:
    missing = new_topic()
    given = {key: one for key, one in rig.options.items() if key != "topic"}
    columns = {"topic": "string", "value": "string"}
    options = {"kafka.bootstrap.servers": rig.broker.bootstrap, "transactional.id.prefix": rig.prefix, **given}
    rows = pa.RecordBatch.from_pydict({"topic": [rig.topic, missing], "value": ["a", "b"]})

    def write(**more: str) -> None:
        settings = sink_settings(Options({**options, **more}, WHAT), columns)
        plan = driver.plan_batch(settings)
        driver.commit_batch(settings, 0, [write_slot(settings, plan, Place("query", 0, 0, 0), iter([rows]))])

    with pytest.raises(BadOption, match=f"{missing}' does not exist"):
        write()
    write(create="true")
    assert [one.value() for one in rig.visible()] == [b"a"]
    assert [one.value() for one in replace(rig, topic=missing).visible()] == [b"b"]
