"""What becomes of a batch that was sent: the answer's meaning, another attempt, its end, and in which order it is told.

A batch is stored, goes out again under its number, goes on in parts, or fails. Whichever it is, its records hear of it
after those of the batches ahead. Owns no request and no connection; all state belongs to the thread that runs the core.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from oncelog.client.accumulator import Accumulator, PartitionQueue
from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import RecordErrors
from oncelog.client.idempotence import Idempotence
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network_events import Answered, Event, Lost
from oncelog.client.occasional import OccasionalWarning
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.producer_errors import DeliveryFailed, RefusedWithOthers
from oncelog.client.transaction.conversation import CONTENTION_BACKOFF_MS
from oncelog.client.transaction.core import TransactionCore
from oncelog.client.verdict import Verdict, verdict_of
from oncelog.errors import (
    NONE,
    ConcurrentTransactions,
    CorruptMessage,
    InvalidRecord,
    KafkaError,
    NotEnoughReplicas,
    error_for_code,
)
from oncelog.printable import clause, counted
from oncelog.records.model import MAX_BASE_OFFSET
from oncelog.types import NO_OFFSET, NO_TIMESTAMP
from oncelog.wire.produce import ProducedPartition

logger = logging.getLogger(__name__)

MAX_BACKOFF_DOUBLINGS = 16
UNUSUAL_ATTEMPTS = 5
"""So many attempts at one batch are worth a warning; fewer are what a change of leaders costs."""
UNUSUAL_CONTENTION = 16
"""The same while a coordinator is busy with the transaction: those follow each other quickly at first."""

CONTENDED = (ConcurrentTransactions, NotEnoughReplicas)
"""What leaders say, the second one to older clients, while a coordinator is busy with the transaction: for a moment."""

STORED, STORED_EARLIER, OUT_OF_ORDER = Verdict.STORED, Verdict.STORED_EARLIER, Verdict.OUT_OF_ORDER


class BatchJournal(Protocol):
    """Remembers numbered batches across a crash of the producer's process."""

    def numbered(self, batches: Sequence[ProducerBatch]) -> None:
        """Their bytes leave when this returns. Raises OncelogError if the numbers could not be kept: then they may not.
        Batches that go out again are among them; their numbers are known."""

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """The batch was too large, and goes on in parts."""

    def settled(self, batch: ProducerBatch) -> None: ...


