"""Who numbers batches, and when: producer id, epoch, and each partition's sequence.

The promise: a broker that sees every batch of a partition with the next number stores each record once and in order.
So a number, once sent, stays with its batch until the batch's fate is known; and where a number was lost (its batch
failed, or the broker's count differs from ours), all counting starts again under the next epoch.

**A bump waits until no batch anywhere is of unknown fate.** From the moment a bump is wanted no new number is given;
batches that a broker may have stored are sent again under their old numbers until an answer settles them. Then, and
only then, the epoch moves on, every partition counts from 0, and batches that are known not to be stored get new
numbers. A batch can therefore never be stored under two numbers, which is how doubles would arise.

**The first batch of an id goes alone.** A broker that knows nothing of a producer accepts any number from it; were the
first batch refused and the second one accepted, they would change places. Brokers that are strict need no such care.

**A transactional producer never bumps by itself**: its coordinator gives it each epoch (`renew`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from oncelog.client.accumulator import NOTHING_STORED, PartitionQueue
from oncelog.client.batch import ProducerBatch
from oncelog.types import MAX_PRODUCER_EPOCH

REMEMBERED_BATCHES = 5
"""As many as a broker remembers of a producer in a partition: an older one is not recognised when it comes again."""


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int

    @property
    def is_valid(self) -> bool:
        """What a broker gives out is: the numbers below 0 stand for none."""
        return self.producer_id >= 0 and self.producer_epoch >= 0


class Idempotence:
    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.bump_reason: str | None = None
        """Why counting must start again; None while all is well."""
        self.bumps = 0
        self.is_strict = False
        """Brokers take nothing but 0 as the first number of an epoch, as they do by the second transaction protocol."""
        self._left_open: set[PartitionQueue] = set()
        """Where a batch was given up that may be written yet, by a request that is still on its way."""
        self._needs_new_id = False

    @property
    def wants_id(self) -> bool:
        return self.identity is None

    def learn(self, producer_id: int, producer_epoch: int) -> None:
        self.identity = Identity(producer_id, producer_epoch)

    def adopt(self, identity: Identity) -> None:
        """Begin with batches of an earlier producer that may be stored; a new id follows when their fate is known."""
        self.identity = identity
        self.want_bump("batches of an earlier run come first", new_id=True)

    # --- numbers ----------------------------------------------------------------------------------------------

    def may_send(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        if batch.is_numbered:
            # Once a batch was refused, those behind it go one by one: each must find the one before it stored.
            if self.next_in_line(queue) is not batch:
                return False
            return batch.may_be_written or (self.bump_reason is None and not queue.unsettled[0].is_doubted)
        if self.identity is None or self.bump_reason is not None:
            return False
        if not queue.unsettled:
            return True
        if queue.unsettled[0].is_doubted:
            return False
        # Those behind the oldest unsettled batch count even if they are settled: the broker remembers them, and must
        # not have forgotten the oldest over them when it is asked about it again.
        since_oldest = queue.next_ordinal - queue.unsettled[0].ordinal
        return since_oldest < (REMEMBERED_BATCHES if queue.has_stored or self.is_strict else 1)

    def number(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        assert self.identity is not None
        assert self.bump_reason is None
        producer_id, producer_epoch = self.identity
        batch.number(producer_id, producer_epoch, queue.next_position)
        queue.next_position += batch.record_count
        queue.unsettled.append(batch)

    def take_back(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The number that the batch was just given did not leave: the next one gets it."""
        queue.unsettled.remove(batch)
        queue.next_position = batch.position
        batch.forget_number()

    def next_in_line(self, queue: PartitionQueue) -> ProducerBatch | None:
        """The first batch that has no answer, or one that says nothing."""
        for batch in queue.unsettled:
            if not batch.is_doubted:
                return batch
        return None

    def is_gap(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether an out-of-order answer means that numbers were lost, and not merely that an earlier batch was not
        there yet when this one arrived."""
        return batch.was_first_in_line and self.next_in_line(queue) is batch

    def is_known_as_stored(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether a batch that a broker calls out of order is stored all the same: the leader listed it, or a later
        one is, which it takes in sequence only."""
        return batch.is_listed or (batch.may_be_written and batch.position < queue.stored_position)

    def doubt(self, queue: PartitionQueue, batch: ProducerBatch) -> list[ProducerBatch]:
        """A broker calls a batch out of order that it may have stored. It does so of a batch that it never got, and of
        one that it forgot: a Kafka that was restarted remembers the last batch of a producer only. The batches behind
        tell: if one of them is recognised, this one is stored. If none is, none of them is stored; those are returned,
        to be sent under new numbers."""
        batch.is_doubted = True
        if any(one.may_be_written and not one.is_doubted for one in queue.unsettled):
            return []
        doubted = [one for one in queue.unsettled if one.is_doubted]
        for one in doubted:
            one.is_doubted = False
            one.may_be_written = False
        return doubted

    def is_in_doubt(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Whether a batch that is not stored now may be so later: if an earlier attempt is still on its way, and with
        it the batch before, which was given up. Under a new number it could then be stored twice."""
        return batch.may_be_written and queue in self._left_open

    # --- fates ------------------------------------------------------------------------------------------------

    def stored(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.unsettled.remove(batch)
        queue.has_stored = True
        queue.stored_position = max(queue.stored_position, batch.position)

    def gave_up(self, queue: PartitionQueue, batch: ProducerBatch, reason: str) -> None:
        """The batch will not be sent again. Its number can be given to the next one only if no broker can have seen
        it as stored, and no later number is out."""
        is_last = queue.unsettled[-1] is batch
        queue.unsettled.remove(batch)
        if batch.may_be_written:
            self._left_open.add(queue)
        if is_last and not batch.may_be_written:
            queue.next_position = batch.position
        else:
            self.want_bump(reason)

    def want_bump(self, reason: str, *, new_id: bool = False) -> None:
        self._needs_new_id |= new_id
        if self.bump_reason is None:
            self.bump_reason = reason

    def bump(self, queues: Iterable[PartitionQueue]) -> bool:
        """Start the next epoch if one is wanted and every fate is known."""
        if self.bump_reason is None or self.identity is None:
            return False
        touched = [queue for queue in queues if queue.next_position or queue.unsettled]
        if any(_may_hold_stored(queue) for queue in touched):
            return False
        for queue in touched:
            for batch in queue.unsettled:
                batch.may_be_written = False
                batch.forget_number()
        producer_id, epoch = self.identity
        is_exhausted = epoch == MAX_PRODUCER_EPOCH
        self._start_again(None if is_exhausted or self._needs_new_id else Identity(producer_id, epoch + 1), touched)
        self.bumps += 1
        return True

    def renew(self, identity: Identity, queues: Iterable[PartitionQueue]) -> None:
        """The coordinator's word: whatever was numbered before belongs to a transaction that has ended."""
        self._start_again(identity, queues)

    def _start_again(self, identity: Identity | None, queues: Iterable[PartitionQueue]) -> None:
        for queue in queues:
            queue.unsettled.clear()
            queue.next_position = 0
            queue.stored_position = NOTHING_STORED
            queue.has_stored = False
        self.identity = identity
        self.bump_reason = None
        self._needs_new_id = False
        self._left_open.clear()


def _may_hold_stored(queue: PartitionQueue) -> bool:
    """Whether a broker may have stored one of the batches that have no final answer. If not the first, then none of
    them: without it, the numbers behind it are out of order."""
    unsettled = queue.unsettled
    return bool(unsettled) and (unsettled[0].may_be_written or any(batch.is_in_flight for batch in unsettled))
