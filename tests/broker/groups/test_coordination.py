"""The runtime of the coordinators: where a group lives, records before answers, waiting, loading, failing, time."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.coordinated.reading import SHORT_BYTES, STEP_BYTES, STEP_RECORDS
from oncelog.broker.coordinated.topic import RELOAD_DELAY_MS
from oncelog.broker.groups import coordination
from oncelog.coordinator.effects import Effects
from oncelog.coordinator.groups import coordinator_for
from oncelog.coordinator.records import encode_record, offset_commit, offset_tombstone
from oncelog.log.producer_state import AppendOrigin
from oncelog.log.storage import FileStorage
from oncelog.records import kernel
from oncelog.records.batch import build_batch, build_control_batch, decode_records
from oncelog.records.model import ControlMarker
from oncelog.types import TopicPartition
from tests.broker.groups.scripted import ScriptedCoordinator
from tests.broker.support import NOW_MS, Desk, FailingStorage, replace_method
from tests.support.raw import Message

COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC = 17
INVALID_GROUP_ID = 24
OFFSETS = "__consumer_offsets"
DATA = "/data"


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ScriptedCoordinator]]:
    """The coordinators that were made, the newest last."""
    monkeypatch.setattr(coordination, "GroupCoordinator", ScriptedCoordinator)
    ScriptedCoordinator.made = []
    yield ScriptedCoordinator.made
    ScriptedCoordinator.made = []


@pytest.fixture
def storage() -> FailingStorage:
    return FailingStorage()


def open_desk(storage: FailingStorage, **settings: str) -> Desk:
    return Desk(storage, DATA, offsets_topic_num_partitions="4", **settings)


@pytest.fixture
def desk(storage: FailingStorage) -> Desk:
    """A broker whose groups have been asked for once, so that their topic is there."""
    desk = open_desk(storage)
    find(desk, "any")
    return desk


def find(desk: Desk, *groups: str) -> list[Message]:
    found: list[Message] = desk.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": groups})["coordinators"]
    return found


def commit_request(group: str, offset: int = 7, *, count: int = 1) -> Message:
    partitions = [{"partition_index": n, "committed_offset": offset, "committed_metadata": ""} for n in range(count)]
    return {"group_id": group, "topics": [{"name": "orders", "partitions": partitions}]}


def commit(desk: Desk, group: str, offset: int = 7) -> int:
    answer = desk.ask("offset_commit", 8, commit_request(group, offset))
    ((partition,),) = [topic["partitions"] for topic in answer["topics"]]
    return int(partition["error_code"])


def join_request(group: str) -> Message:
    return {"group_id": group, "session_timeout": 10_000, "member_id": "", "protocol_type": "consumer", "protocols": []}


def groups_apart(count: int, partitions: int = 4) -> list[str]:
    """Group ids, each of another partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        found.setdefault(coordinator_for(f"group-{number}", partitions), f"group-{number}")
        number += 1
    return list(found.values())


# --- who coordinates ---


def test_the_first_one_asked_for_creates_the_topic_as_kafka_does(storage: FailingStorage) -> None:
    desk = Desk(storage, DATA)
    assert desk.broker.controller.state.topic(OFFSETS) is None
    (found,) = find(desk, "billing")
    assert (found["error_code"], found["node_id"], found["host"], found["port"]) == (0, 1, "broker.example", 9092)
    topic = desk.broker.controller.state.topic(OFFSETS)
    assert topic is not None
    assert len(topic.partitions) == 50
    config = desk.broker.log_config(OFFSETS)
    assert (config.compacts, config.deletes, config.segment_bytes) == (True, False, 100 << 20)
    (listed,) = desk.ask("metadata", 12, {"topics": [{"name": OFFSETS}]})["topics"]
    assert listed["is_internal"]


def test_more_replicas_than_nodes_cannot_be_had(storage: FailingStorage) -> None:
    desk = open_desk(storage, offsets_topic_replication_factor="3")
    assert [each["error_code"] for each in find(desk, "a", "b")] == [COORDINATOR_NOT_AVAILABLE] * 2
    assert desk.broker.controller.state.topic(OFFSETS) is None


