"""What is wrong with the files of a partition or of a data folder: what opening would ask, without opening.

Owns the words in which damage at rest is told (`Finding`), and looking for it. Everything here but `accept_loss` only
reads, so it may be asked about a folder that nobody should touch; no broker may run on the folder meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from oncelog.log.storage import Storage
from oncelog.types import TopicPartition

NO_KAFKA_EPOCH = -1
"""No Apache Kafka has ever led this data folder, or its `quorum-state` does not say so."""


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
    """Whether `accept_loss` makes the partition start again, without what is lost."""


def inspect_partition(
    storage: Storage,
    directory: str,
    topic_partition: TopicPartition,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int | None = None,
    kafka_epoch: int = NO_KAFKA_EPOCH,
    verify_batches: bool = False,
) -> list[Finding]:
    """What is wrong with one partition's folder. `clean`, `recovery_point` and `log_start_offset` are what the data
    folder's checkpoints say of it; `verify_batches` reads every batch and checks its CRC and its offsets."""
    return []


def inspect_data_folder(
    storage: Storage,
    directory: str,
    known: Iterable[TopicPartition] | None = None,
    *,
    kafka_epoch: int = NO_KAFKA_EPOCH,
    verify_batches: bool = False,
) -> list[Finding]:
    """What is wrong with the checkpoints of a data folder and with every partition in it. `known` are the partitions
    that the metadata has; None: it cannot be read, so those that the folder has are taken for all."""
    return []


def accept_loss(storage: Storage, directory: str, topic_partition: TopicPartition) -> list[str]:
    """Make what is left of a partition all there is, so that the next start serves it; what was done, in words.

    Segments are cut before their first bad batch, and the checkpoints and the manifest of the data folder `directory`
    say what is there. Offsets that were given out are not given out again where that can still be known."""
    return []
