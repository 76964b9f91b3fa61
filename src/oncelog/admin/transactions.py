"""The part of `Admin` that deals with producers and their transactions: who is where, and how to end what is stuck.

Coordinators are asked about transactional ids, leaders about what partitions remember of producers. The two may differ:
a transaction that a partition has open and no coordinator knows of hangs, and readers of committed records wait before
it until somebody aborts it there. Every change here may be repeated, and is, after a lost answer.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator

from oncelog import clock
from oncelog.admin.coordinators import CoordinatorAdmin, KeyType
from oncelog.admin.ending import Ended, Ending, Next
from oncelog.admin.values import (
    FencedProducer,
    HangingTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from oncelog.client import arguments as checked
from oncelog.client.arguments import PartitionInput, Partitions
from oncelog.client.blocking import BrokersUnreachable, ConnectionLost
from oncelog.client.leaders import ask_leaders, raise_error
from oncelog.client.metadata import Node
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.client.transaction_errors import OutcomeUnknown, TransactionError
from oncelog.errors import (
    NONE,
    ConcurrentTransactions,
    InvalidRegularExpression,
    InvalidRequest,
    KafkaError,
    TransactionalIdNotFound,
    UnsupportedVersion,
)
from oncelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

NO_COORDINATOR_EPOCH = -1
NO_TRANSACTION = -1
NO_DURATION = -1

LIST_BY_DURATION, LIST_BY_PATTERN = 1, 2
"""The first versions of ListTransactions that can."""

TRANSACTION_FEATURE = "transaction.version"
PROTOCOL_2 = 2
LAST_END_BY_PROTOCOL_1 = 4

MAX_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000
"""The default of brokers' `transaction.max.timeout.ms`: no transaction may stay open for longer."""