def test_before_anybody_asked_there_is_no_coordinator(storage: FailingStorage) -> None:
    desk = open_desk(storage)
    assert commit(desk, "billing") == NOT_COORDINATOR
    assert desk.ask("heartbeat", 4, {"group_id": "billing", "member_id": "m"})["error_code"] == NOT_COORDINATOR
    described = desk.ask("describe_groups", 5, {"groups": ["billing"]})["groups"]
    assert [each["error_code"] for each in described] == [NOT_COORDINATOR]
    assert desk.ask("list_groups", 4, {})["groups"] == []


def test_clients_may_not_write_there(desk: Desk) -> None:
    records = bytes(build_batch([(NOW_MS, b"k", b"v", ())]))
    data = {"name": OFFSETS, "partition_data": [{"index": 0, "records": records}]}
    answer = desk.ask("produce", 9, {"acks": -1, "timeout": 1000, "topic_data": [data]})
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == INVALID_TOPIC


@pytest.mark.parametrize("api", ["join_group", "sync_group", "heartbeat", "leave_group"])
def test_a_group_has_a_name(desk: Desk, api: str) -> None:
    assert desk.ask(api, 3, {"group_id": ""})["error_code"] == INVALID_GROUP_ID


# --- records before answers ---


def test_a_commit_is_in_the_log_and_true_when_it_is_answered(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    assert commit(desk, "billing", 7) == 0
    assert scripted[-1].committed == {("billing", "orders", 0): 7}
    log = desk.broker.partition(OFFSETS, coordinator_for("billing", 4))
    assert log.high_watermark == log.log_end_offset == 1
    batch = log.read(0, 1 << 20, upper_bound=1).read_all()
    (record,) = decode_records(batch)
    expected = offset_commit("billing", "orders", 0, offset=7, leader_epoch=-1, metadata="", commit_timestamp_ms=0)
    assert (record.key, record.value) == encode_record(expected)
    assert kernel.parse_header(batch).leader_epoch == desk.broker.leader_epoch(OFFSETS, log.topic_partition.partition)


def test_the_records_of_a_request_are_one_batch(desk: Desk) -> None:
    desk.ask("offset_commit", 8, commit_request("billing", count=10))
    log = desk.broker.partition(OFFSETS, coordinator_for("billing", 4))
    header = kernel.parse_header(log.read(0, 1 << 20, upper_bound=10).read_all())
    assert (header.record_count, log.log_end_offset) == (10, 10)


def test_records_are_compressed_as_the_broker_was_told(storage: FailingStorage) -> None:
    desk = open_desk(storage, offsets_topic_compression_codec="1")
    find(desk, "billing")
    commit(desk, "billing")
    log = desk.broker.partition(OFFSETS, coordinator_for("billing", 4))
    assert kernel.parse_header(log.read(0, 1 << 20, upper_bound=1).read_all()).codec == 1


def test_the_coordinator_hears_who_asks(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    commit(desk, "billing")
    caller = scripted[-1].callers[-1]
    assert (caller.client_id, caller.version) == ("raw", 8)


def test_where_the_disk_is_promised_the_answer_waits_for_it(storage: FailingStorage) -> None:
    desk = open_desk(storage, log_flush_interval_messages="1")
    find(desk, "billing")
    committed = desk.ask_later("offset_commit", 8, commit_request("billing"))
    # What is read meanwhile may tell of the commit, so it waits as well.
    described = desk.ask_later("describe_groups", 5, {"groups": ["billing"]})
    assert committed.message is None
    desk.threads.run_all()
    assert committed.message is not None
    assert described.message is not None
    assert (
        desk.ask("heartbeat", 4, {"group_id": "billing", "member_id": "m"})["error_code"] == 0
    )  # nothing is unflushed


# --- answers that wait ---


def test_a_join_waits_and_others_are_served(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    joined = desk.ask_later("join_group", 5, join_request("billing"))
    assert commit(desk, "billing") == 0
    assert joined.message is None
    (partition,) = desk.broker.coordination._partitions.values()
    partition.perform(scripted[-1].release(), NOW_MS)
    assert joined.message is not None
    assert (joined.message["error_code"], joined.message["generation_id"]) == (0, 1)


def test_a_lost_connection_is_forgotten(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    joined = desk.ask_later("join_group", 5, join_request("billing"))
    assert len(scripted[-1].waiting) == 1
    assert joined.pending.abandon is not None
    joined.pending.abandon()
    assert scripted[-1].waiting == []


# --- many groups ---


def test_groups_of_several_partitions_are_described_in_the_order_asked(desk: Desk) -> None:
    names = groups_apart(4)
    described = desk.ask(
        "describe_groups", 5, {"groups": [*names, names[0] + "x"], "include_authorized_operations": True}
    )
    assert [group["group_id"] for group in described["groups"]] == [*names, names[0] + "x"]
    assert {group["authorized_operations"] for group in described["groups"]} == {0b110101001000}


def test_all_groups_are_listed(desk: Desk) -> None:
    names = groups_apart(3)
    for name in names:
        commit(desk, name)
    assert {group["group_id"] for group in desk.ask("list_groups", 4, {})["groups"]} == set(names)


def test_one_partition_that_failed_spoils_its_own_groups_only(desk: Desk) -> None:
    healthy, failed = groups_apart(2)
    desk.broker.partition(OFFSETS, coordinator_for(failed, 4)).offline = True
    described = desk.ask("describe_groups", 5, {"groups": [healthy, failed]})["groups"]
    assert [group["error_code"] for group in described] == [0, NOT_COORDINATOR]
    assert [each["error_code"] for each in find(desk, healthy, failed)] == [0, COORDINATOR_NOT_AVAILABLE]


# --- loading ---


def test_a_restart_finds_what_was_committed(
    desk: Desk, storage: FailingStorage, scripted: list[ScriptedCoordinator]
) -> None:
    for offset in range(5):
        commit(desk, "billing", offset)
    again = open_desk(storage)
    again.broker.resume_groups()
    assert len(scripted) == 1  # in the background, once the broker is ready
    again.alarms.pass_time(0)
    assert scripted[-1].committed == {("billing", "orders", 0): 4}
    assert scripted[-1].calls[0] == "loaded"
    assert {group["group_id"] for group in again.ask("list_groups", 4, {})["groups"]} == {"billing"}


def test_a_broker_without_groups_makes_no_coordinator(
    storage: FailingStorage, scripted: list[ScriptedCoordinator]
) -> None:
    desk = open_desk(storage)
    desk.broker.resume_groups()
    desk.alarms.pass_time(1_000)
    assert scripted == []
    assert desk.broker._coordination is None


def test_a_request_need_not_wait_for_the_background(desk: Desk, storage: FailingStorage) -> None:
    commit(desk, "billing", 3)
    again = open_desk(storage)
    assert commit(again, "billing", 4) == 0
    assert ScriptedCoordinator.made[-1].committed == {("billing", "orders", 0): 4}


def append_raw(desk: Desk, group: str, batch: bytearray) -> None:
    log = desk.broker.partition(OFFSETS, coordinator_for(group, 4))
    log.append(batch, kernel.parse_header(batch), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.REPLICATION)
    log.advance_high_watermark(log.log_end_offset)


def row(group: str, offset: int | None, topic: str = "orders") -> tuple[int, bytes, bytes | None, tuple[()]]:
    if offset is None:
        return (NOW_MS, *encode_record(offset_tombstone(group, topic, 0)), ())
    record = offset_commit(group, topic, 0, offset=offset, leader_epoch=-1, metadata="", commit_timestamp_ms=0)
    return (NOW_MS, *encode_record(record), ())


def test_a_long_log_is_loaded_in_steps_and_asks_to_come_back(desk: Desk, storage: FailingStorage) -> None:
    for _ in range(4):
        append_raw(desk, "billing", build_batch([row("billing", n, f"topic-{n}") for n in range(1_000)]))
    assert desk.broker.partition(OFFSETS, coordinator_for("billing", 4)).size_bytes > 2 * STEP_BYTES
    again = open_desk(storage)
    assert commit(again, "billing", 3) == COORDINATOR_LOAD_IN_PROGRESS
    beat = {"group_id": "billing", "member_id": "m"}
    assert again.ask("heartbeat", 4, beat)["error_code"] == 0  # nobody's session ends meanwhile
    assert again.ask("list_groups", 4, {})["error_code"] == COORDINATOR_LOAD_IN_PROGRESS
    again.alarms.pass_time(0)
    assert commit(again, "billing", 3) == 0
    assert len(ScriptedCoordinator.made[-1].committed) == 1_001


def long_logs(desk: Desk) -> list[str]:
    """A group for each partition, whose log is too long to be loaded at once."""
    names = {coordinator_for(name, 4): name for name in (f"group-{n}" for n in range(50))}
    for group in names.values():
        append_raw(desk, group, build_batch([row(group, n, f"topic-{n}") for n in range(1_000)]))
    return [names[index] for index in range(4)]


def test_a_partition_that_is_asked_for_is_loaded_before_the_others(desk: Desk, storage: FailingStorage) -> None:
    groups = long_logs(desk)
    again = open_desk(storage)
    again.broker.resume_groups()
    assert [commit(again, groups[index]) for index in (3, 2)] == [COORDINATOR_LOAD_IN_PROGRESS] * 2
    loaded: list[int] = []
    while again.alarms.due and len(loaded) < 4:
        again.alarms.due.pop(0)[1]()
        partitions = again.broker.coordination._partitions
        loaded += [index for index, one in partitions.items() if one.loading is None and index not in loaded]
    assert loaded == [3, 2, 0, 1]
    assert [commit(again, group) for group in groups] == [0] * 4


def test_a_step_of_loading_replays_no_more_than_a_few_records(
    desk: Desk, storage: FailingStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_logs(desk)
    replay, replayed = ScriptedCoordinator.replay, 0

    def counted(coordinator: ScriptedCoordinator, *record: Any) -> None:
        nonlocal replayed
        replayed += 1
        replay(coordinator, *record)

    monkeypatch.setattr(ScriptedCoordinator, "replay", counted)
    again = open_desk(storage)
    again.broker.resume_groups()
    steps = []
    while again.alarms.due:
        before = replayed
        again.alarms.due.pop(0)[1]()
        steps.append(replayed - before)
    assert sum(steps) == 4_000
    assert max(steps) <= STEP_RECORDS


def test_a_request_for_many_groups_does_not_load_them_all_while_it_waits(desk: Desk, storage: FailingStorage) -> None:
    names = {coordinator_for(name, 4): name for name in (f"group-{n}" for n in range(50))}
    for group in names.values():  # each of them short, and all together not
        append_raw(desk, group, build_batch([row(group, n, f"topic-{n}") for n in range(150)]))
        assert SHORT_BYTES // 4 < desk.broker.partition(OFFSETS, coordinator_for(group, 4)).size_bytes <= SHORT_BYTES
    again = open_desk(storage)
    described = again.ask("describe_groups", 5, {"groups": list(names.values())})["groups"]
    assert [group["error_code"] for group in described] == [COORDINATOR_LOAD_IN_PROGRESS] * 4
    assert again.ask("list_groups", 4, {})["error_code"] == COORDINATOR_LOAD_IN_PROGRESS
    assert commit(again, names[1]) == 0
    again.alarms.pass_time(0)
    assert again.ask("list_groups", 4, {})["error_code"] == 0


def test_only_the_newest_record_of_a_key_is_replayed_within_a_step(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    append_raw(desk, "billing", build_batch([row("billing", n) for n in range(100)]))
    replayed = []
    monkeypatch.setattr(ScriptedCoordinator, "replay", lambda self, record, *_: replayed.append(record.value["offset"]))
    desk.ask("describe_groups", 5, {"groups": ["billing"]})
    assert replayed == [99]


def test_offsets_of_a_transaction_count_once_it_is_committed(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    for producer_id, is_committed in ((1, True), (2, False), (3, None)):
        rows = [row("billing", producer_id, f"topic-{producer_id}")]
        append_raw(
            desk,
            "billing",
            build_batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True),
        )
        if is_committed is not None:
            marker = ControlMarker(is_committed, 0)
            batch = build_control_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS)
            append_raw(desk, "billing", batch)
    desk.ask("describe_groups", 5, {"groups": ["billing"]})
    assert scripted[-1].committed == {("billing", "topic-1", 0): 1}


def test_records_of_unknown_types_are_left_out(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    unknown = (NOW_MS, b"\x00\x30abc", b"\x00\x03", ())
    append_raw(desk, "billing", build_batch([unknown, row("billing", 5)]))
    desk.ask("describe_groups", 5, {"groups": ["billing"]})
    assert scripted[-1].committed == {("billing", "orders", 0): 5}


@pytest.mark.parametrize("key", [None, b"\x00\x01\x00", b"\x03\x00abc", b"customer 7"])
def test_a_log_with_records_that_make_no_sense_is_not_believed(desk: Desk, key: bytes | None) -> None:
    append_raw(desk, "billing", build_batch([(NOW_MS, key, b"\x00\x03", ()), row("billing", 5)]))
    (answer,) = desk.ask("describe_groups", 5, {"groups": ["billing"]})["groups"]
    assert answer["error_code"] == COORDINATOR_NOT_AVAILABLE


def test_a_damaged_log_is_not_believed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(desk, "billing", 3)
    desk.broker.coordination._partitions.clear()  # as after a restart
    log = desk.broker.partition(OFFSETS, coordinator_for("billing", 4))
    data = bytearray(log.read(0, 1 << 20, upper_bound=1).read_all())
    data[-1] ^= 1

    class Damaged:
        def read_all(self) -> bytes:
            return bytes(data)

    replace_method(monkeypatch, log, "read", lambda *_, **__: Damaged())
    assert commit(desk, "billing", 4) == COORDINATOR_NOT_AVAILABLE
    assert [each["error_code"] for each in find(desk, "billing")] == [COORDINATOR_NOT_AVAILABLE]
    desk.alarms.pass_time(10_000)  # the background does not try for ever
    assert desk.alarms.due == []


def test_compaction_leaves_what_counts(tmp_path: Path, scripted: list[ScriptedCoordinator]) -> None:
    desk = Desk(FileStorage(), str(tmp_path), offsets_topic_num_partitions="4")
    find(desk, "billing")
    for offset in range(100):
        commit(desk, "billing", offset)
    log = desk.broker.partition(OFFSETS, coordinator_for("billing", 4))
    before = log.size_bytes
    log.roll(NOW_MS)
    cleaning = desk.broker.logs.next_cleaning(NOW_MS + 60_000)
    assert cleaning is not None
    while desk.broker.logs.cleaned(cleaning.clean_next(), NOW_MS + 60_000):
        pass
    assert log.size_bytes < before / 20
    commit(desk, "shipping", 7)
    desk.broker.stop(NOW_MS)
    again = Desk(FileStorage(), str(tmp_path), offsets_topic_num_partitions="4")
    again.broker.resume_groups()
    again.alarms.pass_time(0)
    committed = {key: offset for one in scripted[2:] for key, offset in one.committed.items()}
    assert committed == {("billing", "orders", 0): 99, ("shipping", "orders", 0): 7}


# --- failing ---


def test_a_write_that_fails_unloads_and_what_the_log_says_is_loaded_again(
    desk: Desk, storage: FailingStorage, scripted: list[ScriptedCoordinator]
) -> None:
    commit(desk, "billing", 3)
    waiting = desk.ask_later("join_group", 5, join_request("billing"))
    storage.fail_next("append", errno.ENOSPC)
    assert commit(desk, "billing", 4) == NOT_COORDINATOR
    assert waiting.message is not None
    assert waiting.message["error_code"] == NOT_COORDINATOR
    assert scripted[-1].committed == {("billing", "orders", 0): 3}
    assert commit(desk, "billing", 5) == 0
    assert len(scripted) == 2
    assert scripted[-1].committed == {("billing", "orders", 0): 5}


def test_after_a_failed_write_the_groups_come_back_without_being_asked_for(
    desk: Desk, storage: FailingStorage, scripted: list[ScriptedCoordinator]
) -> None:
    commit(desk, "billing", 3)
    storage.fail_next("append", errno.ENOSPC)
    commit(desk, "billing", 4)
    desk.alarms.pass_time(RELOAD_DELAY_MS)
    assert len(scripted) == 2
    assert scripted[-1].committed == {("billing", "orders", 0): 3}


def test_a_flush_that_fails_takes_the_groups_offline(storage: FailingStorage) -> None:
    desk = open_desk(storage, log_flush_interval_messages="1")
    find(desk, "billing")
    waiting = desk.ask_later("join_group", 5, join_request("billing"))
    committed = desk.ask_later("offset_commit", 8, commit_request("billing"))
    storage.fail_next("sync")
    desk.threads.run_all()
    assert waiting.message is not None
    assert waiting.message["error_code"] == NOT_COORDINATOR
    assert committed.message is not None
    assert committed.message["topics"][0]["partitions"][0]["error_code"] == NOT_COORDINATOR
    assert commit(desk, "billing") == NOT_COORDINATOR


def test_what_is_too_large_for_a_batch_is_an_error(desk: Desk, storage: FailingStorage) -> None:
    answer = desk.ask("offset_commit", 8, commit_request("billing", count=30_000))
    assert {each["error_code"] for each in answer["topics"][0]["partitions"]} == {-1}
    assert desk.broker.partition(OFFSETS, coordinator_for("billing", 4)).log_end_offset == 0


def test_a_log_that_went_offline_elsewhere_is_noticed_at_once(desk: Desk) -> None:
    waiting = desk.ask_later("join_group", 5, join_request("billing"))
    index = coordinator_for("billing", 4)
    desk.broker.partition(OFFSETS, index).offline = True
    desk.broker.log_failed(TopicPartition(OFFSETS, index))
    assert waiting.message is not None
    assert waiting.message["error_code"] == NOT_COORDINATOR


def test_deleting_the_topic_ends_its_groups(tmp_path: Path) -> None:
    desk = Desk(FileStorage(), str(tmp_path), offsets_topic_num_partitions="4")
    find(desk, "billing")
    waiting = desk.ask_later("join_group", 5, join_request("billing"))
    desk.ask("delete_topics", 5, {"topic_names": [OFFSETS], "timeout": 1000})
    assert waiting.message is not None
    assert waiting.message["error_code"] == NOT_COORDINATOR
    assert commit(desk, "billing") == NOT_COORDINATOR
    find(desk, "billing")
    assert commit(desk, "billing") == 0


# --- the world changes ---


def test_coordinators_hear_of_topics(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    commit(desk, "billing")
    scripted[-1].calls.clear()
    desk.create("orders", 3)
    assert scripted[-1].calls == ["topics changed"]
    topics = scripted[-1].topics
    assert topics.partition_count("orders") == 3
    assert topics.topic_name(topics.topic_id("orders")) == "orders"
    assert set(topics.names()) == {OFFSETS, "orders"}
    desk.ask("delete_topics", 5, {"topic_names": ["orders"], "timeout": 1000})
    assert scripted[-1].calls == ["topics changed"] * 2
    assert topics.partition_count("orders") is None


def test_settings_are_the_brokers_and_the_groups(storage: FailingStorage, scripted: list[ScriptedCoordinator]) -> None:
    desk = open_desk(storage, group_max_size="3", offsets_retention_minutes="2", group_consumer_assignors="range")
    find(desk, "billing")
    commit(desk, "billing")
    settings = scripted[-1].settings
    assert (settings.group_max_size, settings.offsets_retention_ms) == (3, 120_000)
    assert settings.group_consumer_assignors == ("range",)
    assert settings.overrides("billing").consumer_session_timeout_ms is None
    change = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}
    resource = {"resource_type": 32, "resource_name": "billing", "configs": [change]}
    (altered,) = desk.ask("incremental_alter_configs", 1, {"resources": [resource]})["responses"]
    assert altered["error_code"] == 0
    assert settings.overrides("billing") == (50_000, None)


# --- time ---


def beat(desk: Desk, group: str) -> None:
    assert desk.ask("heartbeat", 4, {"group_id": group, "member_id": "m"})["error_code"] == 0


def test_one_alarm_rings_for_the_earliest_deadline(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    first, second = groups_apart(2)
    commit(desk, first)
    commit(desk, second)
    early, late = scripted
    late.deadline_ms = NOW_MS + 5_000
    beat(desk, second)
    early.deadline_ms = NOW_MS + 2_000
    beat(desk, first)
    assert len(desk.alarms.due) == 1
    desk.alarms.pass_time(10_000)
    assert [call for call in early.calls if call.startswith("expire")] == [f"expire {NOW_MS + 2_000}"]
    assert [call for call in late.calls if call.startswith("expire")] == [f"expire {NOW_MS + 5_000}"]
    assert desk.alarms.due == []


def test_the_alarm_serves_one_partition_at_a_time_in_turn(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    """What is due in a partition may be much (groups that follow a change of topics): others go on in between."""
    names = groups_apart(3)
    for name in names:
        commit(desk, name)
    for one, name in zip(scripted, names, strict=True):
        one.stays_due = True
        one.deadline_ms = NOW_MS
        beat(desk, name)

    def expired() -> list[int]:
        return [sum(call.startswith("expire") for call in one.calls) for one in scripted]

    before = expired()
    for count in range(1, 7):
        (alarm,) = desk.alarms.due
        desk.alarms.due.clear()
        alarm[1]()
        assert sum(expired()) == sum(before) + count
    assert expired() == [one + 2 for one in before]


def test_a_deadline_that_moved_away_costs_no_new_alarm(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    commit(desk, "billing")
    for delay_ms in (2_000, 3_000, 4_000):
        scripted[-1].deadline_ms = NOW_MS + delay_ms
        beat(desk, "billing")
    assert [due for due, _ in desk.alarms.due] == [NOW_MS + 2_000]
    desk.alarms.pass_time(3_000)
    assert not [call for call in scripted[-1].calls if call.startswith("expire")]
    desk.alarms.pass_time(1_000)
    assert [call for call in scripted[-1].calls if call.startswith("expire")] == [f"expire {NOW_MS + 4_000}"]


def test_a_commit_alone_sets_the_alarm_too(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    """Its offsets are to expire one day, also if nobody ever joins the group."""
    commit(desk, "billing")
    scripted[-1].deadline_ms = NOW_MS + 600_000
    commit(desk, "billing")
    assert [due for due, _ in desk.alarms.due] == [NOW_MS + 600_000]


def test_what_a_deadline_yields_is_written_and_sent(desk: Desk, scripted: list[ScriptedCoordinator]) -> None:
    joined = desk.ask_later("join_group", 5, join_request("billing"))
    coordinator = scripted[-1]
    tombstones = [offset_tombstone("billing", "orders", n) for n in range(2_500)]
    coordinator.due = Effects([], coordinator.release().replies)
    coordinator.deadline_ms = NOW_MS + 1_000
    commit(desk, "billing")
    desk.alarms.pass_time(1_000)
    assert joined.message is not None
    coordinator.due = Effects(tombstones, [])
    coordinator.deadline_ms = NOW_MS + 2_000
    commit(desk, "billing")
    desk.alarms.pass_time(1_000)
    log = desk.broker.partition(OFFSETS, coordinator_for("billing", 4))
    assert log.log_end_offset == 2 + 2_500
