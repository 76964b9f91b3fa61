"""Requests that concern much are served in steps, each of which does little, whatever the size of the whole."""

from __future__ import annotations

import errno
import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.broker.groups.coordination import Coordination
from oncelog.broker.handlers import fetch as fetches
from oncelog.broker.request import Pending, Piecewise, Stepwise
from oncelog.broker.state import BrokerState
from oncelog.broker.transactions.coordination import TransactionCoordination
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.errors import KafkaStorageError
from oncelog.log.file_slice import FileSlice
from oncelog.log.leader_epochs import LeaderEpochCache
from oncelog.log.partition_log import PartitionLog
from oncelog.records.batch import build_batch
from oncelog.types import TopicPartition
from oncelog.wire.encoder import EncodedElements
from oncelog.wire.fetch import FetchedPartition
from tests.broker.support import NOW_MS, Desk, FailingStorage, made
from tests.support.raw import Message

MANY = 600
SESSION_NOT_FOUND = 70


@pytest.fixture
def desk() -> Desk:
    desk = Desk(FailingStorage(), "/data")
    desk.create("orders", MANY)
    return desk


class Counted:
    """How often each of some methods was called, and how often at most in one step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *methods: tuple[type, str]) -> None:
        self.calls: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.steps = 0
        self._before: Counter[str] = Counter()
        for owner, name in methods:
            monkeypatch.setattr(owner, name, self._counting(name, getattr(owner, name)))

    def _counting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return method(*args, **kwargs)

        return counting

    def ask(self, desk: Desk, api: str, version: int, message: Message, each: Callable[[], None] = lambda: None) -> Any:
        """The answer, decoded unless it is still to come; `each` is called after every step."""
        self.begin()
        header, answer = desk._dispatch(api, version, message, NOW_MS)
        self.stepped()
        answer = self.finish(desk, header, answer, each)
        if isinstance(answer, Pending):
            return answer
        return desk._decode(api, version, desk.dispatcher.frame(header, answer))

    def begin(self) -> None:
        self.steps, self.most, self._before = 0, Counter(), Counter()
        self.calls.clear()

    def stepped(self) -> None:
        self.steps += 1
        self.most |= self.calls - self._before
        self._before = self.calls.copy()

    def finish(self, desk: Desk, header: Any, answer: Any, each: Callable[[], None] = lambda: None) -> Any:
        while isinstance(answer, Piecewise | Stepwise):
            making = desk.dispatcher.make(header, answer) if isinstance(answer, Piecewise) else answer
            while (result := making.step()) is None:
                self.stepped()
                each()
            self.stepped()
            answer = result
        return answer


def append(desk: Desk, *indexes: int) -> None:
    batch = bytes(build_batch([(NOW_MS, None, b"x", ())]))
    data = [{"index": index, "records": batch} for index in indexes]
    request = {"acks": -1, "timeout": 1000, "topic_data": [{"name": "orders", "partition_data": data}]}
    answer = desk.dispatch("produce", 9, request)
    if not isinstance(answer, list):
        answer.on_complete = lambda _: None  # type: ignore[union-attr]
        desk.threads.run_all()


def commit(desk: Desk, group: str, partitions: int = 1) -> None:
    offsets = [{"partition_index": n, "committed_offset": 5, "committed_metadata": ""} for n in range(partitions)]
    asked = {"group_id": group, "topics": [{"name": "orders", "partitions": offsets}]}
    ((answer, *_),) = [topic["partitions"] for topic in desk.ask("offset_commit", 8, asked)["topics"]]
    assert answer["error_code"] == 0


# --- DeleteRecords ---


def test_records_of_one_partition_are_deleted_in_a_step(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    append(desk, *range(20))
    counted = Counted(monkeypatch, (PartitionLog, "delete_records"))
    asked = [{"partition_index": index, "offset": -1} for index in range(30)]
    asked[7]["offset"] = 99
    (topic,) = counted.ask(desk, "delete_records", 2, {"topics": [{"name": "orders", "partitions": asked}]})["topics"]
    assert [each["partition_index"] for each in topic["partitions"]] == list(range(30))
    assert [each["low_watermark"] for each in topic["partitions"]] == [-1 if n == 7 else int(n < 20) for n in range(30)]
    assert [each["error_code"] for each in topic["partitions"]] == [int(n == 7) for n in range(30)]
    assert (counted.calls["delete_records"], counted.most["delete_records"]) == (30, 1)
    assert sum(times for (api, _), times in desk.broker.metrics.errors.items() if api == "DeleteRecords") == 1


def test_deleting_records_writes_no_epochs_unless_one_goes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    append(desk, 0)
    append(desk, 0)
    counted = Counted(monkeypatch, (LeaderEpochCache, "_write"))
    log = desk.broker.partition("orders", 0)
    epochs = log.leader_epochs.entries
    assert log.delete_records(1) == 1
    assert counted.calls["_write"] <= 1  # before a manifest that tells of epochs the file does, which it did not so far
    counted.calls.clear()
    assert log.delete_records(2) == 2
    assert counted.calls["_write"] == 0
    assert [entry.epoch for entry in log.leader_epochs.entries] == [entry.epoch for entry in epochs]
    assert log.leader_epochs.entries[0].start_offset == 2


# --- ListOffsets ---


def test_offsets_of_one_partition_are_looked_up_in_a_step(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    append(desk, 3)
    counted = Counted(monkeypatch, (BrokerState, "_create_log"), (EncodedElements, "append"))
    asked = [{"partition_index": index, "timestamp": -1} for index in range(MANY + 1)]
    (topic,) = counted.ask(desk, "list_offsets", 7, {"topics": [{"name": "orders", "partitions": asked}]})["topics"]
    assert [each["offset"] for each in topic["partitions"]] == [int(n == 3) for n in range(MANY)] + [-1]
    assert topic["partitions"][-1]["error_code"] == 3
    assert (counted.calls["_create_log"], counted.most["_create_log"]) == (MANY - 1, 1)
    assert counted.most["append"] == 1
    assert sum(times for (api, _), times in desk.broker.metrics.errors.items() if api == "ListOffsets") == 1


# --- Fetch ---


def fetch(count: int, *, wait_ms: int = 0, session_epoch: int = -1, session_id: int = 0) -> Message:
    asked = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for index in range(count)]
    body = {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": session_epoch}
    return {**body, "session_id": session_id, "topics": [{"topic": "orders", "partitions": asked}] if count else []}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch, (BrokerState, "_create_log"), (fetches._Fetch, "_read_partition"))


@pytest.mark.parametrize("count", [2 * fetches.MAX_OPENED_AT_ONCE, MANY])
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_many_partitions_are_read_in_steps(desk: Desk, counted: Counted, count: int, session_epoch: int) -> None:
    append(desk, 1, count - 1)
    (topic,) = counted.ask(desk, "fetch", 12, fetch(count, session_epoch=session_epoch))["responses"]
    assert [each["partition_index"] for each in topic["partitions"]] == list(range(count))
    assert [bool(each["records"]) for each in topic["partitions"]] == [n in (1, count - 1) for n in range(count)]
    assert counted.calls["_create_log"] == count - 2
    assert counted.most["_create_log"] <= fetches.MAX_OPENED_AT_ONCE
    assert max(counted.most.values()) <= fetches.MAX_OPENED_AT_ONCE + 4


def with_records(answer: Message) -> int:
    return sum(bool(each["records"]) for topic in answer["responses"] for each in topic["partitions"])


@pytest.mark.parametrize("is_incremental", [False, True])
def test_an_answer_in_steps_holds_the_records_of_few_partitions(
    desk: Desk, counted: Counted, monkeypatch: pytest.MonkeyPatch, is_incremental: bool
) -> None:
    may_hold = 2 * fetches.PARTITIONS_PER_STEP
    monkeypatch.setattr(desk.broker.want_of_descriptors, "may_be_held_by_an_answer", lambda: may_hold)
    asked = fetch(MANY, session_epoch=0 if is_incremental else -1)
    if is_incremental:
        session = counted.ask(desk, "fetch", 12, asked)["session_id"]
        asked = {**asked, "session_id": session, "session_epoch": 1}
    append(desk, *range(MANY))
    answer = counted.ask(desk, "fetch", 12, asked)
    assert with_records(answer) == may_hold
    told = sum(len(topic["partitions"]) for topic in answer["responses"])
    assert told == (may_hold if is_incremental else MANY)
    if is_incremental:  # the others are next
        asked = {**asked, "session_epoch": 2, "topics": []}
        (topic,) = counted.ask(desk, "fetch", 12, asked)["responses"]
        assert [each["partition_index"] for each in topic["partitions"]] == list(range(may_hold, 2 * may_hold))


@pytest.mark.parametrize("readable", [0, 3])
def test_want_of_a_descriptor_keeps_none_of_those_that_were_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, readable: int
) -> None:
    append(desk, *range(10))
    read = PartitionLog.read

    def scarce(log: PartitionLog, *args: Any, **options: Any) -> FileSlice:
        if log.topic_partition.partition < readable:
            return read(log, *args, **options)
        try:
            raise OSError(errno.EMFILE, "Too many open files")
        except OSError as error:
            raise KafkaStorageError("cannot read") from error

    monkeypatch.setattr(PartitionLog, "read", scarce)
    gc.collect()
    gc.disable()
    try:
        answer = desk.ask("fetch", 12, fetch(10))
        assert with_records(answer) == readable
        assert [each for each in gc.get_objects() if isinstance(each, FetchedPartition)] == []
    finally:
        gc.enable()


def test_few_partitions_are_read_at_once(desk: Desk, counted: Counted) -> None:
    counted.ask(desk, "fetch", 12, fetch(fetches.MAX_OPENED_AT_ONCE))
    assert counted.steps == 1


def test_what_is_appended_while_others_are_read_is_not_missed(desk: Desk, counted: Counted) -> None:
    def each() -> None:
        if counted.steps == 5:  # the first partition was read before
            append(desk, 0)

    answer = counted.ask(desk, "fetch", 12, fetch(MANY, wait_ms=500), each)
    assert isinstance(answer, dict)
    assert answer["responses"][0]["partitions"][0]["records"]


def test_a_fetch_that_waited_is_answered_in_steps(
    desk: Desk, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "MAX_TOLD_AT_ONCE", MANY - 1)  # as if there were more of them
    pending = counted.ask(desk, "fetch", 12, fetch(MANY, wait_ms=500))
    assert isinstance(pending, Pending)
    came: list[Any] = []
    pending.on_complete = came.append
    append(desk, 2)
    assert isinstance(came[0], Stepwise)
    header, _ = desk._dispatch("fetch", 12, fetch(1), NOW_MS)
    answer = desk._decode("fetch", 12, desk.dispatcher.frame(header, counted.finish(desk, header, came[0])))
    assert [bool(each["records"]) for each in answer["responses"][0]["partitions"]] == [n == 2 for n in range(MANY)]


def test_a_session_that_goes_on_meanwhile_has_its_partitions(desk: Desk, counted: Counted) -> None:
    session_id = counted.ask(desk, "fetch", 12, fetch(MANY, session_epoch=0))["session_id"]
    view = desk.broker.fetch_sessions._sessions[session_id].view
    view.due = dict.fromkeys(view)
    header, interrupted = desk._dispatch("fetch", 12, fetch(0, session_epoch=1, session_id=session_id), NOW_MS)
    assert isinstance(interrupted, Stepwise)
    assert interrupted.step() is None
    ended = counted.ask(desk, "fetch", 12, fetch(0, session_epoch=-1, session_id=session_id))
    assert ended["error_code"] == 0
    answer = desk._decode("fetch", 12, desk.dispatcher.frame(header, made(desk.dispatcher, header, interrupted)))  # type: ignore[arg-type]
    assert answer["error_code"] == SESSION_NOT_FOUND
    assert desk.broker.purgatory.watched_partitions == 0


def test_a_client_that_goes_in_the_middle_leaves_nothing(desk: Desk, counted: Counted) -> None:
    _, answer = desk._dispatch("fetch", 12, fetch(MANY, wait_ms=500), NOW_MS)
    assert isinstance(answer, Stepwise)
    assert answer.step() is None
    answer.abandon()
    desk.dispatcher.left(desk.peer)
    assert (desk.broker.purgatory.watched_partitions, desk.broker.sessionless.kept_partitions) == (0, 0)


# --- groups and transactions ---


@pytest.fixture
def groups(desk: Desk) -> list[str]:
    desk.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["any"]})
    names = [f"group-{number}" for number in range(40)]
    for name in names:
        commit(desk, name)
    return names


def test_groups_are_listed_one_in_a_step(desk: Desk, groups: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, (EncodedElements, "append"))
    listed = counted.ask(desk, "list_groups", 4, {})
    assert listed["error_code"] == 0
    assert sorted(group["group_id"] for group in listed["groups"]) == sorted(groups)
    assert counted.most["append"] == 1


def test_groups_that_come_and_go_meanwhile(desk: Desk, groups: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)

    def each() -> None:
        if counted.steps == 3:
            for name in groups[5:]:
                assert desk.ask("delete_groups", 2, {"groups_names": [name]})["results"][0]["error_code"] == 0
            commit(desk, "new")

    listed = {group["group_id"] for group in counted.ask(desk, "list_groups", 4, {}, each)["groups"]}
    assert set(groups[:5]) <= listed <= {*groups, "new"}
    assert len(listed) < 12


def test_a_coordinator_that_is_given_up_meanwhile_spoils_the_list(desk: Desk, groups: list[str]) -> None:
    _, answer = desk._dispatch("list_groups", 4, {}, NOW_MS)
    assert isinstance(answer, Stepwise)
    for _ in range(3):
        answer.step()
    coordination = desk.broker.coordination
    for index in list(coordination._partitions):
        desk.broker.partition("__consumer_offsets", index).offline = True
    told = made(desk.dispatcher, None, answer)  # type: ignore[arg-type]
    assert isinstance(told, dict)
    assert told["error_code"] != 0


@pytest.mark.parametrize(
    ("api", "version", "asked", "answered"),
    [
        ("describe_groups", 5, "groups", "groups"),
        ("delete_groups", 2, "groups_names", "results"),
        ("offset_fetch", 8, "groups", "groups"),
    ],
)
def test_of_many_groups_each_is_asked_for_in_a_step(
    desk: Desk, groups: list[str], monkeypatch: pytest.MonkeyPatch, api: str, version: int, asked: str, answered: str
) -> None:
    counted = Counted(monkeypatch, (GroupCoordinator, "handle"), (EncodedElements, "append"), (Coordination, "_few"))
    names = [{"group_id": name, "topics": None} if api == "offset_fetch" else name for name in [*groups, "unknown"]]
    answer = counted.ask(desk, api, version, {asked: names})
    assert [each["group_id"] for each in answer[answered]] == [*groups, "unknown"]
    assert [each["error_code"] for each in answer[answered]][:-1] == [0] * len(groups)
    assert (counted.most["handle"], counted.most["append"]) == (1, 1)


@pytest.mark.parametrize("version", [7, 8])
def test_offsets_of_a_large_group_are_encoded_one_in_a_step(
    desk: Desk, groups: list[str], monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    commit(desk, "large", MANY)
    counted = Counted(monkeypatch, (EncodedElements, "append"))
    one = {"group_id": "large", "topics": None}
    answer = counted.ask(desk, "offset_fetch", version, one if version < 8 else {"groups": [one]})
    (topic,) = (answer if version < 8 else answer["groups"][0])["topics"]
    assert [each["partition_index"] for each in topic["partitions"]] == list(range(MANY))
    assert {each["committed_offset"] for each in topic["partitions"]} == {5}
    assert counted.calls["append"] >= MANY
    assert counted.most["append"] <= 2


def test_transactions_are_described_a_few_in_a_step(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.ask("find_coordinator", 4, {"key_type": 1, "coordinator_keys": ["any"]})
    counted = Counted(monkeypatch, (TransactionCoordination, "_ask"), (EncodedElements, "append"))
    names = [f"id-{number}" for number in range(200)]
    described = counted.ask(desk, "describe_transactions", 0, {"transactional_ids": names})["transaction_states"]
    assert [each["transactional_id"] for each in described] == names
    assert counted.most["_ask"] <= 25
    assert counted.most["append"] == 1
    assert TopicPartition("orders", 0) not in desk.broker.logs.logs