class TransactionAdmin(CoordinatorAdmin):
    # --- looking ----------------------------------------------------------------------------------------------

    def describe_producers(self, partitions: Partitions) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that each partition's leader remembers, by producer id."""
        wanted = checked.partitions(partitions)

        def request(some: list[TopicPartition]) -> Message:
            return {"topics": _indexes_by_topic(some)}

        answers = ask_leaders(self._client, ApiKey.DESCRIBE_PRODUCERS, wanted, request)
        return {
            partition: tuple(
                sorted(map(_producer_state, one["active_producers"]), key=lambda producer: producer.producer_id)
            )
            for partition, one in answers.items()
        }

    def list_transactions(
        self,
        *,
        states: str | Collection[str] = (),
        producer_ids: Collection[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Every transactional id of the cluster, by name; filtered, if anything is given: by state, by producer id, by
        how long ago the last transaction began (ended or not, and ids without any count as old: name states as well),
        by a regular expression that the whole id matches.

        Raises InvalidRequest for a state that there is not, InvalidRegularExpression, and UnsupportedVersion where a
        broker cannot filter so.
        """
        request: Message = {
            "state_filters": checked.texts(states, "states"),
            "producer_id_filters": [checked.whole_number(one, "each of producer_ids") for one in producer_ids],
            "duration_filter": NO_DURATION
            if older_than_ms is None
            else checked.whole_number(older_than_ms, "older_than_ms", least=0),
            "transactional_id_pattern": None if pattern is None else checked.text(pattern, "pattern"),
        }
        needed = LIST_BY_PATTERN if pattern is not None else LIST_BY_DURATION if older_than_ms is not None else 0

        def ask() -> list[TransactionListing]:
            found = []
            for node in self._client.refresh_metadata(()).nodes.values():
                found += self._transactions_of(node, request, needed)
            return found

        return sorted(self._client.retrying(ask), key=lambda one: one.transactional_id)

    def _transactions_of(self, node: Node, request: Message, needed_version: int) -> list[TransactionListing]:
        version = self._connection_to(node).version_of(ApiKey.LIST_TRANSACTIONS)
        if version < needed_version:
            raise UnsupportedVersion(
                f"broker {node.node_id} cannot filter transactions like this (ListTransactions {version}, "
                f"not {needed_version}); leave the filter out"
            )
        answer = self._client.request(ApiKey.LIST_TRANSACTIONS, request, node=node)
        if answer["error_code"] == InvalidRegularExpression.code:
            pattern = request["transactional_id_pattern"]
            raise InvalidRegularExpression(f"{pattern!r} is not a regular expression that brokers understand (RE2's)")
        raise_error(answer, str(node.node_id), "transactions of broker")
        if answer["unknown_state_filters"]:
            raise InvalidRequest(
                f"there is no state {answer['unknown_state_filters'][0]!r} of transactions; "
                f"there are {', '.join(TransactionState)}"
            )
        return [
            TransactionListing(one["transactional_id"], node.node_id, one["producer_id"], one["transaction_state"])
            for one in answer["transaction_states"]
        ]

    def describe_transactions(self, transactional_ids: str | Iterable[str]) -> dict[str, TransactionDescription]:
        """What the coordinators know of transactional ids. Raises TransactionalIdNotFound."""
        found = self._describe_known(checked.texts(transactional_ids, "transactional_ids"))
        for name, description in found.items():
            if description is None:
                raise TransactionalIdNotFound(f"there is no transactional id {name!r}; see `oncelog transactions list`")
        return {name: description for name, description in found.items() if description is not None}

    def _describe_known(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | None]:
        """None for those that no coordinator knows."""
        wanted = list(dict.fromkeys(transactional_ids))
        found: dict[str, TransactionDescription | None] = {}

        def attempt() -> None:
            missing = [name for name in wanted if name not in found]
            if missing:
                for node, some in self._by_coordinator(KeyType.TRANSACTION, missing).items():
                    found.update(self._describe_at(node, some))

        self._client.retrying(attempt)
        return {name: found[name] for name in wanted}

    def _describe_at(
        self, node: Node, names: list[str], *, timeout_ms: int | None = None
    ) -> dict[str, TransactionDescription | None]:
        """Asks once."""
        request: Message = {"transactional_ids": names}
        answer = self._client.request(ApiKey.DESCRIBE_TRANSACTIONS, request, node=node, timeout_ms=timeout_ms)
        found: dict[str, TransactionDescription | None] = {}
        for one in answer["transaction_states"]:
            name = one["transactional_id"]
            if one["error_code"] == TransactionalIdNotFound.code:
                found[name] = None
            else:
                raise_error(one, name, "transactional id")
                found[name] = _description(one, node)
        return found

    def find_hanging_transactions(
        self,
        partitions: Partitions,
        *,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    ) -> list[HangingTransaction]:
        """Transactions that partitions have open, that wrote nothing for so long, and that no coordinator will end."""
        timeout_ms = checked.whole_number(max_transaction_timeout_ms, "max_transaction_timeout_ms", least=0)
        before_ms = clock.wall_ms() - timeout_ms
        silent = {
            (partition, producer)
            for partition, producer in self._open_in(checked.partitions(partitions))
            if producer.last_timestamp_ms < before_ms
        }
        if not silent:
            return []
        listed = self.list_transactions(producer_ids={producer.producer_id for _, producer in silent})
        name_of = {one.producer_id: one.transactional_id for one in listed}
        known = self._describe_known(name_of.values())
        hanging = []
        # Looked at again: what has ended since the first look is not known to its coordinator either.
        for partition, producer in self._open_in({partition for partition, _ in silent}):
            name = name_of.get(producer.producer_id)
            description = None if name is None else known[name]
            is_awaited = description is not None and partition in description.partitions
            if (partition, producer) in silent and not is_awaited:
                hanging.append(HangingTransaction(partition, producer, name))
        return sorted(hanging, key=lambda one: (one.partition, one.producer.producer_id))

    def _open_in(self, partitions: Iterable[TopicPartition]) -> list[tuple[TopicPartition, ProducerState]]:
        return [
            (partition, producer)
            for partition, producers in self.describe_producers(partitions).items()
            for producer in producers
            if producer.current_transaction_start_offset is not None
        ]

    # --- ending -----------------------------------------------------------------------------------------------

    def abort_hanging(
        self, partition: PartitionInput, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write an abort marker to one partition, past the coordinator. For transactions that hang, and no others: one
        that its coordinator commits later would be committed without this partition.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced.
        """
        place = checked.partition(partition)
        marker: Message = {
            "producer_id": checked.whole_number(producer_id, "producer_id"),
            "producer_epoch": checked.whole_number(producer_epoch, "producer_epoch"),
            "transaction_result": False,
            "topics": _indexes_by_topic([place]),
            "coordinator_epoch": checked.whole_number(coordinator_epoch, "coordinator_epoch"),
        }

        def attempt() -> None:
            leader = self._client.leader_of(place)
            answer = self._client.request(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, node=leader)
            ((result,),) = [topic["partitions"] for one in answer["markers"] for topic in one["topics"]]
            raise_error(result, str(place), "partition")

        self._client.retrying(attempt)

    def fence_producers(self, transactional_ids: str | Iterable[str]) -> dict[str, FencedProducer]:
        """Take transactional ids away from their producers, whose open transactions are aborted. They cannot write in
        another one until they are started anew."""
        names = checked.texts(transactional_ids, "transactional_ids")
        return {name: self._fence(name) for name in dict.fromkeys(names)}

    def _fence(self, transactional_id: str) -> FencedProducer:
        request: Message = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": self._client.config.request_timeout_ms,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
        }

        def ask(coordinator: Node) -> FencedProducer:
            # While the open transaction is being aborted this is answered CONCURRENT_TRANSACTIONS, and asked again.
            answer = self._client.request(ApiKey.INIT_PRODUCER_ID, request, node=coordinator)
            raise_error(answer, transactional_id, "transactional id")
            return FencedProducer(answer["producer_id"], answer["producer_epoch"])

        return self._at_coordinator(KeyType.TRANSACTION, transactional_id, ask)

    def end_transaction(self, prepared: PreparedTransaction, *, commit: bool, timeout: float | None = None) -> Ended:
        """End a transaction that another process wrote and left open (`Producer.prepare`), whether that one still lives
        or not. Asks until the outcome is certain, for at most `timeout` seconds (None: `default.api.timeout.ms`). May
        be called again, after a crash as well: to end in the same way what has ended so is a success.

        Raises EndedOtherwise (for certain, in the other way: its timeout passed, for example), OutcomeForgotten (it
        ended, and nobody can tell how: a successor has taken the transactional id), NothingToEnd, OutcomeUnknown (no
        answer in time: call it again), or what the coordinator refuses for good.
        """
        checked.of_kind(prepared, PreparedTransaction, "what Producer.prepare() returned, a PreparedTransaction,")
        ending = Ending(prepared, Ended.COMMITTED if commit else Ended.ABORTED)
        given_ms = checked.timeout_ms(timeout)
        timeout_ms = self._client.config.default_api_timeout_ms if given_ms is None else max(given_ms, 1)
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            return self._client.retrying(lambda: self._try_to_end(ending, deadline), timeout_ms=timeout_ms)
        except (ConnectionLost, KafkaError) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                raise
            raise OutcomeUnknown(
                f"{ending.name} has perhaps been {ending.wanted.value}, no certain answer came in time ({error}); "
                "call end_transaction again"
            ) from error

    def commit_transactions(
        self, prepared: Collection[PreparedTransaction], *, timeout: float | None = None
    ) -> dict[PreparedTransaction, Ended | TransactionError]:
        """Commit many prepared transactions: what `end_transaction` returns or raises for each. All of a coordinator
        are asked for at once; for those about which its first answer leaves a doubt, singly."""
        if isinstance(prepared, PreparedTransaction):  # a tuple, which looks like several
            prepared = [prepared]
        for one in prepared:
            checked.of_kind(one, PreparedTransaction, "what Producer.prepare() returned, a PreparedTransaction,")
        ended: dict[PreparedTransaction, Ended | TransactionError] = {}
        try:
            for one in self._commit_at_once(prepared):
                ended[one] = Ended.COMMITTED
        except (BrokersUnreachable, ConnectionLost, KafkaError):
            pass  # asked again below
        for one in prepared:
            if one not in ended:
                try:
                    ended[one] = self.end_transaction(one, commit=True, timeout=timeout)
                except TransactionError as error:
                    ended[one] = error
        return ended

    def _commit_at_once(self, prepared: Collection[PreparedTransaction]) -> Iterator[PreparedTransaction]:
        """Those that were committed, for certain, by one round of questions."""
        by_name = {one.transactional_id: one for one in prepared}
        for coordinator, names in self._by_coordinator(KeyType.TRANSACTION, by_name).items():
            features = self._connection_to(coordinator).features
            by_protocol_2 = features.get(TRANSACTION_FEATURE, 0) >= PROTOCOL_2
            some = [by_name[name] for name in names]
            answers = self._client.request_all(
                ApiKey.END_TXN,
                [{**one._asdict(), "committed": True} for one in some],
                node=coordinator,
                max_version=None if by_protocol_2 else LAST_END_BY_PROTOCOL_1,
            )
            yield from (one for one, answer in zip(some, answers, strict=True) if answer["error_code"] == NONE)

    def _try_to_end(self, ending: Ending, deadline: float) -> Ended:
        """One round of questions. Raises what is worth another one."""
        name = ending.prepared.transactional_id
        try:
            coordinator = self._find_coordinator(KeyType.TRANSACTION, name, timeout_ms=self._left_ms(deadline))
        except BrokersUnreachable as error:
            raise ConnectionLost(str(error)) from None  # one that is just starting, perhaps
        features = self._connection_to(coordinator).features
        by_protocol_2 = features.get(TRANSACTION_FEATURE, 0) >= PROTOCOL_2
        step: Ended | Next = ending.first(by_protocol_2=by_protocol_2)
        was_asked = False
        while not isinstance(step, Ended):
            if step is Next.LOOK:
                found = self._describe_at(coordinator, [name], timeout_ms=self._left_ms(deadline))
                step = ending.after_look(found[name], by_protocol_2=by_protocol_2)
            elif was_asked:
                raise ConcurrentTransactions(f"{ending.name} is still open")
            else:
                was_asked = True
                step = ending.after_end(self._ask_to_end(coordinator, ending, by_protocol_2, self._left_ms(deadline)))
        return step

    def _ask_to_end(self, coordinator: Node, ending: Ending, by_protocol_2: bool, timeout_ms: int) -> int:
        """The error code of the answer."""
        request: Message = {**ending.prepared._asdict(), "committed": ending.wanted is Ended.COMMITTED}
        max_version = None if by_protocol_2 else LAST_END_BY_PROTOCOL_1
        answer = self._client.request(
            ApiKey.END_TXN, request, node=coordinator, max_version=max_version, timeout_ms=timeout_ms
        )
        code: int = answer["error_code"]
        return code

    def _left_ms(self, deadline: float) -> int:
        """How long a question may take; the last one a moment at least."""
        left_ms = int((deadline - time.monotonic()) * 1000)
        return max(min(left_ms, self._client.config.request_timeout_ms), 1)


def _indexes_by_topic(partitions: Iterable[TopicPartition]) -> list[Message]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]


def _producer_state(message: Message) -> ProducerState:
    coordinator_epoch = message["coordinator_epoch"]
    start_offset = message["current_txn_start_offset"]
    return ProducerState(
        producer_id=message["producer_id"],
        producer_epoch=message["producer_epoch"],
        last_sequence=message["last_sequence"],
        last_timestamp_ms=message["last_timestamp"],
        coordinator_epoch=None if coordinator_epoch == NO_COORDINATOR_EPOCH else coordinator_epoch,
        current_transaction_start_offset=None if start_offset == NO_TRANSACTION else start_offset,
    )


def _description(message: Message, coordinator: Node) -> TransactionDescription:
    start_ms = message["transaction_start_time_ms"]
    return TransactionDescription(
        transactional_id=message["transactional_id"],
        coordinator_id=coordinator.node_id,
        state=message["transaction_state"],
        producer_id=message["producer_id"],
        producer_epoch=message["producer_epoch"],
        timeout_ms=message["transaction_timeout_ms"],
        start_ms=None if start_ms == NO_TIMESTAMP else start_ms,
        partitions=tuple(
            sorted(
                TopicPartition(topic["topic"], index) for topic in message["topics"] for index in topic["partitions"]
            )
        ),
    )
