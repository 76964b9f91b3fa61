"""A transactional producer by hand: every request of it over a raw socket, in any version, and its answer by name.

What it keeps is what a real producer keeps: its identity, and the next sequence of each partition. A zombie is a copy
of it (`dataclasses.replace`) that its successor does not know of.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from oncelog.wire.codec import decode_exactly
from tests.support.batches import CONTROL, TRANSACTIONAL, batch_records, make_batch, read_batches
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient
from tests.support.requests import LATEST, fetch, list_offset, produce_request

COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
BUSY = {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
READ_COMMITTED = 1
RESPONSE_HEADER_BYTES = 5
RESTING = ("Empty", "CompleteCommit", "CompleteAbort")

Place = tuple[str, int]
"""Topic and partition."""


def wall_clock_ms() -> int:
    return int(time.time() * 1_000)


def name_of(code: int) -> str:
    return str(ErrorCode(code).name)


def describe_transactions(client: RawClient, *transactional_ids: str) -> Message:
    """With oncelog's own codec: kio knows no negative point in time, which here means none."""
    client.send("describe_transactions", 0, {"transactional_ids": transactional_ids})
    body: Message = decode_exactly("DescribeTransactionsResponse", 0, client.receive_frame()[RESPONSE_HEADER_BYTES:])
    return body


def state_at_rest(client: RawClient, transactional_id: str) -> str:
    """The state in which its transaction comes to rest. Kafka writes markers after it has said that it will."""

    def state() -> str:
        (told,) = describe_transactions(client, transactional_id)["transaction_states"]
        return str(told["transaction_state"])

    eventually(lambda: state() in RESTING, f"the transaction of {transactional_id} is complete")
    return state()


def await_transactions(client: RawClient) -> None:
    """Kafka creates the topic of the transactions when it is first asked, and tells of it a moment before it serves."""
    asked = {"key_type": 1, "coordinator_keys": ["anyone"]}

    def serves() -> bool:
        (found,) = client.request("find_coordinator", 4, asked)["coordinators"]
        if found["error_code"] != 0:
            return False
        (state,) = describe_transactions(client, "nobody")["transaction_states"]
        return state["error_code"] not in BUSY

    eventually(serves, "the transaction coordinator serves")


@dataclass
class HandProducer:
    client: RawClient
    transactional_id: str
    is_modern: bool = True
    """By which protocol it transacts unless a call says otherwise: 2 (KIP-890) or 1."""
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[Place, int] = field(default_factory=dict)
    answers: list[Message] = field(default_factory=list)
    """All that it was told, as it came."""
    now_ms: Callable[[], int] = wall_clock_ms

    def ask(self, api: str, version: int, body: Message) -> Message:
        answer = self.client.request(api, version, body)
        self.answers.append(answer)
        return answer

    def copy(self, **changes: Any) -> HandProducer:
        """One that knows the same now, and learns for itself from here on."""
        return dataclasses.replace(self, sequences=dict(self.sequences), answers=[], **changes)

    @property
    def _identity(self) -> Message:
        return {"producer_id": self.producer_id, "producer_epoch": self.epoch}

    @property
    def _me(self) -> Message:
        return {"transactional_id": self.transactional_id, **self._identity}

    # The coordinator's requests

    def init(self, *, version: int | None = None, timeout_ms: int = 60_000, goes_on: bool = False) -> str:
        """`goes_on`: with what it has (KIP-360)."""
        had = self._identity if goes_on else {"producer_id": -1, "producer_epoch": -1}
        body = {"transactional_id": self.transactional_id, "transaction_timeout": timeout_ms, **had}
        answer = self.ask("init_producer_id", self._version(version, 4, 5), body)
        if answer["error_code"] == 0:
            self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
            self.sequences.clear()
        return name_of(answer["error_code"])

    def begun(self) -> HandProducer:
        """This one, with an identity; whoever had its name before is fenced, and what that one left open aborted."""
        eventually(lambda: self.init() == "none", "the producer may begin")
        self.answers.clear()
        return self

    def _version(self, asked: int | None, old: int, modern: int) -> int:
        return asked if asked is not None else modern if self.is_modern else old

    def add(self, *places: Place, version: int | None = None, verify_only: bool = False) -> dict[Place, str]:
        topics = [
            {"name": topic, "partitions": [index for t, index in places if t == topic]} for topic in _names(places)
        ]
        me, version = {**self._me, "topics": topics}, self._version(version, 3, 5)
        if version < 4:
            answer = self.ask("add_partitions_to_txn", version, {f"v3_and_below_{key}": me[key] for key in me})
            results = answer["results_by_topic_v3_and_below"]
        else:
            answer = self.ask("add_partitions_to_txn", version, {"transactions": [{**me, "verify_only": verify_only}]})
            results = answer["results_by_transaction"][0]["topic_results"]
        return {
            (topic["name"], each["partition_index"]): name_of(each["partition_error_code"])
            for topic in results
            for each in topic["results_by_partition"]
        }

    def add_offsets(self, group: str, *, version: int | None = None) -> str:
        answer = self.ask("add_offsets_to_txn", self._version(version, 3, 4), {**self._me, "group_id": group})
        return name_of(answer["error_code"])

    def end(self, *, commit: bool, version: int | None = None) -> str:
        answer = self.ask("end_txn", self._version(version, 3, 5), {**self._me, "committed": commit})
        if answer["error_code"] == 0 and answer.get("producer_id", -1) != -1:
            if (answer["producer_id"], answer["producer_epoch"]) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return name_of(answer["error_code"])

    def described(self) -> Message:
        (state,) = describe_transactions(self.client, self.transactional_id)["transaction_states"]
        return dict(state)

    def rest(self) -> str:
        return state_at_rest(self.client, self.transactional_id)

    def ended(self, *, commit: bool) -> None:
        """The open transaction has this outcome, and all markers."""
        assert self.end(commit=commit) == "none"
        assert self.rest() == ("CompleteCommit" if commit else "CompleteAbort")

    # What is written

    def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        version: int | None = None,
        attributes: int = TRANSACTIONAL,
        sequence: int | None = None,
        **fields: Any,
    ) -> str:
        """One batch; its sequence counts only if it was stored."""
        place = topic, partition
        first = self.sequences.get(place, 0) if sequence is None else sequence
        batch = make_batch(
            values or [b"v"],
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=first,
            attributes=attributes,
            base_timestamp=self.now_ms(),  # one that is far from the markers' would begin a segment
        )
        fields.setdefault("transactional_id", self.transactional_id)
        request = produce_request(topic, batch, partition=partition, **fields)
        answer = self.ask("produce", self._version(version, 9, 12), request)
        ((told,),) = [each["partition_responses"] for each in answer["responses"]]
        if told["error_code"] == 0:
            self.sequences[place] = first + max(len(values), 1)
        return name_of(told["error_code"])

    def commit_offsets(
        self, group: str, *offsets: tuple[str, int, int], version: int | None = None, **member: Any
    ) -> list[str]:
        """The error of each partition."""
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "committed_offset": offset, "committed_metadata": "m"}
                    for t, index, offset in offsets
                    if t == topic
                ],
            }
            for topic in _names([(topic, index) for topic, index, _ in offsets])
        ]
        body = {**self._me, "group_id": group, "generation_id": -1, "member_id": "", "topics": topics, **member}
        answer = self.ask("txn_offset_commit", self._version(version, 3, 5), body)
        return [name_of(each["error_code"]) for topic in answer["topics"] for each in topic["partitions"]]


