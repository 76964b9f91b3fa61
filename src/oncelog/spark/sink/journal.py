"""The journal: one compacted topic, keyed by query, in which a batch is DECIDED and then DONE.

Owns the records, their bytes and what they add up to. The last record of a query is all that counts, so compaction
changes nothing. A query's id, not the batch's number alone, is the key: a deleted checkpoint makes a new query, which
starts at batch 0 again and must not be taken for the old one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark.sink.attempts import Place, Prepared, Range
from oncelog.spark.sink.errors import UnreadableJournal
from oncelog.types import TopicPartition

VERSION: Final = 1
DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Decided:
    """These transactions, and no others, become visible; where one was aborted, a copy of it takes its place."""

    query_id: str
    batch_id: int
    digest: str | None
    attempts: tuple[Prepared, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Every transaction that was decided is committed."""

    query_id: str
    batch_id: int
    digest: str | None


Entry = Decided | Done
Ledger = Mapping[str, Entry]
"""By query: where it stands."""


def digest_of(source_offsets: Iterable[str]) -> str:
    """Of a batch's source offsets as the checkpoint has them, source by source. Objects are the same in any order of
    their keys, as Spark's are when it writes them again."""
    hasher = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for one in source_offsets:
        canonical = _canonical(one)
        hasher.update(len(canonical).to_bytes(8, "big") + canonical)
    return hasher.hexdigest()


def _canonical(text: str) -> bytes:
    try:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")).encode()
    except ValueError:
        return text.encode()


# --- what the entries add up to ----------------------------------------------------------------------------------


def fold(entries: Iterable[Entry]) -> Ledger:
    standing: dict[str, Entry] = {}
    for entry in entries:
        before = standing.get(entry.query_id)
        if before is not None and not _may_follow(before, entry):
            raise UnreadableJournal(
                f"the journal has {_name(entry)} after {_name(before)}: two programs have written it without fencing "
                "each other; nothing was written, find out who else uses this transactional.id.prefix"
            )
        standing[entry.query_id] = entry
    return standing


def _may_follow(before: Entry, entry: Entry) -> bool:
    """A decision is repeated with copies in it, and then done. Only what is done is followed by another batch."""
    if isinstance(before, Decided):
        return entry.batch_id == before.batch_id
    return (isinstance(entry, Decided) and entry.batch_id > before.batch_id) or entry == before


def pending(ledger: Ledger) -> tuple[Decided, ...]:
    return tuple(entry for entry in ledger.values() if isinstance(entry, Decided))


def done(ledger: Ledger) -> dict[str, Done]:
    return {query: entry for query, entry in ledger.items() if isinstance(entry, Done)}


def _name(entry: Entry) -> str:
    return f"{type(entry).__name__.upper()} batch {entry.batch_id} of query {entry.query_id}"


# --- bytes -------------------------------------------------------------------------------------------------------


def encode(entry: Entry) -> tuple[bytes, bytes]:
    """Key and value."""
    value: dict[str, Any] = {"v": VERSION, "batch": entry.batch_id, "digest": entry.digest}
    if isinstance(entry, Decided):
        value["slots"] = [_slot_to_json(one) for one in entry.attempts]
    return entry.query_id.encode(), json.dumps(value, separators=(",", ":")).encode()


def decode(key: bytes, value: bytes) -> Entry:
    try:
        found = json.loads(value)
        version = found["v"]
        if version == VERSION:
            return _entry(key.decode(), found)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UnreadableJournal(f"the journal's record of {key!r} cannot be read: {value[:200]!r}") from error
    raise UnreadableJournal(
        f"the journal's record of query {key.decode()} has version {version!r}, and this oncelog reads {VERSION}: "
        "run the query with the version that wrote it, or a later one"
    )


def _entry(query_id: str, found: dict[str, Any]) -> Entry:
    batch_id, digest = int(found["batch"]), found["digest"]
    if "slots" not in found:
        return Done(query_id, batch_id, digest)
    return Decided(query_id, batch_id, digest, tuple(_slot_from_json(one) for one in found["slots"]))


def _slot_to_json(one: Prepared) -> list[Any]:
    ranges: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), *numbers in one.ranges:
        ranges.setdefault(topic, {})[str(partition)] = numbers
    marker, offset = one.marker
    return [one.slot, *one.transaction, ranges, [marker.topic, marker.partition, offset], one.decide_by_ms]


def _slot_from_json(one: list[Any]) -> Prepared:
    slot, transactional_id, producer_id, epoch, by_topic, (topic, partition, offset), decide_by_ms = one
    ranges = tuple(
        Range(TopicPartition(name, int(index)), *numbers)
        for name, by_index in by_topic.items()
        for index, numbers in by_index.items()
    )
    marker = Place(TopicPartition(topic, partition), offset)
    return Prepared(slot, PreparedTransaction(transactional_id, producer_id, epoch), ranges, marker, decide_by_ms)
