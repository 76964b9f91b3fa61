"""What lies in the place of a file and is none: a folder, a pipe, a socket, a device.

No start of ours made it, and nothing is known to be lost by it: it only is in the way, so that nothing but moving it
away is proposed. Owns the list of all names that a broker opens as files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.controller.end_offset_checkpoint import FILE_NAME as END_OFFSET_FILE
from oncelog.controller.identity import FILE_NAME as IDENTITY_FILE
from oncelog.controller.metadata_log import METADATA_PARTITION
from oncelog.controller.quorum_state import FILE_NAME as QUORUM_FILE
from oncelog.controller.snapshot import BOOTSTRAP_FILE
from oncelog.log.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
)
from oncelog.log.cleaning_schedule import CLEANER_OFFSET_FILE
from oncelog.log.folders import partition_of
from oncelog.log.inspection import Finding, Severity
from oncelog.log.leader_epochs import FILE_NAME as EPOCHS_FILE
from oncelog.log.manifest import FILE_NAME as MANIFEST_FILE
from oncelog.log.partition_register import FILE_NAME as REGISTER_FILE
from oncelog.log.storage import TEMPORARY_SUFFIX, NotAFile, Storage

OF_DATA_FOLDER: Final = frozenset(
    {
        IDENTITY_FILE,
        END_OFFSET_FILE,
        BOOTSTRAP_FILE,
        RECOVERY_POINT_FILE,
        LOG_START_OFFSET_FILE,
        CLEANER_OFFSET_FILE,
        CLEAN_SHUTDOWN_FILE,
        REGISTER_FILE,
    }
)
OF_LOG: Final = frozenset({EPOCHS_FILE, MANIFEST_FILE, PARTITION_METADATA_FILE, QUORUM_FILE})
"""And all that begin with an offset in twenty digits."""

_OFFSET_DIGITS: Final = 20


def find_not_files(storage: Storage, path: str) -> Iterator[Finding]:
    """In a data folder, in its metadata and in its partitions."""
    folders = []
    for name in storage.list_directory(path):
        if name == str(METADATA_PARTITION) or partition_of(name) is not None:
            folders.append(name)
        elif name.removesuffix(TEMPORARY_SUFFIX) in OF_DATA_FOLDER:
            yield from _look_at(storage, f"{path}/{name}", "the broker does not start on this folder, or fails later")
    for folder in folders:
        if folder == str(METADATA_PARTITION):
            consequence = "the broker does not start on this folder, or fails later"
        else:
            consequence = "the partition is offline, or will be as soon as the file is needed"
        try:
            names = storage.list_directory(f"{path}/{folder}")
        except NotADirectoryError:
            continue
        for name in names:
            if _is_of_log(name):
                yield from _look_at(storage, f"{path}/{folder}/{name}", consequence)


def _is_of_log(name: str) -> bool:
    begins_with_offset = name[:_OFFSET_DIGITS].isdecimal() and name[_OFFSET_DIGITS : _OFFSET_DIGITS + 1] in (".", "-")
    return begins_with_offset or name.removesuffix(TEMPORARY_SUFFIX) in OF_LOG


def _look_at(storage: Storage, file: str, consequence: str) -> Iterator[Finding]:
    """By opening it, as a start does. What there may be else against that is told by whoever needs what is in it."""
    try:
        storage.open(file).close()
    except NotAFile:
        remedy = "move it away, then run the doctor again: only then it looks at everything else"
        yield Finding(file, "it is not a regular file", consequence, Severity.LOSS, remedy)
    except OSError:
        return