class Fates:
    __slots__ = (
        "_accumulator", "_codec", "_config", "_counters", "_idempotence", "_jitter", "_level", "_metadata",
        "_on_settled", "_untold", "_warning", "fatal", "has_news", "journal", "transaction",
    )  # fmt: skip

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        idempotence: Idempotence | None,
        metadata: MetadataCache,
        counters: ProducerCounters,
        jitter: Callable[[], float],
        on_settled: Callable[[ProducerBatch], None],
    ) -> None:
        """`on_settled` runs the callbacks of a batch that has some."""
        self._config = config
        self._codec = config.compression_codec
        self._level = config.compression_level
        self._accumulator = accumulator
        self._idempotence = idempotence
        self._metadata = metadata
        self._counters = counters
        self._jitter = jitter
        self._on_settled = on_settled
        self._untold: dict[PartitionQueue, list[ProducerBatch]] = {}
        """Batches whose fate is known before that of one ahead of them; at most a window's worth for each queue."""
        self._warning = OccasionalWarning(logger)
        self.transaction: TransactionCore | None = None
        self.journal: BatchJournal | None = None
        self.fatal: Exception | None = None
        """Why nothing can be sent any more."""
        self.has_news = False
        """Memory came free since somebody was last told of it."""

    @property
    def are_plain(self) -> bool:
        """Nobody besides the accumulator has a say in what becomes of a batch."""
        return self.fatal is None and self.transaction is None and self.journal is None

    # --- answers ----------------------------------------------------------------------------------------------

    def judge(self, queue: PartitionQueue, batch: ProducerBatch, answer: ProducedPartition, now_ms: int) -> None:
        verdict = verdict_of(answer.error_code)
        idempotence = self._idempotence
        if verdict is OUT_OF_ORDER and idempotence is not None and idempotence.is_known_as_stored(queue, batch):
            verdict = STORED_EARLIER
        if verdict is STORED or verdict is STORED_EARLIER:
            base_offset = answer.base_offset
            if base_offset < NO_OFFSET or base_offset > MAX_BASE_OFFSET:
                self.uncertain(queue, batch, _senseless(queue, base_offset), now_ms)
                return
            if self.transaction is not None:
                self.transaction.records_stored(now_ms)
            if verdict is STORED_EARLIER:
                self._counters.duplicates_acknowledged += 1
            self.store(queue, batch, base_offset, answer.log_append_time_ms)
        else:
            self._refused(queue, batch, verdict, _error_of(queue, answer), now_ms)

    def _refused(
        self, queue: PartitionQueue, batch: ProducerBatch, verdict: Verdict, error: KafkaError, now_ms: int
    ) -> None:
        if verdict is Verdict.UNCERTAIN:
            self.uncertain(queue, batch, error, now_ms)
        elif verdict is Verdict.REFUSED:
            self.retry(queue, batch, error, now_ms)
        elif verdict is Verdict.TOO_LARGE:
            self._too_large(queue, batch, error)
        elif verdict is Verdict.BROKEN:
            batch.may_be_written = True
            self.fail(queue, batch, error)
        elif verdict is Verdict.INVALID or self._idempotence is None:
            self.fail(queue, batch, error)
        else:
            self._renumber(queue, batch, verdict, error, now_ms)

    def _renumber(
        self, queue: PartitionQueue, batch: ProducerBatch, verdict: Verdict, error: KafkaError, now_ms: int
    ) -> None:
        """The broker's count differs from ours, so counting must start again."""
        assert self._idempotence is not None
        if verdict is OUT_OF_ORDER and not self._idempotence.is_gap(queue, batch):
            self.retry(queue, batch, error, now_ms)
            return
        if self.transaction is not None:  # its coordinator gives the next epoch, after an abort
            self.fail(queue, batch, error)
            return
        is_in_doubt = self._idempotence.is_in_doubt(queue, batch)
        if verdict is OUT_OF_ORDER and batch.may_be_written and not is_in_doubt:
            self._doubt(queue, batch, error, now_ms)
            return
        self._idempotence.want_bump(str(error), new_id=verdict is Verdict.FENCED)
        if verdict is Verdict.FENCED or batch.may_be_written:
            self.fail(queue, batch, error)
        else:
            self.retry(queue, batch, error, now_ms)

    def _doubt(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, now_ms: int) -> None:
        assert self._idempotence is not None
        unwritten = self._idempotence.doubt(queue, batch)
        if unwritten:
            self._idempotence.want_bump(str(error))
        for one in unwritten:
            self.retry(queue, one, error, now_ms)

    # --- another attempt --------------------------------------------------------------------------------------

    def uncertain(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception, now_ms: int) -> None:
        batch.may_be_written = True
        self.retry(queue, batch, error, now_ms)

    def retry(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception, now_ms: int) -> None:
        if batch.is_abandoned or batch.attempts > self._config.retries or self._is_lost:
            self.fail(queue, batch, error)
            return
        if isinstance(error, KafkaError) and error.stale_metadata:
            self._metadata.mark_stale()
        is_contended = self.transaction is not None and isinstance(error, CONTENDED)
        if self.transaction is not None and is_contended:
            self.transaction.records_contended()
        backoff_ms = self.backoff_ms(batch.attempts, CONTENTION_BACKOFF_MS if is_contended else None)
        batch.retry_at_ms = now_ms + backoff_ms
        if batch.attempts >= (UNUSUAL_CONTENTION if is_contended else UNUSUAL_ATTEMPTS):
            self._warn(queue, batch, error, backoff_ms, now_ms)
        if self._idempotence is None:
            queue.unsettled.remove(batch)
        self._accumulator.put_back(queue, batch)

    def _warn(
        self, queue: PartitionQueue, batch: ProducerBatch, error: Exception, backoff_ms: int, now_ms: int
    ) -> None:
        left_ms = max(0, batch.created_ms + self._config.delivery_timeout_ms - now_ms)
        self._warning.give(
            now_ms,
            "%s: %s for %s-%d not stored after %s: %s; trying again in %d ms, for another"
            " %.1f s at most (delivery.timeout.ms)",
            self._config.client_id,
            counted(batch.record_count, "record"),
            queue.topic,
            queue.index,
            counted(batch.attempts, "attempt"),
            clause(error),
            backoff_ms,
            left_ms / 1000,
        )

    def warn_of_id(self, event: Event, attempts: int, backoff_ms: int, now_ms: int) -> None:
        """No broker gives a producer id."""
        why = event.reason if isinstance(event, Lost) else error_for_code(event.body["error_code"]).message
        if isinstance(event, Answered) and event.body["error_code"] == NONE:
            why = f"the answer was id {event.body['producer_id']}, epoch {event.body['producer_epoch']}"
        self._warning.give(
            now_ms,
            "%s: no broker gives a producer id after %s: %s; asking again in %d ms, nothing is sent before",
            self._config.client_id,
            counted(attempts, "attempt"),
            clause(why),
            backoff_ms,
        )

    @property
    def _is_lost(self) -> bool:
        """Nothing that waits is sent any more."""
        return self.fatal is not None or (self.transaction is not None and self.transaction.is_lost)

    def _too_large(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError) -> None:
        if batch.is_revived and not batch.is_listed:
            batch.may_be_written = False  # its leader did not have it, and could not have taken it
        if batch.record_count == 1 or batch.is_abandoned or batch.may_be_written or self._is_lost:
            self.fail(queue, batch, error)
            return
        parts = batch.split(self._codec, self._level, self.transaction is not None)
        if self.journal is not None:
            self.journal.split(batch, parts)
        at = queue.unsettled.index(batch)
        queue.unsettled[at : at + 1] = parts if self._idempotence is not None else []
        for part in parts:
            part.attempts = batch.attempts
        self._accumulator.put_back_parts(queue, batch, parts)
        self._counters.batch_splits += 1

    def backoff_ms(self, attempts: int, first_ms: int | None = None) -> int:
        doublings = min(max(attempts - 1, 0), MAX_BACKOFF_DOUBLINGS)
        first_ms = self._config.retry_backoff_ms if first_ms is None else min(first_ms, self._config.retry_backoff_ms)
        backoff_ms = min(first_ms << doublings, self._config.retry_backoff_max_ms)
        return int(backoff_ms * (0.8 + 0.4 * self._jitter()))

    # --- the end ----------------------------------------------------------------------------------------------

    def store(self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        batch.is_in_flight = False
        if self._idempotence is not None:
            while queue.unsettled[0].is_doubted and queue.unsettled[0] is not batch:
                queue.unsettled[0].is_doubted = False  # what is behind it is stored, so it is
                self._counters.duplicates_acknowledged += 1
                self.store(queue, queue.unsettled[0], NO_OFFSET, NO_TIMESTAMP)
            self._idempotence.stored(queue, batch)
        else:
            queue.unsettled.remove(batch)
        if batch.is_abandoned:
            self._settle_journal(batch)
            return
        batch.delivery.settle(base_offset, append_time_ms)
        self._finish(queue, batch)

    def fail(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        """The batch, which is in no queue, will not be sent again."""
        if self._idempotence is None:
            if batch in queue.unsettled:
                queue.unsettled.remove(batch)
        elif batch.is_numbered:
            self._idempotence.gave_up(queue, batch, str(error))
        if batch.is_abandoned:
            self._settle_journal(batch)
        else:
            self._report(queue, batch, _honest(error, batch))

    def abandon(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        """Given up while a broker has it: the user is told now, its number is kept until the answer comes."""
        batch.may_be_written = True
        batch.is_abandoned = True
        self._report(queue, batch, _honest(error, batch))

    def _report(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> None:
        self._counters.records_failed += batch.record_count
        if self.transaction is not None:
            self.transaction.record_failed(error)
        batch.delivery.fail(error, _record_errors(error))
        self._finish(queue, batch)

    def _finish(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The fate is known. It is told after those of the batches ahead: a partition's callbacks run in order. Without
        idempotence the records themselves may change places, and nothing bounds how many would have to wait."""
        self._settle_journal(batch)
        if self._idempotence is not None and _has_untold_ahead(queue, batch):
            self._untold.setdefault(queue, []).append(batch)
            return
        self._tell(queue, batch)
        if self._untold:
            self._tell_followers(queue)

    def _tell_followers(self, queue: PartitionQueue) -> None:
        followers = sorted(self._untold.pop(queue, ()), key=_ordinal)
        while followers and not _has_untold_ahead(queue, followers[0]):
            self._tell(queue, followers.pop(0))
        if followers:
            self._untold[queue] = followers

    def _tell(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch.has_callbacks:
            self._on_settled(batch)
        batch.delivery.announce()
        self._accumulator.finish(queue, batch)
        self.has_news = True

    def _settle_journal(self, batch: ProducerBatch) -> None:
        if self.journal is not None and not batch.is_in_flight:
            self.journal.settled(batch)


def _ordinal(batch: ProducerBatch) -> int:
    return batch.ordinal


def _has_untold_ahead(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    if queue.head is not None and queue.head.was_sent_before(batch):
        return True
    for one in queue.unsettled:  # noqa: SIM110 - a generator would cost more than it looks through
        if not one.is_abandoned and one.was_sent_before(batch):
            return True
    return False


DAMAGED_ON_ARRIVAL = "that is how it arrived at the broker: nothing of it is stored, and it may be sent again"


def _error_of(queue: PartitionQueue, answer: ProducedPartition) -> KafkaError:
    place = f"{queue.topic}-{queue.index}"
    said = answer.error_message or error_for_code(answer.error_code).message
    if answer.error_code == CorruptMessage.code:
        said = f"{said.rstrip('.')}; {DAMAGED_ON_ARRIVAL}"
    error = error_for_code(answer.error_code, f"{place}: {said}")
    if answer.record_errors:
        error.record_errors = [(index, f"{place}: {why or said}") for index, why in answer.record_errors]
    return error


def _senseless(queue: PartitionQueue, base_offset: int) -> DeliveryFailed:
    """Only sending it again tells where it is, if it is stored."""
    answer = (
        f"{queue.topic}-{queue.index}: the broker's answer says that the records are stored at offset {base_offset}"
    )
    return DeliveryFailed(f"{answer}, which no log has", may_be_written=True)


def _record_errors(error: Exception) -> RecordErrors | None:
    """What the records of a refused batch are told, if the broker named those at fault. As Kafka's producer: the code
    is the batch's, so with several at fault it need not be that of each one. Kafka: Sender.failBatch"""
    if not isinstance(error, KafkaError) or not error.record_errors:
        return None
    code = error.code if len(error.record_errors) == 1 else InvalidRecord.code
    others = RefusedWithOthers(
        "not stored: the batch that the record was part of had one or more invalid records; "
        f"it may be sent again ({error.message})",
        may_be_written=False,
    )
    others.__cause__ = error
    return RecordErrors({index: error_for_code(code, why) for index, why in error.record_errors}, others)


def _honest(error: Exception, batch: ProducerBatch) -> Exception:
    """An error that says whether the batch may be stored all the same."""
    if isinstance(error, DeliveryFailed) or not batch.may_be_written:
        return error
    failed = DeliveryFailed(
        f"{error} (a broker may have stored the records in an earlier attempt)", may_be_written=True
    )
    failed.__cause__ = error
    return failed
