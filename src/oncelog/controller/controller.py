"""The controller of a cluster of one: plans become durable, then true.

`commit` is the only way to change the state: records to the disk first, replay second, answer last. Opening a folder
decides first whether its metadata can be served, and writes only then.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Set
from typing import TypeVar
from uuid import UUID

from oncelog.controller.client_quotas import unenforced_keys
from oncelog.controller.end_offset_checkpoint import EndOffsetCheckpoint, read_noted
from oncelog.controller.features import METADATA_VERSION, missing_features
from oncelog.controller.identity import Identity, check_noted
from oncelog.controller.metadata_log import METADATA_PARTITION, MetadataLog
from oncelog.controller.producer_ids import ProducerIds, reserve_block
from oncelog.controller.quorum_state import read_quorum_state
from oncelog.controller.records import DamagedMetadata, MetadataRecord
from oncelog.controller.snapshot import BOOTSTRAP_FILE, DamagedSnapshot, decode_snapshot
from oncelog.controller.state import ControllerState, Outcome
from oncelog.controller.takeover import check_known_folders, check_quorum, check_servable, elections
from oncelog.controller.topics import MAX_PARTITIONS_PER_REQUEST
from oncelog.errors import KafkaStorageError
from oncelog.log.checkpoints import CLEAN_SHUTDOWN_FILE
from oncelog.log.folders import see_doctor
from oncelog.log.manifest import NO_FOREIGN_EPOCH
from oncelog.log.storage import Storage

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Controller:
    def __init__(
        self,
        state: ControllerState,
        log: MetadataLog,
        node_id: int,
        max_bytes_between_snapshots: int,
        foreign_epoch: int = NO_FOREIGN_EPOCH,
    ) -> None:
        self.state = state
        self._log = log
        self._node_id = node_id
        self._max_bytes_between_snapshots = max_bytes_between_snapshots
        self._producer_ids = ProducerIds()
        self.foreign_epoch = foreign_epoch
        """The last one in which an older oncelog or an Apache Kafka led this folder. A higher one than before: it has
        run here since, and oncelog's own notes from before are not believed."""

    @classmethod
    def open(
        cls, storage: Storage, data_directory: str, identity: Identity, *, max_bytes_between_snapshots: int, now_ms: int
    ) -> Controller:
        """Raises UnreadableMetadata, UnservableMetadata and KafkaStorageError."""
        try:
            state, log, foreign_epoch = cls._load(storage, data_directory, identity, now_ms)
            first_records = _first_records(storage, data_directory, state, identity)
        except DamagedMetadata as error:
            raise DamagedMetadata(f"{error}. {see_doctor(data_directory)}") from error
        log.settle(now_ms)
        controller = cls(state, log, identity.node_id, max_bytes_between_snapshots, foreign_epoch)
        controller._begin(first_records, now_ms)
        return controller

    @staticmethod
    def _load(
        storage: Storage, data_directory: str, identity: Identity, now_ms: int
    ) -> tuple[ControllerState, MetadataLog, int]:
        directory = f"{data_directory}/{METADATA_PARTITION}"
        noted = read_noted(storage, data_directory)
        check_noted(identity, noted.identity, data_directory)
        is_ours = noted.end is not None
        quorum = read_quorum_state(storage, directory, is_ours=is_ours)
        check_quorum(quorum, identity.node_id)
        state = ControllerState()
        durable_end = EndOffsetCheckpoint(storage, data_directory, identity)
        log = MetadataLog.open(
            storage,
            directory,
            state,
            now_ms,
            durable_end=durable_end,
            noted=noted.end,
            was_stopped_cleanly=storage.exists(f"{data_directory}/{CLEAN_SHUTDOWN_FILE}"),
            last_epoch=quorum.leader_epoch,
        )
        check_known_folders(
            storage, data_directory, state, log.removed_topics, metadata_end_offset=log.end_offset, is_whole=is_ours
        )
        check_servable(state, identity)
        foreign_epoch = noted.latest_foreign_epoch(log.last_epoch)
        if foreign_epoch != noted.foreign_epoch:
            logger.info(
                "%s: another version of oncelog, or Apache Kafka, has used this folder since, or a crash came in "
                "between; what was noted of its files before is not believed",
                data_directory,
            )
        durable_end.foreign_epoch = foreign_epoch
        return state, log, max(foreign_epoch, quorum.leader_epoch)

    def _begin(self, first_records: list[MetadataRecord], now_ms: int) -> None:
        """Make the metadata complete, and this node the leader of every partition."""
        if self._log.has_open_transaction:
            self._log.abort_transaction("the controller stopped before the transaction ended", now_ms)
        self.commit(Outcome(first_records, None), now_ms)
        records = elections(self.state, self._node_id)
        for start in range(0, len(records), MAX_PARTITIONS_PER_REQUEST):
            self.commit(Outcome(records[start : start + MAX_PARTITIONS_PER_REQUEST], None), now_ms)
        unenforced = Counter(unenforced_keys(self.state))
        if unenforced:
            keys = ", ".join(sorted(unenforced))
            logger.warning("%d client quotas are kept and not enforced: %s", unenforced.total(), keys)

    @property
    def metadata_offset(self) -> int:
        """How much of the metadata log is in force: the epoch of the finalized features."""
        return self._log.end_offset - 1

    def commit(self, outcome: Outcome[T], now_ms: int) -> T:
        """Raises KafkaStorageError, and then nothing has changed."""
        if outcome.records:
            self._log.append(outcome.records, now_ms)
            for record in outcome.records:
                self.state.replay(record)
            self._snapshot_if_due(now_ms)
        return outcome.response

    @property
    def removed_topics(self) -> Set[UUID]:
        """Topics that the metadata log tells to have been deleted, as far back as it goes."""
        return self._log.removed_topics

    def next_producer_id(self, now_ms: int) -> int:
        return self._producer_ids.next(lambda: self.commit(reserve_block(self.state, self._node_id), now_ms))

    def close(self, now_ms: int) -> None:
        self._log.close(now_ms)

    def _snapshot_if_due(self, now_ms: int) -> None:
        if self._log.bytes_since_snapshot < self._max_bytes_between_snapshots:
            return
        try:
            self._log.write_snapshot(self.state, now_ms)
        except (OSError, KafkaStorageError) as error:
            # What was committed is in force, and the log still has everything: the next write, or if only the log could
            # not be cut the next snapshot, tries again.
            logger.warning("the metadata snapshot could not be written, or the log before it not be cut: %s", error)


def _first_records(
    storage: Storage, data_directory: str, state: ControllerState, identity: Identity
) -> list[MetadataRecord]:
    """What metadata begins with and this one lacks: what Kafka's format command left for its first start, and the
    features that this version adds."""
    path = f"{data_directory}/{BOOTSTRAP_FILE}"
    is_new = METADATA_VERSION not in state.features
    try:
        prepared = decode_snapshot(storage.read_all(path)) if is_new and storage.exists(path) else []
    except DamagedSnapshot as error:
        raise DamagedMetadata(f"{path}: {error}") from error
    planned = ControllerState()
    for record in prepared:
        planned.replay(record)
    check_servable(planned, identity)
    return prepared + missing_features({**state.features, **planned.features})
