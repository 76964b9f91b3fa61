"""One partition of `__consumer_offsets` and its coordinator: records into the log, then true, then answers out.

Owns that order, for every request and every deadline. The coordinator decides, the log remembers; if the log cannot,
the coordinator is of no use any more (`failed` is told), since its memory may be ahead of what a restart would find.
Only what a transaction commits changes no memory before it is written: if it cannot be, its producer alone is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.coordinated.ticket import Ticket
from oncelog.broker.coordinated.writing import Writer, append_records, as_client_knows, awaits_flush
from oncelog.broker.groups.answers import refusal
from oncelog.broker.groups.loading import Loading
from oncelog.broker.request import Request
from oncelog.coordinator.effects import Caller, Effects, Reply
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.records import CoordinatorRecord, encode_record
from oncelog.errors import KafkaError, MessageTooLarge, RecordListTooLarge
from oncelog.log.partition_log import PartitionLog
from oncelog.types import NO_PRODUCER_ID
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

MAX_LOOSE_RECORDS = 1_000
"""Records that nobody waits for (offsets expired, a topic was deleted) are written in batches of at most this many:
there may be very many of them, and each is true without the others."""


TELLING_PERIOD_MS = 60_000
"""One line in it tells of requests that a client made too large, who hears of each: it must not fill our disk."""

REFUSED = "%s: %d answers became errors: %s"

CHANGED_BY_REPLAY_ALONE = frozenset({ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE, ApiKey.DELETE_GROUPS})
"""Requests that change no memory of the coordinator before their records are written: where those do not fit one batch,
whoever asked is refused, and nobody else hears of it."""


class CoordinatedPartition:
    def __init__(
        self,
        broker: BrokerState,
        log: PartitionLog,
        coordinator: GroupCoordinator,
        codec: int,
        failed: Callable[[CoordinatedPartition, KafkaError], None],
    ) -> None:
        self.log = log
        self.coordinator = coordinator
        self.loading: Loading | None = Loading(log, coordinator)
        self._broker = broker
        self._codec = codec
        self._failed = failed
        self._silent_until_ms = 0
        self._leader_epoch = broker.leader_epoch(*log.topic_partition)

    def ask(self, request: Request, body: Message, ticket: Ticket, now_ms: int) -> None:
        """Settles the ticket now, or whenever the coordinator answers it."""
        caller = Caller(ticket, request.client_id or "", request.peer.host, request.version)
        effects = self.coordinator.handle(request.api_key, body, caller, now_ms)  # type: ignore[arg-type]
        self.perform(effects, now_ms, may_be_refused=request.api_key in CHANGED_BY_REPLAY_ALONE)

    def ask_in_transaction(self, request: Request, ticket: Ticket, now_ms: int) -> None:
        """A TxnOffsetCommit of a producer whose transaction this partition is part of."""
        body = ticket.body
        caller = Caller(ticket, request.client_id or "", request.peer.host, request.version)
        records, replies = self.coordinator.handle(ApiKey.TXN_OFFSET_COMMIT, body, caller, now_ms)
        try:
            if records:
                self._write(records, now_ms, Writer(body["producer_id"], body["producer_epoch"]))
        except KafkaError as error:
            self._tell_refusal(error, len(replies), now_ms, is_the_clients=not self.log.offline)
            self._refuse(replies, error)
            if self.log.offline:
                self._failed(self, error)
            return
        self._reply(replies)

    def perform(self, effects: Effects, now_ms: int, *, may_be_refused: bool = False) -> None:
        """Durable first, sent afterwards. `may_be_refused`: the coordinator is none the wiser if nothing is written."""
        records, replies = effects
        if records:
            try:
                if replies or len(records) <= MAX_LOOSE_RECORDS:
                    self._write(records, now_ms)
                else:
                    for at in range(0, len(records), MAX_LOOSE_RECORDS):
                        self._write(records[at : at + MAX_LOOSE_RECORDS], now_ms)
            except KafkaError as error:
                is_the_clients = may_be_refused and isinstance(error, MessageTooLarge | RecordListTooLarge)
                self._tell_refusal(error, len(replies), now_ms, is_the_clients=is_the_clients)
                self._refuse(replies, error)
                if not is_the_clients:
                    self._failed(self, error)
                return
        if replies:
            self._reply(replies)

    def _reply(self, replies: Sequence[Reply]) -> None:
        log = self.log
        if awaits_flush(log):
            # Without records of its own as well: the answer may tell of what an earlier batch says.
            self._broker.group_commit.wait(log, log.log_end_offset, partial(self._flushed, replies))
        else:
            _settle(replies)

    def _write(self, records: Sequence[CoordinatorRecord], now_ms: int, writer: Writer | None = None) -> None:
        """Append and replay. Raises KafkaStorageError, MessageTooLarge or RecordListTooLarge."""
        base_offset = self.log.log_end_offset
        self._append(records, now_ms, writer)
        replay = self.coordinator.replay
        producer_id = NO_PRODUCER_ID if writer is None else writer.producer_id
        for log_offset, record in enumerate(records, base_offset):
            replay(record, now_ms, log_offset, producer_id)

    def _append(self, records: Sequence[CoordinatorRecord], now_ms: int, writer: Writer | None) -> None:
        append_records(
            self._broker,
            self.log,
            map(encode_record, records),
            leader_epoch=self._leader_epoch,
            codec=self._codec,
            now_ms=now_ms,
            writer=writer,
        )
        written = self._broker.metrics.group_records
        for record in records:
            written[record.type, record.value is None] += 1

    def _flushed(self, replies: Sequence[Reply], error: KafkaError | None) -> None:
        if error is None:
            _settle(replies)
        else:
            logger.error(REFUSED, self.log.topic_partition, len(replies), error)
            self._refuse(replies, error)
            self._failed(self, error)

    def _tell_refusal(self, error: KafkaError, count: int, now_ms: int, *, is_the_clients: bool) -> None:
        if not is_the_clients:
            logger.error(REFUSED, self.log.topic_partition, count, error)
        elif now_ms >= self._silent_until_ms:
            self._silent_until_ms = now_ms + TELLING_PERIOD_MS
            logger.info(REFUSED, self.log.topic_partition, count, error)

    def _refuse(self, replies: Sequence[Reply], error: KafkaError) -> None:
        known = as_client_knows(error)
        for reply in replies:
            ticket = _ticket(reply)
            ticket.settle(refusal(ticket.api_key, ticket.version, ticket.body, known))

    # --- as every coordinated partition ---

    def loaded(self, now_ms: int) -> None:
        self.loading = None
        self.perform(self.coordinator.loaded(now_ms), now_ms)
        self.topics_changed(now_ms)

    def topics_changed(self, now_ms: int) -> None:
        self.perform(self.coordinator.topics_changed(now_ms), now_ms)

    def next_deadline_ms(self) -> int | None:
        return self.coordinator.next_deadline_ms()

    def expire(self, now_ms: int) -> None:
        self.perform(self.coordinator.expire(now_ms), now_ms)

    def unload(self) -> None:
        _settle(self.coordinator.unload())

    def forget(self, ticket: Ticket) -> None:
        self.coordinator.forget(ticket)


def _settle(replies: Sequence[Reply]) -> None:
    for reply in replies:
        _ticket(reply).settle(reply.body)


def _ticket(reply: Reply) -> Ticket:
    assert isinstance(reply.ticket, Ticket), "tickets come back as they were given"
    return reply.ticket
