"""Folders that others wrote: what is taken over, what is refused, and that a refusal writes nothing."""

from __future__ import annotations

import json
import logging
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.controller.controller import Controller
from oncelog.controller.features import BOOTSTRAP_FEATURES, METADATA_VERSION
from oncelog.controller.identity import Identity, load_or_create
from oncelog.controller.metadata_log import KEPT_SNAPSHOTS
from oncelog.controller.producer_ids import BLOCK_SIZE
from oncelog.controller.records import MetadataRecord, RecordType, UnreadableMetadata, encode_record
from oncelog.controller.snapshot import SnapshotId, encode_snapshot
from oncelog.controller.state import ConfigResource, ControllerState, ResourceType
from oncelog.controller.takeover import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, UnservableMetadata
from oncelog.controller.topics import NewTopic, create_topics
from oncelog.log.storage import FileStorage
from oncelog.records import kernel
from oncelog.records.batch import BatchHeader, build_batch
from tests.controller.support import CLUSTER, IDENTITY, SCHEMA, counting_ids

KAFKA_FOLDER = Path(__file__).parent / "kafka_folder"
"""Apache Kafka 4.3.1 as formatted by default, with one topic, stopped cleanly. Without the topic's log."""

NOW_MS = 1_700_000_000_000
NEVER = 1 << 40
TOPIC_ID = UUID(int=7)
LOG = "__cluster_metadata-0/00000000000000000000.log"
KAFKA_EPOCH = 5


def open_controller(folder: Path, identity: Identity = IDENTITY, snapshot_bytes: int = NEVER) -> Controller:
    return Controller.open(
        FileStorage(), str(folder), identity, max_bytes_between_snapshots=snapshot_bytes, now_ms=NOW_MS
    )


def feature(name: str = METADATA_VERSION, level: int = 30) -> MetadataRecord:
    return MetadataRecord(RecordType.FEATURE_LEVEL, {"name": name, "feature_level": level})


def topic(name: str = "orders", topic_id: UUID = TOPIC_ID) -> MetadataRecord:
    return MetadataRecord(RecordType.TOPIC, {"name": name, "topic_id": topic_id})


