"""The doctor finds what a start refuses, and what it repairs a broker can start on."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from oncelog.broker.config import BrokerConfig
from oncelog.broker.state import BrokerState
from oncelog.controller.end_offset_checkpoint import FILE_NAME as END_OFFSET_FILE
from oncelog.controller.salvage import SKIPPED_PRODUCER_IDS
from oncelog.controller.topics import NewTopic, TopicToDelete, create_topics, delete_topics
from oncelog.doctor.checkup import Diagnosis, Kind, check_up, kind_of
from oncelog.doctor.repairs import Folder
from oncelog.errors import OncelogError
from oncelog.log.inspection import Severity
from oncelog.log.storage import FileStorage
from oncelog.records import kernel
from tests.support.batches import Record, make_batch

NOW_MS = 1_700_000_000_000
LOG = "__cluster_metadata-0/00000000000000000000.log"
STAMP = "20260101T000000"
PRODUCER_ID = 2345


def open_broker(folder: Path) -> BrokerState:
    config = BrokerConfig.from_sources(None, {"log.dirs": str(folder)})
    return BrokerState.open(config, FileStorage(), now_ms=NOW_MS, new_id=uuid4)


def create(broker: BrokerState, *topics: NewTopic) -> None:
    plan = create_topics(broker.controller.state, broker.cluster, broker.config_schema, topics, broker.new_id)
    broker.commit(plan, NOW_MS)


def write(broker: BrokerState, topic: str, partition: int) -> None:
    log = broker.partition(topic, partition)
    batch = bytearray(make_batch([Record()], producer_id=PRODUCER_ID, epoch=0, sequence=0))
    log.append(batch, kernel.parse_header(batch), leader_epoch=0, now_ms=NOW_MS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two topics with records, one of them deleted and made again, and producer ids given out."""
    broker = open_broker(tmp_path)
    create(broker, NewTopic("orders", 2, configs=[("retention.ms", "5000")]))
    write(broker, "orders", 1)
    broker.commit(delete_topics(broker.controller.state, [TopicToDelete("orders", None)]), NOW_MS)
    create(broker, NewTopic("orders", 2, configs=[("retention.ms", "5000")]))
    create(broker, NewTopic("paid", 1))
    for topic, partition in (("orders", 0), ("orders", 1), ("paid", 0)):
        write(broker, topic, partition)
    broker.controller.next_producer_id(NOW_MS)
    broker.stop(NOW_MS)
    return tmp_path


def findings(folder: Path, *, deep: bool = True) -> list[Diagnosis]:
    return list(check_up(FileStorage(), str(folder), deep=deep))


def losses(folder: Path) -> list[Diagnosis]:
    return [each for each in findings(folder) if each.finding.severity is Severity.LOSS]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def repair_all(folder: Path) -> list[str]:
    """Until nothing can be repaired any more: one repair may bring to light what the next is for."""
    done = []
    while repairs := [each.repair for each in losses(folder) if each.repair is not None]:
        done += repairs[0].perform(Folder(FileStorage(), str(folder), STAMP, NOW_MS, uuid4))
    return done


def test_a_sound_folder(folder: Path) -> None:
    before = contents(folder)
    assert findings(folder) == []
    assert contents(folder) == before
    open_broker(folder)  # and is not stopped
    assert losses(folder) == []


def test_kinds_of_folders(folder: Path, tmp_path: Path) -> None:
    assert kind_of(FileStorage(), str(folder)) is Kind.DATA_FOLDER
    other = tmp_path / "other"
    other.mkdir()
    assert kind_of(FileStorage(), str(other)) is Kind.EMPTY
    (other / "photos-2026").mkdir()
    (other / "photos-2025").write_text("a file")
    assert kind_of(FileStorage(), str(other)) is Kind.FOREIGN


