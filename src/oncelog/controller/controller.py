"""The controller of a cluster of one: plans become durable, then true.

`commit` is the only way to change the state: records to the disk first, replay second, answer last. Opening a folder
decides first whether its metadata can be served, and writes only then.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TypeVar

from oncelog.controller.client_quotas import unenforced_keys
from oncelog.controller.features import METADATA_VERSION, missing_features
from oncelog.controller.identity import Identity
from oncelog.controller.metadata_log import METADATA_PARTITION, MetadataLog
from oncelog.controller.producer_ids import ProducerIds, reserve_block
from oncelog.controller.quorum_state import read_quorum_state
from oncelog.controller.records import MetadataRecord
from oncelog.controller.snapshot import BOOTSTRAP_FILE, decode_snapshot
from oncelog.controller.state import ControllerState, Outcome
from oncelog.controller.takeover import check_known_folders, check_quorum, check_servable, elections
from oncelog.controller.topics import MAX_PARTITIONS_PER_REQUEST
from oncelog.log.storage import Storage

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Controller:
    def __init__(
        self, state: ControllerState, log: MetadataLog, node_id: int, max_bytes_between_snapshots: int
    ) -> None:
        self.state = state
        self._log = log
        self._node_id = node_id
        self._max_bytes_between_snapshots = max_bytes_between_snapshots
        self._producer_ids = ProducerIds()

    @classmethod
    def open(
        cls, storage: Storage, data_directory: str, identity: Identity, *, max_bytes_between_snapshots: int, now_ms: int
    ) -> Controller:
        """Raises UnreadableMetadata, UnservableMetadata and KafkaStorageError."""
        directory = f"{data_directory}/{METADATA_PARTITION}"
        quorum = read_quorum_state(storage, directory)
        check_quorum(quorum, identity.node_id)
        state = ControllerState()
        log = MetadataLog.open(storage, directory, state, now_ms, last_epoch=quorum.leader_epoch)
        check_known_folders(storage.list_directory(data_directory), log.end_offset)
        check_servable(state, identity)
        first_records = _first_records(storage, data_directory, state, identity)
        controller = cls(state, log, identity.node_id, max_bytes_between_snapshots)
        controller._begin(first_records, now_ms)
        return controller

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

    def next_producer_id(self, now_ms: int) -> int:
        return self._producer_ids.next(lambda: self.commit(reserve_block(self.state, self._node_id), now_ms))

    def close(self, now_ms: int) -> None:
        self._log.close(now_ms)

    def _snapshot_if_due(self, now_ms: int) -> None:
        if self._log.bytes_since_snapshot < self._max_bytes_between_snapshots:
            return
        try:
            self._log.write_snapshot(self.state, now_ms)
        except OSError as error:
            # The log still has everything; the next write tries again.
            logger.warning("the metadata snapshot could not be written: %s", error)


def _first_records(
    storage: Storage, data_directory: str, state: ControllerState, identity: Identity
) -> list[MetadataRecord]:
    """What metadata begins with and this one lacks: what Kafka's format command left for its first start, and the
    features that this version adds."""
    path = f"{data_directory}/{BOOTSTRAP_FILE}"
    is_new = METADATA_VERSION not in state.features
    prepared = decode_snapshot(storage.read_all(path)) if is_new and storage.exists(path) else []
    planned = ControllerState()
    for record in prepared:
        planned.replay(record)
    check_servable(planned, identity)
    return prepared + missing_features({**state.features, **planned.features})