def partition(index: int = 0, **changes: object) -> MetadataRecord:
    body = {"partition_id": index, "topic_id": TOPIC_ID, "replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0}
    body |= {"partition_epoch": 0, "directories": [IDENTITY.directory_id]}
    return MetadataRecord(RecordType.PARTITION, {**body, **changes})


def record(record_type: RecordType, **body: object) -> MetadataRecord:
    return MetadataRecord(record_type, body)


BEGIN = record(RecordType.BEGIN_TRANSACTION, name="Bootstrap records")
END = record(RecordType.END_TRANSACTION)
LEADER_CHANGE = (struct.pack(">hh", 0, 2), b"an election, of which only Kafka knows")


def write_log(folder: Path, *batches: Sequence[MetadataRecord | bytes], first_offset: int = 0) -> None:
    """A metadata log as a Kafka controller leaves it: the news of an election, then its batches."""
    data, offset = bytearray(), first_offset
    rows = [[(NOW_MS, *LEADER_CHANGE, ())]]
    rows += [[(NOW_MS, None, frame_of(each), ()) for each in batch] for batch in batches]
    for number, batch in enumerate(rows):
        data += build_batch(batch, base_offset=offset, leader_epoch=KAFKA_EPOCH, control=number == 0)
        offset += len(batch)
    (folder / "__cluster_metadata-0").mkdir(parents=True, exist_ok=True)
    (folder / "__cluster_metadata-0" / f"{first_offset:020d}.log").write_bytes(data)


def frame_of(each: MetadataRecord | bytes) -> bytes:
    return each if isinstance(each, bytes) else encode_record(each)


def batches_of(folder: Path) -> list[BatchHeader]:
    data = (folder / LOG).read_bytes()
    return list(kernel.scan(data, 0, len(data), True)[0])


# --- a folder that Kafka wrote ---


@pytest.fixture
def kafka_folder(tmp_path: Path) -> Path:
    return shutil.copytree(KAFKA_FOLDER, tmp_path / "data")


def test_a_folder_that_kafka_wrote(kafka_folder: Path) -> None:
    identity = load_or_create(FileStorage(), str(kafka_folder), 1, counting_ids())
    state = open_controller(kafka_folder, identity).state
    assert list(state.topics) == ["fromkafka"]
    taken = state.topics["fromkafka"].partitions[0]
    assert (taken.leader, taken.isr, taken.leader_epoch) == (1, (1,), 2), "Kafka led, resigned, and now we lead"
    assert taken.directories == (identity.directory_id,)
    assert state.next_producer_id == 1000
    assert state.features["transaction.version"] == 2
    assert state.configs(ConfigResource(ResourceType.BROKER, "")) == {"min.insync.replicas": "1"}


def test_what_is_written_continues_what_kafka_wrote(kafka_folder: Path) -> None:
    identity = load_or_create(FileStorage(), str(kafka_folder), 1, counting_ids())
    theirs = (kafka_folder / LOG).read_bytes()
    controller = open_controller(kafka_folder, identity)
    assert controller.next_producer_id(NOW_MS) == 1000
    assert (kafka_folder / LOG).read_bytes().startswith(theirs)
    again = open_controller(kafka_folder, identity)
    assert again.state.topics["fromkafka"].partitions == controller.state.topics["fromkafka"].partitions
    assert again.metadata_offset == controller.metadata_offset, "nothing is elected twice"
    assert again.next_producer_id(NOW_MS) == 2000
    assert [header.leader_epoch for header in batches_of(kafka_folder)][-4:] == [1, 2, 2, 3]


def test_a_folder_formatted_and_never_started(tmp_path: Path) -> None:
    shutil.copy(KAFKA_FOLDER / "bootstrap.checkpoint", tmp_path)
    state = open_controller(tmp_path).state
    assert state.features["group.version"] == 1
    assert state.features[METADATA_VERSION] == BOOTSTRAP_FEATURES[METADATA_VERSION]
    (tmp_path / "bootstrap.checkpoint").unlink()
    assert open_controller(tmp_path).state.features == state.features, "they were written down"


# --- epochs ---


def test_every_opening_is_an_epoch_above_all_that_came_before(tmp_path: Path) -> None:
    write_log(tmp_path, [feature()])
    for _ in range(2):
        open_controller(tmp_path).next_producer_id(NOW_MS)
    # The first opening adds the features that were missing; each reserves producer ids.
    assert [header.leader_epoch for header in batches_of(tmp_path)] == [5, 5, 6, 6, 7]


def test_an_election_that_left_no_record_counts(tmp_path: Path) -> None:
    write_log(tmp_path, [feature()])
    quorum = {"leaderId": -1, "leaderEpoch": 9, "votedId": 1, "data_version": 1}
    (tmp_path / "__cluster_metadata-0" / "quorum-state").write_text(json.dumps(quorum))
    open_controller(tmp_path).next_producer_id(NOW_MS)
    assert batches_of(tmp_path)[-1].leader_epoch == 10


def test_a_snapshot_of_kafka_is_continued(tmp_path: Path) -> None:
    state = ControllerState()
    for each in (feature(), topic(), partition(leader_epoch=3)):
        state.replay(each)
    write_log(tmp_path, [partition(1)], first_offset=100)
    snapshot = SnapshotId(100, 8)
    data = encode_snapshot(state, NOW_MS, snapshot.epoch)
    (tmp_path / "__cluster_metadata-0" / snapshot.file_name).write_bytes(data)
    controller = open_controller(tmp_path)
    assert sorted(controller.state.topics["orders"].partitions) == [0, 1]
    controller.next_producer_id(NOW_MS)
    log = (tmp_path / "__cluster_metadata-0" / f"{100:020d}.log").read_bytes()
    assert kernel.scan(log, 0, len(log), True)[0][-1].leader_epoch == 9


def test_a_snapshot_that_ends_inside_a_batch_is_continued_there(tmp_path: Path) -> None:
    state = ControllerState()
    moved = record(RecordType.PARTITION_CHANGE, partition_id=0, topic_id=TOPIC_ID, leader=1)
    for each in (feature(), topic(), partition(), moved):
        state.replay(each)
    write_log(tmp_path, [feature(), topic(), partition()], [moved, moved])
    data = encode_snapshot(state, NOW_MS, KAFKA_EPOCH)
    (tmp_path / "__cluster_metadata-0" / SnapshotId(5, KAFKA_EPOCH).file_name).write_bytes(data)
    assert open_controller(tmp_path).state.topics["orders"].partitions[0].leader_epoch == 2


# --- transactions ---


def test_a_transaction_over_several_batches(tmp_path: Path) -> None:
    write_log(tmp_path, [BEGIN, feature()], [topic()], [partition(), END])
    assert list(open_controller(tmp_path).state.topics) == ["orders"]


def test_a_transaction_without_an_end_is_dropped_and_closed(tmp_path: Path) -> None:
    write_log(tmp_path, [feature()], [BEGIN, topic()], [partition()])
    controller = open_controller(tmp_path)
    assert controller.state.topics == {}
    topics = [NewTopic("ours", 1)]
    controller.commit(create_topics(controller.state, CLUSTER, SCHEMA, topics, counting_ids()), NOW_MS)
    assert list(open_controller(tmp_path).state.topics) == ["ours"], "ours was taken for a part of it"


def test_a_first_start_that_was_cut_short_is_repeated(tmp_path: Path) -> None:
    shutil.copy(KAFKA_FOLDER / "bootstrap.checkpoint", tmp_path)
    write_log(tmp_path, [BEGIN, feature()])
    assert open_controller(tmp_path).state.features["group.version"] == 1
    assert open_controller(tmp_path).state.features["group.version"] == 1


# --- leaders ---


@pytest.mark.parametrize(("leader", "isr"), [(-1, [1]), (-1, []), (1, []), (2, [2])])
def test_the_only_replica_leads(tmp_path: Path, leader: int, isr: list[int]) -> None:
    write_log(tmp_path, [feature(), topic(), partition(leader=leader, isr=isr, leader_epoch=4)])
    taken = open_controller(tmp_path).state.topics["orders"].partitions[0]
    assert (taken.leader, taken.isr, taken.leader_epoch) == (1, (1,), 5)


def test_a_leader_stays(tmp_path: Path) -> None:
    write_log(tmp_path, [feature(), topic(), partition(leader_epoch=4)])
    assert open_controller(tmp_path).state.topics["orders"].partitions[0].leader_epoch == 4


def test_quotas_survive_snapshots_and_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    quota = record(RecordType.CLIENT_QUOTA, entity=entity, key="producer_byte_rate", value=1e6, remove=False)
    other = record(RecordType.CLIENT_QUOTA, entity=entity, key="controller_mutation_rate", value=5.0, remove=False)
    write_log(tmp_path, [feature(), quota, other])
    controller = open_controller(tmp_path, snapshot_bytes=1)
    for _ in range(KEPT_SNAPSHOTS * BLOCK_SIZE):
        controller.next_producer_id(NOW_MS)
    assert len(list((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))) == KEPT_SNAPSHOTS
    with caplog.at_level(logging.WARNING):
        again = open_controller(tmp_path)
    assert list(again.state.client_quotas.values()) == [1e6, 5.0]
    assert "1 client quotas are kept and not enforced: controller_mutation_rate" in caplog.text


# --- refusals ---

ACL = record(RecordType.ACCESS_CONTROL_ENTRY, id=UUID(int=1), resource_name="orders", principal="User:a", host="*")
NO_ACL = record(RecordType.REMOVE_ACCESS_CONTROL_ENTRY, id=UUID(int=1))
SCRAM = record(RecordType.USER_SCRAM_CREDENTIAL, name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k")
NO_SCRAM = record(RecordType.REMOVE_USER_SCRAM_CREDENTIAL, name="alice", mechanism=1)
TOKEN = bytes([1, RecordType.DELEGATION_TOKEN, 0]) + b"its body is not read"


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([ACL], "has 1 ACLs.* remove them"),
        ([SCRAM], r"SCRAM credentials \(of alice\).* remove them"),
        ([TOKEN], "delegation tokens.* remove them"),
        ([feature(level=31)], "metadata.version 31.* use a newer oncelog"),
        ([topic(), partition(replicas=[1, 2])], "orders-0 has its replicas on node 1, 2, and this is node 1"),
        ([topic(), partition(), partition(1, replicas=[2])], "orders-1 has its replicas on node 2"),
        ([topic(), partition(directories=[UUID(int=50)])], "orders-0 is in another directory of Kafka's log.dirs"),
    ],
)
def test_what_cannot_be_honoured_is_refused(tmp_path: Path, records: list[MetadataRecord | bytes], reason: str) -> None:
    write_log(tmp_path, [feature(), *records])
    before = (tmp_path / LOG).read_bytes()
    for _ in range(2):
        with pytest.raises(UnservableMetadata, match=reason):
            open_controller(tmp_path)
    assert (tmp_path / LOG).read_bytes() == before


