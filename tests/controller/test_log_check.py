"""A metadata log that lost what was in force is not opened, and nothing of it is changed; a torn write is cut off."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.controller import metadata_log
from oncelog.controller.controller import Controller
from oncelog.controller.end_offset_checkpoint import FILE_NAME as END_OFFSET_FILE
from oncelog.controller.log_check import check_log
from oncelog.controller.records import DamagedMetadata
from oncelog.controller.topics import NewTopic, TopicToDelete, create_topics, delete_topics
from oncelog.log.checkpoints import CLEAN_SHUTDOWN_FILE, write_topic_id
from oncelog.log.storage import FileStorage
from oncelog.records import kernel
from tests.controller.support import CLUSTER, IDENTITY, SCHEMA, counting_ids

NOW_MS = 1_700_000_000_000
NEVER = 1 << 40
METADATA = "__cluster_metadata-0"
LOG = f"{METADATA}/00000000000000000000.log"


def open_controller(folder: Path, snapshot_bytes: int = NEVER) -> Controller:
    return Controller.open(
        FileStorage(), str(folder), IDENTITY, max_bytes_between_snapshots=snapshot_bytes, now_ms=NOW_MS
    )


def create(controller: Controller, *names: str) -> None:
    topics = [NewTopic(name, 1) for name in names]
    controller.commit(create_topics(controller.state, CLUSTER, SCHEMA, topics, counting_ids()), NOW_MS)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refuse(folder: Path, words: str = "") -> None:
    before = contents(folder)
    with pytest.raises(DamagedMetadata, match=f"(?s){words}.*oncelog doctor {folder}"):
        open_controller(folder)
    assert contents(folder) == before, "a refusal changes nothing"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    controller = open_controller(tmp_path)
    create(controller, "orders")
    controller.next_producer_id(NOW_MS)
    create(controller, "paid")
    return tmp_path


def test_every_flipped_bit_of_the_log_is_noticed(folder: Path) -> None:
    """Also outside of a batch's checksum: its offset, its epoch. Every thirteenth bit, to be quick."""
    whole = (folder / LOG).read_bytes()
    for bit in range(0, len(whole) * 8, 13):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (folder / LOG).write_bytes(damaged)
        with pytest.raises(DamagedMetadata):
            open_controller(folder)
        assert (folder / LOG).read_bytes() == damaged


def test_a_log_cut_anywhere_is_noticed(folder: Path) -> None:
    whole = (folder / LOG).read_bytes()
    for size in range(0, len(whole), 13):
        (folder / LOG).write_bytes(whole[:size])
        refuse(folder)
    (folder / LOG).unlink()
    refuse(folder, "lacks its end")
    shutil.rmtree(folder / METADATA)
    refuse(folder, "says that it was durable up to")


def test_an_older_log_is_noticed(tmp_path: Path) -> None:
    """It would give out producer ids a second time."""
    controller = open_controller(tmp_path)
    create(controller, "orders")
    older = (tmp_path / LOG).read_bytes()
    controller.next_producer_id(NOW_MS)
    controller.close(NOW_MS)
    (tmp_path / LOG).write_bytes(older)
    refuse(tmp_path, "says that it was durable up to")


def last_batch(data: bytes) -> int:
    headers, _ = kernel.scan(data, 0, len(data), True)
    return headers[-1].size_bytes


@pytest.mark.parametrize(
    "tail",
    [
        lambda batch: batch[:-1],
        lambda batch: batch[:30],
        lambda batch: batch[:100] + bytes(len(batch) - 100),
        lambda batch: bytes(4096),
    ],
    ids=["cut", "cut in its header", "with a hole", "zeros"],
)
def test_what_nobody_heard_of_is_cut_off(folder: Path, tail: Callable[[bytes], bytes]) -> None:
    noted = (folder / END_OFFSET_FILE).read_bytes()
    create(open_controller(folder), "torn")
    whole = (folder / LOG).read_bytes()
    start = len(whole) - last_batch(whole)
    (folder / LOG).write_bytes(whole[:start] + tail(whole[start:]))
    (folder / END_OFFSET_FILE).write_bytes(noted)
    assert set(open_controller(folder).state.topics) == {"orders", "paid"}
    assert check_log(FileStorage(), str(folder / METADATA)).bad is None


