"""A transaction coordinator with its log: appends, replays and answers in the order that the runtime keeps, and can
crash. Markers are written when the test says so."""

from __future__ import annotations

import itertools
from typing import Any

from oncelog.coordinator.effects import Caller
from oncelog.coordinator.transactions.answers import refusal
from oncelog.coordinator.transactions.effects import Effects, Markers, TransactionSettings
from oncelog.coordinator.transactions.records import TransactionRecord, decode_record, encode_record
from oncelog.coordinator.transactions.transaction import Transaction
from oncelog.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, decode_exactly, encode
from tests.coordinator.support import START_MS, Ticket

FIRST_PRODUCER_ID = 1_000
COORDINATOR_EPOCH = 7
ID = "mover"
ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 1)
NOT_AVAILABLE = 15
"""What is answered where the log cannot be written."""

V1, V2 = 4, 5
"""Versions of EndTxn by which clients of either protocol are known."""


class Rig:
    """One partition of `__transaction_state`."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.markers: list[Markers] = []
        """Those that are to be written."""
        self.append_fails = False
        self._ids = itertools.count(FIRST_PRODUCER_ID)
        self.coordinator = self._new_coordinator()
        self.apply(self.coordinator.loaded(self.now_ms))

    def _new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.settings, COORDINATOR_EPOCH, lambda: next(self._ids), lambda group: 3 if group == "third" else 0
        )

    def ask(self, api_key: ApiKey, body: Message, version: int) -> Message:
        """Over the wire: what is asked goes through the codec, and so does the answer."""
        schema = f"{api_key.schema_prefix}Request"
        request = decode_exactly(schema, version, encode(schema, version, body))
        ticket = Ticket(api_key, version)
        self.apply(self.coordinator.handle(api_key, request, Caller(ticket, "c", "/127.0.0.1", version), self.now_ms))
        if ticket.answer is None:
            ticket.reply(refusal(api_key, request, version, NOT_AVAILABLE))
        assert ticket.answer is not None
        return ticket.answer

    def apply(self, effects: Effects) -> None:
        if effects.records and self.append_fails:
            return
        for record in effects.records:
            self.log.append(encode_record(record))
            self.coordinator.replay(record)
        for reply in effects.replies:
            assert isinstance(reply.ticket, Ticket)
            reply.ticket.reply(reply.body)
        self.markers.extend(effects.markers)

    def write_markers(self) -> None:
        """All that are to be written, are."""
        while self.markers:
            markers = self.markers.pop(0)
            self.apply(self.coordinator.markers_written(markers, markers.partitions, self.now_ms))

    def pass_time(self, ms: int) -> None:
        """Time goes on, and every deadline on its way is kept."""
        end_ms = self.now_ms + ms
        for _ in range(1_000):
            due_ms = self.coordinator.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.apply(self.coordinator.expire(self.now_ms))
        else:
            raise AssertionError("the coordinator never comes to rest")
        self.now_ms = end_ms

    def crash(self) -> None:
        """kill -9, and a start from the log; markers on their way are lost, or were written unheard."""
        self.markers.clear()
        self.coordinator = self.replayed()
        self.apply(self.coordinator.loaded(self.now_ms))

    def replayed(self) -> TransactionCoordinator:
        """Another coordinator that knows the log alone."""
        other = self._new_coordinator()
        for record in self.records():
            other.replay(record)
        return other

    def records(self) -> list[TransactionRecord]:
        records = [decode_record(key, value) for key, value in self.log]
        return [record for record in records if record is not None]

    def put(self, transaction: Transaction, transactional_id: str = ID) -> None:
        """As if it had come to this."""
        self.apply(Effects([TransactionRecord(transactional_id, transaction)], [], []))

    @property
    def transaction(self) -> Transaction:
        return self.coordinator.hard_state()[ID]

    @property
    def state(self) -> str:
        return self.transaction.state.label

    # Requests with what matters in them

    def init(
        self,
        producer_id: int = -1,
        epoch: int = -1,
        *,
        transactional_id: str = ID,
        timeout_ms: int = 60_000,
        version: int = 5,
    ) -> tuple[int, int, int]:
        """Error, producer id, epoch."""
        body = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        body |= {"producer_id": producer_id, "producer_epoch": epoch}
        answer = self.ask(ApiKey.INIT_PRODUCER_ID, body, version)
        return answer["error_code"], answer["producer_id"], answer["producer_epoch"]

    def add(
        self, producer_id: int, epoch: int, *partitions: TopicPartition, version: int = 3, verify_only: bool = False
    ) -> list[int]:
        """The error of each partition."""
        topics = [{"name": each.topic, "partitions": [each.partition]} for each in partitions or (ORDERS,)]
        who = {"transactional_id": ID, "producer_id": producer_id, "producer_epoch": epoch, "topics": topics}
        if version < 4:
            body: Message = {f"v3_and_below_{name}": value for name, value in who.items()}
            results = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, body, version)["results_by_topic_v3_and_below"]
        else:
            body = {"transactions": [who | {"verify_only": verify_only}]}
            answer = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, body, version)
            results = answer["results_by_transaction"][0]["topic_results"]
        return [part["partition_error_code"] for topic in results for part in topic["results_by_partition"]]

    def add_offsets(self, producer_id: int, epoch: int, group_id: str = "grp", version: int = 4) -> int:
        body = {"transactional_id": ID, "producer_id": producer_id, "producer_epoch": epoch, "group_id": group_id}
        code: int = self.ask(ApiKey.ADD_OFFSETS_TO_TXN, body, version)["error_code"]
        return code

    def end(self, producer_id: int, epoch: int, *, commit: bool, version: int = V2) -> tuple[int, int, int]:
        """Error, producer id, epoch; the latter two are of protocol 2."""
        body = {"transactional_id": ID, "producer_id": producer_id, "producer_epoch": epoch, "committed": commit}
        answer = self.ask(ApiKey.END_TXN, body, version)
        return answer["error_code"], answer.get("producer_id", -1), answer.get("producer_epoch", -1)

    def listed(self, version: int = 2, **filters: Any) -> Message:
        body: Message = {"state_filters": [], "producer_id_filters": []}
        return self.ask(ApiKey.LIST_TRANSACTIONS, body | filters, version)

    def described(self, transactional_id: str = ID) -> Message:
        answer = self.ask(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [transactional_id]}, 0)
        state: Message = answer["transaction_states"][0]
        return state
