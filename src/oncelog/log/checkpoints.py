"""Kafka's small text files beside the logs: offset checkpoints, the clean shutdown marker, `partition.metadata`.

Owns their formats, and reading and replacing them as a whole. It holds nothing in memory and decides nothing: whether
a checkpoint is believed, and what a missing one means, is the caller's.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from oncelog.errors import OncelogError
from oncelog.log.storage import Storage, begin_file, replace_file
from oncelog.printable import excerpt, printable
from oncelog.types import TopicPartition

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE: Final = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
PARTITION_METADATA_FILE: Final = "partition.metadata"

VERSION: Final = 0
MAX_PARTITION: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1


class CorruptCheckpoint(OncelogError):
    """A checkpoint file does not hold what its format promises."""


def encode_lines(lines: Iterable[str]) -> bytes:
    """Version, number of entries, one entry per line: the frame of all of Kafka's checkpoint files."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (VERSION, len(entries), *entries)).encode()


def decode_lines(data: bytes, path: str) -> list[str]:
    """The entries. Raises CorruptCheckpoint."""
    found = data.decode(errors="backslashreplace").splitlines()
    version, count = [*found, "", ""][:2]
    lines = found[2:]
    if version != str(VERSION):
        raise CorruptCheckpoint(f"{path}: it begins with {excerpt(version)}, not with version {VERSION}")
    if count != str(len(lines)):
        raise CorruptCheckpoint(f"{path}: it has {len(lines)} entries, and announces {excerpt(count)}")
    return lines


def read_offsets(storage: Storage, directory: str, name: str) -> dict[TopicPartition, int]:
    """Offsets per partition; nothing if the file is not there, or empty as Kafka creates it."""
    path = f"{directory}/{name}"
    data = storage.read_all(path) if storage.exists(path) else b""
    if not data:
        return {}
    offsets: dict[TopicPartition, int] = {}
    for line in decode_lines(data, path):
        topic_partition, offset = _decode_offset(line)
        if topic_partition is None:
            raise CorruptCheckpoint(f"{path}: {excerpt(line)} is not a topic, a partition and an offset")
        if topic_partition in offsets:
            raise CorruptCheckpoint(f"{path}: it has two lines for {printable(topic_partition)}")
        offsets[topic_partition] = offset
    return offsets


def _decode_offset(line: str) -> tuple[TopicPartition | None, int]:
    try:
        topic, partition, offset = line.split(" ")
        found = TopicPartition(topic, int(partition)), int(offset)
    except ValueError:
        return None, 0
    return found if 0 <= found[0].partition <= MAX_PARTITION and 0 <= found[1] <= MAX_OFFSET else (None, 0)


def write_offsets(storage: Storage, directory: str, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))
    storage.write_atomically(f"{directory}/{name}", encode_lines(lines))


def write_clean_shutdown(storage: Storage, directory: str, broker_epoch: int) -> None:
    """Promise that every log of this directory is flushed and has its snapshot."""
    data = json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    storage.write_atomically(f"{directory}/{CLEAN_SHUTDOWN_FILE}", data.encode())


def take_clean_shutdown(storage: Storage, directory: str) -> bool:
    """Whether the promise stands. It is withdrawn for good, before anything can be written that would break it."""
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not storage.exists(path):
        return False
    storage.remove(path)
    storage.sync_directory(directory)
    return True


def write_topic_id(storage: Storage, directory: str, topic_id: UUID) -> None:
    """Not synced, or a topic of many partitions would wait for the disk as often: a folder that lost it in a power
    failure is known by its name."""
    replace_file(storage, f"{directory}/{PARTITION_METADATA_FILE}", _encode_metadata(topic_id), durable=False)


def begin_topic_id(storage: Storage, directory: str, topic_id: UUID) -> None:
    """In a folder that holds no record yet: if a kill tears it, the folder is known by its name."""
    begin_file(storage, f"{directory}/{PARTITION_METADATA_FILE}", _encode_metadata(topic_id))


def _encode_metadata(topic_id: UUID) -> bytes:
    return f"version: {VERSION}\ntopic_id: {_encode_id(topic_id)}".encode()


def read_topic_id(storage: Storage, directory: str) -> UUID | None:
    """The topic a log directory belongs to; None if it was never noted."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    data = b""
    try:
        data = storage.read_all(path)
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
        if int(fields["version"]) != VERSION:
            raise CorruptCheckpoint(f"{path}: it has version {excerpt(fields['version'])}, and {VERSION} is known")
        return _decode_id(fields["topic_id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"{path}: it has no version and topic id, but {excerpt(data)}") from error


def _encode_id(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _decode_id(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a topic id") from error
