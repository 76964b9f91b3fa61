"""The controller of a cluster of one: plans become durable, then true.

`propose` is how a broker changes the state. Proposals are taken one at a time: a plan is made of the state that the one
before it left, its records go to the disk, both in a thread; then they are replayed on the loop, and whoever follows
the metadata is told; then the answer leaves. Nothing else touches the metadata log meanwhile, snapshots neither.
`commit` is the same at once, for a broker that does not serve yet. Opening a folder decides first whether its metadata
can be served, and writes only then.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Set
from typing import Any, TypeVar
from uuid import UUID

from oncelog.controller.changes import Change, changes
from oncelog.controller.client_quotas import unenforced_keys
from oncelog.controller.end_offset_checkpoint import EndOffsetCheckpoint, read_noted
from oncelog.controller.features import METADATA_VERSION, missing_features
from oncelog.controller.identity import Identity, check_noted
from oncelog.controller.lane import InSlices, Lane, RunInThread, Steps, guarded, tell_all
from oncelog.controller.metadata_log import METADATA_PARTITION, MetadataLog, check_metadata, replay_all
from oncelog.controller.producer_ids import RESERVE_AT, ProducerIds, reserve_block
from oncelog.controller.quorum_state import read_quorum_state
from oncelog.controller.records import DamagedMetadata, MetadataRecord, NewerMetadata, RecordType, UnreadableMetadata
from oncelog.controller.snapshot import BOOTSTRAP_FILE, decode_snapshot
from oncelog.controller.state import ControllerState, Outcome
from oncelog.controller.takeover import check_known_folders, check_quorum, check_servable, elections
from oncelog.controller.topics import MAX_PARTITIONS_PER_REQUEST
from oncelog.errors import KafkaError, KafkaStorageError, RequestTimedOut
from oncelog.log.checkpoints import CLEAN_SHUTDOWN_FILE
from oncelog.log.folders import see_doctor
from oncelog.log.manifest import NO_FOREIGN_EPOCH
from oncelog.log.storage import Storage
from oncelog.named_tuple import NamedTuple

logger = logging.getLogger(__name__)

T = TypeVar("T")

Plan = Callable[[], Outcome[T]]
"""Looks at the state, which nothing changes meanwhile, from a thread."""
Done = Callable[[T | None, KafkaError | None], None]
"""Is told the plan's response once it is true; or why it is not, with the response if there is one."""
Follow = Callable[[Change], Steps]
"""Brings in line with a change, which is in force, what depends on it, in short steps. The first one is taken together
with the change, before anybody else looks; the others once all of the plan is in force."""
FollowAll = Callable[[Set[RecordType]], Steps]
"""The same for what depends on a whole plan, after all of its changes: of which types its records were."""


def _nothing_to_be_done() -> None:
    """Before there is a broker nobody has noted anything."""


