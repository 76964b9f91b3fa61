"""All the logs of one data directory: opening, creating and deleting them, and their housekeeping.

Owns which partitions have a log here, and Kafka's checkpoint files beside the folders. It decides what is due and says
so in values (flushes, removals, a cleaning round) whose `run` may be called in another thread; the outcome comes back
through a method. It starts no thread, reads no clock, and holds no lock on the directory: those are the shell's. Which
partitions ought to exist, and with which settings, is the controller's to say.

A partition that was never written to has no folder and costs nothing: `create` makes its log in memory when somebody
asks for it, and the first record brings the files. One that was written to and has lost its folder, or lacks what it
was promised to hold, is reported and not served; it is never replaced by an empty one.

Recovery after a crash reads whatever lies above the recovery points. They move when flushes end, and are written down
by `checkpoint`; a stale one costs time, never data.

Kafka's name: LogManager.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from uuid import UUID

from oncelog.errors import KafkaStorageError, OncelogError
from oncelog.log import checkpoints, folders
from oncelog.log.checkpoints import LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE, CorruptCheckpoint
from oncelog.log.cleaning_schedule import CleaningSchedule
from oncelog.log.config import LogConfig
from oncelog.log.flush_schedule import FlushSchedule, LogFlush
from oncelog.log.log_news import LogNews
from oncelog.log.manifest import NO_FOREIGN_EPOCH, CorruptManifest, read_manifest
from oncelog.log.open_files import OpenFiles
from oncelog.log.partition_log import LogOpening, PartitionLog
from oncelog.log.partition_register import ALL_PARTITIONS, PartitionRegister, Registered
from oncelog.log.partition_register import FILE_NAME as REGISTER_FILE
from oncelog.log.segment_files import Removal
from oncelog.log.storage import Storage
from oncelog.named_tuple import NamedTuple
from oncelog.types import TopicPartition

if TYPE_CHECKING:
    from oncelog.log.cleaner import CleanedGroup, CleaningRound

logger = logging.getLogger(__name__)

NO_TOPIC_ID: Final = UUID(int=0)
NO_BROKER_EPOCH: Final = -1

MAX_RETIRED_AT_STOP: Final = 10_000
"""Folders of deleted partitions that a stop still renames, a few tens of microseconds each; the next start knows the
others by their topic ids."""

MAX_FOLDERS_AT_ONCE: Final = 64
"""Folders that are removed together; a topic of thousands of partitions is removed in as many rounds as it takes."""

LONG_SCAN_BYTES: Final = 1 << 20
"""A log with more than this to read after a crash is opened in a thread of its own: some milliseconds of work."""

Given = TypeVar("Given")
Made = TypeVar("Made")


class ParallelMap(Protocol):
    """`map`, or the `map` of an executor: recovery and closing work on one log each."""

    def __call__(self, function: Callable[[Given], Made], items: Iterable[Given], /) -> Iterable[Made]: ...


ConfigOf = Callable[[TopicPartition, UUID | None], LogConfig | None]
"""The settings of a partition found on the disk, with the topic id noted there; None if it ought not to exist. Raises
KafkaStorageError if that cannot be told: the folder is then left alone, and the partition offline."""


class _Retiring(NamedTuple):
    """The folder of a deleted partition, which still has its name."""

    path: str
    topic_id: UUID
    delay_ms: int


class FolderRemoval(NamedTuple):
    """The folder of a deleted partition. If `run` is never called, the next start does it."""

    storage: Storage
    path: str

    def run(self) -> None:
        self.storage.remove_directory(self.path)


@dataclass(slots=True)
class OpenReport:
    """What opening the data directory found."""

    clean: bool
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    strays: list[str] = field(default_factory=list)
    failed: dict[TopicPartition, KafkaStorageError] = field(default_factory=dict)


class Checkpoint(NamedTuple):
    """Recovery points and start offsets to be written down; None where nothing has changed."""

    storage: Storage
    directory: str
    recovery_points: dict[TopicPartition, int] | None
    start_offsets: dict[TopicPartition, int] | None
    looked_at: frozenset[PartitionLog]

    def run(self) -> None:
        """Raises KafkaStorageError."""
        files = ((RECOVERY_POINT_FILE, self.recovery_points), (LOG_START_OFFSET_FILE, self.start_offsets))
        try:
            for name, offsets in files:
                if offsets is not None:
                    checkpoints.write_offsets(self.storage, self.directory, name, offsets)
        except OSError as error:
            raise KafkaStorageError(f"cannot write the checkpoints of {self.directory}: {error}") from error


class _Found(NamedTuple):
    """A partition's folder on the disk, with its settings."""

    topic_partition: TopicPartition
    path: str
    topic_id: UUID | None
    config: LogConfig


