"""What is wrong with the files of a partition or of a data folder: what opening would ask, without opening.

Owns the words in which damage at rest is told (`Finding`), and looking for it. Everything here but `accept_loss` only
reads, so it may be asked about a folder that nobody should touch; no broker may run on the folder meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from oncelog.errors import OncelogError
from oncelog.log import checkpoints, folders
from oncelog.log.batch_scan import SCAN_BYTES
from oncelog.log.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpoint,
)
from oncelog.log.config import LogConfig
from oncelog.log.leader_epochs import FILE_NAME as EPOCHS_FILE
from oncelog.log.manifest import FILE_NAME as MANIFEST_FILE
from oncelog.log.manifest import NO_FOREIGN_EPOCH, Manifest, SegmentEntry, encode
from oncelog.log.overlay_storage import OverlayStorage
from oncelog.log.partition_log import PartitionLog
from oncelog.log.partition_register import PartitionRegister
from oncelog.log.segment_files import LOG_SUFFIX, file_path
from oncelog.log.storage import Storage, directory_of
from oncelog.log.survey import (
    BatchReader,
    OffsetRange,
    PartitionSurvey,
    SegmentSurvey,
    in_words,
    named,
    survey_partition,
)
from oncelog.types import TopicPartition

DAMAGED_SUFFIX: Final = ".damaged"
"""Of the copy of a segment that `accept_loss` cuts. Nobody reads it again."""

REPAIRED_SUFFIX: Final = ".repaired"
"""Of a segment that `accept_loss` writes anew, until it is complete."""


ReaderOf = Callable[[TopicPartition], BatchReader | None]


def _nobody_reads(_: TopicPartition) -> None:
    """All that a broker does with the records is to hand them out."""


class Severity(Enum):
    NOTE = "note"  # nothing is lost and nothing needs doing
    REPAIRED_AT_START = "repaired at start"  # the next start puts it right from what else is there
    LOSS = "loss"  # records are gone or cannot be believed: the partition is not served until that is accepted


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    path: str
    """The file or folder."""
    problem: str
    """What is wrong with it, and what was expected."""
    consequence: str
    """What the broker does about it at its next start."""
    severity: Severity
    remedy: str
    """What to do."""
    can_repair: bool = False
    """Whether the doctor can do it. Of a loss: `accept_loss` makes the partition start again, without what is lost."""
    lost: tuple[OffsetRange, ...] = ()
    """The offsets that cannot be read any more, as far as they are known."""


def inspect_partition(
    storage: Storage,
    directory: str,
    topic_partition: TopicPartition,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int | None = None,
    foreign_epoch: int = NO_FOREIGN_EPOCH,
    verify_batches: bool = False,
    reader: BatchReader | None = None,
) -> list[Finding]:
    """What is wrong with one partition's folder. `clean`, `recovery_point` and `log_start_offset` are what the data
    folder's checkpoints say of it; `verify_batches` reads every batch and checks its CRC and its offsets, as is done
    anyway where a `reader` does so at a start."""
    verify_batches = verify_batches or reader is not None
    start_offset = log_start_offset or 0
    try:
        log = PartitionLog.open(
            OverlayStorage(storage),
            directory,
            topic_partition,
            LogConfig(),
            now_ms=0,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            foreign_epoch=foreign_epoch,
        )
    except OncelogError as error:
        problem = str(error).removesuffix(f". {folders.see_doctor(directory.rpartition('/')[0])}")
        survey = survey_partition(
            storage,
            directory,
            recovery_point=recovery_point,
            start_offset=start_offset,
            foreign_epoch=foreign_epoch,
            reader=reader,
        )
        return [
            _loss(directory, problem, survey.lost),
            *(_damaged_batches(directory, survey, reader) if verify_batches else ()),
        ]
    found = [_checked(path, what) if path == directory else _mended(path, what) for path, what in log.recovery.mended]
    for offset in log.recovery.broken_snapshots:
        found.append(_mended(f"{directory}/{offset:020d}.snapshot", "it is damaged, or not the one written here"))
    if log.recovery.truncated_bytes:
        cut = f"{log.recovery.truncated_bytes} bytes after offset {log.log_end_offset - 1} are not a whole batch"
        consequence = "they are cut off: after a crash, this is a write that was never acknowledged"
        found.append(Finding(directory, cut, consequence, Severity.NOTE, "nothing"))
    if verify_batches:
        survey = survey_partition(
            storage,
            directory,
            recovery_point=recovery_point,
            start_offset=start_offset,
            foreign_epoch=foreign_epoch,
            epochs=log.leader_epochs.entries,
            reader=reader,
        )
        end_offset = log.log_end_offset if log.recovery.truncated_bytes else None
        found += _damaged_batches(directory, survey, reader, cut_from=end_offset)
    return found


def _loss(path: str, problem: str, lost: tuple[OffsetRange, ...]) -> Finding:
    return Finding(
        path,
        f"{problem}. Lost: {in_words(lost)}" if lost else problem,
        "the partition is offline: clients find no leader for it; the others are served",
        Severity.LOSS,
        "put the files back from a backup, or accept that what is missing is lost",
        can_repair=True,
        lost=lost,
    )


def _mended(path: str, problem: str) -> Finding:
    if path.endswith(EPOCHS_FILE):
        remedy = "nothing: start the broker, or `--repair` writes it at once"
        rebuilt = "it is rebuilt from the batches: all records are read as before"
        return Finding(path, problem, rebuilt, Severity.REPAIRED_AT_START, remedy, can_repair=True)
    return Finding(path, problem, "it is rebuilt from the log", Severity.REPAIRED_AT_START, "nothing: start the broker")


def _checked(path: str, why: str) -> Finding:
    return Finding(path, why, "all of it is read and checked", Severity.REPAIRED_AT_START, "nothing: start the broker")


def _damaged_batches(
    directory: str, survey: PartitionSurvey, reader: BatchReader | None, cut_from: int | None = None
) -> Iterator[Finding]:
    """Segment by segment. What lies from `cut_from` on is a write that was torn."""
    consequence = "clients that read it get CORRUPT_MESSAGE; all before and after it is served"
    remedy = "put the file back from a backup, or accept that these offsets are lost: all others are kept"
    if reader is not None:
        consequence, remedy = reader.consequence, f"{remedy}. {reader.cost}"
    for segment in survey.segments:
        bad = [each for each in segment.bad if cut_from is None or each.lost.first_offset < cut_from]
        if not bad:
            continue
        within = OffsetRange(bad[0].lost.first_offset, bad[-1].lost.last_offset)
        lost = tuple(each for each in survey.lost if _overlap(each, within))
        where = f"damaged at byte {bad[0].position}: {bad[0].problem}"
        others = f", and in {len(bad) - 1} more {'place' if len(bad) == 2 else 'places'}" if len(bad) > 1 else ""
        yield Finding(
            file_path(directory, segment.base_offset, LOG_SUFFIX),
            f"{in_words(lost)} cannot be read ({where}{others})",
            consequence,
            Severity.LOSS,
            remedy,
            can_repair=True,
            lost=lost,
        )


def _overlap(one: OffsetRange, other: OffsetRange) -> bool:
    starts_before_end = other.last_offset is None or one.first_offset <= other.last_offset
    return starts_before_end and (one.last_offset is None or other.first_offset <= one.last_offset)


def inspect_data_folder(
    storage: Storage,
    directory: str,
    known: Iterable[TopicPartition] | None = None,
    *,
    foreign_epoch: int = NO_FOREIGN_EPOCH,
    verify_batches: bool = False,
    reader_of: ReaderOf = _nobody_reads,
) -> list[Finding]:
    """What is wrong with the checkpoints of a data folder and with every partition in it. `known` are the partitions
    that the metadata has; None: it cannot be read, so those that the folder has are taken for all."""
    points, unreadable = {}, []
    for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE):
        try:
            points[name] = checkpoints.read_offsets(storage, directory, name)
        except CorruptCheckpoint as error:
            points[name] = {}
            unreadable.append(_mended(f"{directory}/{name}", str(error)))
    clean = storage.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}")
    there = {tp for name in storage.list_directory(directory) if (tp := folders.partition_of(name)) is not None}
    wanted = there if known is None else set(known)
    found = list(unreadable)
    for topic_partition in sorted(wanted & there):
        found += inspect_partition(
            storage,
            f"{directory}/{folders.name_of(topic_partition)}",
            topic_partition,
            clean=clean,
            recovery_point=points[RECOVERY_POINT_FILE].get(topic_partition, 0),
            log_start_offset=points[LOG_START_OFFSET_FILE].get(topic_partition),
            foreign_epoch=foreign_epoch,
            verify_batches=verify_batches,
            reader=reader_of(topic_partition),
        )
    registered = PartitionRegister(storage, directory).load()
    was_here = points[RECOVERY_POINT_FILE].keys() if registered is None else {each[0] for each in registered}
    found += [
        _lost_folder(
            f"{directory}/{folders.name_of(topic_partition)}",
            points[LOG_START_OFFSET_FILE].get(topic_partition, 0),
            points[RECOVERY_POINT_FILE].get(topic_partition, 0),
        )
        for topic_partition in sorted((wanted & was_here) - there)
    ]
    return found


def _lost_folder(path: str, start_offset: int, recovery_point: int) -> Finding:
    lost = (OffsetRange(start_offset, recovery_point - 1),) if start_offset < recovery_point else ()
    return _loss(path, "the folder is missing, with all its records", lost)


def accept_loss(
    storage: Storage,
    directory: str,
    topic_partition: TopicPartition,
    foreign_epoch: int = NO_FOREIGN_EPOCH,
    reader: BatchReader | None = None,
) -> list[str]:
    """Make what is left of a partition all there is, so that the next start serves it; what was done, in words.

    Bad batches are cut out of their segments, whole ones before and after them stay; a copy of each such segment is
    kept. The manifest and the checkpoints of the data folder `directory` say what is there. Offsets that were given out
    are not given out again, as far as they are known: the log goes on where it is known to have ended. A segment with a
    gap does not grow on, since a gap in what grows would be taken for a write that was torn."""
    path = f"{directory}/{folders.name_of(topic_partition)}"
    start_offset = _offset_in(storage, directory, LOG_START_OFFSET_FILE, topic_partition)
    survey = survey_partition(
        storage,
        path,
        recovery_point=_offset_in(storage, directory, RECOVERY_POINT_FILE, topic_partition),
        start_offset=start_offset,
        foreign_epoch=foreign_epoch,
        reader=reader,
    )
    manifest, goes_on_at = survey.manifest, survey.goes_on_at
    done = [f"lost: {each}" for each in named(survey.lost)]
    storage.make_directory(path)
    entries = []
    for segment in survey.segments:
        if segment.bad:
            done += _cut_out(storage, file_path(path, segment.base_offset, LOG_SUFFIX), segment)
        known = manifest.entry(segment.base_offset) if manifest is not None else None
        entry = known or SegmentEntry(segment.base_offset)
        entries.append(SegmentEntry(segment.base_offset, segment.good_bytes, entry.aborted_count, entry.aborted_crc))
    if not entries or goes_on_at > survey.end_offset or survey.segments[-1].has_gap:
        storage.open(file_path(path, goes_on_at, LOG_SUFFIX), create=True)
        entries.append(SegmentEntry(goes_on_at))
        known_use = f"offsets below {goes_on_at} were already used" if goes_on_at else "nothing tells how far it went"
        done.append(f"goes on at offset {goes_on_at}: {known_use}")
    entries[-1] = SegmentEntry(entries[-1].base_offset)
    first = entries[0].base_offset
    accepted = Manifest(
        tuple(entries),
        max(first, survey.start_offset if survey.start_offset <= goes_on_at else first),
        0,
        survey.epochs,
        partition=topic_partition,
        topic_id=manifest.topic_id if manifest is not None else None,
        foreign_epoch=max(foreign_epoch, manifest.foreign_epoch if manifest is not None else foreign_epoch),
    )
    storage.write_atomically(f"{path}/{MANIFEST_FILE}", encode(accepted))
    _forget_checkpoints(storage, directory, topic_partition)
    count = f"{len(entries)} segment{'s' if len(entries) > 1 else ''}"
    return [*done, f"wrote {path}/{MANIFEST_FILE}, which says what is there: {count}"]


def _cut_out(storage: Storage, path: str, segment: SegmentSurvey) -> list[str]:
    """Write a segment anew without what is bad in it, and keep a copy of what it was."""
    kept, repaired = _free_name(storage, path + DAMAGED_SUFFIX), path + REPAIRED_SUFFIX
    file = storage.open(path)
    for name, ranges in ((kept, [(0, segment.size_bytes)]), (repaired, segment.good)):
        copy = storage.open(name, create=True)
        copy.truncate(0)
        for start, end in ranges:
            for position in range(start, end, SCAN_BYTES):
                copy.append(file.read(position, min(SCAN_BYTES, end - position)))
        copy.sync()
        copy.close()
    file.close()
    storage.sync_directory(directory_of(path))
    storage.rename(repaired, path)
    storage.sync_directory(directory_of(path))
    cut_bytes = segment.size_bytes - segment.good_bytes
    return [f"cut {cut_bytes} damaged bytes out of {path}; what it was is kept as {kept}"]


def _free_name(storage: Storage, path: str) -> str:
    """An earlier repair may have kept a copy of its own."""
    number = 1
    name = path
    while storage.exists(name):
        number += 1
        name = f"{path}.{number}"
    return name


def _offset_in(storage: Storage, directory: str, name: str, topic_partition: TopicPartition) -> int:
    try:
        return checkpoints.read_offsets(storage, directory, name).get(topic_partition, 0)
    except CorruptCheckpoint:
        return 0


def _forget_checkpoints(storage: Storage, directory: str, topic_partition: TopicPartition) -> None:
    """All of it is read at the next start, from where the manifest says that it starts."""
    for name in (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE):
        try:
            offsets = checkpoints.read_offsets(storage, directory, name)
        except CorruptCheckpoint:
            continue
        if offsets.pop(topic_partition, None) is not None:
            checkpoints.write_offsets(storage, directory, name, offsets)