def test_what_was_found_is_noted_before_it_is_in_force(folder: Path) -> None:
    """A batch that a crash left behind, unheard of, is in force after the next start."""
    noted = (folder / END_OFFSET_FILE).read_bytes()
    create(open_controller(folder), "found")
    (folder / END_OFFSET_FILE).write_bytes(noted)
    assert "found" in open_controller(folder).state.topics
    whole = (folder / LOG).read_bytes()
    (folder / LOG).write_bytes(whole[:-1])
    refuse(folder)


def test_damage_to_the_note_itself_costs_nothing(folder: Path) -> None:
    path = folder / END_OFFSET_FILE
    whole = path.read_bytes()
    for damaged in (b"", whole[:20], whole[:-5], bytes(len(whole)), whole.replace(b"end", b"enc")):
        path.write_bytes(damaged)
        assert set(open_controller(folder).state.topics) == {"orders", "paid"}
    path.unlink()
    assert set(open_controller(folder).state.topics) == {"orders", "paid"}


class TestWithoutTheNote:
    """A folder of Kafka, or of a version that did not write it: what else there is must tell."""

    @pytest.fixture(autouse=True)
    def _no_note(self, folder: Path) -> None:
        (folder / END_OFFSET_FILE).unlink()

    def test_good_batches_behind_a_bad_one(self, folder: Path) -> None:
        whole = bytearray((folder / LOG).read_bytes())
        whole[len(whole) // 2] ^= 1
        (folder / LOG).write_bytes(whole)
        refuse(folder, "that is not a torn write")

    def test_a_bad_end_after_a_clean_stop(self, folder: Path) -> None:
        (folder / LOG).write_bytes((folder / LOG).read_bytes()[:-1])
        (folder / CLEAN_SHUTDOWN_FILE).touch()
        refuse(folder, "though it was stopped cleanly")

    def test_a_log_that_ends_before_its_epoch_began(self, folder: Path) -> None:
        epochs = folder / METADATA / "leader-epoch-checkpoint"
        create(open_controller(folder), "later")
        assert epochs.exists()
        headers, _ = kernel.scan((folder / LOG).read_bytes(), 0, 1 << 20, True)
        (folder / LOG).write_bytes((folder / LOG).read_bytes()[: headers[0].size_bytes])
        (folder / END_OFFSET_FILE).unlink()
        refuse(folder, "leader-epoch-checkpoint says")

    def test_records_of_a_topic_that_nobody_knows(self, folder: Path) -> None:
        lost = folder / "lost-0"
        lost.mkdir()
        write_topic_id(FileStorage(), str(lost), IDENTITY.directory_id)
        assert set(open_controller(folder).state.topics) == {"orders", "paid"}, "an empty folder says nothing"
        (folder / END_OFFSET_FILE).unlink()
        (lost / "00000000000000000000.log").write_bytes(b"records")
        refuse(folder, "lost-0 is one of 1")

    def test_records_of_a_topic_whose_deletion_is_known(self, folder: Path) -> None:
        controller = open_controller(folder)
        paid = controller.state.topics["paid"]
        controller.commit(delete_topics(controller.state, [TopicToDelete("paid", None)]), NOW_MS)
        left = folder / "paid-0"  # a crash came before its folder was renamed
        left.mkdir()
        write_topic_id(FileStorage(), str(left), paid.id)
        (left / "00000000000000000000.log").write_bytes(b"records")
        (folder / END_OFFSET_FILE).unlink()
        assert set(open_controller(folder).state.topics) == {"orders"}


def test_a_log_of_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "LOG_CONFIG", replace(metadata_log.LOG_CONFIG, segment_bytes=600))
    controller = open_controller(tmp_path)
    for number in range(10):
        create(controller, f"topic-{number}")
    files = sorted((tmp_path / METADATA).glob("*.log"))
    assert len(files) > 3
    for file in files:
        whole = file.read_bytes()
        for damaged in (b"", whole[:-3]):
            file.write_bytes(damaged)
            refuse(tmp_path)
        file.unlink()
        refuse(tmp_path)
        file.write_bytes(whole)
    assert len(open_controller(tmp_path).state.topics) == 10


def test_a_snapshot_tells_how_long_the_log_was(tmp_path: Path) -> None:
    controller = open_controller(tmp_path, snapshot_bytes=2000)
    for number in range(30):
        create(controller, f"topic-{number}")
    (tmp_path / END_OFFSET_FILE).unlink()
    for file in (tmp_path / METADATA).glob("*.log"):
        file.write_bytes(b"")
    refuse(tmp_path, r"checkpoint says that it was durable up to")
