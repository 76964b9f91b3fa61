"""Whether this node can serve metadata that it may not have written, and what it must change to lead all of it.

A data folder of a single-node Apache Kafka is one that oncelog can go on with. What it cannot honour it must not
pretend to: rules of access would silently stop to hold, partitions of other nodes or directories would silently be
empty. Such a folder is refused as it is, with a word on what to do. Owns that judgement and the first election; never
writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from uuid import UUID

from oncelog.controller.features import BOOTSTRAP_FEATURES, METADATA_VERSION
from oncelog.controller.identity import Identity
from oncelog.controller.quorum_state import NO_LEADER, QuorumState
from oncelog.controller.records import DamagedMetadata, MetadataRecord, RecordType
from oncelog.controller.state import ControllerState, Partition, Topic
from oncelog.controller.strays import Whose, has_records, noted_topic_id, whose
from oncelog.errors import OncelogError
from oncelog.log.folders import partition_of
from oncelog.log.storage import Storage
from oncelog.types import TopicPartition

DIRECTORY_MIGRATING = UUID(int=0)
"""Kafka's word for "the only directory there was" in metadata from before it knew of several."""
DIRECTORY_UNASSIGNED = UUID(int=1)

ACCESS_ADVICE = (
    "Start Kafka on this folder again and remove them, if everyone may do everything from now on; or stay with Kafka"
)


class UnservableMetadata(OncelogError):
    """The metadata asks for something that this broker cannot keep; the folder is left as it is."""


def check_quorum(quorum: QuorumState, node_id: int) -> None:
    """Metadata that others took part in deciding may lack what they decided last."""
    others = sorted((quorum.voters | {quorum.leader_id}) - {node_id, NO_LEADER})
    if others:
        raise UnservableMetadata(
            f"this folder's metadata was decided together with node {_listed(others)} of a larger cluster, says "
            "__cluster_metadata-0/quorum-state; only the folder of a single-node Kafka "
            "(process.roles=broker,controller) can be opened. Copy the topics instead, for example with MirrorMaker; "
            "or, if that is not so, see `oncelog doctor`"
        )


def check_known_folders(
    storage: Storage,
    data_directory: str,
    state: ControllerState,
    removed_topics: Collection[UUID],
    *,
    metadata_end_offset: int,
    is_whole: bool,
) -> None:
    """Partitions that no metadata ever told of belong to metadata that is missing."""
    names = storage.list_directory(data_directory)
    named = ((name, topic_partition) for name in names if (topic_partition := partition_of(name)) is not None)
    found = [(name, topic_partition) for name, topic_partition in named if not _is_named(topic_partition, state)]
    if found and metadata_end_offset == 0:
        raise UnservableMetadata(
            f"this folder has partitions ({found[0][0]} is one of {len(found)}) and no metadata to say what they are. "
            "If Kafka kept it elsewhere (metadata.log.dir), copy its __cluster_metadata-0 into this folder"
        )
    lost = []
    for name, topic_partition in found:
        path = f"{data_directory}/{name}"
        owner = whose(state, removed_topics, topic_partition, noted_topic_id(storage, path), is_whole=is_whole)
        if owner is Whose.DOUBTFUL and has_records(storage, path):
            lost.append(name)
    if lost:
        raise DamagedMetadata(
            f"this folder has records of partitions ({lost[0]} is one of {len(lost)}) whose topics its metadata "
            "neither knows nor tells to have been deleted: a part of it is missing"
        )


def _is_named(topic_partition: TopicPartition, state: ControllerState) -> bool:
    """The name at least is that of a partition; whether its topic is the same one is seen when its log is opened."""
    topic = state.topic(topic_partition.topic)
    return topic is not None and topic_partition.partition in topic.partitions


def check_servable(state: ControllerState, identity: Identity) -> None:
    """Raises UnservableMetadata."""
    _check_version(state)
    _check_access(state)
    for topic, partition in _partitions(state):
        _check_place(topic, partition, identity)


def elections(state: ControllerState, node_id: int) -> list[MetadataRecord]:
    """Make this node, the only replica, the leader wherever no one leads: Kafka's controlled shutdown resigns."""
    return [
        MetadataRecord(
            RecordType.PARTITION_CHANGE,
            {
                "partition_id": partition.index,
                "topic_id": topic.id,
                "leader": node_id,
                "isr": [node_id],
                "eligible_leader_replicas": [],
                "last_known_elr": [],
            },
        )
        for topic, partition in _partitions(state)
        if partition.leader != node_id or partition.isr != (node_id,)
    ]


def _partitions(state: ControllerState) -> Iterator[tuple[Topic, Partition]]:
    return ((topic, partition) for topic in state.topics.values() for partition in topic.partitions.values())


def _check_version(state: ControllerState) -> None:
    known = BOOTSTRAP_FEATURES[METADATA_VERSION]
    found = state.features.get(METADATA_VERSION, known)
    if found > known:
        raise UnservableMetadata(
            f"this folder has metadata.version {found}, and {known} is the newest that this version of oncelog knows; "
            "use a newer oncelog"
        )


def _check_access(state: ControllerState) -> None:
    if state.access_controls:
        raise UnservableMetadata(
            f"this folder has {len(state.access_controls)} ACLs, which this broker would not enforce. {ACCESS_ADVICE}"
        )
    if state.scram_users:
        names = _listed(sorted({name for name, _ in state.scram_users}))
        raise UnservableMetadata(
            f"this folder has SCRAM credentials (of {names}), which this broker would not ask for. {ACCESS_ADVICE}"
        )
    if state.had_delegation_tokens:
        raise UnservableMetadata(
            "this folder has delegation tokens, which this broker would not ask for. Start Kafka on it again, remove "
            "them, and stop it after its next metadata snapshot (metadata.log.max.snapshot.interval.ms)"
        )


def _check_place(topic: Topic, partition: Partition, identity: Identity) -> None:
    name = f"{topic.name}-{partition.index}"
    if partition.replicas != (identity.node_id,):
        raise UnservableMetadata(
            f"partition {name} has its replicas on node {_listed(partition.replicas)}, and this is node "
            f"{identity.node_id}; only the folder of a single-node Kafka can be opened. Copy the topics instead, for "
            "example with MirrorMaker"
        )
    here = {identity.directory_id, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED}
    if not here.issuperset(partition.directories):
        raise UnservableMetadata(
            f"the log of partition {name} is in another directory of Kafka's log.dirs, or lost; all data lives in one "
            "directory here. Move all partitions into this one (kafka-reassign-partitions.sh) before Kafka is stopped"
        )


def _listed(items: list[str] | list[int] | tuple[int, ...]) -> str:
    return ", ".join(map(str, items)) or "none"
