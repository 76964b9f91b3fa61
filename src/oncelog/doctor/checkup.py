"""Looks at a data folder as a start would, and tells all that it finds: the identity, the metadata, every partition.

Reads only. Each finding comes with what can be done about it, if something can (`repairs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from oncelog.controller.end_offset_checkpoint import FILE_NAME as END_OFFSET_FILE
from oncelog.controller.end_offset_checkpoint import Noted, read_noted
from oncelog.controller.features import METADATA_VERSION
from oncelog.controller.identity import FILE_NAME as IDENTITY_FILE
from oncelog.controller.identity import Identity, WrongDataFolder, check_noted, read_identity
from oncelog.controller.log_check import check_log
from oncelog.controller.metadata_log import METADATA_PARTITION, check_metadata, find_snapshots
from oncelog.controller.quorum_state import FILE_NAME as QUORUM_FILE
from oncelog.controller.quorum_state import NO_QUORUM, QuorumState, read_quorum_state
from oncelog.controller.records import DamagedMetadata, NewerMetadata, UnreadableMetadata
from oncelog.controller.salvage import Salvaged, salvage
from oncelog.controller.snapshot import BOOTSTRAP_FILE, decode_snapshot
from oncelog.controller.state import ControllerState
from oncelog.controller.strays import Whose, has_records, noted_topic_id, whose
from oncelog.controller.takeover import UnservableMetadata, check_known_folders, check_quorum, check_servable
from oncelog.doctor.not_files import find_not_files
from oncelog.doctor.readers import reader_of
from oncelog.doctor.repairs import (
    AcceptLoss,
    RebuildMetadata,
    Repair,
    RestoreEpochs,
    RestoreIdentity,
    RestoreTopicId,
    SetAside,
)
from oncelog.log.checkpoints import CLEAN_SHUTDOWN_FILE
from oncelog.log.folders import STRAY_SUFFIX, partition_of
from oncelog.log.inspection import Finding, Severity, inspect_data_folder
from oncelog.log.manifest import NO_FOREIGN_EPOCH
from oncelog.log.storage import Storage, directory_of
from oncelog.log.survey import merged
from oncelog.types import TopicPartition

REFUSES = "the broker does not start on this folder"
RESTORE = "restore it from a copy if there is one"


class Kind(Enum):
    DATA_FOLDER = "a data folder"
    EMPTY = "empty: a broker begins a new cluster here"
    FOREIGN = "not a data folder: it has no meta.properties, no metadata and no partitions"


class Diagnosis(NamedTuple):
    finding: Finding
    repair: Repair | None = None


def kind_of(storage: Storage, path: str) -> Kind:
    names = [name for name in storage.list_directory(path) if name != ".lock"]
    if not names:
        return Kind.EMPTY
    ours = {IDENTITY_FILE, str(METADATA_PARTITION), END_OFFSET_FILE}
    if ours.intersection(names) or any(_is_partition(storage, path, name) for name in names):
        return Kind.DATA_FOLDER
    return Kind.FOREIGN


def check_up(storage: Storage, path: str, *, deep: bool = False) -> Iterator[Diagnosis]:
    """Everything that is wrong, the gravest first to stand in the way of a start. `deep` reads every record.

    What is no file where one belongs would make everything else look worse than it is, and is all that is told then."""
    in_the_way = list(find_not_files(storage, path))
    if in_the_way:
        yield from map(Diagnosis, in_the_way)
        return
    noted = read_noted(storage, path)
    identity, findings = _check_identity(storage, path, noted)
    yield from findings
    directory = f"{path}/{METADATA_PARTITION}"
    quorum, findings = _check_quorum_state(storage, directory, identity, noted)
    yield from findings
    salvaged = salvage(storage, directory, noted)
    damage = _metadata_damage(storage, path, directory, noted, salvaged)
    yield from _check_notes(storage, path, directory, noted, is_refused=damage is not None)
    if damage is not None:
        yield _diagnose_metadata(storage, path, directory, damage, salvaged, identity)
    elif identity is not None:
        yield from _check_servable(storage, path, salvaged, identity)
    yield from _check_topic_ids(storage, path, salvaged, noted)
    known = [
        TopicPartition(topic.name, index) for topic in salvaged.state.topics.values() for index in topic.partitions
    ]
    last = check_log(storage, directory).last
    last_epoch = last.header.leader_epoch if last is not None else NO_FOREIGN_EPOCH
    elected_in = quorum.epoch_within(last_epoch) if noted.end is not None else quorum.leader_epoch
    foreign_epoch = max(noted.latest_foreign_epoch(last_epoch), elected_in)
    findings_of_partitions = inspect_data_folder(
        storage, path, None if damage else known, foreign_epoch=foreign_epoch, verify_batches=deep, reader_of=reader_of
    )
    for finding in findings_of_partitions:
        yield Diagnosis(finding, _repair_of(path, finding, findings_of_partitions, foreign_epoch))


# --- identity ---


def _check_identity(storage: Storage, path: str, noted: Noted) -> tuple[Identity | None, list[Diagnosis]]:
    file = f"{path}/{IDENTITY_FILE}"
    try:
        if not storage.exists(file):
            raise WrongDataFolder(f"{file} is missing")
        identity = read_identity(storage, path)
        check_noted(identity, noted.identity, path)
        return identity, []
    except WrongDataFolder as error:
        can = noted.identity is not None
        remedy = "`--repair` writes it again from metadata-end-offset-checkpoint" if can else RESTORE
        finding = Finding(file, _problem(error, path), REFUSES, Severity.LOSS, remedy, can)
        return noted.identity, [Diagnosis(finding, RestoreIdentity(noted.identity) if noted.identity else None)]


def _check_quorum_state(
    storage: Storage, directory: str, identity: Identity | None, noted: Noted
) -> tuple[QuorumState, list[Diagnosis]]:
    file = f"{directory}/{QUORUM_FILE}"
    try:
        quorum = read_quorum_state(storage, directory, is_ours=False)
        if identity is not None:
            check_quorum(quorum, identity.node_id)
        return quorum, []
    except (DamagedMetadata, UnservableMetadata) as error:
        starts = noted.end is not None and isinstance(error, DamagedMetadata)
        consequence = "the start goes on without it" if starts else REFUSES
        severity = Severity.REPAIRED_AT_START if starts else Severity.LOSS
        remedy = "`--repair` sets it aside, if this was the folder of a single-node Kafka; else restore it"
        return NO_QUORUM, [Diagnosis(Finding(file, str(error), consequence, severity, remedy, True), SetAside(file))]


# --- metadata ---


def _metadata_damage(
    storage: Storage, path: str, directory: str, noted: Noted, salvaged: Salvaged
) -> UnreadableMetadata | UnservableMetadata | None:
    """What a start would say."""
    try:
        checked = check_metadata(
            storage,
            directory,
            ControllerState(),
            noted=noted.end,
            was_stopped_cleanly=storage.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"),
        )
        check_known_folders(
            storage,
            path,
            salvaged.state,
            salvaged.removed_topics,
            metadata_end_offset=checked.log.end_offset,
            is_whole=noted.end is not None,
        )
        bootstrap = f"{path}/{BOOTSTRAP_FILE}"
        if METADATA_VERSION not in salvaged.state.features and storage.exists(bootstrap):
            decode_snapshot(storage.read_all(bootstrap))
    except (UnreadableMetadata, UnservableMetadata) as error:
        return error
    return None


def _diagnose_metadata(
    storage: Storage,
    path: str,
    directory: str,
    damage: UnreadableMetadata | UnservableMetadata,
    salvaged: Salvaged,
    identity: Identity | None,
) -> Diagnosis:
    """What can be salvaged must be servable: rules of access, for one, would be gone from new metadata."""
    if isinstance(damage, NewerMetadata):
        remedy = "start it with a version as new as the one that wrote it; a repair would lose what only that one knows"
        return Diagnosis(Finding(directory, _problem(damage, path), REFUSES, Severity.LOSS, remedy))
    can = identity is not None
    try:
        if identity is not None:
            check_servable(salvaged.state, identity)
    except UnservableMetadata:
        can = False
    found = f"{len(salvaged.state.topics)} topic{'' if len(salvaged.state.topics) == 1 else 's'}"
    remedy = f"restore {METADATA_PARTITION} from a copy that is as new as the rest of the folder"
    if can:
        remedy += f", or `--repair`: {found} can be read, others are adopted from their folders"
    finding = Finding(directory, _problem(damage, path), REFUSES, Severity.LOSS, remedy, can)
    if not can or identity is None:
        return Diagnosis(finding)
    return Diagnosis(finding, RebuildMetadata(directory, salvaged, identity))


def _check_servable(storage: Storage, path: str, salvaged: Salvaged, identity: Identity) -> Iterator[Diagnosis]:
    try:
        check_servable(salvaged.state, identity)
    except UnservableMetadata as error:
        yield Diagnosis(Finding(f"{path}/{METADATA_PARTITION}", str(error), REFUSES, Severity.LOSS, "as it says"))


def _check_notes(storage: Storage, path: str, directory: str, noted: Noted, *, is_refused: bool) -> Iterator[Diagnosis]:
    """What costs nothing, or is put right by the next start."""
    file = f"{path}/{END_OFFSET_FILE}"
    if noted.bad_lines or noted.end is None:
        damaged = "1 line is" if noted.bad_lines == 1 else f"{noted.bad_lines} lines are"
        problem = f"{damaged} damaged" if noted.bad_lines else "it is missing, or says nothing"
        consequence = "written again; until then a loss at the end of the metadata may go unnoticed"
        yield _note(file, problem, consequence)
    for snapshot in find_snapshots(storage, directory):
        snapshot_path = f"{directory}/{snapshot.file_name}"
        try:
            decode_snapshot(storage.read_all(snapshot_path))
        except UnreadableMetadata as error:
            yield _note(snapshot_path, str(error), "not used: an older one and the log have the same")
    bad = check_log(storage, directory).bad
    if bad is not None and not bad.good_after and not is_refused:
        problem = f"{bad.size_bytes} bytes at its end are not a whole batch"
        yield _note(bad.path, problem, "they are cut off: after a crash, this is a write that was never acknowledged")
    for name in storage.list_directory(path):
        if name.endswith(STRAY_SUFFIX):
            yield _note(
                f"{path}/{name}",
                "a partition that the metadata did not know, set aside",
                "left alone",
                "remove it, or not",
            )


def _note(path: str, problem: str, consequence: str, remedy: str = "nothing") -> Diagnosis:
    return Diagnosis(Finding(path, problem, consequence, Severity.NOTE, remedy))


# --- partitions ---


def _check_topic_ids(storage: Storage, path: str, salvaged: Salvaged, noted: Noted) -> Iterator[Diagnosis]:
    """Folders with the name of a partition that is known, and the id of a topic that is not."""
    for name in storage.list_directory(path):
        topic_partition = partition_of(name)
        topic = salvaged.state.topic(topic_partition.topic) if topic_partition else None
        if topic_partition is None or topic is None or topic_partition.partition not in topic.partitions:
            continue
        folder = f"{path}/{name}"
        topic_id = noted_topic_id(storage, folder)
        owner = whose(salvaged.state, salvaged.removed_topics, topic_partition, topic_id, is_whole=True)
        if owner is Whose.DOUBTFUL and has_records(storage, folder):
            finding = Finding(
                f"{folder}/partition.metadata",
                f"it names the topic id {topic_id}; that of {topic.name} is {topic.id}, and no deletion is known",
                "the partition is offline: clients find no leader for it",
                Severity.LOSS,
                f"if these are the records of {topic.name}, `--repair` writes the id anew",
                True,
            )
            yield Diagnosis(finding, RestoreTopicId(folder, topic.id))


def _repair_of(path: str, finding: Finding, others: list[Finding], foreign_epoch: int) -> Repair | None:
    """The partition whose loss is to be accepted is the folder that the finding is about, or in: all of its losses."""
    topic_partition = _partition_in(path, finding)
    if not finding.can_repair or topic_partition is None:
        return None
    if finding.severity is Severity.REPAIRED_AT_START:
        return RestoreEpochs(directory_of(finding.path))
    lost = (each for other in others if _partition_in(path, other) == topic_partition for each in other.lost)
    return AcceptLoss(topic_partition, merged(lost), foreign_epoch)


def _partition_in(path: str, finding: Finding) -> TopicPartition | None:
    return partition_of(finding.path.removeprefix(f"{path}/").split("/")[0])


def _is_partition(storage: Storage, path: str, name: str) -> bool:
    """Not only by its name: `photos-2026` may be anything."""
    if partition_of(name) is None:
        return False
    try:
        names = storage.list_directory(f"{path}/{name}")
    except NotADirectoryError:
        return False
    return any(each.endswith(".log") and each[:20].isdecimal() for each in names)


def _problem(error: Exception, path: str) -> str:
    """The message of a start, without the advice to come here."""
    return str(error).partition(" Nothing was changed; ")[0].rstrip(".")