@pytest.mark.parametrize(
    "records",
    [
        [ACL, NO_ACL],
        [SCRAM, NO_SCRAM],
        [BEGIN, ACL, record(RecordType.ABORT_TRANSACTION, reason=None)],
        [topic(), partition(replicas=[1, 2]), record(RecordType.REMOVE_TOPIC, topic_id=TOPIC_ID)],
        [topic(), partition(directories=[DIRECTORY_MIGRATING])],
        [topic(), partition(directories=[DIRECTORY_UNASSIGNED])],
        [topic(), partition(directories=[])],
        [feature("group.version", 1), feature("group.version", 0)],
    ],
)
def test_what_is_gone_is_no_obstacle(tmp_path: Path, records: list[MetadataRecord]) -> None:
    write_log(tmp_path, [feature(), *records])
    open_controller(tmp_path)


def test_a_prepared_credential_is_refused_before_it_is_written(tmp_path: Path) -> None:
    rows = [(NOW_MS, None, encode_record(each), ()) for each in (feature(), SCRAM)]
    whole = encode_snapshot(ControllerState(), NOW_MS, 0)
    header = whole[: kernel.parse_header(whole).size_bytes]
    (tmp_path / "bootstrap.checkpoint").write_bytes(header + build_batch(rows) + whole[len(header) :])
    for _ in range(2):
        with pytest.raises(UnservableMetadata, match="SCRAM"):
            open_controller(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bootstrap.checkpoint"]


@pytest.mark.parametrize(
    "quorum",
    [
        {"leaderId": 2, "leaderEpoch": 3, "data_version": 1},
        {"leaderId": 1, "leaderEpoch": 3, "currentVoters": [{"voterId": 1}, {"voterId": 2}], "data_version": 0},
    ],
)
def test_a_copy_of_what_others_decided_is_refused(tmp_path: Path, quorum: dict[str, object]) -> None:
    write_log(tmp_path, [feature()])
    (tmp_path / "__cluster_metadata-0" / "quorum-state").write_text(json.dumps(quorum))
    with pytest.raises(UnservableMetadata, match="decided together with node 2 of a larger cluster"):
        open_controller(tmp_path)


def test_partitions_without_metadata_are_refused(tmp_path: Path) -> None:
    """Else they would be set aside as nobody's."""
    (tmp_path / "orders-0").mkdir()
    for _ in range(2):
        with pytest.raises(UnservableMetadata, match=r"orders-0 is one of 1.*metadata\.log\.dir"):
            open_controller(tmp_path)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([b"\x01\x1d\x00future"], "offset 2: a metadata record of type 29 .* unknown; .* newer version"),
        ([b"\x01\x06\x00"], "type 6 .* unknown"),
        ([b"\x01\x05\x09" + b"\x00" * 30], "offset 2: a metadata record cannot be decoded"),
        ([END], "offset 2: a metadata transaction ends that never began"),
        ([partition()], "offset 2: a PARTITION record does not fit"),
        ([record(RecordType.CONFIG, resource_type=3, resource_name="", name="n", value="v")], "CONFIG record"),
    ],
)
def test_what_cannot_be_understood_is_never_guessed(
    tmp_path: Path, records: list[MetadataRecord | bytes], reason: str
) -> None:
    write_log(tmp_path, [feature(), *records])
    before = (tmp_path / LOG).read_bytes()
    with pytest.raises(UnreadableMetadata, match=reason):
        open_controller(tmp_path)
    assert (tmp_path / LOG).read_bytes() == before


def test_a_whole_snapshot_with_a_record_of_the_future_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    write_log(tmp_path, [feature()])
    whole = encode_snapshot(ControllerState(), NOW_MS, KAFKA_EPOCH)
    header = whole[: kernel.parse_header(whole).size_bytes]
    future = build_batch([(NOW_MS, None, b"\x01\x1d\x00", ())])
    path = tmp_path / "__cluster_metadata-0" / SnapshotId(2, KAFKA_EPOCH).file_name
    path.write_bytes(header + future + whole[len(header) :])
    with pytest.raises(UnreadableMetadata, match="type 29"):
        open_controller(tmp_path)
