"""What can be done about findings, as values: what it costs, and how it is done.

A repair destroys nothing: what it takes out of use stays beside it as `*.damaged`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from oncelog.controller.identity import FILE_NAME as IDENTITY_FILE
from oncelog.controller.identity import Identity, write_identity
from oncelog.controller.salvage import DAMAGED_SUFFIX, FoundPartition, Salvaged, adopt, rebuild, skip_producer_ids
from oncelog.controller.strays import noted_topic_id
from oncelog.doctor.readers import reader_of
from oncelog.errors import CorruptMessage
from oncelog.log.batch_scan import hop_batches
from oncelog.log.checkpoints import PARTITION_METADATA_FILE, write_topic_id
from oncelog.log.folders import name_of, partition_of
from oncelog.log.inspection import accept_loss
from oncelog.log.leader_epochs import LeaderEpochCache
from oncelog.log.segment_files import LOG_SUFFIX
from oncelog.log.storage import Storage
from oncelog.log.survey import OffsetRange, in_words, leader_epochs
from oncelog.types import NO_PRODUCER_ID, TopicPartition


class Folder(NamedTuple):
    """The folder that is repaired, and what a repair may need of the world."""

    storage: Storage
    path: str
    stamp: str
    """When, in the names of what is kept."""
    now_ms: int
    new_id: Callable[[], UUID]

    def keep(self, path: str) -> None:
        """Copy a file that is about to change."""
        if self.storage.exists(path):
            self.storage.write_atomically(f"{path}.{self.stamp}{DAMAGED_SUFFIX}", self.storage.read_all(path))


@dataclass(frozen=True, slots=True)
class RestoreIdentity:
    identity: Identity
    text = "write meta.properties again, from metadata-end-offset-checkpoint"

    def perform(self, folder: Folder) -> list[str]:
        folder.keep(f"{folder.path}/{IDENTITY_FILE}")
        write_identity(folder.storage, folder.path, self.identity)
        return [f"wrote {folder.path}/{IDENTITY_FILE}: node {self.identity.node_id} of {self.identity.cluster_id}"]


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that is not needed any more, or that nobody can read."""

    path: str

    @property
    def text(self) -> str:
        return f"set {self.path.rpartition('/')[2]} aside and go on without it"

    def perform(self, folder: Folder) -> list[str]:
        kept = f"{self.path}.{folder.stamp}{DAMAGED_SUFFIX}"
        folder.storage.rename(self.path, kept)
        return [f"renamed {self.path} to {kept}"]


@dataclass(frozen=True, slots=True)
class RestoreTopicId:
    path: str
    topic_id: UUID
    text = "write partition.metadata again, with the topic id that the metadata has"

    def perform(self, folder: Folder) -> list[str]:
        folder.keep(f"{self.path}/{PARTITION_METADATA_FILE}")
        write_topic_id(folder.storage, self.path, self.topic_id)
        return [f"wrote {self.path}/{PARTITION_METADATA_FILE}"]


@dataclass(frozen=True, slots=True)
class RestoreEpochs:
    path: str
    """The partition's folder."""
    text = "write leader-epoch-checkpoint again, from the batches"

    def perform(self, folder: Folder) -> list[str]:
        found = LeaderEpochCache(folder.storage, self.path)
        folder.keep(found.path)
        found.restore(leader_epochs(folder.storage, self.path))
        return [f"wrote {found.path}: {len(found.entries)} leader epoch{'' if len(found.entries) == 1 else 's'}"]


@dataclass(frozen=True, slots=True)
class RebuildMetadata:
    """Accepts the loss of what cannot be read any more."""

    directory: str
    salvaged: Salvaged
    identity: Identity
    text = "accept the loss: write the metadata anew, from all that can be read of it and from the partitions' folders"

    def perform(self, folder: Folder) -> list[str]:
        done = [f"lost: {what}" for what in self.salvaged.lost]
        partitions = tuple(_partitions(folder.storage, folder.path))  # reads all records, so not before it is wanted
        done += [f"adopted {what}" for what in adopt(self.salvaged, partitions, self.identity, folder.new_id)]
        seen = max((_highest_producer_id(folder, each) for each in partitions), default=NO_PRODUCER_ID)
        done.append(f"producer ids go on from {skip_producer_ids(self.salvaged, seen)}")
        folder.storage.make_directory(self.directory)
        done += rebuild(
            folder.storage, folder.path, self.directory, self.salvaged, self.identity, folder.stamp, folder.now_ms
        )
        return done


@dataclass(frozen=True, slots=True)
class AcceptLoss:
    topic_partition: TopicPartition
    lost: tuple[OffsetRange, ...]
    foreign_epoch: int
    """That of `Manifest.is_stale`."""

    @property
    def text(self) -> str:
        return f"accept the loss of {in_words(self.lost)} in {self.topic_partition}: serve all that is left of it"

    def perform(self, folder: Folder) -> list[str]:
        reader = reader_of(self.topic_partition)
        return accept_loss(folder.storage, folder.path, self.topic_partition, self.foreign_epoch, reader)


Repair = RestoreIdentity | SetAside | RestoreTopicId | RestoreEpochs | RebuildMetadata | AcceptLoss


def _partitions(storage: Storage, path: str) -> Iterator[FoundPartition]:
    for name in storage.list_directory(path):
        topic_partition = partition_of(name)
        if topic_partition is not None and name == name_of(topic_partition):
            folder = f"{path}/{name}"
            topic_id = noted_topic_id(storage, folder)
            yield FoundPartition(*topic_partition, topic_id, _latest_epoch(storage, folder))


def _latest_epoch(storage: Storage, folder: str) -> int:
    epochs = leader_epochs(storage, folder)
    return epochs[-1].epoch if epochs else 0


def _highest_producer_id(folder: Folder, partition: FoundPartition) -> int:
    """As far as headers can be followed; the ids that are skipped are there for the rest."""
    directory = f"{folder.path}/{partition.topic}-{partition.partition}"
    highest = NO_PRODUCER_ID
    for name in folder.storage.list_directory(directory):
        if not name.endswith(LOG_SUFFIX):
            continue
        file = folder.storage.open(f"{directory}/{name}")
        try:
            for _, header in hop_batches(file, 0, file.size):
                highest = max(highest, header.producer_id)
        except CorruptMessage:
            continue
        finally:
            file.close()
    return highest
