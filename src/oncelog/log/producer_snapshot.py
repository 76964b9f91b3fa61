"""Kafka's `.snapshot` file: the producers of a partition as they were below the offset in the file's name.

Owns the byte format and its checks; it opens no file and decides nothing about which snapshot to trust.

    int16 version = 1
    uint32 CRC32C of everything that follows
    int32 count, then per producer, 46 bytes:
        int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
        int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1

Kafka's format keeps one batch per producer, so after a restart Kafka takes a retry of the four before it for a gap.
We write all five in a tail that Kafka's readers skip (they stop after the last producer, and their CRC covers the
whole file): with it a producer with five requests in flight loses nothing to a restart. A file without the tail, such
as one that Kafka wrote, is read as it is; a state that Kafka's part tells in full is written byte for byte as Kafka
writes it. The tail has up to two parts, in this order:

    4 bytes "once", int32 count, then per batch, oldest first, 32 bytes:
        int64 producer id, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp
    4 bytes "idle", int32 count, then per producer that has been silent, 16 bytes:
        int64 producer id, int64 milliseconds

The second says for how long each producer had written nothing when the file was written: an age and no time of day, so
that whatever the clocks did while the broker was stopped, its silence goes on from there. A producer without one (in a
file of Kafka's, or an older one of ours) has just written.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final

from oncelog.errors import OncelogError
from oncelog.log.producer_state import BatchMetadata, ProducerEntry
from oncelog.records.kernel import crc32c
from oncelog.types import NO_OFFSET, NO_SEQUENCE, advance_sequence

VERSION: Final = 1
BATCHES_TAG: Final = b"once"
SILENCES_TAG: Final = b"idle"

_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_PART = struct.Struct(">4si")
_BATCH = struct.Struct(">qiqiq")
_pack_batch = _BATCH.pack
_SILENCE = struct.Struct(">qq")


class CorruptSnapshot(OncelogError):
    """The file is not a whole, unharmed snapshot. Rebuild the state from the log instead of trusting any of it."""


def encode(entries: Collection[ProducerEntry], mono_ms: int) -> bytes:
    """The producers as they are now."""
    body = bytearray(_COUNT.pack(len(entries)))
    untold = bytearray()
    for entry in entries:
        batches = entry.batches  # unpacked anew each time that one asks
        body += _encode_entry(entry, batches[-1] if batches else None)
        if not _is_told_by_entry(entry, batches):
            producer_id = entry.producer_id
            for _, last_sequence, first_offset, last_offset, timestamp in batches:
                untold += _pack_batch(producer_id, last_sequence, last_offset, last_offset - first_offset, timestamp)
    if untold:
        body += _PART.pack(BATCHES_TAG, len(untold) // _BATCH.size)
        body += untold
    silent = [entry for entry in entries if entry.silent_ms(mono_ms)]
    if silent:
        body += _PART.pack(SILENCES_TAG, len(silent))
    for entry in silent:
        body += _SILENCE.pack(entry.producer_id, entry.silent_ms(mono_ms))
    return _PREFIX.pack(VERSION, crc32c(body)) + bytes(body)


def decode(data: bytes, mono_ms: int) -> list[ProducerEntry]:
    """The entries of a snapshot file, in the file's order: their silence goes on now. Raises CorruptSnapshot."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a snapshot")
    version, crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"unknown version {version}, expected {VERSION}")
    body = memoryview(data)[_PREFIX.size :]
    computed = crc32c(body)
    if computed != crc:
        raise CorruptSnapshot(f"the stored CRC is {crc}, the bytes give {computed}")
    (count,) = _COUNT.unpack_from(body)
    end = _COUNT.size + count * _ENTRY.size
    if count < 0 or end > len(body):
        raise CorruptSnapshot(f"{count} producers do not fit in {len(body)} bytes")
    batches, silences = _decode_tail(body[end:])
    entries = [_decode_entry(fields, batches) for fields in _ENTRY.iter_unpack(body[_COUNT.size : end])]
    for entry in entries:
        entry.last_appended_ms = mono_ms - silences.get(entry.producer_id, 0)
    return entries


def _is_told_by_entry(entry: ProducerEntry, batches: list[BatchMetadata]) -> bool:
    """Whether Kafka's 46 bytes hold all there is: one batch, and no marker after it that took its timestamp's place."""
    return not batches or (len(batches) == 1 and batches[0].timestamp == entry.last_timestamp)


def _encode_entry(entry: ProducerEntry, last: BatchMetadata | None) -> bytes:
    if last is not None:
        sequence, offset, delta = last.last_sequence, last.last_offset, last.last_offset - last.first_offset
    else:
        sequence, offset, delta = NO_SEQUENCE, NO_OFFSET, 0
    first_offset = entry.current_transaction_first_offset
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        sequence,
        offset,
        delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        NO_OFFSET if first_offset is None else first_offset,
    )


def _decode_entry(fields: tuple[int, ...], told_by_tail: dict[int, list[BatchMetadata]]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset = fields
    batches = told_by_tail.get(producer_id)
    if batches is None:
        batches = [_batch(sequence, offset, delta, timestamp)] if offset >= 0 else []
    return ProducerEntry(
        producer_id,
        epoch,
        batches=batches,
        last_timestamp=timestamp,
        current_transaction_first_offset=first_offset if first_offset >= 0 else None,
        coordinator_epoch=coordinator_epoch,
    )


def _decode_tail(tail: memoryview) -> tuple[dict[int, list[BatchMetadata]], dict[int, int]]:
    """The batches, and the silences, of the producers that the tail tells of."""
    told, tail = _take_part(tail, BATCHES_TAG, _BATCH)
    batches: dict[int, list[BatchMetadata]] = {}
    for producer_id, sequence, offset, delta, timestamp in told:
        batches.setdefault(producer_id, []).append(_batch(sequence, offset, delta, timestamp))
    silences, _ = _take_part(tail, SILENCES_TAG, _SILENCE)
    return batches, {producer_id: max(0, silent_ms) for producer_id, silent_ms in silences}


def _take_part(tail: memoryview, tag: bytes, item: struct.Struct) -> tuple[list[tuple[int, ...]], memoryview]:
    """The items of a part, if the tail begins with it, and what follows. Other bytes are someone else's: left alone."""
    if len(tail) < _PART.size:
        return [], tail
    found, count = _PART.unpack_from(tail)
    if found != tag:
        return [], tail
    end = _PART.size + count * item.size
    if count < 0 or end > len(tail):
        raise CorruptSnapshot(f"{count} items of {tag!r} do not fit in the {len(tail)} bytes after the producers")
    return list(item.iter_unpack(tail[_PART.size : end])), tail[end:]


def _batch(last_sequence: int, last_offset: int, delta: int, timestamp: int) -> BatchMetadata:
    first_sequence = NO_SEQUENCE if last_sequence == NO_SEQUENCE else advance_sequence(last_sequence, -delta)
    return BatchMetadata(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
