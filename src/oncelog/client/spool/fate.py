"""What became of batches that an earlier process left open: judged from what the partition's leader knows.

A batch that may be stored must be sent again under the numbers it had, or not at all. The leader's list of producers
(DescribeProducers) tells how far it got:

    listed, same epoch    up to its last sequence all is in its log. A batch before that is stored for good if a later
                          one was acknowledged; else sending it again tells, as its followers may not have it yet.
                          The next batch in line is sent again as it was
    listed, lower epoch   nothing of this epoch is stored: sent again as it was
    not listed            if the first open batch begins the sequence, nothing was ever stored: sent again as it was.
                          Else the leader knew this producer once and forgot it: nobody can tell

A batch behind one that was never sent was refused, and will be: it is as good as new. Where the answer is not certain,
there is none: `Unknown`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.client.spool.recovery import OpenBatch, OpenPartition
from oncelog.types import MAX_SEQUENCE, NO_SEQUENCE, TopicPartition, advance_sequence

REMEMBERED_MS: Final = 12 * 60 * 60 * 1000
"""How long we rely on a broker to know an idle producer. `producer.id.expiration.ms` is 24 hours by default; half of
it leaves room for clocks that differ."""


class ListedProducer(NamedTuple):
    """A producer as the leader of a partition lists it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """Entries of which nobody can tell whether they are stored."""

    partition: TopicPartition
    first: int
    end: int
    reason: str


@dataclass(slots=True)
class Judgement:
    stored: list[OpenBatch] = field(default_factory=list)
    listed: list[OpenBatch] = field(default_factory=list)
    """In the leader's log, perhaps not in its followers' yet: to be sent again as they were. A leader that does not
    recognise them any more (it remembers few) calls them out of order, which means stored."""
    again: list[OpenBatch] = field(default_factory=list)
    """To be sent again as they were, behind those that are listed, and before anything else of their partition."""
    anew: list[OpenBatch] = field(default_factory=list)
    """Certainly not stored: their numbers mean nothing any more."""
    unknown: list[Unknown] = field(default_factory=list)


def judge(partition: OpenPartition, listed: Iterable[ListedProducer], now_wall_ms: int) -> Judgement:
    """What became of the open batches of a partition, from its leader's answer."""
    judgement = Judgement(unknown=_doubted(partition))
    batches = partition.batches
    if not batches:
        return judgement
    first = batches[0].numbers
    known = next((one for one in listed if one.producer_id == first.identity.producer_id), None)
    reason = _reason_not_to_judge(batches, known, now_wall_ms)
    if reason is not None:
        judgement.unknown += _unknown(partition, batches, reason)
        return judgement
    is_counting = known is not None and known.producer_epoch == first.identity.producer_epoch
    last = known.last_sequence if known is not None and is_counting else NO_SEQUENCE
    _judge_in_order(partition, batches, last, judgement)
    return judgement


def cannot_be_asked(partition: OpenPartition, reason: str) -> Judgement:
    """The leader will not answer (it is too old, or forbids the question)."""
    unknown = _doubted(partition)
    if partition.batches:
        unknown += _unknown(partition, partition.batches, reason)
    return Judgement(unknown=unknown)


def _reason_not_to_judge(batches: tuple[OpenBatch, ...], known: ListedProducer | None, now_wall_ms: int) -> str | None:
    first = batches[0].numbers
    producer_id, epoch = first.identity
    if known is None and first.base_sequence != 0:
        return f"its leader has forgotten producer id {producer_id}, which had stored records there before"
    if known is None and any(abs(now_wall_ms - one.numbers.numbered_ms) > REMEMBERED_MS for one in batches):
        return f"they were sent more than {REMEMBERED_MS // 3_600_000} hours ago, longer than brokers surely remember"
    if known is not None and known.producer_epoch > epoch:
        return f"its leader knows producer id {producer_id} under a newer epoch ({known.producer_epoch}) than {epoch}"
    return None


def _judge_in_order(
    partition: OpenPartition, batches: tuple[OpenBatch, ...], last_stored: int, judgement: Judgement
) -> None:
    expected = advance_sequence(last_stored, 1) if last_stored != NO_SEQUENCE else 0
    is_last_open = any(batch.numbers.last_sequence == last_stored for batch in batches)
    for index, batch in enumerate(batches):
        numbers = batch.numbers
        ahead = _distance(expected, numbers.base_sequence)
        if last_stored != NO_SEQUENCE and ahead < 0 and _distance(numbers.last_sequence, last_stored) >= 0:
            (judgement.listed if is_last_open and batch.is_complete else judgement.stored).append(batch)
        elif ahead == 0 and batch.is_complete:
            judgement.again.append(batch)
            expected = advance_sequence(expected, numbers.count)
        elif batch.follows_gap and last_stored != NO_SEQUENCE:
            judgement.anew += batches[index:]
            return
        else:
            judgement.unknown += _unknown(partition, batches[index:], _why_unknown(batch, ahead, last_stored))
            return


def _why_unknown(batch: OpenBatch, ahead: int, last_stored: int) -> str:
    if not batch.is_complete:
        return "records of a batch that may be stored cannot be read any more"
    if ahead > 0:
        return "its leader lacks an earlier batch, which was given up or lost, and may still arrive"
    return f"its leader stored up to sequence {last_stored}, where no batch ends"


def _distance(earlier: int, later: int) -> int:
    """How far `later` is ahead in the ring of sequence numbers; negative if it is behind."""
    ring = MAX_SEQUENCE + 1
    ahead = (later - earlier) % ring
    return ahead if ahead <= ring // 2 else ahead - ring


def _unknown(partition: OpenPartition, batches: tuple[OpenBatch, ...], reason: str) -> list[Unknown]:
    return [Unknown(partition.partition, one.numbers.first, one.numbers.end, reason) for one in batches]


def _doubted(partition: OpenPartition) -> list[Unknown]:
    reason = "the part of the journal that told is damaged or missing"
    return [Unknown(partition.partition, first, end, reason) for first, end in partition.doubted]
