"""Offsets in transactions, from the request to the marker: what is in the log, what waits, what a restart finds."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from oncelog.broker.coordinated.reading import STEP_BYTES
from oncelog.broker.request import FAILED, Pending
from oncelog.broker.transactions.markers import Outcome, write_marker
from oncelog.coordinator.groups import coordinator_for
from oncelog.coordinator.records import decode_record, encode_record, offset_commit, offset_tombstone
from oncelog.errors import ConcurrentTransactions, KafkaError, ProducerFenced, TransactionAbortable, UnknownServerError
from oncelog.log.partition_log import PartitionLog
from oncelog.log.producer_state import AppendOrigin
from oncelog.records import kernel
from oncelog.records.batch import build_batch, build_control_batch, decode_records
from oncelog.records.model import ControlMarker
from tests.broker.support import NOW_MS, Desk, FailingStorage
from tests.broker.transactions.support import Producer, end, end_request, init, open_desk, state_of
from tests.support.raw import Message

LOAD_IN_PROGRESS, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
UNKNOWN_TOPIC_OR_PARTITION, INVALID_GROUP_ID = 3, 24
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS = 47, 48, 51
UNSTABLE_OFFSET_COMMIT, TRANSACTION_ABORTABLE = 88, 120
OFFSETS = "__consumer_offsets"
GROUP = "billing"
UNSTABLE = "unstable"


@pytest.fixture
def storage() -> FailingStorage:
    return FailingStorage()


@pytest.fixture
def desk(storage: FailingStorage) -> Desk:
    return new_desk(storage)


def new_desk(storage: FailingStorage, **settings: str) -> Desk:
    """With a topic and both coordinators."""
    desk = open_desk(storage, offsets_topic_num_partitions="4", **settings)
    desk.create("orders", 3)
    desk.create("other")
    for key_type, key in ((0, GROUP), (1, "mover")):
        desk.ask("find_coordinator", 4, {"key_type": key_type, "coordinator_keys": [key]})
    return desk


def log_of(desk: Desk, group: str = GROUP) -> PartitionLog:
    return desk.broker.partition(OFFSETS, coordinator_for(group, 4))


def request(producer: Producer, offset: int = 7, *, group: str = GROUP, partition: int = 0, **fields: Any) -> Message:
    part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
    return {
        "transactional_id": "mover",
        "group_id": group,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "generation_id": -1,
        "topics": [{"name": "orders", "partitions": [part]}],
        **fields,
    }


def code_of(answer: Message | None) -> int:
    assert answer is not None
    ((partition,),) = [topic["partitions"] for topic in answer["topics"]]
    return int(partition["error_code"])


def commit(desk: Desk, producer: Producer, offset: int = 7, *, version: int = 5, **fields: Any) -> int:
    return code_of(desk.ask("txn_offset_commit", version, request(producer, offset, **fields)))


def commit_plainly(desk: Desk, offset: int) -> int:
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [part]}]
    return code_of(
        desk.ask("offset_commit", 8, {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": topics})
    )


def committed(desk: Desk, partition: int = 0, *, group: str = GROUP) -> int | str:
    """The stable offset."""
    topics = [{"name": "orders", "partition_indexes": [partition]}]
    asked = {"groups": [{"group_id": group, "topics": topics}], "require_stable": True}
    (answer,) = desk.ask("offset_fetch", 8, asked)["groups"]
    part = answer["topics"][0]["partitions"][0]
    if part["error_code"] == UNSTABLE_OFFSET_COMMIT:
        return UNSTABLE
    assert (answer["error_code"], part["error_code"]) == (0, 0)
    return int(part["committed_offset"])


# --- from the request to the marker ---


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_count_when_their_transaction_is_committed(desk: Desk, is_commit: bool) -> None:
    producer = init(desk)
    assert commit_plainly(desk, 1) == 0
    assert commit(desk, producer, 7) == 0
    assert committed(desk) == UNSTABLE
    assert end(desk, producer, commit=is_commit)["error_code"] == 0
    assert committed(desk) == (7 if is_commit else 1)
    assert state_of(desk) == ("CompleteCommit" if is_commit else "CompleteAbort")


@pytest.mark.parametrize("version", range(5))
def test_by_protocol_1_the_producer_adds_the_group_itself(desk: Desk, version: int) -> None:
    producer = init(desk)
    refusal = TRANSACTION_ABORTABLE if version == 4 else INVALID_TXN_STATE
    assert commit(desk, producer, version=version) == refusal
    added = {"transactional_id": "mover", "producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    assert desk.ask("add_offsets_to_txn", 3, {**added, "group_id": GROUP})["error_code"] == 0
    assert commit(desk, producer, version=version) == 0
    end(desk, producer, commit=True, version=4)
    assert committed(desk) == 7


def test_without_verification_nobody_is_asked(storage: FailingStorage) -> None:
    desk = new_desk(storage, transaction_partition_verification_enable="false")
    producer = init(desk)
    assert commit(desk, producer, version=4) == 0
    assert state_of(desk) == "Empty"


def test_the_log_has_the_producers_batch(desk: Desk) -> None:
    producer = init(desk)
    commit(desk, producer, 7)
    batch = log_of(desk).read(0, 1 << 20, upper_bound=1).read_all()
    header = kernel.parse_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*producer, 0)
    assert header.is_transactional
    (record,) = decode_records(batch)
    decoded = decode_record(record.key or b"", record.value)
    assert decoded is not None
    assert decoded.key == {"group": GROUP, "topic": "orders", "partition": 0}


def test_while_the_transaction_is_open_its_coordinator_is_not_asked_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = init(desk)
    assert commit(desk, producer, 7) == 0
    monkeypatch.setattr(desk.broker.transactions, "join", lambda *_, **__: pytest.fail("asked"))
    assert commit(desk, producer, 8) == 0


def test_nothing_is_written_for_who_is_refused(desk: Desk) -> None:
    producer = init(desk)
    assert commit(desk, producer, group="") == INVALID_GROUP_ID
    assert commit(desk, producer, member_id="nobody", generation_id=-1) == 0
    assert commit(desk, producer._replace(epoch=9)) == INVALID_PRODUCER_EPOCH
    assert log_of(desk).log_end_offset == 1


def named(*places: tuple[str, int]) -> list[Message]:
    return [
        {"name": topic, "partitions": [{"partition_index": index, "committed_offset": 7, "committed_metadata": ""}]}
        for topic, index in places
    ]


def codes_of(answer: Message | None) -> dict[tuple[str, int], int]:
    assert answer is not None
    parts = [(topic["name"], part) for topic in answer["topics"] for part in topic["partitions"]]
    return {(name, part["partition_index"]): part["error_code"] for name, part in parts}


def test_partitions_that_there_are_not_concern_no_coordinator(desk: Desk) -> None:
    producer = init(desk)
    nowhere = named(("unknown", 0), ("orders", 3))
    answer = desk.ask("txn_offset_commit", 5, request(producer, topics=nowhere))
    assert set(codes_of(answer).values()) == {UNKNOWN_TOPIC_OR_PARTITION}
    assert state_of(desk) == "Empty"


def test_partitions_that_there_are_not_and_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = init(desk)
    mixed = request(producer, topics=named(("unknown", 0), ("orders", 0), ("orders", 3)))
    unknown = dict.fromkeys((("unknown", 0), ("orders", 3)), UNKNOWN_TOPIC_OR_PARTITION)
    fenced = {**mixed, "producer_epoch": 9}
    assert codes_of(desk.ask("txn_offset_commit", 5, fenced)) == unknown | {("orders", 0): INVALID_PRODUCER_EPOCH}
    assert codes_of(desk.ask("txn_offset_commit", 5, mixed)) == unknown | {("orders", 0): 0}
    waiting = []
    monkeypatch.setattr(desk.broker.transactions, "join", lambda *_, done, **__: waiting.append(done))
    later = desk.ask_later("txn_offset_commit", 5, {**mixed, "producer_id": producer.producer_id + 1})
    waiting.pop()({})
    assert codes_of(later.message) == unknown | {("orders", 0): 0}


@pytest.mark.parametrize(
    ("error", "version", "told"),
    [
        (ProducerFenced, 5, INVALID_PRODUCER_EPOCH),
        (TransactionAbortable, 3, INVALID_TXN_STATE),
        (TransactionAbortable, 4, TRANSACTION_ABORTABLE),
        (ConcurrentTransactions, 5, CONCURRENT_TRANSACTIONS),
    ],
)
def test_what_the_transactions_coordinator_says_in_words_that_the_client_knows(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: type[KafkaError], version: int, told: int
) -> None:
    def join(*args: Any, done: Any, **_: Any) -> None:
        done(dict.fromkeys(args[3], error()))

    monkeypatch.setattr(desk.broker.transactions, "join", join)
    assert commit(desk, Producer(1, 0), version=version) == told


# --- the disk ---


def test_where_the_disk_is_promised_every_step_waits_for_it(storage: FailingStorage) -> None:
    desk = new_desk(storage, log_flush_interval_messages="1")
    begun = desk.ask_later(
        "init_producer_id",
        5,
        {"transactional_id": "mover", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1},
    )
    desk.threads.run_all()
    assert begun.message is not None
    producer = Producer(begun.message["producer_id"], begun.message["producer_epoch"])
    answer = desk.ask_later("txn_offset_commit", 5, request(producer))
    assert log_of(desk).log_end_offset == 0, "the transaction does not know of the group for certain yet"
    desk.threads.run_next()
    assert (log_of(desk).log_end_offset, answer.message) == (1, None)
    desk.threads.run_next()
    assert code_of(answer.message) == 0
    ended = desk.ask_later("end_txn", 5, end_request(producer, commit=True))
    desk.threads.run_all()
    assert ended.message is not None
    assert committed(desk) == 7


def test_a_coordinator_that_is_given_up_while_the_transactions_is_asked(storage: FailingStorage) -> None:
    desk = new_desk(storage)
    producer = init(desk)
    waiting = []

    def join(*_: Any, done: Any, **__: Any) -> None:
        waiting.append(done)

    desk.broker.transactions.join = join  # type: ignore[method-assign]
    answer = desk.ask_later("txn_offset_commit", 5, request(producer))
    desk.broker.coordination.log_failed(log_of(desk).topic_partition)
    (done,) = waiting
    done({})
    assert code_of(answer.message) == NOT_COORDINATOR


def test_a_full_disk_refuses_the_producer_and_costs_the_group_nothing(desk: Desk, storage: FailingStorage) -> None:
    producer = init(desk)
    assert commit(desk, producer, 7) == 0
    coordinator = desk.broker.coordination._partitions[log_of(desk).topic_partition.partition]
    storage.fail_next("append", errno.ENOSPC)
    assert commit(desk, producer, 8) == NOT_COORDINATOR
    assert desk.broker.coordination._partitions[log_of(desk).topic_partition.partition] is coordinator
    end(desk, producer, commit=True)
    assert committed(desk) == 7


def test_the_log_fences_a_producer_that_nobody_else_has_fenced(storage: FailingStorage) -> None:
    desk = new_desk(storage, transaction_partition_verification_enable="false")
    log_of(desk).append_marker(ControlMarker(False, 0), producer_id=5, producer_epoch=3, leader_epoch=0, now_ms=NOW_MS)
    assert commit(desk, Producer(5, 2), version=4) == INVALID_PRODUCER_EPOCH
    assert commit(desk, Producer(5, 3), version=4) == 0


# --- what a restart finds ---


def test_an_open_transaction_is_open_after_a_restart(desk: Desk, storage: FailingStorage) -> None:
    producer = init(desk)
    commit_plainly(desk, 1)
    commit(desk, producer, 7)
    again = open_desk(storage, offsets_topic_num_partitions="4")
    assert committed(again) == UNSTABLE
    end(again, producer, commit=True)
    assert committed(again) == 7
    assert committed(open_desk(storage)) == 7


class Writing:
    """The log of the group's partition, written before its coordinator reads it."""

    def __init__(self, storage: FailingStorage) -> None:
        self.storage = storage
        self.desk = new_desk(storage)

    def commit(self, offset: int | None, producer_id: int = -1, topic: str = "orders", count: int = 1) -> Writing:
        """None is a tombstone."""
        record = (
            offset_tombstone(GROUP, topic, 0)
            if offset is None
            else offset_commit(GROUP, topic, 0, offset=offset, leader_epoch=-1, metadata="", commit_timestamp_ms=0)
        )
        rows = [(NOW_MS, *encode_record(record), ())] * count
        if producer_id < 0:
            return self._append(build_batch(rows))
        return self._append(
            build_batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        )

    def end(self, producer_id: int, *, commit: bool) -> Writing:
        marker = ControlMarker(commit, 0)
        return self._append(build_control_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS))

    def _append(self, batch: bytearray) -> Writing:
        log = log_of(self.desk)
        log.append(batch, kernel.parse_header(batch), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.REPLICATION)
        log.advance_high_watermark(log.log_end_offset)
        return self

    def step(self) -> Writing:
        """What follows is read in another step."""
        return self.commit(1, topic="other", count=STEP_BYTES // 40)

    def restarted(self) -> Desk:
        desk = open_desk(self.storage)
        desk.broker.resume_groups()
        desk.alarms.pass_time(0)
        return desk

    def found(self) -> int | str:
        return committed(self.restarted())


@pytest.fixture(params=["in one step", "in several"])
def writing(storage: FailingStorage, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Writing:
    if request.param == "in several":
        monkeypatch.setattr("oncelog.broker.coordinated.reading.STEP_BYTES", 1)  # then each batch is one
    return Writing(storage)


def test_loading_a_committed_an_aborted_and_an_open_one(writing: Writing) -> None:
    writing.commit(1, 101).end(101, commit=True)
    writing.commit(2, 102).end(102, commit=False)
    assert writing.found() == 1
    writing.commit(3, 103)
    assert writing.found() == UNSTABLE


def test_loading_a_commit_that_is_newer_than_what_the_transaction_said(writing: Writing) -> None:
    writing.commit(5, 101).commit(10).end(101, commit=True)
    assert writing.found() == 10


def test_loading_what_a_transaction_said_last(writing: Writing) -> None:
    writing.commit(10).commit(4, 101).commit(5, 101).end(101, commit=True)
    assert writing.found() == 5


def test_loading_two_transactions_that_end_in_another_order(writing: Writing) -> None:
    writing.commit(1, 101).commit(2, 102).end(102, commit=True).end(101, commit=True)
    assert writing.found() == 2


def test_loading_a_tombstone_within_a_transaction(writing: Writing) -> None:
    writing.commit(1).commit(5, 101).commit(None).end(101, commit=True)
    assert writing.found() == -1


def test_loading_an_open_transaction_under_a_newer_commit(writing: Writing) -> None:
    writing.commit(5, 101).commit(10)
    desk = writing.restarted()
    assert committed(desk) == UNSTABLE
    log_of(desk).append_marker(ControlMarker(True, 0), producer_id=101, producer_epoch=0, leader_epoch=0, now_ms=NOW_MS)
    desk.broker.coordination.transaction_ended(log_of(desk).topic_partition.partition, 101, True, NOW_MS)
    assert committed(desk) == 10


def test_loading_a_marker_that_compaction_has_emptied(writing: Writing) -> None:
    """It ends nothing: had there been anything to end, compaction would have kept it."""
    fields = {"producer_id": 102, "producer_epoch": 0, "transactional": True, "control": True}
    emptied = kernel.BatchBuilder().build(last_offset_delta=0, **fields)
    assert writing.commit(1)._append(emptied).found() == 1


def test_a_marker_that_comes_while_the_log_is_read(storage: FailingStorage) -> None:
    writing = Writing(storage).commit(5, 101).step().step().step()
    desk = open_desk(storage)
    desk.broker.resume_groups()
    index = log_of(desk).topic_partition.partition
    first, *_ = [step for _, step in desk.alarms.due]
    first()
    partition = desk.broker.coordination._partitions[index]
    assert partition.loading is not None, "this test could not fail"
    log_of(desk).append_marker(ControlMarker(True, 0), producer_id=101, producer_epoch=0, leader_epoch=0, now_ms=NOW_MS)
    desk.broker.coordination.transaction_ended(index, 101, True, NOW_MS)
    desk.alarms.pass_time(0)
    assert partition.loading is None
    assert committed(desk) == 5
    assert writing.found() == 5


def test_while_groups_are_loaded(storage: FailingStorage) -> None:
    """Before version 2 clients did not know that error."""
    Writing(storage).step().step()
    desk = open_desk(storage)
    told = [commit(desk, Producer(1, 0), version=version) for version in range(6)]
    assert told == [NOT_AVAILABLE] * 2 + [LOAD_IN_PROGRESS] * 4


def test_before_anybody_asked_there_is_no_coordinator(storage: FailingStorage) -> None:
    desk = open_desk(storage)
    desk.create("orders")
    assert commit(desk, Producer(1, 0)) == NOT_COORDINATOR


def test_a_transaction_of_several_groups(desk: Desk) -> None:
    """Also of groups that different coordinators keep: one outcome for all."""
    groups = [f"group-{number}" for number in range(6)]
    assert len({coordinator_for(group, 4) for group in groups}) > 1
    producer = init(desk)
    for group in groups:
        assert commit(desk, producer, 7, group=group) == 0
    assert {committed(desk, group=group) for group in groups} == {UNSTABLE}
    end(desk, producer, commit=True)
    assert {committed(desk, group=group) for group in groups} == {7}


# --- bugs ---


def failing(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def test_a_failure_after_the_transactions_coordinator_has_answered_ends_the_connection(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, waiting = init(desk), []
    monkeypatch.setattr(desk.broker.transactions, "join", lambda *_, done, **__: waiting.append(done))
    answer = desk.dispatch("txn_offset_commit", 5, request(producer))
    assert isinstance(answer, Pending)
    ended: list[object] = []
    answer.on_complete = ended.append
    monkeypatch.setattr(desk.broker.coordination, "_ask_in_transaction", failing)
    waiting.pop()({})
    assert ended == [FAILED]


def test_who_waits_for_a_marker_hears_that_groups_could_not_be_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = init(desk)
    commit(desk, producer)
    monkeypatch.setattr(desk.broker.coordination, "transaction_ended", failing)
    heard: list[KafkaError | None] = []
    outcome = Outcome(*producer, coordinator_epoch=0, is_commit=True, transaction_version=1)
    write_marker(desk.broker, log_of(desk).topic_partition, outcome, NOW_MS, heard.append)
    assert [type(error) for error in heard] == [UnknownServerError]
    assert "bug: groups were not told" in caplog.text
