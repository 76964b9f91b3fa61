"""A group of whole consumers over model logs and a real coordinator, with a fake clock; a seed replays it.

The world keeps the books: what each member was handed, what its user is done with, what was committed. Its promises are
checked with every record and every offset commit, the others by `finish`.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TopicPartition
from tests.sim.group_member import Member
from tests.sim.model_group import GroupCluster, GroupLine

LATENCY_MS = 3
FETCH_WAIT_MS = 100
SETTLE_MS = 120_000
"""More than all timeouts together; the world settles in a fraction of it."""


class BrokenPromiseError(AssertionError):
    """The group did what it must never do."""


class GroupWorld:
    topic = "t"

    def __init__(self, partitions: int, chance: random.Random) -> None:
        self.now_ms = 1_000_000
        self.chance = chance
        self.cluster = GroupCluster(self.topic, partitions, self._offset_committed)
        self.members: list[Member] = []
        self.handed: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        self.done: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        self.done_up_to: defaultdict[TopicPartition, int] = defaultdict(int)
        self.committed: dict[TopicPartition, int] = {}
        self.repeated = 0
        """Records that somebody was already done with when they were handed out."""
        self.garble: Callable[[bytes], bytes] = lambda answer: answer
        """What becomes of an answer on its way."""
        self._next: dict[tuple[str, TopicPartition], int | None] = {}
        """Which record each owner gets next; None before its first."""
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = count()

    # --- what happens -----------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.is_alive]

    @property
    def staying(self) -> list[Member]:
        return [member for member in self.alive if not member.is_leaving]

    def join(self, style: str, **settings: Any) -> Member:
        member = Member(self, f"m{len(self.members)}", style, settings)
        self.members.append(member)
        member.start()
        return member

    def append(self, partition: int, records: int) -> None:
        log = self.cluster.logs[TopicPartition(self.topic, partition)]
        log.append(*(f"{partition}:{log.end_offset + index}".encode() for index in range(records)))
        for line in list(self.cluster.lines):
            self.serve(line)

    def serve(self, line: GroupLine) -> None:
        self.cluster.serve(line, self.now_ms, FETCH_WAIT_MS)
        if line.waits_since_ms is not None:
            self.at(line.waits_since_ms + FETCH_WAIT_MS, lambda: self.cluster.serve(line, self.now_ms, FETCH_WAIT_MS))

    def jump(self, duration_ms: int) -> None:
        """The whole machine sleeps: for everybody the clock jumps."""
        self.now_ms += duration_ms

    # --- time -------------------------------------------------------------------------------------------------------

    def at(self, at_ms: int, call: Callable[[], object]) -> None:
        heapq.heappush(self._events, (max(at_ms, self.now_ms), next(self._numbers), call))

    def soon(self, call: Callable[[], object]) -> None:
        self.at(self.now_ms + LATENCY_MS, call)

    def pass_time(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while True:
            for member in self.alive:
                member.receive()
            deadline_ms = self.cluster.next_deadline_ms()
            next_ms = self._events[0][0] if self._events else end_ms + 1
            if deadline_ms is not None and deadline_ms < next_ms:
                next_ms = deadline_ms
            if next_ms > end_ms:
                self.now_ms = max(self.now_ms, end_ms)
                return
            self.now_ms = max(self.now_ms, next_ms)
            self.cluster.tick(self.now_ms)
            if self._events and self._events[0][0] <= self.now_ms:
                heapq.heappop(self._events)[2]()
            for line in [line for line in self.cluster.lines if line.requests and line.waits_since_ms is None]:
                self.serve(line)

    def finish(self) -> None:
        """The trouble is over: all is read, done with and committed, by members that own everything."""
        self.cluster.heal()
        end_ms = self.now_ms + SETTLE_MS
        while not self._is_complete():
            if self.now_ms > end_ms:
                raise BrokenPromiseError(f"not all is read in {SETTLE_MS} ms: {self._state()}")
            self.pass_time(200)
        for member in self.alive:
            if member.core.fatal is not None and not member.is_leaving:
                raise BrokenPromiseError(f"{member} gave up: {member.core.fatal!r}")

    def _is_complete(self) -> bool:
        ends = {partition: log.end_offset for partition, log in self.cluster.logs.items()}
        return all(self.done[partition].issuperset(range(end)) for partition, end in ends.items())

    def _state(self) -> str:
        unread = {
            str(partition): sorted(set(range(log.end_offset)) - self.done[partition])[:5]
            for partition, log in self.cluster.logs.items()
        }
        return f"{unread} of {self.alive}, whose errors are {[member.errors[-3:] for member in self.alive]}"

    # --- the books --------------------------------------------------------------------------------------------------

    def assigned(self, member: Member, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._next[member.name, partition] = None

    def let_go(self, member: Member, partitions: Iterable[TopicPartition] | None) -> None:
        """The member has given these up (None: all), or knows that it lost them."""
        for name, partition in list(self._next):
            if name == member.name and (partitions is None or partition in set(partitions)):
                del self._next[name, partition]

    def handed_out(self, member: Member, records: list[ConsumerRecord]) -> None:
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            owner_gets_what_is_next(self, member, partition, record)
            self.repeated += record.offset in self.done[partition]
            self.handed[partition].add(record.offset)
            self._next[member.name, partition] = record.offset + 1
        one_member_hands_out(self, member, {TopicPartition(record.topic, record.partition) for record in records})

    def next_of(self, member: Member, partition: TopicPartition) -> int | None:
        if (member.name, partition) not in self._next:
            raise BrokenPromiseError(f"{member} hands out {partition}, which it has given up")
        return self._next[member.name, partition]

    def done_with(self, records: list[ConsumerRecord]) -> None:
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self.done[partition].add(record.offset)
            self.done_up_to[partition] = max(self.done_up_to[partition], record.offset + 1)

    def _offset_committed(self, partition: TopicPartition, offset: int) -> None:
        offsets_are_not_ahead(self, partition, offset)
        offsets_do_not_go_back(self, partition, offset)
        self.committed[partition] = offset


# --- promises ---------------------------------------------------------------------------------------------------------


def owner_gets_what_is_next(
    world: GroupWorld, member: Member, partition: TopicPartition, record: ConsumerRecord
) -> None:
    """In order, with nothing left out, and only to who owns the partition; first of all what is not committed yet."""
    expected = world.next_of(member, partition)
    if expected is None and record.offset > world.done_up_to[partition]:
        raise BrokenPromiseError(
            f"{member} begins {partition} at {record.offset}: {world.done_up_to[partition]} is next"
        )
    if expected is not None and record.offset != expected:
        raise BrokenPromiseError(f"{member} got {partition} {record.offset} where {expected} is next")
    if record.value != f"{partition.partition}:{record.offset}".encode():
        raise BrokenPromiseError(f"{member} got {record.value!r} at {partition} {record.offset}")


def one_member_hands_out(world: GroupWorld, member: Member, partitions: set[TopicPartition]) -> None:
    """Of all whom the coordinator counts as members: what one is handed, no other one owns."""
    known = world.cluster.members()
    if not partitions or member.core.identity.member_id not in known:
        return
    for other in world.alive:
        both = partitions & other.core.assignment
        if other is not member and both and other.core.identity.member_id in known:
            raise BrokenPromiseError(f"{member} is handed {both}, and so is {other}")


def offsets_are_not_ahead(world: GroupWorld, partition: TopicPartition, offset: int) -> None:
    """What is committed, somebody is done with."""
    if offset > world.done_up_to[partition]:
        raise BrokenPromiseError(
            f"{offset} of {partition} is committed, {world.done_up_to[partition]} is not done with"
        )


def offsets_do_not_go_back(world: GroupWorld, partition: TopicPartition, offset: int) -> None:
    if offset < world.committed.get(partition, 0):
        raise BrokenPromiseError(f"{offset} of {partition} is committed after {world.committed[partition]}")
