"""The controller on a real folder: what it acknowledged is there after a restart, whatever was damaged."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.controller import metadata_log
from oncelog.controller.configs import ConfigChange, Operation, ResourceChange, incremental_alter_configs
from oncelog.controller.controller import Controller
from oncelog.controller.end_offset_checkpoint import FILE_NAME as END_OFFSET_FILE
from oncelog.controller.features import BOOTSTRAP_FEATURES
from oncelog.controller.metadata_log import KEPT_SNAPSHOTS
from oncelog.controller.records import UnreadableMetadata
from oncelog.controller.snapshot import SnapshotId, decode_snapshot, encode_snapshot, state_records
from oncelog.controller.state import ControllerState
from oncelog.controller.topics import NewTopic, TopicToDelete, create_topics, delete_topics
from oncelog.errors import KafkaStorageError
from oncelog.log.storage import File, FileStorage, OsFile
from oncelog.records import kernel
from tests.controller.support import CLUSTER, IDENTITY, SCHEMA, apply, counting_ids
from tests.support.sizes import examples

NOW_MS = 1_700_000_000_000
NEVER = 1 << 40
LOG = "__cluster_metadata-0/00000000000000000000.log"
ids = counting_ids()


def open_controller(folder: Path, storage: FileStorage | None = None, snapshot_bytes: int = NEVER) -> Controller:
    return Controller.open(
        storage or FileStorage(), str(folder), IDENTITY, max_bytes_between_snapshots=snapshot_bytes, now_ms=NOW_MS
    )


def create(controller: Controller, *names: str) -> None:
    topics = [NewTopic(name, 2, configs=[("retention.ms", "5")]) for name in names]
    controller.commit(create_topics(controller.state, CLUSTER, SCHEMA, topics, ids), NOW_MS)


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "LOG_CONFIG", replace(metadata_log.LOG_CONFIG, segment_bytes=2000))


def image(state: ControllerState) -> list[object]:
    return list(state_records(state))


def snapshots(folder: Path) -> list[Path]:
    return sorted((folder / "__cluster_metadata-0").glob("*.checkpoint"))


def test_what_was_committed_survives_without_a_clean_stop(tmp_path: Path) -> None:
    controller = open_controller(tmp_path)
    create(controller, "orders", "paid")
    producer_id = controller.next_producer_id(NOW_MS)
    controller.commit(delete_topics(controller.state, [TopicToDelete("paid", None)]), NOW_MS)
    change = ResourceChange(2, "orders", [ConfigChange("cleanup.policy", Operation.SET, "compact")])
    controller.commit(incremental_alter_configs(controller.state, 1, SCHEMA, [change]), NOW_MS)
    again = open_controller(tmp_path)
    assert image(again.state) == image(controller.state)
    assert set(again.state.topics) == {"orders"}
    assert again.next_producer_id(NOW_MS) > producer_id


def test_new_metadata_begins_with_its_features_once(tmp_path: Path) -> None:
    first = open_controller(tmp_path)
    assert first.state.features == BOOTSTRAP_FEATURES
    assert open_controller(tmp_path).metadata_offset == first.metadata_offset


def test_a_torn_write_is_all_or_nothing(tmp_path: Path) -> None:
    controller = open_controller(tmp_path)
    create(controller, "orders")
    before = image(controller.state)
    noted = (tmp_path / END_OFFSET_FILE).read_bytes()
    create(controller, "paid", "sent")
    (tmp_path / END_OFFSET_FILE).write_bytes(noted)  # nobody has heard of it yet
    log = tmp_path / LOG
    log.write_bytes(log.read_bytes()[:-1])
    assert image(open_controller(tmp_path).state) == before


class NoSync(FileStorage):
    """A disk that takes writes and fails to sync them."""

    failing = False

    def open(self, path: str, create: bool = False) -> File:
        file = super().open(path, create)
        sync = file.sync

        def maybe_sync() -> None:
            if NoSync.failing and path.endswith(".log"):
                raise OSError(5, "Input/output error")
            sync()

        return _Wrapped(file, maybe_sync)


class _Wrapped:
    def __init__(self, file: File, sync: object) -> None:
        self._file = file
        self.sync = sync

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


@pytest.fixture
def failing_disk() -> Iterator[NoSync]:
    NoSync.failing = False
    yield NoSync()
    NoSync.failing = False


def test_what_is_not_durable_is_not_true(tmp_path: Path, failing_disk: NoSync) -> None:
    controller = open_controller(tmp_path, failing_disk)
    create(controller, "orders")
    before = image(controller.state)
    NoSync.failing = True
    with pytest.raises(KafkaStorageError):
        create(controller, "paid")
    with pytest.raises(KafkaStorageError):
        controller.next_producer_id(NOW_MS)
    assert image(controller.state) == before
    NoSync.failing = False
    with pytest.raises(KafkaStorageError):  # a sync that failed once is not believed later
        create(controller, "sent")
    assert "orders" in open_controller(tmp_path).state.topics


class Scarce(FileStorage):
    """What a flush needs cannot be had, while `failing`."""

    failing = ""
    error = errno.EMFILE

    def sync_directory(self, path: str) -> None:
        if self.failing == "directory":
            raise OSError(self.error, "not now", path)
        super().sync_directory(path)

    def open(self, path: str, create: bool = False) -> OsFile:
        if self.failing == "epochs" and "leader-epoch-checkpoint" in path:
            raise OSError(self.error, "not now", path)
        return super().open(path, create)


@pytest.mark.parametrize(
    ("failing", "error"),
    [("directory", errno.EMFILE), ("directory", errno.ENFILE), ("epochs", errno.EMFILE), ("epochs", errno.ENOSPC)],
)
@pytest.mark.parametrize("what", ["the first record of an epoch", "the first record of a segment", "any record"])
def test_records_that_could_not_be_flushed_for_want_of_something_make_room_for_the_next(
    tmp_path: Path, failing: str, error: int, what: str
) -> None:
    """They would be there after a restart, together with what was made in their place."""
    storage = Scarce()
    controller = open_controller(tmp_path, storage)
    if "epoch" in what:
        controller.close(NOW_MS)
        controller = open_controller(tmp_path, storage)
    if "segment" in what:
        controller._log._log.roll(NOW_MS)
    log = controller._log._log
    log.leader_epochs._is_written = False  # so that the next flush writes it
    log._unsynced.written(log.leader_epochs.path)  # and syncs it, and the folder
    storage.failing, storage.error = failing, error
    for _ in range(3):
        with pytest.raises(KafkaStorageError):
            create(controller, "paid")
    storage.failing = ""
    create(controller, "paid")
    create(controller, "sent")
    again = open_controller(tmp_path)
    assert image(again.state) == image(controller.state)
    assert set(again.state.topics) == {"paid", "sent"}


@pytest.mark.parametrize("is_over", [False, True])
def test_a_stop_lets_go_of_records_that_were_refused_if_it_can(tmp_path: Path, is_over: bool) -> None:
    storage = Scarce()
    controller = open_controller(tmp_path, storage)
    create(controller, "orders")
    controller._log._log.roll(NOW_MS)
    storage.failing = "directory"
    with pytest.raises(KafkaStorageError):
        create(controller, "paid")
    if is_over:
        storage.failing = ""
        controller.close(NOW_MS)
    else:
        with pytest.raises(KafkaStorageError):
            controller.close(NOW_MS)
    assert set(open_controller(tmp_path).state.topics) == ({"orders"} if is_over else {"orders", "paid"})


def test_a_folder_that_cannot_be_synced_ends_the_metadata(tmp_path: Path) -> None:
    storage = Scarce()
    controller = open_controller(tmp_path, storage)
    controller._log._log.roll(NOW_MS)
    storage.failing, storage.error = "directory", errno.EIO
    with pytest.raises(KafkaStorageError):
        create(controller, "paid")
    storage.failing = ""
    with pytest.raises(KafkaStorageError, match="offline"):
        create(controller, "paid")


def test_snapshots_keep_the_log_short(tmp_path: Path) -> None:
    controller = open_controller(tmp_path, snapshot_bytes=2000)
    for number in range(100):
        create(controller, f"topic-{number}")
        controller.commit(delete_topics(controller.state, [TopicToDelete(f"topic-{number}", None)]), NOW_MS)
    create(controller, "last")
    assert len(snapshots(tmp_path)) == KEPT_SNAPSHOTS
    again = open_controller(tmp_path)
    assert image(again.state) == image(controller.state)
    assert set(again.state.topics) == {"last"}
    assert again.metadata_offset == controller.metadata_offset


def test_a_snapshot_waits_until_others_have_noted_what_it_forgets(tmp_path: Path) -> None:
    controller = open_controller(tmp_path)
    controller.close(NOW_MS)
    controller = open_controller(tmp_path, snapshot_bytes=1)
    refused: list[KafkaStorageError] = [KafkaStorageError("not yet")]

    def before_snapshot() -> None:
        if refused:
            raise refused.pop()

    controller.follow(lambda _: iter(()), lambda _: iter(()), before_snapshot)
    create(controller, "orders")
    assert snapshots(tmp_path) == []
    create(controller, "paid")
    assert len(snapshots(tmp_path)) == 1
    assert set(open_controller(tmp_path).state.topics) == {"orders", "paid"}


class EpochsUnwritable(FileStorage):
    failing = False

    def open(self, path: str, create: bool = False) -> OsFile:
        if self.failing and path.endswith("leader-epoch-checkpoint.tmp"):
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, create)


def test_a_log_that_cannot_be_cut_after_a_snapshot_is_no_failure_of_what_was_committed(tmp_path: Path) -> None:
    storage = EpochsUnwritable()
    controller = open_controller(tmp_path, storage, snapshot_bytes=1)
    create(controller, "a")
    controller.close(NOW_MS)
    controller = open_controller(tmp_path, storage, snapshot_bytes=1)
    create(controller, "b")
    storage.failing = True
    for name in ("c", "d"):
        create(controller, name)
    assert set(controller.state.topics) == {"a", "b", "c", "d"}
    assert image(open_controller(tmp_path).state) == image(controller.state)


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def torn_between_batches(data: bytes) -> bytes:
    headers, _ = kernel.scan(data, 0, len(data), True)
    return data[: -sum(header.size_bytes for header in headers[-2:])]


@pytest.mark.parametrize("damage", [flip, torn_between_batches, lambda data: data[:-1], lambda data: b""])
def test_a_damaged_snapshot_costs_nothing(
    tmp_path: Path, small_segments: None, damage: Callable[[bytes], bytes]
) -> None:
    controller = open_controller(tmp_path, snapshot_bytes=2000)
    for number in range(60):
        create(controller, f"topic-{number}")
    assert not (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").exists(), "the log was cut"
    newest = snapshots(tmp_path)[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    assert image(open_controller(tmp_path).state) == image(controller.state)


def test_a_lost_log_is_not_taken_for_a_new_cluster(tmp_path: Path) -> None:
    controller = open_controller(tmp_path, snapshot_bytes=2000)
    for number in range(30):
        create(controller, f"topic-{number}")
    for file in (tmp_path / "__cluster_metadata-0").glob("*.log"):
        file.unlink()
    with pytest.raises(UnreadableMetadata, match="oncelog doctor"):
        open_controller(tmp_path)


def test_snapshot_names() -> None:
    name = "00000000000000001234-0000000001.checkpoint"
    assert SnapshotId.of_file(name) == SnapshotId(1234, 1)
    assert SnapshotId(1234, 1).file_name == name
    assert SnapshotId.of_file(name + ".tmp") is None
    assert SnapshotId.of_file("00000000000000001234.log") is None


names = st.sampled_from(["a", "b.c", "b_c", "d"])
changes = st.one_of(
    st.tuples(st.just("create"), names, st.integers(1, 4)),
    st.tuples(st.just("delete"), names, st.just(0)),
    st.tuples(st.just("config"), names, st.integers(0, 3)),
    st.tuples(st.just("broker"), st.just("1"), st.integers(0, 3)),
)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(changes, max_size=25))
def test_a_snapshot_recreates_the_state(steps: list[tuple[str, str, int]]) -> None:
    state = ControllerState()
    new_id = counting_ids()
    for kind, name, number in steps:
        if kind == "create":
            apply(state, create_topics(state, CLUSTER, SCHEMA, [NewTopic(name, number)], new_id))
        elif kind == "delete":
            apply(state, delete_topics(state, [TopicToDelete(name, None)]))
        else:
            operation = Operation.DELETE if number == 0 else Operation.SET
            change = ConfigChange("retention.ms", operation, str(number))
            resource = ResourceChange(2 if kind == "config" else 4, name, [change])
            apply(state, incremental_alter_configs(state, 1, SCHEMA, [resource]))
    recreated = ControllerState()
    for record in decode_snapshot(encode_snapshot(state, NOW_MS, 1)):
        recreated.replay(record)
    assert image(recreated) == image(state)
    for topic in state.topics.values():
        twin = recreated.topic_by_id(topic.id)
        assert twin is not None
        assert twin.partitions == topic.partitions
        assert recreated.colliding_topic(topic.name) == state.colliding_topic(topic.name)
    assert recreated.topic_by_id(UUID(int=10**6)) is None