def test_a_folder_of_kafka_is_sound(tmp_path: Path) -> None:
    kafka = Path(__file__).parent.parent / "controller" / "kafka_folder"
    shutil.copytree(kafka, tmp_path / "kafka")
    assert [each.finding.path.rpartition("/")[2] for each in findings(tmp_path / "kafka") if each.finding] == [
        END_OFFSET_FILE
    ]


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 4
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_an_identity_is_written_again(folder: Path) -> None:
    before = (folder / "meta.properties").read_text()
    for damage in (lambda path: flip(path, 0.1), cut, Path.unlink, lambda path: path.write_bytes(b"")):
        damage(folder / "meta.properties")
        with pytest.raises(OncelogError, match="oncelog doctor"):
            open_broker(folder)
        assert "meta.properties" in losses(folder)[0].finding.path
        repair_all(folder)
        assert (folder / "meta.properties").read_text() == before
        assert losses(folder) == []


def test_a_damaged_batch_of_the_metadata(folder: Path) -> None:
    """The other batches are still good, also those behind it, and folders tell what it said."""
    flip(folder / LOG, 0.6)
    damaged = (folder / LOG).read_bytes()
    with pytest.raises(OncelogError, match="oncelog doctor"):
        open_broker(folder)
    (found,) = losses(folder)
    assert "not a torn write" in found.finding.problem
    repair_all(folder)
    assert losses(folder) == []
    broker = open_broker(folder)
    assert set(broker.controller.state.topics) == {"orders", "paid"}
    for topic, partition in (("orders", 0), ("orders", 1), ("paid", 0)):
        assert broker.partition(topic, partition).log_end_offset == 1
    assert broker.controller.next_producer_id(NOW_MS) > PRODUCER_ID
    assert damaged in contents(folder).values(), "what was there is kept"


def test_metadata_that_is_gone(folder: Path) -> None:
    ids = {topic.name: topic.id for topic in open_broker(folder).controller.state.topics.values()}
    shutil.rmtree(folder / "__cluster_metadata-0")
    with pytest.raises(OncelogError, match="oncelog doctor"):
        open_broker(folder)
    done = "\n".join(repair_all(folder))
    assert "adopted topic orders, with records kept forever" in done
    assert losses(folder) == []
    broker = open_broker(folder)
    assert {topic.name: topic.id for topic in broker.controller.state.topics.values()} == ids
    assert broker.partition("orders", 1).log_end_offset == 1
    assert broker.controller.next_producer_id(NOW_MS) > PRODUCER_ID + SKIPPED_PRODUCER_IDS
    broker.stop(NOW_MS)
    assert open_broker(folder).partition("paid", 0).log_end_offset == 1


def test_metadata_of_former_times(folder: Path) -> None:
    older = (folder / LOG).read_bytes()
    broker = open_broker(folder)
    create(broker, NewTopic("later", 2))
    write(broker, "later", 1)
    broker.stop(NOW_MS)
    (folder / LOG).write_bytes(older)
    with pytest.raises(OncelogError, match="oncelog doctor"):
        open_broker(folder)
    repair_all(folder)
    assert losses(folder) == []
    broker = open_broker(folder)
    assert broker.partition("later", 1).log_end_offset == 1
    assert broker.log_config("orders").retention_ms == 5000, "what the old metadata knew is still so"


def test_a_topic_id_that_was_never_given(folder: Path) -> None:
    path = folder / "paid-0" / "partition.metadata"
    before = path.read_text()
    (folder / "paid-0" / "oncelog-manifest").unlink()  # which knows the id, and would put it right
    path.write_text(before[:-3] + ("AAA" if before[-3:] != "AAA" else "BBB"))
    broker = open_broker(folder)
    assert broker.is_offline("paid", 0)
    assert not broker.is_offline("orders", 0)
    assert not list(folder.glob("*-stray"))
    assert "partition.metadata" in losses(folder)[0].finding.path
    repair_all(folder)
    assert path.read_text() == before
    assert open_broker(folder).partition("paid", 0).log_end_offset == 1
