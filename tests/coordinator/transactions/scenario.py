"""One long conversation about transactions, for any coordinator: what it asks is fixed, the answers are compared.

`capture` holds it with Apache Kafka and keeps the answers; a test holds it with ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from oncelog.coordinator.transactions.transaction import Identity
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

TOPICS = ("orders", "bills")
PARTITIONS = 2
CONCURRENT_TRANSACTIONS = 51
SHORT_TIMEOUT_MS = 1_000
OLD, NEW = 3, 5
"""Versions of EndTxn of a client of either protocol."""


class Connection(Protocol):
    def ask(self, api_key: ApiKey, version: int, body: Message) -> Message: ...

    def await_end(self, is_over: Callable[[], bool]) -> None:
        """Until markers are written, and what takes too long is aborted."""
        ...


class Talk:
    """What is asked, with what was heard last; producer ids by the order in which they appear."""

    def __init__(self, connection: Connection, transactional_id: str) -> None:
        self._connection = connection
        self._id = transactional_id
        self.me = Identity(-1, -1)
        self.heard: list[tuple[str, Any]] = []
        self._names: dict[int, int] = {-1: -1, 0: 0}

    def _note(self, title: str, answer: Any) -> None:
        self.heard.append((f"{self._id}: {title}", answer))

    def _named(self, producer_id: int) -> int:
        return self._names.setdefault(producer_id, len(self._names))

    def init(self, had: Identity | None = None, version: int = 4, timeout_ms: int = 60_000) -> None:
        said = had or Identity(-1, -1)
        body = {"transactional_id": self._id, "transaction_timeout_ms": timeout_ms}
        body |= {"producer_id": said.producer_id, "producer_epoch": said.epoch}
        answer = self._connection.ask(ApiKey.INIT_PRODUCER_ID, version, body)
        if answer["error_code"] == 0:
            self.me = Identity(answer["producer_id"], answer["producer_epoch"])
        named = self._named(answer["producer_id"])
        self._note(f"init v{version}, had {had is not None}", (answer["error_code"], named, answer["producer_epoch"]))

    def end(
        self, *, commit: bool, version: int = NEW, epoch: int | None = None, producer_id: int | None = None
    ) -> None:
        who = Identity(
            self.me.producer_id if producer_id is None else producer_id, self.me.epoch if epoch is None else epoch
        )
        body = {"transactional_id": self._id, "producer_id": who.producer_id, "producer_epoch": who.epoch}
        answer = self._connection.ask(ApiKey.END_TXN, version, body | {"committed": commit})
        told: tuple[int, ...] = (answer["error_code"],)
        if version >= NEW:
            told = (answer["error_code"], self._named(answer["producer_id"]), answer["producer_epoch"])
            if answer["error_code"] == 0:
                self.me = Identity(answer["producer_id"], answer["producer_epoch"])
        self._note(f"{'commit' if commit else 'abort'} v{version} as epoch {who.epoch}", told)

    def add(self, topic: str = "orders", *, version: int = 3, epoch: int | None = None, **fields: Any) -> None:
        """Until the transaction before is complete the answer is to ask again."""
        part: Message = {"transactional_id": self._id, "producer_id": self.me.producer_id}
        part |= {"producer_epoch": self.me.epoch if epoch is None else epoch}
        part |= {"topics": [{"name": topic, "partitions": [0, 1]}]} | fields
        body: Message = {"transactions": [part]}
        if version < 4:
            body = {f"v3_and_below_{name}": value for name, value in part.items()}
        answer = self._connection.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, body)
        answer.pop("throttle_time_ms")
        self._note(f"add {topic} v{version} {fields.get('verify_only', '')}", _sorted(answer))

    def add_offsets(self, version: int = 3, epoch: int | None = None) -> None:
        body = {"transactional_id": self._id, "producer_id": self.me.producer_id, "group_id": "g"}
        body |= {"producer_epoch": self.me.epoch if epoch is None else epoch}
        answer = self._connection.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, body)
        self._note(f"add offsets v{version}", answer["error_code"])

    def _described(self) -> Message:
        body = {"transactional_ids": [self._id]}
        state: Message = self._connection.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, body)["transaction_states"][0]
        return state

    def describe(self) -> None:
        state = self._described()
        state["producer_id"] = self._named(state["producer_id"])
        state["transaction_start_time_ms"] = state["transaction_start_time_ms"] > 0
        self._note("describe", _sorted(state))

    def list(self, version: int = 2, **filters: Any) -> None:
        body: Message = {"state_filters": [], "producer_id_filters": []} | filters
        answer = self._connection.ask(ApiKey.LIST_TRANSACTIONS, version, body)
        found = sorted((each["transactional_id"], each["transaction_state"]) for each in answer["transaction_states"])
        heard = (answer["error_code"], sorted(answer["unknown_state_filters"]), found)
        self._note(f"list v{version} {filters}", heard)

    def rest(self) -> None:
        """Until no transaction is open."""
        self._connection.await_end(lambda: self._described()["transaction_state"] in _RESTING)
        self.describe()

    def rest_aborted(self) -> None:
        """Until the open transaction was aborted for its length."""
        self._connection.await_end(lambda: self._described()["transaction_state"] == "CompleteAbort")
        self.describe()


_RESTING = ("Empty", "CompleteCommit", "CompleteAbort")


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(each) for each in value), key=repr)
    return value


def hold(connection: Connection) -> Iterator[tuple[str, Any]]:
    for name, conversation in _CONVERSATIONS.items():
        talk = Talk(connection, name)
        conversation(talk)
        yield from talk.heard


def _by_protocol_1(talk: Talk) -> None:
    talk.describe()
    talk.add()
    talk.end(commit=True, version=OLD)
    talk.init()
    talk.describe()
    talk.end(commit=True, version=OLD)
    talk.end(commit=False, version=OLD)
    for commit in (True, False):
        talk.add()
        talk.add()
        talk.add_offsets()
        talk.describe()
        talk.end(commit=commit, version=OLD)
        talk.rest()
        talk.end(commit=commit, version=OLD)
        talk.end(commit=not commit, version=OLD)
    for version in (0, 1, 2):
        talk.end(commit=True, version=version, epoch=7)
        talk.add(version=version, epoch=7)
        talk.add_offsets(version=version, epoch=7)
    talk.end(commit=True, version=OLD, producer_id=9_999)


def _by_protocol_2(talk: Talk) -> None:
    talk.init(version=5)
    talk.end(commit=True)
    talk.end(commit=False)
    talk.rest()
    for commit in (True, False, True):
        talk.add(version=5)
        talk.add("bills", version=5)
        before = talk.me.epoch
        talk.end(commit=commit, epoch=before - 1)
        talk.end(commit=commit)
        talk.rest()
        talk.end(commit=commit, epoch=before)
        talk.end(commit=not commit, epoch=before)
        talk.end(commit=commit, epoch=before - 1)
        talk.end(commit=commit, epoch=before + 5)
    talk.end(commit=True)
    talk.end(commit=False)
    talk.rest()
    talk.end(commit=True, producer_id=9_999)


def _verifying(talk: Talk) -> None:
    talk.init()
    for version in (4, 5):
        talk.add(version=version, verify_only=True)
    talk.add()
    for version in (4, 5):
        talk.add(version=version, verify_only=True)
        talk.add("bills", version=version, verify_only=True)
        talk.add(version=version, verify_only=True, epoch=9)
    talk.list()
    talk.end(commit=True, version=OLD)
    talk.rest()
    talk.add(version=5, verify_only=True)


def _successors(talk: Talk) -> None:
    talk.init()
    talk.init()
    first = talk.me
    talk.init(first)
    talk.init(first)
    talk.init(Identity(first.producer_id, 0))
    talk.init(Identity(first.producer_id, 0), version=3)
    talk.init(Identity(first.producer_id + 77, 0))
    talk.init(Identity(-1, 3))
    talk.init(timeout_ms=900_001)
    talk.init(timeout_ms=0)
    talk.add()
    zombie = talk.me
    talk.init()
    talk.rest()
    talk.init()
    talk.add()
    talk.end(commit=True, epoch=zombie.epoch)
    talk.end(commit=True, epoch=zombie.epoch, version=OLD)
    talk.add(epoch=zombie.epoch)
    talk.describe()
    talk.init(talk.me)
    talk.rest()
    talk.init(talk.me)
    talk.init(talk.me)


def _late(talk: Talk) -> None:
    """A transaction that takes too long."""
    for version, add_version in ((OLD, 3), (4, 3), (NEW, 5)):
        for commit in (True, False):
            talk.init(timeout_ms=SHORT_TIMEOUT_MS)
            talk.add(version=add_version)
            talk.rest_aborted()
            talk.end(commit=commit, version=version)
            talk.rest()


def _names(talk: Talk) -> None:
    talk.init()
    talk.add()
    for filters in (
        {"state_filters": ["Ongoing"]},
        {"state_filters": ["Ongoing", "ongoing", "Nonsense"]},
        {"state_filters": ["Nonsense"]},
        {"state_filters": ["Dead"]},
        {"producer_id_filters": [4_711_000]},
        {"transactional_id_pattern": "na.*"},
        {"transactional_id_pattern": "na"},
        {"transactional_id_pattern": "("},
        {"transactional_id_pattern": ""},
        {"duration_filter": 3_600_000},
        {"duration_filter": -1},
    ):
        talk.list(**filters)
    talk.list(version=0)
    talk.end(commit=False, version=OLD)
    talk.rest()


def _no_name(talk: Talk) -> None:
    talk.init()
    talk.add()
    talk.add(version=5)
    talk.add(version=5, verify_only=True)
    talk.add_offsets()
    talk.end(commit=True)
    talk.describe()


_CONVERSATIONS: dict[str, Callable[[Talk], None]] = {
    "old": _by_protocol_1,
    "new": _by_protocol_2,
    "verified": _verifying,
    "successors": _successors,
    "late": _late,
    "names": _names,
    "": _no_name,
}
