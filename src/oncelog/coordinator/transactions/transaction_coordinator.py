"""The transaction coordinator of one partition of `__transaction_state`.

Owns the transactions of its transactional ids, and what is due by the clock. A request yields records, replies and
markers; what the log says changes by `replay` alone. Soft state (which partitions still need their marker, deadlines)
dies with the process and is made again from the log: a transaction that was prepared ends in its outcome, whatever
dies in between.

Served are InitProducerId 0-5 (with a transactional id; two-phase commit, in version 6, is not), AddPartitionsToTxn 0-5,
AddOffsetsToTxn 0-4, EndTxn 0-5 (5 is protocol 2), DescribeTransactions 0 and ListTransactions 0-2. Whether topics
exist, and who may use them, is for the handlers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from oncelog.coordinator.absence import NO_ABSENCE, Absence
from oncelog.coordinator.classic.timers import Timers
from oncelog.coordinator.effects import Caller, Reply
from oncelog.coordinator.transactions.answers import (
    FIRST_BATCHED_ADD,
    partitions_of,
    told,
    topic_results,
    with_identity,
)
from oncelog.coordinator.transactions.effects import Effects, Markers, TransactionSettings, answer, no_effects
from oncelog.coordinator.transactions.ending import Prepare, end_by_protocol_1, end_by_protocol_2
from oncelog.coordinator.transactions.initialising import AbortFirst, NewProducerId, abort_for_producer, initialise
from oncelog.coordinator.transactions.joining import join, missing
from oncelog.coordinator.transactions.listing import describe, list_transactions
from oncelog.coordinator.transactions.records import TransactionRecord
from oncelog.coordinator.transactions.state import State
from oncelog.coordinator.transactions.transaction import PROTOCOL_1, PROTOCOL_2, Identity, Transaction
from oncelog.errors import (
    NONE,
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionTimeout,
    KafkaError,
    TransactionAbortable,
)
from oncelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

FIRST_END_BY_PROTOCOL_2 = 5

MAX_DUE_AT_ONCE = 1_000
"""How many records one call of `expire` writes for what is due; the rest follows with the next."""

COMPLETION_RETRY_MS = 1_000
"""How soon the end of a transaction that could not be written is tried again: its producer waits for it."""

OFFSETS_TOPIC = "__consumer_offsets"


class Admission(NamedTuple):
    """Of partitions to a transaction: what is to be written, and which of them are refused."""

    record: TransactionRecord | None
    refused: Mapping[TopicPartition, KafkaError]


class TransactionCoordinator:
    def __init__(
        self,
        settings: TransactionSettings,
        coordinator_epoch: int,
        new_producer_id: NewProducerId,
        offsets_partition: Callable[[str], int],
    ) -> None:
        """`coordinator_epoch` is the leader epoch of the partition, `offsets_partition` finds a group's partition of
        `__consumer_offsets`."""
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self._new_producer_id = new_producer_id
        self._offsets_partition = offsets_partition
        self._transactions: dict[str, Transaction] = {}
        self.open_count = 0
        """Transactions that have begun and are not complete."""
        self._is_loaded = False
        self._unmarked: dict[str, tuple[int, set[TopicPartition]]] = {}
        """Of prepared transactions: the serial of the markers, and the partitions that have none yet."""
        self._serial = 0
        self._timers: Timers[str] = Timers()
        """When to look at a transaction: it is open for too long, or its end could not be written."""
        self._cleaning_due_ms: int | None = None
        self._absence = NO_ABSENCE
        self._uncleaned: deque[str] = deque()
        """Ids that the cleaning under way has still to look at."""
        self._handlers: dict[ApiKey, Callable[[Message, Caller, int], Effects]] = {
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.END_TXN: self._end,
            ApiKey.DESCRIBE_TRANSACTIONS: self._describe,
            ApiKey.LIST_TRANSACTIONS: self._list,
        }

    # Requests

    def handle(self, api_key: ApiKey, body: Message, caller: Caller, now_ms: int) -> Effects:
        """A request's records, replies and markers. Of a request for several ids (AddPartitionsToTxn from version 4,
        DescribeTransactions) the body holds this partition's ids only, and so does the reply."""
        return self._handlers[api_key](body, caller, now_ms)

    def _init_producer_id(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        transactional_id, timeout_ms = body["transactional_id"], body["transaction_timeout_ms"]
        try:
            expected = self._checked_init(body)
            transaction = self._transactions.get(transactional_id)
            decision = initialise(transaction, expected, timeout_ms, self._new_producer_id, now_ms)
        except KafkaError as error:
            return answer(caller, with_identity(told(error.code, ApiKey.INIT_PRODUCER_ID, caller.version)))
        if isinstance(decision, AbortFirst):
            effects = self._prepare(transactional_id, decision.transaction, now_ms)
            effects.replies.append(Reply(caller.ticket, with_identity(ConcurrentTransactions.code)))
            return effects
        ready = decision.transaction
        reply = Reply(caller.ticket, with_identity(NONE, ready.identity))
        return Effects([TransactionRecord(transactional_id, ready)], [reply], [])

    def _checked_init(self, body: Message) -> Identity | None:
        """What the producer says that it had."""
        expected = Identity(body.get("producer_id", NO_PRODUCER_ID), body.get("producer_epoch", NO_PRODUCER_EPOCH))
        if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_PRODUCER_EPOCH):
            raise InvalidRequest("a producer names both the id and the epoch that it had, or neither")
        _check_name(body["transactional_id"])
        timeout_ms, limit_ms = body["transaction_timeout_ms"], self._settings.transaction_max_timeout_ms
        if not 0 < timeout_ms <= limit_ms:
            raise InvalidTransactionTimeout(
                f"a transaction timeout of {timeout_ms} ms; transaction.max.timeout.ms is {limit_ms}"
            )
        return None if expected.producer_id == NO_PRODUCER_ID else expected

    def _add_partitions(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        if caller.version < FIRST_BATCHED_ADD:
            part = {
                name: body[f"v3_and_below_{name}"] for name in ("transactional_id", "producer_id", "producer_epoch")
            }
            part["topics"] = body["v3_and_below_topics"]
            record, results = self._add(part, PROTOCOL_1, caller.version, now_ms)
            reply = Reply(caller.ticket, {"results_by_topic_v3_and_below": results})
            return Effects([record] if record else [], [reply], [])
        records: dict[str, TransactionRecord] = {}
        results_by_transaction = []
        for part in body["transactions"]:
            transactional_id = part["transactional_id"]
            if transactional_id in records:
                results = topic_results(partitions_of(part["topics"]), lambda _: ConcurrentTransactions.code)
            else:
                add = self._verify if part["verify_only"] else self._add
                record, results = add(part, PROTOCOL_2, caller.version, now_ms)
                if record is not None:
                    records[transactional_id] = record
            results_by_transaction.append({"transactional_id": transactional_id, "topic_results": results})
        reply_body: Message = {"error_code": NONE, "results_by_transaction": results_by_transaction}
        return Effects(list(records.values()), [Reply(caller.ticket, reply_body)], [])

    def _add(
        self, part: Message, protocol: int, version: int, now_ms: int
    ) -> tuple[TransactionRecord | None, list[Message]]:
        partitions = partitions_of(part["topics"])
        record, code = self._joined(part, partitions, protocol, now_ms)
        code = told(code, ApiKey.ADD_PARTITIONS_TO_TXN, version)
        return record, topic_results(partitions, lambda _: code)

    def _verify(self, part: Message, protocol: int, version: int, now_ms: int) -> tuple[None, list[Message]]:
        partitions = partitions_of(part["topics"])
        refused = self.missing(part["transactional_id"], _claimed(part), partitions)
        return None, topic_results(partitions, lambda each: refused[each].code if each in refused else NONE)

    def _add_offsets(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        partition = TopicPartition(OFFSETS_TOPIC, self._offsets_partition(body["group_id"]))
        record, code = self._joined(body, [partition], PROTOCOL_1, now_ms)
        reply = Reply(caller.ticket, {"error_code": told(code, ApiKey.ADD_OFFSETS_TO_TXN, caller.version)})
        return Effects([record] if record else [], [reply], [])

    def _joined(
        self, part: Message, partitions: list[TopicPartition], protocol: int, now_ms: int
    ) -> tuple[TransactionRecord | None, int]:
        transactional_id = part["transactional_id"]
        try:
            _check_name(transactional_id)
            joined = join(self._transactions.get(transactional_id), _claimed(part), partitions, protocol, now_ms)
        except KafkaError as error:
            return None, error.code
        return None if joined is None else TransactionRecord(transactional_id, joined), NONE

    # Leaders of partitions

    def holds(self, transactional_id: str, claimed: Identity, partitions: Collection[TopicPartition]) -> bool:
        """Whether all of these are part of the producer's open transaction already, as nearly always."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.state is not State.ONGOING:
            return False
        if claimed.epoch != transaction.epoch or claimed.producer_id != transaction.producer_id:
            return False
        joined = transaction.partitions
        return all(partition in joined for partition in partitions)

    def admit(
        self, transactional_id: str, claimed: Identity, partitions: Sequence[TopicPartition], now_ms: int
    ) -> Admission:
        """By protocol 2: the first batch of a transaction came to each of these partitions."""
        try:
            _check_name(transactional_id)
            joined = join(self._transactions.get(transactional_id), claimed, partitions, PROTOCOL_2, now_ms)
        except KafkaError as error:
            return Admission(None, dict.fromkeys(partitions, error))
        return Admission(None if joined is None else TransactionRecord(transactional_id, joined), {})

    def missing(
        self, transactional_id: str, claimed: Identity, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, KafkaError]:
        """By protocol 1: those that the producer has not added to its transaction, and must not write into."""
        try:
            _check_name(transactional_id)
            refused = missing(self._transactions.get(transactional_id), claimed, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, error)
        abortable = TransactionAbortable("the partition was not added to the transaction")
        return {partition: abortable for partition in partitions if partition in refused}

    def _end(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        """Answered once PREPARE is durable: from then on the outcome is certain, and markers may take their time."""
        transactional_id = body["transactional_id"]
        by_protocol_2 = caller.version >= FIRST_END_BY_PROTOCOL_2
        try:
            _check_name(transactional_id)
            transaction, claimed = self._transactions.get(transactional_id), _claimed(body)
            if by_protocol_2:
                new_id = self._new_producer_id
                decision = end_by_protocol_2(transaction, claimed, body["committed"], new_id, now_ms)
            else:
                decision = end_by_protocol_1(transaction, claimed, body["committed"], now_ms)
        except KafkaError as error:
            return answer(caller, with_identity(told(error.code, ApiKey.END_TXN, caller.version)))
        if isinstance(decision, Prepare):
            effects = self._prepare(transactional_id, decision.transaction, now_ms)
            identity = decision.transaction.identity
        else:
            effects, identity = no_effects(), decision.identity
        effects.replies.append(Reply(caller.ticket, with_identity(NONE, identity)))
        return effects

    def _describe(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        states = [describe(self._transactions, transactional_id) for transactional_id in body["transactional_ids"]]
        return answer(caller, {"transaction_states": states})

    def _list(self, body: Message, caller: Caller, now_ms: int) -> Effects:
        return answer(caller, list_transactions(self._transactions, body, caller.version, now_ms))

    # Markers

    def _prepare(self, transactional_id: str, prepared: Transaction, now_ms: int) -> Effects:
        effects = Effects([TransactionRecord(transactional_id, prepared)], [], [])
        effects.extend(self._mark(transactional_id, prepared, now_ms))
        return effects

    def _mark(self, transactional_id: str, prepared: Transaction, now_ms: int) -> Effects:
        """The markers of a prepared transaction; one that wrote nowhere is complete without."""
        self._serial += 1
        self._unmarked[transactional_id] = self._serial, set(prepared.partitions)
        if not prepared.partitions:
            return self._complete(transactional_id, prepared, now_ms)
        markers = Markers(
            transactional_id,
            prepared.producer_id,
            prepared.epoch,
            self._coordinator_epoch,
            prepared.is_commit,
            prepared.protocol,
            prepared.partitions,
            self._serial,
        )
        return Effects([], [], [markers])

    def markers_written(self, markers: Markers, partitions: Iterable[TopicPartition], now_ms: int) -> Effects:
        """These partitions have their marker durably, or are no more. With the last of them the transaction is
        complete. May be told twice, and too late."""
        transactional_id = markers.transactional_id
        prepared = self._transactions.get(transactional_id)
        serial, unmarked = self._unmarked.get(transactional_id, (None, set()))
        if prepared is None or not prepared.is_prepared or serial != markers.serial:
            return no_effects()
        unmarked.difference_update(partitions)
        return no_effects() if unmarked else self._complete(transactional_id, prepared, now_ms)

    def _complete(self, transactional_id: str, prepared: Transaction, now_ms: int) -> Effects:
        # In case the record cannot be written. The replay of it sets this aside.
        self._timers.set(transactional_id, now_ms + COMPLETION_RETRY_MS)
        return Effects([TransactionRecord(transactional_id, prepared.completed(now_ms))], [], [])

    # The log

    def replay(self, record: TransactionRecord) -> None:
        """What the log says becomes true."""
        transactional_id, transaction = record
        before = self._transactions.get(transactional_id)
        if before is not None and not before.is_at_rest:
            self.open_count -= 1
        if transaction is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = transaction
            if not transaction.is_at_rest:
                self.open_count += 1
        if self._is_loaded:
            self._follow(transactional_id, transaction)

    def _follow(self, transactional_id: str, transaction: Transaction | None) -> None:
        """Deadlines are as the log says."""
        self._timers.cancel(transactional_id)
        if transaction is None or not transaction.is_prepared:
            self._unmarked.pop(transactional_id, None)
        if transaction is not None and transaction.state is State.ONGOING:
            self._timers.set(transactional_id, transaction.deadline_ms)

    def loaded(self, now_ms: int) -> Effects:
        """The whole log was replayed: every transaction that was prepared gets its markers, again or for the first
        time, and those that are open have the rest of their time. One that is yet to begin was written before the clock
        was set back: it has its whole time, and no more."""
        self._is_loaded = True
        newest_ms = max((each.last_update_ms for each in self._transactions.values()), default=now_ms)
        self._absence = Absence(newest_ms, now_ms)
        for transactional_id, transaction in self._transactions.items():
            if transaction.state is State.ONGOING and transaction.start_ms > now_ms:
                self._transactions[transactional_id] = transaction._replace(start_ms=now_ms)
        self._cleaning_due_ms = now_ms + self._settings.transaction_remove_expired_transaction_cleanup_interval_ms
        effects = no_effects()
        for transactional_id, transaction in self._transactions.items():
            if transaction.is_at_rest:
                continue
            self._follow(transactional_id, transaction)
            if transaction.is_prepared:
                effects.extend(self._mark(transactional_id, transaction, now_ms))
        return effects

    # Time

    def expire(self, now_ms: int) -> Effects:
        """What is due by the clock: transactions that are open for too long, ids that nobody has used for long."""
        effects = no_effects()
        for transactional_id in self._timers.take_due(now_ms):
            if len(effects.records) >= MAX_DUE_AT_ONCE:
                self._timers.set(transactional_id, now_ms)
            else:
                effects.extend(self._attend(transactional_id, now_ms))
        if self._cleaning_due_ms is not None and now_ms >= self._cleaning_due_ms:
            self._cleaning_due_ms = now_ms + self._settings.transaction_remove_expired_transaction_cleanup_interval_ms
            self._uncleaned = deque(self._transactions)
        effects.records.extend(self._clean(MAX_DUE_AT_ONCE - len(effects.records), now_ms))
        return effects

    def _attend(self, transactional_id: str, now_ms: int) -> Effects:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return no_effects()
        if transaction.is_prepared and not self._unmarked[transactional_id][1]:
            return self._complete(transactional_id, transaction, now_ms)
        if transaction.state is not State.ONGOING:
            return no_effects()
        if now_ms < transaction.deadline_ms:
            self._timers.set(transactional_id, transaction.deadline_ms)
            return no_effects()
        interval_ms = self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._timers.set(transactional_id, now_ms + interval_ms)  # as above
        try:
            aborted = abort_for_producer(transaction, self._new_producer_id, now_ms)
        except KafkaError:
            return no_effects()
        return self._prepare(transactional_id, aborted, now_ms)

    def _clean(self, limit: int, now_ms: int) -> list[TransactionRecord]:
        """Tombstones, as many as one call may write, for ids that have expired."""
        records: list[TransactionRecord] = []
        expiration_ms, absence = self._settings.transactional_id_expiration_ms, self._absence
        while self._uncleaned and len(records) < limit:
            transactional_id = self._uncleaned.popleft()
            transaction = self._transactions.get(transactional_id)
            if transaction is None or not transaction.is_at_rest:
                continue
            if absence.age_ms(transaction.last_update_ms, now_ms) >= expiration_ms:
                records.append(TransactionRecord(transactional_id, None))
        return records

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do; a time that has passed means at once."""
        if self._uncleaned:
            return 0
        deadlines = (self._timers.next_ms(), self._cleaning_due_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # Views

    def hard_state(self) -> dict[str, Transaction]:
        """Comparable; what a replay of the log must give again."""
        return {name: transaction.hard_state() for name, transaction in self._transactions.items()}


def _check_name(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty")


def _claimed(part: Message) -> Identity:
    return Identity(part["producer_id"], part["producer_epoch"])