def _names(places: list[Place] | tuple[Place, ...]) -> list[str]:
    return list(dict.fromkeys(topic for topic, _ in places))


# What readers see


def committed(client: RawClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values that a read_committed consumer delivers."""
    answer = fetch(client, topic, partition=partition, isolation_level=READ_COMMITTED, max_wait=0)
    return visible(answer)


def seen(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    """By readers of committed records in the topic's one partition, once every transaction has its end."""
    await_stable(broker, topic)
    with RawClient(broker.address) as raw:
        return committed(raw, topic)


def await_stable(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    """Until every transaction in the topic has its end: Kafka writes markers after it has said that it will."""
    with RawClient(broker.address) as raw:

        def has_all(partition: int) -> bool:
            return last_stable_offset(raw, topic, partition) == end_offset(raw, topic, partition)

        eventually(lambda: all(map(has_all, range(partitions))), "every marker")


def visible(answer: Message) -> list[bytes | None]:
    """What a consumer makes of a read_committed answer: aborted ranges begin where the answer says, and end with the
    producer's next marker."""
    starts = sorted((each["first_offset"], each["producer_id"]) for each in answer["aborted_transactions"] or [])
    aborted: set[int] = set()
    values: list[bytes | None] = []
    for batch in read_batches(answer["records"] or b""):
        while starts and starts[0][0] <= batch.base_offset + batch.last_offset_delta:
            aborted.add(starts.pop(0)[1])
        if batch.attributes & CONTROL:
            aborted.discard(batch.producer_id)
        elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in aborted):
            values += [record.value for record in batch_records(batch)]
    return values


def uncommitted(client: RawClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """Everything that was ever written, but for markers."""
    answer = fetch(client, topic, partition=partition, max_wait=0)
    return visible({**answer, "aborted_transactions": []})


def last_stable_offset(client: RawClient, topic: str, partition: int = 0) -> int:
    return int(list_offset(client, topic, LATEST, partition=partition, isolation_level=READ_COMMITTED)["offset"])


def end_offset(client: RawClient, topic: str, partition: int = 0) -> int:
    return int(list_offset(client, topic, LATEST, partition=partition)["offset"])


def offset_of(client: RawClient, group: str, topic: str, *, require_stable: bool = False) -> int | str:
    """The committed offset of partition 0, or why there is none."""
    topics = [{"name": topic, "partition_indexes": [0]}]
    asked = {"groups": [{"group_id": group, "topics": topics}], "require_stable": require_stable}
    (found,) = client.request("offset_fetch", 8, asked)["groups"]
    ((each,),) = [named["partitions"] for named in found["topics"]]
    return name_of(each["error_code"]) if each["error_code"] else int(each["committed_offset"])
