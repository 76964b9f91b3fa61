"""One partition of `__transaction_state` and its coordinator: records into the log, then true, then answers and markers
out.

Owns that order, for every request, every deadline and every marker that was written. A batch that the log did not take
changed nothing: those who wait are told, the coordinator goes on. If the log itself is lost (`failed` is told), the
coordinator is of no use any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from oncelog.broker.coordinated.ticket import Ticket
from oncelog.broker.coordinated.writing import append_records, as_client_knows, awaits_flush
from oncelog.broker.request import Request
from oncelog.broker.transactions.loading import Loading
from oncelog.coordinator.effects import Caller, Reply
from oncelog.coordinator.transactions.answers import refusal
from oncelog.coordinator.transactions.effects import Effects, Markers
from oncelog.coordinator.transactions.records import TransactionRecord, encode_record
from oncelog.coordinator.transactions.state import COMPLETED
from oncelog.coordinator.transactions.transaction import Identity
from oncelog.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from oncelog.errors import KafkaError
from oncelog.log.partition_log import PartitionLog
from oncelog.records import compression
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

Refused: TypeAlias = Mapping[TopicPartition, KafkaError]
Joined: TypeAlias = Callable[[Refused], None]
Durable: TypeAlias = Callable[[KafkaError | None], None]

NOTHING_REFUSED: Refused = {}

BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 32
"""The header of a batch, and the most that a record needs besides its key and value."""


class TransactionPartition:
    def __init__(
        self,
        broker: BrokerState,
        log: PartitionLog,
        coordinator: TransactionCoordinator,
        send: Callable[[TransactionPartition, Sequence[Markers]], None],
        failed: Callable[[TransactionPartition, KafkaError], None],
    ) -> None:
        """`send` is given markers once their transaction's outcome is durable."""
        self.log = log
        self.coordinator = coordinator
        self.loading: Loading | None = Loading(log, coordinator)
        self.is_gone = False
        """Another one has taken its place, or will: what is still on its way is not its own any more."""
        self._broker = broker
        self._send = send
        self._failed = failed
        self._leader_epoch = broker.leader_epoch(*log.topic_partition)

    # --- requests ---

    def ask(self, request: Request, body: Message, ticket: Ticket, now_ms: int) -> None:
        """Settles the ticket, at once or after a flush."""
        caller = Caller(ticket, request.client_id or "", request.peer.host, request.version)
        self.perform(self.coordinator.handle(ApiKey(request.api_key), body, caller, now_ms), now_ms)

    def join(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        now_ms: int,
        done: Joined,
    ) -> None:
        """`done` is told which partitions are not part of the producer's transaction, and why."""
        coordinator = self.coordinator
        if verify_only:
            # Always at once: by protocol 1 the end of a transaction does not raise the epoch, so it must not come
            # between the question and the batch.
            is_held = coordinator.holds(transactional_id, producer, partitions)
            done(NOTHING_REFUSED if is_held else coordinator.missing(transactional_id, producer, partitions))
            return
        refused = NOTHING_REFUSED
        if not coordinator.holds(transactional_id, producer, partitions):
            admission = coordinator.admit(transactional_id, producer, partitions, now_ms)
            refused = admission.refused
            if admission.record is not None:
                _, error = self._write([admission.record], now_ms)
                if error is not None:
                    done(dict.fromkeys(partitions, as_client_knows(error)))
                    return
        if awaits_flush(self.log):
            self._when_durable(lambda error: done(refused if error is None else dict.fromkeys(partitions, error)))
        else:
            done(refused)

    def marker_written(self, markers: Markers, topic_partition: TopicPartition, now_ms: int) -> None:
        """The last one completes the transaction."""
        self.perform(self.coordinator.markers_written(markers, (topic_partition,), now_ms), now_ms)

    # --- effects ---

    def perform(self, effects: Effects, now_ms: int) -> None:
        """Durable first, sent afterwards."""
        records, replies, markers = effects
        if records:
            written, error = self._write(records, now_ms)
            if error is not None:
                self._refuse(replies, error)
                decided = {record.transactional_id for record in records[:written]}
                replies, markers = [], [each for each in markers if each.transactional_id in decided]
        if not replies and not markers:
            return
        if awaits_flush(self.log):
            # Without records of its own as well: the answer may tell of what an earlier batch says.
            self._when_durable(partial(self._flushed, replies, markers))
        else:
            self._deliver(replies, markers)

    def _write(self, records: Sequence[TransactionRecord], now_ms: int) -> tuple[int, KafkaError | None]:
        """Append and replay: how many, and what prevented the rest. What is due at once may be more than a batch can
        hold; each record is true without the others."""
        written = 0
        for batch in in_batches(records, self.log.config.max_message_bytes - BATCH_OVERHEAD_BYTES):
            try:
                append_records(
                    self._broker,
                    self.log,
                    batch,
                    leader_epoch=self._leader_epoch,
                    codec=compression.NONE,
                    now_ms=now_ms,
                )
            except KafkaError as error:
                logger.error("%s: %d records were not written: %s", self.log.topic_partition, len(batch), error)
                if self.log.offline:
                    self._failed(self, error)
                return written, error
            for record in records[written : written + len(batch)]:
                self._replay(record)
            written += len(batch)
        return written, None

    def _replay(self, record: TransactionRecord) -> None:
        self.coordinator.replay(record)
        if record.transaction is not None and record.transaction.state in COMPLETED:
            self._broker.metrics.transactions_ended["commit" if record.transaction.is_commit else "abort"] += 1

    def _when_durable(self, then: Durable) -> None:
        self._broker.group_commit.wait(self.log, self.log.log_end_offset, partial(self._after_flush, then))

    def _after_flush(self, then: Durable, error: KafkaError | None) -> None:
        then(None if error is None else as_client_knows(error))
        if error is not None:
            self._failed(self, error)

    def _flushed(self, replies: Sequence[Reply], markers: Sequence[Markers], error: KafkaError | None) -> None:
        if error is None:
            self._deliver(replies, markers)
        else:
            self._refuse(replies, error)

    def _deliver(self, replies: Sequence[Reply], markers: Sequence[Markers]) -> None:
        for reply in replies:
            _ticket(reply).settle(reply.body)
        if markers:
            self._send(self, markers)

    def _refuse(self, replies: Sequence[Reply], error: KafkaError) -> None:
        code = as_client_knows(error).code
        for reply in replies:
            ticket = _ticket(reply)
            ticket.settle(refusal(ApiKey(ticket.api_key), ticket.body, ticket.version, code))

    # --- as every coordinated partition ---

    def loaded(self, now_ms: int) -> None:
        self.loading = None
        self.perform(self.coordinator.loaded(now_ms), now_ms)

    def next_deadline_ms(self) -> int | None:
        return self.coordinator.next_deadline_ms()

    def expire(self, now_ms: int) -> None:
        self.perform(self.coordinator.expire(now_ms), now_ms)

    def unload(self) -> None:
        """Nobody waits here: who is not answered waits for a flush, which ends by itself."""
        self.is_gone = True


def in_batches(records: Sequence[TransactionRecord], limit_bytes: int) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """As many as fit, and never none: the log refuses what is too large by itself."""
    batch: list[tuple[bytes, bytes | None]] = []
    size_bytes = 0
    for key, value in map(encode_record, records):
        record_bytes = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        if batch and size_bytes + record_bytes > limit_bytes:
            yield batch
            batch, size_bytes = [], 0
        batch.append((key, value))
        size_bytes += record_bytes
    if batch:
        yield batch


def _ticket(reply: Reply) -> Ticket:
    assert isinstance(reply.ticket, Ticket), "tickets come back as they were given"
    return reply.ticket
