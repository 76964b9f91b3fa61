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
from oncelog.types import TopicPartition

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE: Final = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
PARTITION_METADATA_FILE: Final = "partition.metadata"

VERSION: Final = 0


class CorruptCheckpoint(OncelogError):
    """A checkpoint file does not hold what its format promises."""


def encode_lines(lines: Iterable[str]) -> bytes:
    """Version, number of entries, one entry per line: the frame of all of Kafka's checkpoint files."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (VERSION, len(entries), *entries)).encode()


def decode_lines(data: bytes, path: str) -> list[str]:
    try:
        version, count, *lines = data.decode().splitlines()
        complete = int(version) == VERSION and int(count) == len(lines)
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: not a checkpoint file: {error}") from error
    if not complete:
        raise CorruptCheckpoint(f"{path}: version {version} with {len(lines)} entries, {count} announced")
    return lines


def read_offsets(storage: Storage, directory: str, name: str) -> dict[TopicPartition, int]:
    """Offsets per partition; nothing if the file is not there, or empty as Kafka creates it."""
    path = f"{directory}/{name}"
    data = storage.read_all(path) if storage.exists(path) else b""
    if not data:
        return {}
    offsets = {}
    for line in decode_lines(data, path):
        try:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptCheckpoint(f"{path}: {line!r} is not a topic, a partition and an offset") from error
    return offsets


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
    try:
        fields = dict(line.split(": ", 1) for line in storage.read_all(path).decode().splitlines())
        if int(fields["version"]) != VERSION:
            raise CorruptCheckpoint(f"{path}: version {fields['version']} is not known")
        return _decode_id(fields["topic_id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"{path}: not a version and a topic id: {error}") from error


def _encode_id(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _decode_id(text: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a topic id") from error