class _Written(NamedTuple):
    outcome: Outcome[Any]
    error: KafkaStorageError | None
    now_ms: int


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
        self._lane = Lane()
        self._follow: Follow = _nobody_follows
        self._follow_all: FollowAll = _nobody_follows
        self._before_snapshot: Callable[[], None] = _nothing_to_be_done
        self._end_in_force = log.end_offset
        self._producer_ids = ProducerIds()
        self._awaiting_ids: list[Callable[[KafkaError | None], None]] = []
        self._is_reserving = False
        self._reserving_error: KafkaError | None = None
        self.foreign_epoch = foreign_epoch
        """The last one in which an older oncelog or an Apache Kafka led this folder. A higher one than before: it has
        run here since, and oncelog's own notes from before are not believed."""

    @classmethod
    def open(
        cls, storage: Storage, data_directory: str, identity: Identity, *, max_bytes_between_snapshots: int, now_ms: int
    ) -> Controller:
        """Raises UnreadableMetadata, UnservableMetadata and KafkaStorageError."""
        try:
            state, log, foreign_epoch, first_records = cls._load(storage, data_directory, identity, now_ms)
        except DamagedMetadata as error:
            raise DamagedMetadata(f"{error}. {see_doctor(data_directory)}") from error
        log.settle(now_ms)
        controller = cls(state, log, identity.node_id, max_bytes_between_snapshots, foreign_epoch)
        controller._begin(first_records, now_ms)
        return controller

    @staticmethod
    def _load(
        storage: Storage, data_directory: str, identity: Identity, now_ms: int
    ) -> tuple[ControllerState, MetadataLog, int, list[MetadataRecord]]:
        """Nothing is written before all of it was judged."""
        directory = f"{data_directory}/{METADATA_PARTITION}"
        noted = read_noted(storage, data_directory)
        check_noted(identity, noted.identity, data_directory)
        is_ours = noted.end is not None
        quorum = read_quorum_state(storage, directory, is_ours=is_ours)
        check_quorum(quorum, identity.node_id)
        state = ControllerState()
        checked = check_metadata(
            storage,
            directory,
            state,
            noted=noted.end,
            was_stopped_cleanly=storage.exists(f"{data_directory}/{CLEAN_SHUTDOWN_FILE}"),
        )
        check_known_folders(
            storage,
            data_directory,
            state,
            checked.removed_topics,
            metadata_end_offset=checked.log.end_offset,
            is_whole=is_ours,
        )
        check_servable(state, identity)
        first_records = _first_records(storage, data_directory, state, identity)
        durable_end = EndOffsetCheckpoint(storage, data_directory, identity)
        log = MetadataLog.open(
            storage, directory, checked, now_ms, durable_end=durable_end, last_epoch=quorum.leader_epoch
        )
        foreign_epoch = noted.latest_foreign_epoch(log.last_epoch)
        if foreign_epoch != noted.foreign_epoch:
            logger.info(
                "%s: another version of oncelog, or Apache Kafka, has used this folder since, or a crash came in "
                "between; what was noted of its files before is not believed",
                data_directory,
            )
        durable_end.foreign_epoch = foreign_epoch
        elected_in = quorum.epoch_within(log.last_epoch) if is_ours else quorum.leader_epoch
        return state, log, max(foreign_epoch, elected_in), first_records

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

    # --- what the broker adds ---

    def follow(
        self, follow: Follow, follow_all: FollowAll, before_snapshot: Callable[[], None] = _nothing_to_be_done
    ) -> None:
        """Have everything that is proposed from now on followed by these. A snapshot tells what there is, and no more
        what there was: `before_snapshot` makes durable, in the snapshot's thread, what was noted of that elsewhere. If
        it raises OSError or KafkaStorageError, the snapshot has to wait."""
        self._follow = follow
        self._follow_all = follow_all
        self._before_snapshot = before_snapshot

    def serve_by(self, run_in_thread: RunInThread, in_slices: InSlices) -> None:
        """There is a loop, which must not wait for the disk."""
        self._lane.serve_by(run_in_thread, in_slices)

    # --- changing the state ---

    @property
    def metadata_offset(self) -> int:
        """How much of the metadata log is in force: the epoch of the finalized features."""
        return self._end_in_force - 1

    def propose(self, plan: Plan[T], now_ms: int, done: Done[T]) -> None:
        """Make a plan when its turn comes, make it durable, then true. If it cannot be made durable, `done` hears of a
        KafkaStorageError; if too many wait already, of RequestTimedOut. Then nothing has changed."""

        def write() -> _Written:
            outcome = plan()
            try:
                if outcome.records:
                    self._log.append(outcome.records, now_ms)
            except KafkaStorageError as error:
                return _Written(outcome, error, now_ms)
            return _Written(outcome, None, now_ms)

        def written(result: _Written | None, error: KafkaError | None) -> None:
            if result is None:
                done(None, error)
            else:
                done(result.outcome.response, error or result.error)

        self._lane.enter(write, self._take_effect, written)

    def _take_effect(self, written: _Written) -> Steps:
        """What is durable is replayed to its end, whatever becomes of those who follow it."""
        records = written.outcome.records
        if written.error is None and records:
            followings: list[Steps] = []
            for change in changes(records, self.state, written.now_ms):
                following = guarded(self._follow(change))
                next(following, None)
                followings.append(following)
                yield
            self._end_in_force = self._log.end_offset
            for following in followings:
                yield from following
            yield from guarded(self._follow_all({record.type for record in records}))
            if self._is_snapshot_due:
                self._lane.insist(lambda: self._write_snapshot(written.now_ms), lambda *_: None)

    def commit(self, outcome: Outcome[T], now_ms: int) -> T:
        """The same at once, and nobody follows. Raises KafkaStorageError, and then nothing has changed."""
        assert self._lane.is_idle, "proposals take turns"
        if outcome.records:
            self._log.append(outcome.records, now_ms)
            for record in outcome.records:
                self.state.replay(record)
            self._end_in_force = self._log.end_offset
            if self._is_snapshot_due:
                self._write_snapshot(now_ms)
        return outcome.response

    @property
    def removed_topics(self) -> Set[UUID]:
        """Topics that the metadata log tells to have been deleted, as far back as it goes."""
        return self._log.removed_topics

    # --- producer ids ---

    def when_producer_ids(self, now_ms: int, ready: Callable[[KafkaError | None], None]) -> None:
        """Call back when there is a producer id to hand out, or with the error why there is none: at once, unless a
        block must be reserved first."""
        if self._producer_ids.left:
            ready(None)
            return
        self._awaiting_ids.append(ready)
        self._reserve(now_ms)

    def next_producer_id(self, now_ms: int) -> int:
        """Raises KafkaStorageError, or RequestTimedOut while a block is being reserved. Who has just heard that none
        can be is not made to wait for another failure."""
        if not self._producer_ids.left:
            heard = [self._reserving_error]
            if self._reserving_error is None:
                self.when_producer_ids(now_ms, heard.append)
            if not self._producer_ids.left:
                raise heard[-1] or RequestTimedOut("producer ids are being reserved; try again")
        producer_id = self._producer_ids.take()
        if self._producer_ids.left == RESERVE_AT:
            self._reserve(now_ms)
        return producer_id

    def _reserve(self, now_ms: int) -> None:
        """The next block, before the last id is handed out: nobody need wait for it."""
        if self._is_reserving:
            return
        self._is_reserving = True

        def reserved(block: range | None, error: KafkaError | None) -> None:
            self._is_reserving = False
            self._reserving_error = error
            if block is not None and error is None:
                self._producer_ids.add(block)
            awaiting, self._awaiting_ids = self._awaiting_ids, []
            tell_all(awaiting, error)
            self._reserving_error = None  # old news for whoever comes later

        self.propose(lambda: reserve_block(self.state, self._node_id), now_ms, reserved)

    # --- the end ---

    def stop(self, on_idle: Callable[[], None]) -> None:
        """Refuse proposals from now on, and call back when the one under way is done."""
        self._lane.stop(on_idle)

    def close(self, now_ms: int) -> None:
        assert self._lane.is_idle, "what is under way ends before its log is closed"
        self._log.close(now_ms)

    # --- snapshots ---

    @property
    def _is_snapshot_due(self) -> bool:
        return self._log.bytes_since_snapshot >= self._max_bytes_between_snapshots

    def _write_snapshot(self, now_ms: int) -> None:
        try:
            self._before_snapshot()
            self._log.write_snapshot(self.state, now_ms)
        except (OSError, KafkaStorageError) as error:
            # What was committed is in force, and the log still has everything: the next write, or if only the log could
            # not be cut the next snapshot, tries again.
            logger.warning("the metadata snapshot could not be written, or the log before it not be cut: %s", error)


def _nobody_follows(_: object) -> Steps:
    return iter(())


def _first_records(
    storage: Storage, data_directory: str, state: ControllerState, identity: Identity
) -> list[MetadataRecord]:
    """What metadata begins with and this one lacks: what Kafka's format command left for its first start, and the
    features that this version adds."""
    path = f"{data_directory}/{BOOTSTRAP_FILE}"
    is_new = METADATA_VERSION not in state.features
    try:
        prepared = decode_snapshot(storage.read_all(path)) if is_new and storage.exists(path) else []
        planned = ControllerState()
        replay_all(prepared, planned)
    except NewerMetadata as error:
        raise NewerMetadata(f"{path}: {error}") from error
    except UnreadableMetadata as error:
        raise DamagedMetadata(f"{path}: {error}") from error
    check_servable(planned, identity)
    return prepared + missing_features({**state.features, **planned.features})
