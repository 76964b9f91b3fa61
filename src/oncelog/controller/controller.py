"""The controller of a cluster of one: plans become durable, then true.

`commit` is the only way to change the state: records to the disk first, replay second, answer last.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from oncelog.controller.features import missing_features
from oncelog.controller.metadata_log import MetadataLog
from oncelog.controller.producer_ids import ProducerIds, reserve_block
from oncelog.controller.state import ControllerState, Outcome
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
        cls, storage: Storage, data_directory: str, node_id: int, *, max_bytes_between_snapshots: int, now_ms: int
    ) -> Controller:
        state = ControllerState()
        log = MetadataLog.open(storage, data_directory, state, now_ms)
        controller = cls(state, log, node_id, max_bytes_between_snapshots)
        controller.commit(Outcome(missing_features(state.features), None), now_ms)
        return controller

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