class Reopening:
    """Another try to open a log that could not be opened before. `run` may be called in any thread, once."""

    def __init__(
        self, topic_partition: TopicPartition, run: Callable[[], tuple[_Found, PartitionLog | KafkaStorageError]]
    ) -> None:
        self.topic_partition = topic_partition
        self.folder: _Found | None = None
        self.opened: PartitionLog | KafkaStorageError | None = None
        self._run = run

    def run(self) -> None:
        self.folder, self.opened = self._run()


class _Managed(NamedTuple):
    log: PartitionLog
    path: str
    topic_id: UUID | None


def _no_topic_id(topic_partition: TopicPartition) -> UUID | None:
    """Nobody knows."""


def _was_not_deleted(topic_id: UUID) -> bool:
    """As far as anybody knows."""
    return False


def _is_not_known(topic_id: UUID) -> bool:
    """As far as anybody knows."""
    return False


class LogManager:
    def __init__(
        self,
        storage: Storage,
        directory: str,
        *,
        flushes: FlushSchedule,
        cleaning: CleaningSchedule,
        foreign_epoch: int = NO_FOREIGN_EPOCH,
        open_files: OpenFiles | None = None,
    ) -> None:
        self._storage = storage
        self._open_files = open_files if open_files is not None else OpenFiles()
        self._news = LogNews()
        self._uncheckpointed: set[PartitionLog] = set()  # perhaps changed since the last checkpoint, and durable by now
        self._withdrawn: set[TopicPartition] = set()  # deleted, and still in the checkpoint files
        self._checkpointing: Checkpoint | None = None
        self._foreign_epoch = foreign_epoch
        self._register = PartitionRegister(storage, directory)
        self._seen_in = REGISTER_FILE
        self._directory = directory
        self._flushes = flushes
        self._cleaning = cleaning
        self._managed: dict[TopicPartition, _Managed] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._retiring: dict[TopicPartition, _Retiring] = {}
        self._failed_ids: dict[TopicPartition, UUID] = {}  # of those in `report.failed`, as far as they are known
        self._reopenings: dict[TopicPartition, Reopening] = {}  # another thread may be at work in these folders
        self._folder_removals: list[tuple[int, str]] = []  # a heap of when each is due
        self._recovery_points: dict[TopicPartition, int] = {}  # as they stand in the file
        self._log_start_offsets: dict[TopicPartition, int] = {}
        self._aside: set[TopicPartition] = set()
        self._unjudged: set[TopicPartition] = set()  # of whose folders it could not be told whose they are
        self.report = OpenReport(clean=False)

    # --- opening ---

    @classmethod
    def open(
        cls,
        storage: Storage,
        directory: str,
        *,
        config_of: ConfigOf,
        now_ms: int,
        parallel_map: ParallelMap = map,
        flushes: FlushSchedule | None = None,
        foreign_epoch: int = NO_FOREIGN_EPOCH,
        topic_id_of: Callable[[TopicPartition], UUID | None] = _no_topic_id,
        was_deleted: Callable[[UUID], bool] = _was_not_deleted,
        is_known: Callable[[UUID], bool] = _is_not_known,
        open_files: OpenFiles | None = None,
    ) -> LogManager:
        """Open every log of the directory. One that cannot be opened is reported, and does not stop the others.

        `foreign_epoch` is the last one in which somebody led this directory who keeps no manifests. `topic_id_of` tells
        whose a folder is that lost its topic id, and is known by its name. `was_deleted` tells of which topics nothing
        is to be kept, and `is_known` which ones there are, whatever the register says of them.
        """
        cleaning = CleaningSchedule(storage, directory)
        flushes = flushes or FlushSchedule()
        manager = cls(
            storage,
            directory,
            flushes=flushes,
            cleaning=cleaning,
            foreign_epoch=foreign_epoch,
            open_files=open_files,
        )
        try:
            storage.make_directory(directory)
            manager._load_checkpoints()
            registered = manager._register.load()
            manager._doubt_deletions(is_known)
            folders_found = manager._find_folders(config_of, was_deleted, now_ms)
            found = [manager._with_topic_id(each, topic_id_of) for each in folders_found]
            manager._find_lost_folders(registered, found, config_of)
            manager.report.clean = checkpoints.take_clean_shutdown(storage, directory)
        except OSError as error:
            raise KafkaStorageError(f"cannot open the data directory {directory}: {error}") from error
        manager._open_all(found, now_ms, parallel_map)
        manager._uncheckpointed.update(manager._logs.values())
        known = manager._logs.keys() | manager.report.failed.keys()
        manager._withdrawn = (manager._recovery_points.keys() | manager._log_start_offsets.keys()) - known
        return manager

    def _load_checkpoints(self) -> None:
        """A checkpoint that cannot be read is as good as none: logs are then read from their start."""
        self._recovery_points = self._read_offsets(RECOVERY_POINT_FILE)
        self._log_start_offsets = self._read_offsets(LOG_START_OFFSET_FILE)
        self._cleaning.load()

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(self._storage, self._directory, name)
        except CorruptCheckpoint as error:
            logger.warning("going on without it: %s", error)
            return {}

    def _find_folders(self, config_of: ConfigOf, was_deleted: Callable[[UUID], bool], now_ms: int) -> list[_Found]:
        found = []
        for name in self._storage.list_directory(self._directory):
            path = f"{self._directory}/{name}"
            if name.endswith(folders.DELETE_SUFFIX):
                heapq.heappush(self._folder_removals, (now_ms, path))
            topic_partition = folders.partition_of(name)
            if topic_partition is None:
                continue
            try:
                folder = self._judge_folder(topic_partition, path, config_of, was_deleted, now_ms)
            except OSError as error:  # of one folder: the others are served
                self._unjudged.add(topic_partition)
                self._fail(topic_partition, _as_storage_error(f"cannot tell whose {path} is", error))
                continue
            if folder is not None:
                found.append(folder)
        return found

    def _judge_folder(
        self,
        topic_partition: TopicPartition,
        path: str,
        config_of: ConfigOf,
        was_deleted: Callable[[UUID], bool],
        now_ms: int,
    ) -> _Found | None:
        """The folder if it is to be opened; None if it is out of the way, or its partition was reported as failed.
        Raises OSError."""
        topic_id = self._read_topic_id(path)
        if topic_id is not None and self._is_deleted(topic_id, was_deleted):
            topic_id = self._second_opinion(path, topic_id)
        if topic_id is not None and self._is_deleted(topic_id, was_deleted):
            self._aside.add(topic_partition)
            self._retire_or_defer(topic_partition, _Retiring(path, topic_id, 0), now_ms)
            return None
        try:
            config = config_of(topic_partition, topic_id)
        except KafkaStorageError as error:
            noted, topic_id = topic_id, self._manifest_topic_id(path)
            config = None
            if topic_id is not None and topic_id != noted:
                with contextlib.suppress(KafkaStorageError):  # the manifest's id is as doubtful: the first error stands
                    config = config_of(topic_partition, topic_id)
            if config is None:
                self._fail(topic_partition, error, noted)
                return None
            self._restore_topic_id(path, topic_id)
        if config is None:
            self._set_aside(topic_partition, path, topic_id)
            self._aside.add(topic_partition)
            return None
        return _Found(topic_partition, path, topic_id, config)

    def _is_deleted(self, topic_id: UUID, was_deleted: Callable[[UUID], bool]) -> bool:
        return topic_id in self._register.deleted_topics or was_deleted(topic_id)

    def _doubt_deletions(self, is_known: Callable[[UUID], bool]) -> None:
        """The register is not believed against the metadata: that costs all records of a topic."""
        for topic_id, topic in list(self._register.deleted_topics.items()):
            if is_known(topic_id):
                path = f"{self._directory}/{REGISTER_FILE}"
                logger.warning("%s: it says that %s was deleted, which the metadata has: it is kept", path, topic)
                self._register.doubt_deletion(topic_id)

    def _second_opinion(self, path: str, topic_id: UUID) -> UUID:
        """Whose folder it is by its manifest: `partition.metadata` has no checksum, and to believe it costs all records
        where it names a topic that was deleted."""
        noted = self._manifest_topic_id(path)
        if noted is None or noted == topic_id:
            return topic_id
        self._restore_topic_id(path, noted)
        return noted

    def _with_topic_id(self, found: _Found, topic_id_of: Callable[[TopicPartition], UUID | None]) -> _Found:
        topic_id = topic_id_of(found.topic_partition) if found.topic_id is None else None
        if topic_id is None:
            return found
        self._restore_topic_id(found.path, topic_id)
        return found._replace(topic_id=topic_id)

    def _fail(self, topic_partition: TopicPartition, error: KafkaStorageError, topic_id: UUID | None = None) -> None:
        logger.error("%s is offline: %s", topic_partition, error)
        self.report.failed[topic_partition] = error
        if topic_id is not None:
            self._failed_ids[topic_partition] = topic_id

    def _read_topic_id(self, path: str) -> UUID | None:
        """From `partition.metadata`, or if that is lost from the manifest: a folder without an id would be taken for
        that of any topic of its name."""
        try:
            topic_id = checkpoints.read_topic_id(self._storage, path)
        except CorruptCheckpoint as error:
            logger.warning("%s", error)
            topic_id = None
        if topic_id is None and (topic_id := self._manifest_topic_id(path)) is not None:
            self._restore_topic_id(path, topic_id)
        return topic_id

    def _manifest_topic_id(self, path: str) -> UUID | None:
        try:
            manifest = read_manifest(self._storage, path)
        except CorruptManifest:
            return None
        return manifest.topic_id if manifest is not None else None

    def _restore_topic_id(self, path: str, topic_id: UUID | None) -> None:
        assert topic_id is not None, "only an id that is known can be restored"
        file = f"{path}/{checkpoints.PARTITION_METADATA_FILE}"
        logger.warning("%s: the topic id in it is lost or wrong; writing down %s", file, topic_id)
        try:
            checkpoints.write_topic_id(self._storage, path, topic_id)
        except OSError as error:
            logger.warning("%s: that cannot be written down, and will be tried at the next start: %s", file, error)

    def _find_lost_folders(self, registered: set[Registered] | None, found: list[_Found], config_of: ConfigOf) -> None:
        """Report every partition that ought to exist, was here, and has no folder any more. Where oncelog has not run
        before, the recovery points tell who was here."""
        was_here = registered
        if was_here is None:
            self._seen_in = RECOVERY_POINT_FILE
            was_here = {Registered(topic_partition, NO_TOPIC_ID) for topic_partition in self._recovery_points}
        is_here = {folder.topic_partition for folder in found} | self.report.failed.keys() | self._aside
        for topic_partition, topic_id in sorted(was_here):
            if topic_partition in is_here or topic_id in self._register.deleted_topics:
                continue
            if _ought_to_exist(config_of, topic_partition, topic_id):
                known_id = topic_id if topic_id != NO_TOPIC_ID else None
                self._fail(topic_partition, self._lost_folder(topic_partition), known_id)
        kept = {each for each in was_here if each.topic_partition in self.report.failed}
        kept |= {Registered(each.topic_partition, each.topic_id) for each in found if each.topic_id is not None}
        kept |= self._deletions_in_hand()
        self._register.replace(registered, kept)

    def _deletions_in_hand(self) -> set[Registered]:
        """What the register must go on to say of deleted topics: of folders that still have their names, and of all of
        them if it could not be told of some folder whose it is."""
        deleted = {(retiring.topic_id, tp.topic) for tp, retiring in self._retiring.items()}
        if self._unjudged:
            deleted |= self._register.deleted_topics.items()
        return {Registered(TopicPartition(topic, ALL_PARTITIONS), topic_id) for topic_id, topic in deleted}

    def _lost_folder(self, topic_partition: TopicPartition) -> KafkaStorageError:
        path = f"{self._directory}/{folders.name_of(topic_partition)}"
        held = self._recovery_points.get(topic_partition, 0)
        return KafkaStorageError(
            f"the folder {path} is missing, with at least {held} offsets, and {self._seen_in} says that it was here. "
            f"{folders.see_doctor(self._directory)}"
        )

    def _set_aside(self, topic_partition: TopicPartition, path: str, topic_id: UUID | None) -> None:
        """Nobody knows this partition. Its data may be all that is left of something, so it is kept, out of the way."""
        name = folders.retired_name(topic_partition, topic_id or NO_TOPIC_ID, folders.STRAY_SUFFIX)
        logger.warning("%s belongs to no known partition; renamed to %s", path, name)
        self._rename_folder(path, name)
        self.report.strays.append(name)

    def _rename_folder(self, path: str, name: str) -> str:
        target = f"{self._directory}/{name}"
        self._storage.remove_directory(target)
        self._storage.rename(path, target)
        return target

    def _open_all(self, found: list[_Found], now_ms: int, parallel_map: ParallelMap) -> None:
        """Threads help only where there is much to read: of small logs, they spend more time waiting for each other."""
        long_scans: list[tuple[_Found, LogOpening]] = []
        for folder in found:
            opening = self._begin_opening(folder, now_ms)
            if isinstance(opening, LogOpening) and opening.scan_bytes > LONG_SCAN_BYTES:
                long_scans.append((folder, opening))
            else:
                self._note_opened(folder, self._finish_opening(folder, opening))
        for folder, opened in parallel_map(lambda each: (each[0], self._finish_opening(*each)), long_scans):
            self._note_opened(folder, opened)

    def _open_log(self, folder: _Found, now_ms: int) -> tuple[_Found, PartitionLog | KafkaStorageError]:
        """May be called in any thread: it touches nothing of the manager but what is fixed by now."""
        return folder, self._finish_opening(folder, self._begin_opening(folder, now_ms))

    def _begin_opening(self, folder: _Found, now_ms: int) -> LogOpening | KafkaStorageError:
        try:
            return PartitionLog.opening(
                self._storage,
                folder.path,
                folder.topic_partition,
                folder.config,
                now_ms=now_ms,
                clean=self.report.clean,
                recovery_point=self._recovery_points.get(folder.topic_partition, 0),
                log_start_offset=self._log_start_offsets.get(folder.topic_partition),
                topic_id=folder.topic_id,
                foreign_epoch=self._foreign_epoch,
                open_files=self._open_files,
            )
        except OncelogError as error:
            return self._cannot_open(folder, error)

    def _finish_opening(
        self, folder: _Found, opening: LogOpening | KafkaStorageError
    ) -> PartitionLog | KafkaStorageError:
        if isinstance(opening, KafkaStorageError):
            return opening
        try:
            return opening.finish()
        except OncelogError as error:
            return self._cannot_open(folder, error)

    def _cannot_open(self, folder: _Found, error: OncelogError) -> KafkaStorageError:
        if isinstance(error, KafkaStorageError):
            return error
        seen = folders.see_doctor(self._directory)
        return KafkaStorageError(f"cannot make sense of the log in {folder.path}: {error}. {seen}")

    def _note_opened(self, folder: _Found, opened: PartitionLog | KafkaStorageError) -> None:
        if isinstance(opened, KafkaStorageError):
            self._fail(folder.topic_partition, opened, folder.topic_id)
            return
        self._add(_Managed(opened, folder.path, folder.topic_id))
        self.report.scanned_bytes += opened.recovery.scanned_bytes
        self.report.truncated_bytes += opened.recovery.truncated_bytes

    def _add(self, managed: _Managed) -> None:
        """From here on a log is everybody's: until now it was alone the business of whoever opened it, perhaps in
        another thread. `_remove` is the way back."""
        topic_partition = managed.log.topic_partition
        self._managed[topic_partition] = managed
        self._logs[topic_partition] = managed.log
        managed.log.publish(self._news)

    def _remove(self, log: PartitionLog) -> None:
        """Nobody here knows the log any more, and whatever it still does is nobody's news."""
        del self._managed[log.topic_partition], self._logs[log.topic_partition]
        log.publish(LogNews())
        self._news.forget(log)
        self._uncheckpointed.discard(log)
        self._flushes.forget(log)
        self._cleaning.forget(log)

    # --- partitions ---

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        return MappingProxyType(self._logs)

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None if there is none here. Raises KafkaStorageError if it could not be opened."""
        log = self._logs.get(topic_partition)
        if log is None and topic_partition in self.report.failed:
            raise self.report.failed[topic_partition]
        return log

    def topic_id(self, topic_partition: TopicPartition) -> UUID | None:
        managed = self._managed.get(topic_partition)
        return managed.topic_id if managed is not None else None

    def create(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, now_ms: int) -> PartitionLog:
        """The empty log of a partition that was never written to. Its first record brings the folder, and the first
        flush makes that durable together with the record."""
        assert topic_partition not in self._logs, f"{topic_partition} has a log already"
        if topic_partition in self.report.failed:
            raise self.report.failed[topic_partition]
        path = f"{self._directory}/{folders.name_of(topic_partition)}"
        log = PartitionLog.unwritten(
            self._storage,
            path,
            topic_partition,
            config,
            now_ms=now_ms,
            make_folder=partial(self._make_folder, topic_partition, topic_id, path),
            topic_id=topic_id,
            foreign_epoch=self._foreign_epoch,
            open_files=self._open_files,
        )
        self._add(_Managed(log, path, topic_id))
        return log

    def _make_folder(self, topic_partition: TopicPartition, topic_id: UUID, path: str, now_ms: int) -> None:
        """Raises OSError, and may be called again. The register is told when the folder is there, and before a record
        can be: from then on a missing folder is a lost one. Nor is it made while another thread may still open, and
        repair, the files of an earlier log by their names."""
        if topic_partition in self._reopenings:
            raise BlockingIOError(errno.EAGAIN, "an earlier log of this name is being opened")
        retiring = self._retiring.get(topic_partition)
        if retiring is not None:  # the folder of a deleted topic of this name
            self._retire(topic_partition, retiring, now_ms)
        self._withdraw(topic_partition)
        self._storage.make_directory(path)
        checkpoints.begin_topic_id(self._storage, path, topic_id)
        self._register.add(Registered(topic_partition, topic_id))

    def _withdraw(self, topic_partition: TopicPartition) -> None:
        """What the checkpoints say of an earlier log of this name must not be taken for the new one's, which would seem
        to have lost records, or to be verified already. One write serves all partitions that were deleted before.
        Raises OSError while another thread writes those files: to wait for it would stop everybody."""
        if topic_partition in self._withdrawn:
            if self._checkpointing is not None:
                raise BlockingIOError(errno.EAGAIN, "the checkpoint of an earlier log of this name is being withdrawn")
            self.checkpoint()
        self._cleaning.created(topic_partition)

    def reopening(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, now_ms: int
    ) -> Reopening | None:
        """Of a log that is in `report.failed`; None if it is not there any more. Hand it to `reopened` once it has run,
        or has raised."""
        if topic_partition not in self.report.failed:
            return None
        path = f"{self._directory}/{folders.name_of(topic_partition)}"
        found = _Found(topic_partition, path, topic_id, config)
        reopening = Reopening(topic_partition, lambda: self._open_again(found, now_ms))
        self._reopenings[topic_partition] = reopening
        return reopening

    def _open_again(self, folder: _Found, now_ms: int) -> tuple[_Found, PartitionLog | KafkaStorageError]:
        """Called in another thread."""
        try:
            found_id = self._read_topic_id(folder.path)
        except OSError as error:
            return folder, _as_storage_error(f"cannot tell whose {folder.path} is", error)
        if found_id is not None and found_id != folder.topic_id:
            seen = folders.see_doctor(self._directory)
            return folder, KafkaStorageError(f"{folder.path} is of the topic {found_id}, which had this name. {seen}")
        return self._open_log(folder, now_ms)

    def reopened(self, reopening: Reopening) -> bool:
        """Whether the log is open now. One that was deleted meanwhile is closed again."""
        topic_partition, opened = reopening.topic_partition, reopening.opened
        is_wanted = self._reopenings.pop(topic_partition, None) is reopening and topic_partition in self.report.failed
        if isinstance(opened, KafkaStorageError):
            if is_wanted:
                self.report.failed[topic_partition] = opened
            return False
        if opened is None or reopening.folder is None:
            return False
        if not is_wanted:
            opened.close(clean=False, now_ms=0)
            return False
        self._forget_failure(topic_partition)
        self._uncheckpointed.add(opened)
        self._add(_Managed(opened, reopening.folder.path, reopening.folder.topic_id))
        return True

    def delete(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Take a partition's log out of use, if it has one. Readers that hold a part of it may finish. Of the disk, one
        line in the register is written for each topic: `retire_next` renames the folder, or the first record of a new
        partition of this name does. Only the folder of a log that could not be opened is renamed here, if it can be:
        nobody may know by its topic id whose it was."""
        managed = self._managed.get(topic_partition)
        if managed is not None:
            has_folder = managed.log.is_written or managed.log.is_half_made
            if has_folder and topic_partition not in self._retiring:  # else the folder is that of an earlier log
                delay_ms = managed.log.config.file_delete_delay_ms
                self._retiring[topic_partition] = _Retiring(managed.path, managed.topic_id or NO_TOPIC_ID, delay_ms)
                if managed.topic_id is not None:
                    self._register.note_deleted(topic_partition.topic, managed.topic_id)
        elif topic_partition in self.report.failed:
            path = f"{self._directory}/{folders.name_of(topic_partition)}"
            topic_id = self._failed_ids.get(topic_partition)
            if topic_id is not None:
                self._register.note_deleted(topic_partition.topic, topic_id)
            self._retire_or_defer(topic_partition, _Retiring(path, topic_id or NO_TOPIC_ID, 0), now_ms)
        self._forget(topic_partition, now_ms)

    def sync_deletions(self) -> None:
        """Have the register outlast a loss of power, before the metadata forgets which topics were deleted: else nobody
        could tell whose a folder is that came back with the power. Called in another thread. Raises
        KafkaStorageError."""
        try:
            self._register.sync_deletions()
        except OSError as error:
            raise KafkaStorageError(f"deletions of topics cannot be made durable: {error}") from error

    @property
    def retiring(self) -> int:
        """Folders of deleted partitions that still have their names. If this process is killed, the next start knows
        them by their topic ids."""
        return len(self._retiring)

    def retire_next(self, now_ms: int) -> None:
        """Rename one of them. Raises KafkaStorageError, and then comes to another one first."""
        topic_partition, retiring = next(iter(self._retiring.items()))
        try:
            self._retire(topic_partition, retiring, now_ms)
        except OSError as error:
            self._retiring[topic_partition] = self._retiring.pop(topic_partition)
            raise KafkaStorageError(f"cannot rename {retiring.path}, of a deleted partition: {error}") from error

    def _retire_or_defer(self, topic_partition: TopicPartition, retiring: _Retiring, now_ms: int) -> None:
        """Now if it can be, else with `retire_next`."""
        try:
            self._retire(topic_partition, retiring, now_ms)
        except OSError as error:
            logger.warning("cannot rename %s, of a deleted partition; it will be tried again: %s", retiring.path, error)
            self._retiring[topic_partition] = retiring

    def _retire(self, topic_partition: TopicPartition, retiring: _Retiring, now_ms: int) -> None:
        """Raises OSError."""
        if topic_partition in self._reopenings:
            raise BlockingIOError(errno.EAGAIN, "another thread is opening its log")
        self._register.note_missed()
        name = folders.retired_name(topic_partition, retiring.topic_id, folders.DELETE_SUFFIX)
        try:
            retired = self._rename_folder(retiring.path, name)
            heapq.heappush(self._folder_removals, (now_ms + retiring.delay_ms, retired))
        except FileNotFoundError:
            logger.warning("the folder of %s was missing already", topic_partition)
        self._retiring.pop(topic_partition, None)

    def _retire_before_stop(self, now_ms: int) -> None:
        """Until one fails: what prevents one mostly prevents all."""
        for _ in range(min(len(self._retiring), MAX_RETIRED_AT_STOP)):
            try:
                self.retire_next(now_ms)
            except KafkaStorageError as error:
                logger.warning("%s; the next start will", error)
                return

    def _forget_failure(self, topic_partition: TopicPartition) -> None:
        self.report.failed.pop(topic_partition, None)
        self._failed_ids.pop(topic_partition, None)

    def _forget(self, topic_partition: TopicPartition, now_ms: int) -> None:
        self._forget_failure(topic_partition)
        log = self._logs.get(topic_partition)
        if self._is_checkpointed(topic_partition):
            self._withdrawn.add(topic_partition)
        if log is not None:
            self._remove(log)
            log.close(clean=False, now_ms=now_ms)

    def truncate(self, topic_partition: TopicPartition, offset: int, now_ms: int) -> None:
        """Cut a log off at `offset`. Its recovery point is written down at once: what is written there next is new. And
        a lower one before, or a kill in between would leave a log that ends before what was promised."""
        log = self._logs[topic_partition]
        end_offset = log.end_if_truncated(offset)
        if self._recovery_points.get(topic_partition, 0) > end_offset:
            self._write_recovery_points({**self._recovery_points, topic_partition: end_offset})
        log.truncate_to(offset, now_ms)
        self._cleaning.truncated(log, log.log_end_offset)
        self.checkpoint()

    # --- housekeeping ---

    def retention(self, now_ms: int, wall_ms: int | None = None) -> int:
        """Take out of use what `retention.ms` and `retention.bytes` allow to go, by both clocks; how many segments."""
        return sum(self.each_retention(now_ms, wall_ms))

    def each_retention(self, now_ms: int, wall_ms: int | None = None) -> Iterator[int]:
        """As `retention`, one log after the other."""
        for log in self._each_written():
            try:
                yield len(log.apply_retention(now_ms, wall_ms))
            except (KafkaStorageError, OSError) as error:
                logger.error("retention of %s failed: %s", log.topic_partition, error)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`; how many."""
        return sum(self.each_expiry(now_ms))

    def each_expiry(self, now_ms: int) -> Iterator[int]:
        """As `expire_producers`, one log after the other."""
        for log in self._each_written():
            yield log.expire_producers(now_ms)

    def _each_written(self) -> Iterator[PartitionLog]:
        """Logs may be deleted on the way."""
        for log in list(self._logs.values()):
            if log.is_written and self.is_here(log):
                yield log

    def is_here(self, log: PartitionLog) -> bool:
        return self._logs.get(log.topic_partition) is log

    def removals_due(self, now_ms: int, max_folders: int = MAX_FOLDERS_AT_ONCE) -> list[Removal | FolderRemoval]:
        """Files and folders to be removed now that `file.delete.delay.ms` is over. The caller runs them, and asks again
        until there is nothing more to do."""
        due: list[Removal | FolderRemoval] = []
        while self._folder_removals and self._folder_removals[0][0] <= now_ms and len(due) < max_folders:
            _, path = heapq.heappop(self._folder_removals)
            due.append(FolderRemoval(self._storage, path))
        for log in list(self._news.removing):
            due += log.take_removals(now_ms)
        return due

    def flushes_due(self, now_ms: int) -> list[LogFlush]:
        return [flush for flush in self.each_flush(now_ms) if flush is not None]

    def each_flush(self, now_ms: int) -> Iterator[LogFlush | None]:
        """As `flushes_due`, one look at a log after the other, and only at those that have changed."""
        for log in list(self._news.changed):
            if self._flushes.is_full:
                return
            if log in self._news.changed:
                self._uncheckpointed.add(log)
                yield self._flushes.look(log, now_ms)

    def flushed(self, flush: LogFlush, now_ms: int) -> None:
        self._flushes.ended(flush, now_ms)

    def flush_failed(self, flush: LogFlush, error: Exception) -> None:
        """The log goes offline: what a failed sync left on the disk is anyone's guess."""
        self._flushes.failed(flush, error)

    def next_cleaning(self, now_ms: int, wall_ms: int | None = None) -> CleaningRound | None:
        """A round of compaction, if one is due by both clocks and none is under way. Call its `clean_next` in any
        thread, and hand the result to `cleaned`, or the exception to `cleaning_failed`; go on while `cleaned` says so.
        """
        logs = {managed.path: managed.log for managed in self._managed.values()}
        return self._cleaning.next_round(logs, now_ms, now_ms if wall_ms is None else wall_ms)

    def choose_cleaning(self, now_ms: int, wall_ms: int) -> Generator[None, None, CleaningRound | None]:
        """As `next_cleaning`, one look at a log after the other."""
        logs = [(managed.path, managed.log) for managed in self._managed.values() if managed.log.config.compacts]
        return self._cleaning.choose(logs, now_ms, wall_ms, self.is_here)

    def cleaned(self, group: CleanedGroup | None, now_ms: int) -> bool:
        return self._cleaning.swap(group, now_ms)

    def cleaning_failed(self, error: Exception) -> None:
        self._cleaning.failed(error)

    def checkpoint(self) -> None:
        """Write the recovery points and start offsets down, if they have changed."""
        due = self.checkpoint_due()
        if due is not None:
            try:
                due.run()
            except KafkaStorageError:
                self.checkpoint_failed(due)
                raise
            self.checkpointed(due)

    def checkpoint_due(self) -> Checkpoint | None:
        """What is to be written down by now. Its `run` may be called in any thread; then tell `checkpointed` or
        `checkpoint_failed`. Only logs that have changed since the last one are looked at."""
        assert self._checkpointing is None, "one at a time"
        looked_at = self._uncheckpointed | self._news.changed.keys()
        points, starts = dict(self._recovery_points), dict(self._log_start_offsets)
        for topic_partition in self._withdrawn:
            points.pop(topic_partition, None)
            starts.pop(topic_partition, None)
        for log in looked_at:
            if not log.is_written:
                continue
            points[log.topic_partition] = log.recovery_point
            start_offset = _noted_start(log, self._log_start_offsets.get(log.topic_partition, 0))
            if start_offset is not None:
                starts[log.topic_partition] = start_offset
            else:
                starts.pop(log.topic_partition, None)
        due = Checkpoint(
            self._storage,
            self._directory,
            points if points != self._recovery_points else None,
            starts if starts != self._log_start_offsets else None,
            frozenset(looked_at),
        )
        self._uncheckpointed.clear()
        if due.recovery_points is None and due.start_offsets is None:
            self._withdrawn.clear()
            return None
        self._checkpointing = due
        return due

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        self._checkpointing = None
        if checkpoint.recovery_points is not None:
            self._recovery_points = checkpoint.recovery_points
        if checkpoint.start_offsets is not None:
            self._log_start_offsets = checkpoint.start_offsets
        self._withdrawn = {each for each in self._withdrawn if self._is_checkpointed(each)}  # the others are done

    def checkpoint_failed(self, checkpoint: Checkpoint) -> None:
        self._checkpointing = None
        self._uncheckpointed |= {log for log in checkpoint.looked_at if self.is_here(log)}

    def _is_checkpointed(self, topic_partition: TopicPartition) -> bool:
        """Whether the files speak of it, or are about to."""
        written = (self._recovery_points, self._log_start_offsets)
        due = self._checkpointing
        writing = () if due is None else (due.recovery_points or {}, due.start_offsets or {})
        return any(topic_partition in offsets for offsets in (*written, *writing))

    @property
    def has_withdrawals(self) -> bool:
        """Whether the checkpoint files speak of logs that were deleted."""
        return bool(self._withdrawn)

    @property
    def is_checkpointing(self) -> bool:
        return self._checkpointing is not None

    def _write_recovery_points(self, recovery_points: dict[TopicPartition, int]) -> None:
        try:
            checkpoints.write_offsets(self._storage, self._directory, RECOVERY_POINT_FILE, recovery_points)
        except OSError as error:
            raise KafkaStorageError(f"cannot write the recovery points of {self._directory}: {error}") from error
        self._recovery_points = recovery_points

    # --- the end ---

    def begin_stop(self) -> None:
        """Make what runs in other threads end soon. `stop` must wait for it."""
        self._cleaning.stop()

    def stop(
        self,
        now_ms: int,
        *,
        parallel_map: ParallelMap = map,
        broker_epoch: int = NO_BROKER_EPOCH,
        on_closed: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Close every log, and promise a quick start if all of it is on the disk. Whether that could be promised.
        `on_closed` hears how many logs of how many are closed."""
        closed = []
        for is_closed in parallel_map(lambda log: _close(log, now_ms), self._logs.values()):
            closed.append(is_closed)
            if on_closed is not None:
                on_closed(len(closed), len(self._logs))
        self._checkpointing = None  # whatever ran in a thread has ended
        self._retire_before_stop(now_ms)
        self._uncheckpointed.update(self._logs.values())
        self.checkpoint()
        is_clean = all(closed) and not self.report.failed
        if is_clean:
            try:
                checkpoints.write_clean_shutdown(self._storage, self._directory, broker_epoch)
            except OSError as error:
                raise KafkaStorageError(f"cannot promise a clean stop of {self._directory}: {error}") from error
        return is_clean


def _as_storage_error(what: str, error: OSError) -> KafkaStorageError:
    failed = KafkaStorageError(f"{what}: {error}")
    failed.__cause__ = error
    return failed


def _ought_to_exist(config_of: ConfigOf, topic_partition: TopicPartition, topic_id: UUID) -> bool:
    try:
        return config_of(topic_partition, topic_id if topic_id != NO_TOPIC_ID else None) is not None
    except (KafkaStorageError, FileNotFoundError):
        return False  # another topic has the name by now


def _close(log: PartitionLog, now_ms: int) -> bool:
    try:
        log.close(clean=True, now_ms=now_ms)
    except KafkaStorageError as error:
        logger.error("%s was not closed cleanly: %s", log.topic_partition, error)
        return False
    return not log.offline


def _noted_start(log: PartitionLog, noted: int) -> int | None:
    """What the checkpoint of start offsets is to say of a log, of which it says `noted` now; None: nothing, as the log
    starts simply where its first segment does. The manifest on the disk must not know less than that file, which has
    no checksum: a start that no flush has made durable waits for the next one."""
    start_offset = min(max(log.durable_start_offset, noted), log.log_start_offset)
    first = log.segments[0] if log.segments else log.active_segment
    return start_offset if start_offset > first.base_offset else None
