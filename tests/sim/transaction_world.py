"""A transactional producer's real core against the model cluster with the real coordinator, and what it promises.

The user of this world is honest: begins, sends, commits or aborts, obeys what an error says, and remembers what it was
told. A world can have a successor with the same transactional id, and go on as a zombie.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.client.idempotence import Idempotence
from oncelog.client.transaction.command import Command, Kind
from oncelog.client.transaction.core import TransactionCore
from oncelog.client.transaction.model import Phase
from oncelog.client.transaction_errors import AbortNeeded
from oncelog.types import TopicPartition
from tests.sim.producer_world import PARTITIONS, TOPIC, BrokenPromiseError, ProducerWorld
from tests.sim.transaction_cluster import TransactionCluster

GROUP = GroupMetadata("readers")
SOURCE = TopicPartition("source", 0)


@dataclass
class Told:
    """A transaction as its user knows it."""

    values: list[bytes] = field(default_factory=list)
    offset: int | None = None
    """Of the source, that is committed with it."""
    asked: Kind | None = None
    outcome: Kind | None = None
    """COMMIT or ABORT once the user was told."""


class TransactionWorld(ProducerWorld):
    cluster: TransactionCluster

    def __init__(self, *, protocol: int = 2, cluster: TransactionCluster | None = None, **settings: Any) -> None:
        cluster = cluster or TransactionCluster({TOPIC: PARTITIONS}, protocol=protocol, max_message_bytes=1_000)
        settings = {"transactional_id": "mover", "transaction_timeout_ms": 60_000, "now_ms": 1_000, **settings}
        self.history: list[Told] = []
        self.fatal: Exception | None = None
        self._command: Command | None = None
        start_ms = settings.pop("now_ms")
        super().__init__(cluster=cluster, new_idempotence=Idempotence, **settings)
        self.now_ms = max(self.now_ms, start_ms)

    @property
    def transaction(self) -> TransactionCore:
        assert self.core.transaction is not None
        return self.core.transaction

    def successor(self, name: str) -> TransactionWorld:
        return TransactionWorld(cluster=self.cluster, name=name, now_ms=self.now_ms)

    # --- what the user does ---------------------------------------------------------------------------------------

    def step(self) -> None:
        """Whatever comes next before records can be sent."""
        self.listen()
        if self.fatal is not None or self._command is not None:
            return
        if self.transaction.phase is Phase.NEW:
            self._ask(self.transaction.ask_init(self._nothing))
        elif self.transaction.phase is Phase.READY:
            self.transaction.begin()
            self.history.append(Told())

    def send(self, partition: int, value_bytes: int = 20) -> bool:
        self.listen()
        if not self.is_open or self.transaction.abort_reason is not None:
            return False
        if not super().send(partition, value_bytes):
            return False
        self.history[-1].values.append(self.sent[-1].value)
        return True

    def commit_offset(self, offset: int) -> None:
        """Once in a transaction: requests for offsets have no numbers, so that a late one could undo a second one."""
        self.listen()
        if self.is_open and self.transaction.abort_reason is None and self.history[-1].offset is None:
            self.history[-1].offset = offset
            offsets = {SOURCE: OffsetAndMetadata(offset)}
            self._ask(self.transaction.ask_offsets(offsets, GROUP, self._nothing))

    def end(self, kind: Kind) -> None:
        self.listen()
        if not self.is_open:
            return
        if self.transaction.abort_reason is not None:
            kind = Kind.ABORT
        self.history[-1].asked = kind
        self._ask(self.transaction.ask_end(kind, self._nothing))

    @property
    def is_open(self) -> bool:
        return self._command is None and self.fatal is None and self.transaction.phase is Phase.OPEN

    def _ask(self, command: Command) -> None:
        self._command = command
        self._poll()
        self.listen()

    def listen(self) -> None:
        """What the last call says by now."""
        command = self._command
        self.fatal = self.fatal or self.transaction.fatal
        if command is None or not command.has_ended:
            return
        self._command = None
        if isinstance(command.error, AbortNeeded):
            self.end(Kind.ABORT)
        elif command.error is not None and command.error is not self.fatal:
            raise BrokenPromiseError(f"{command.kind} ended with {command.error!r}")
        elif command.error is None and command.kind in (Kind.COMMIT, Kind.ABORT):
            self.history[-1].outcome = command.kind

    def _nothing(self) -> None: ...

    # --- time -----------------------------------------------------------------------------------------------------

    def pass_time(self, duration_ms: int, *, healthy: bool = False) -> None:
        for _ in range(max(1, duration_ms // 50)):
            if healthy:
                self.cluster.write_markers()
            super().pass_time(min(50, duration_ms), healthy=healthy)
            self.cluster.tick(self.now_ms)

    def finish(self) -> None:
        """The trouble is over: the open transaction gets an end, and another one works."""
        self.heal()
        self.until_idle()
        if self.is_open:
            self.end(Kind.COMMIT)
            self.until_idle()
        while self.cluster.stragglers:
            self.deliver_straggler(0)
        if self.fatal is None:
            self.step()
            assert self.send(0)
            last = self.history[-1]
            self.end(Kind.COMMIT)
            self.until_idle()
            if self.fatal is None and last.outcome is not Kind.COMMIT:
                raise BrokenPromiseError("a transaction cannot be committed although all is well")

    def until_idle(self) -> None:
        for _ in range(200):
            self.pass_time(50, healthy=True)
            self.step()
            if self.fatal is not None or self.is_open:
                return
        raise BrokenPromiseError(f"a call never ends: {self._command and self._command.kind}")


# --- promises -------------------------------------------------------------------------------------------------------


def visible(cluster: TransactionCluster) -> dict[TopicPartition, list[bytes]]:
    """What a reader of committed records sees, once all is settled."""
    return {
        name: [record for record, is_committed in partition.outcomes() if is_committed]
        for name, partition in cluster.partitions.items()
    }


def everything_is_decided(cluster: TransactionCluster) -> None:
    for name, partition in cluster.partitions.items():
        undecided = [record for record, is_committed in partition.outcomes() if is_committed is None]
        assert not undecided, f"{name}: {undecided} are neither committed nor aborted"


def all_or_nothing(world: TransactionWorld) -> None:
    """Each transaction is visible as a whole, once, or not at all, and as its user was told."""
    seen = Counter(record for records in visible(world.cluster).values() for record in records)
    for told in world.history:
        counts = {seen[value] for value in told.values}
        if told.outcome is Kind.COMMIT:
            assert counts <= {1}, f"committed, but seen {counts} times: {told}"
        elif told.outcome is Kind.ABORT or told.asked is not Kind.COMMIT:
            assert counts <= {0}, f"never committed, but seen {counts} times: {told}"
        else:
            assert counts in ({0}, {1}, set()), f"torn: {told}"


def order_is_kept(world: TransactionWorld) -> None:
    numbers = {sent.value: sent.number for sent in world.sent}
    for name, records in visible(world.cluster).items():
        mine = [numbers[record] for record in records if record in numbers]
        assert all(one < other for one, other in pairwise(mine)), f"{name}: {mine}"


def offsets_go_with_their_records(world: TransactionWorld) -> None:
    committed = [told.offset for told in world.history if told.outcome is Kind.COMMIT and told.offset is not None]
    unknown = {told.offset for told in world.history if told.outcome is None and told.asked is Kind.COMMIT}
    found = world.cluster.offsets.get(GROUP.group_id, {}).get(SOURCE)
    assert found in {committed[-1] if committed else None, *unknown}, f"{found}, not {committed[-1:]} or {unknown}"
