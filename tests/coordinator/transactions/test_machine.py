"""A transactional id under producers of both protocols, zombies, lost answers, requests that come late, markers in any
order, crashes, and disks that fail.

The processes of the machine behave as real ones do: they take an identity, write, end, and repeat what was not answered
until it is. Beside them the machine reads the log, and knows from it which transactions there were. Whatever happens,
these hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oncelog.coordinator.transactions.effects import Markers
from oncelog.coordinator.transactions.records import decode_record
from oncelog.coordinator.transactions.state import COMPLETED, PREPARED, TRANSITIONS, State
from oncelog.coordinator.transactions.transaction import (
    LAST_CLIENT_EPOCH,
    PROTOCOL_2,
    Identity,
    Transaction,
)
from oncelog.types import TopicPartition
from tests.coordinator.transactions.support import NOT_AVAILABLE, V1, V2, Rig
from tests.support.sizes import examples

TIMEOUT_MS = 60_000
OFFSETS = TopicPartition("__consumer_offsets", 0)
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0), OFFSETS]
FATES = st.sampled_from(["heard", "heard", "heard", "lost", "not written"])
"""Of a request: answered; carried out, but the answer is lost; the log could not be written."""

KEPT = 20
"""How many of the last requests and markers may come again."""

OUTCOMES = {True: "commit", False: "abort"}

T = TypeVar("T")

NONE = 0
TRY_AGAIN = (51, NOT_AVAILABLE)
UNHEARD = (NOT_AVAILABLE, -1, -1)


@dataclass
class Process:
    """A producer, or what it believes to be one."""

    end_version: int
    me: Identity | None = None
    rank: int = 0
    """The higher one of two has taken the other's place."""
    wrote_in: int | None = None
    """The transaction into which it has written, and which it has not ended yet."""
    ending: bool | None = None
    """It has asked for this outcome, and was not answered."""
    is_stuck: bool = False
    """It was told that it cannot go on as it is."""

    @property
    def is_modern(self) -> bool:
        return self.end_version >= V2


@dataclass
class Told:
    """One transaction as the log tells it."""

    partitions: set[TopicPartition] = field(default_factory=set)
    outcome: State | None = None
    is_complete: bool = False
    marked: dict[TopicPartition, bool] = field(default_factory=dict)
    """Which markers its partitions have."""


@dataclass(frozen=True)
class Late:
    """A request that the network keeps, and may deliver again."""

    rank: int
    me: Identity
    is_modern: bool
    action: str
    """What it asks for: "add" (a partition), "commit", "abort", "begin" or "go on"."""
    transaction: int | None = None
    """Which one it means."""


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.processes = [Process(V2), Process(V2), Process(V1)]
        self.rank = 0
        self.told: list[Told] = []
        self.read = 0
        self.last: Transaction | None = None
        self.raised: set[Identity] = set()
        self.late: list[Late] = []
        self.on_the_way: list[tuple[Markers, int]] = []

    who = st.integers(0, 2)

    @initialize(epoch=st.sampled_from([None, LAST_CLIENT_EPOCH - 3, LAST_CLIENT_EPOCH - 1, LAST_CLIENT_EPOCH]))
    def begins_with(self, epoch: int | None) -> None:
        if epoch is not None:
            self.rig.put(Transaction(5, epoch, TIMEOUT_MS, last_update_ms=self.rig.now_ms))
            self.follow()

    # What processes do

    @rule(who=who, fate=FATES)
    def takes_the_place(self, who: int, fate: str) -> None:
        """A process begins, or begins anew."""
        process = self.processes[who]
        process.me = process.wrote_in = process.ending = None
        process.is_stuck = False
        before = len(self.rig.log)
        code, producer_id, epoch = self.ask(fate, lambda: self.rig.init(timeout_ms=TIMEOUT_MS)) or UNHEARD
        if self.last is not None and len(self.rig.log) > before and self.last.state is State.EMPTY:
            self.rank += 1
            process.rank = self.rank
        if code == NONE:
            process.me = Identity(producer_id, epoch)
        self.late.append(Late(process.rank, Identity(-1, -1), process.is_modern, "begin"))

    def awake(self, who: int) -> Process:
        """A process that has begun; nothing disturbs it in that."""
        process = self.processes[who]
        if process.me is None or process.is_stuck:
            for _ in range(2):
                self.takes_the_place(who, "heard")
                self.writes_all_markers()
        return process

    @rule(who=who, partitions=st.permutations(PARTITIONS), count=st.integers(1, 4), commit=st.none() | st.booleans())
    def transacts(self, who: int, partitions: list[TopicPartition], count: int, commit: bool | None) -> None:
        """A day without trouble, up to the answer; or to where it would ask for it."""
        self.awake(who)
        for partition in partitions[:count]:
            self.writes(who, partition, "heard")
        if commit is not None:
            self.ends(who, commit, "heard", dies=False)

    @rule(who=who, fate=FATES)
    def goes_on(self, who: int, fate: str) -> None:
        """After an error, with what it had (KIP-360)."""
        process = self.processes[who]
        had = process.me
        if had is None or process.ending is not None:
            return
        answer = self.ask(fate, lambda: self.rig.init(*had, timeout_ms=TIMEOUT_MS), process)
        code, producer_id, epoch = answer or UNHEARD
        self.late.append(Late(process.rank, had, process.is_modern, "go on"))
        if code == NONE:
            assert process.rank == self.rank
            process.me, process.wrote_in, process.is_stuck = Identity(producer_id, epoch), None, False

    @rule(who=who, partition=st.sampled_from(PARTITIONS), fate=FATES)
    def writes(self, who: int, partition: TopicPartition, fate: str) -> None:
        process = self.awake(who)
        me = process.me
        if me is None or process.ending is not None:
            return
        (code,) = self.ask(fate, lambda: self.add(me, partition, process.is_modern), process) or [NOT_AVAILABLE]
        if code == NONE:
            assert process.rank == self.rank
            assert self.last is not None
            assert partition in self.last.partitions
            process.wrote_in = len(self.told) - 1
        elif code not in TRY_AGAIN:
            process.is_stuck = True
        self.late.append(Late(process.rank, me, process.is_modern, "add", self.open_of(me)))

    def add(self, me: Identity, partition: TopicPartition, is_modern: bool) -> list[int]:
        """By protocol 1 the partition of a group's offsets is added under the group's name."""
        if partition == OFFSETS and not is_modern:
            return [self.rig.add_offsets(*me)]
        return self.rig.add(*me, partition, version=5 if is_modern else 3)

    @rule(who=who, partition=st.sampled_from(PARTITIONS), version=st.sampled_from([4, 5]))
    def is_verified(self, who: int, partition: TopicPartition, version: int) -> None:
        """What a leader asks before it lets a producer write: that changes nothing."""
        process, before = self.processes[who], len(self.rig.log)
        if process.me is None:
            return
        (code,) = self.rig.add(*process.me, partition, version=version, verify_only=True)
        assert len(self.rig.log) == before
        if code == NONE:
            assert process.rank == self.rank
            assert self.last is not None
            assert self.last.state is State.ONGOING
            assert partition in self.last.partitions

    @rule(who=who, commit=st.booleans(), fate=FATES, dies=st.sampled_from([False, False, True]))
    def ends(self, who: int, commit: bool, fate: str, dies: bool) -> None:
        process = self.processes[who]
        me = process.me
        if me is None or (process.wrote_in is None and not process.is_modern):
            return
        commit = commit if process.ending is None else process.ending
        process.ending = commit
        meant = process.wrote_in
        if dies:  # with its request in the network
            self.late.append(Late(process.rank, me, process.is_modern, OUTCOMES[commit], self.open_of(me)))
            process.me = process.wrote_in = process.ending = None
            return
        answer = self.ask(fate, lambda: self.rig.end(*me, commit=commit, version=process.end_version), process)
        code, producer_id, epoch = answer or UNHEARD
        self.late.append(Late(process.rank, me, process.is_modern, OUTCOMES[commit], meant))
        if code == NONE:
            assert process.rank == self.rank
            self.is_told_the_truth(meant, commit)
            process.wrote_in = process.ending = None
            if process.is_modern:
                process.me = Identity(producer_id, epoch)
        elif code not in TRY_AGAIN:
            process.ending, process.is_stuck = None, True

    def is_told_the_truth(self, meant: int | None, commit: bool) -> None:
        if meant is not None:
            assert self.told[meant].outcome is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)

    @precondition(lambda self: self.late)
    @rule(choice=st.integers(0, 1_000))
    def comes_late(self, choice: int) -> None:
        """Protocol 1 cannot tell what comes late from what is new, as long as the producer has no successor."""
        late = self.late[choice % len(self.late)]
        if late.rank == self.rank and (not late.is_modern or late.action == "go on"):
            return
        before, last = len(self.rig.log), self.last
        self.deliver(late)
        self.follow()
        has_changed = len(self.rig.log) > before
        if late.action == "begin":  # which takes the place of whoever has it, for nobody
            self.rank += has_changed and self.last is not None and self.last.state is State.EMPTY
            return
        if late.rank < self.rank:
            assert not has_changed, "a zombie has changed the log"
        if late.action != "add" and last is not None and last.state is State.ONGOING and has_changed:
            assert late.transaction == len(self.told) - 1, "a late request has ended a later transaction"

    def deliver(self, late: Late) -> None:
        if late.action == "add":
            self.add(late.me, PARTITIONS[0], late.is_modern)
        elif late.action in ("begin", "go on"):
            self.rig.init(*late.me, timeout_ms=TIMEOUT_MS)
        else:
            self.rig.end(*late.me, commit=late.action == "commit", version=V2 if late.is_modern else V1)

    # What happens to them

    @rule(ms=st.sampled_from([1, TIMEOUT_MS // 4, TIMEOUT_MS]))
    def passes_time(self, ms: int) -> None:
        self.rig.pass_time(ms)
        self.follow()

    @rule()
    def cannot_abort_what_takes_too_long(self) -> None:
        """The log cannot be written while time passes."""
        self.rig.append_fails = True
        self.rig.pass_time(TIMEOUT_MS)
        self.rig.append_fails = False
        self.rig.pass_time(TIMEOUT_MS)
        self.follow()
        assert self.last is None or self.last.state is not State.ONGOING

    @rule(is_compacted=st.booleans())
    def crashes(self, is_compacted: bool) -> None:
        self.on_the_way.clear()
        if is_compacted:
            self.rig.log = list(dict(self.rig.log).items())
            self.read = len(self.rig.log)
        self.rig.crash()
        self.follow()

    @precondition(lambda self: self.on_the_way)
    @rule(choice=st.integers(0, 1_000), part=st.integers(0, 3), fate=FATES, again=st.booleans())
    def writes_a_marker(self, choice: int, part: int, fate: str, again: bool) -> None:
        """Of any transaction whose markers are under way, into any of its partitions; perhaps not for the last time."""
        index = choice % len(self.on_the_way)
        markers, transaction = self.on_the_way[index]
        partition = markers.partitions[part % len(markers.partitions)]
        marked = self.told[transaction].marked
        assert marked.setdefault(partition, markers.is_commit) == markers.is_commit, "one transaction has two outcomes"
        if fate == "lost":
            return
        self.rig.append_fails = fate == "not written"
        self.rig.apply(self.rig.coordinator.markers_written(markers, [partition], self.rig.now_ms))
        self.rig.append_fails = False
        self.follow()
        if not again and set(markers.partitions) <= marked.keys() and self.told[transaction].is_complete:
            del self.on_the_way[index]

    @rule()
    def writes_all_markers(self) -> None:
        """And what is told of them comes again when the next transactions are under way."""
        for markers, transaction in self.on_the_way:
            self.told[transaction].marked |= dict.fromkeys(markers.partitions, markers.is_commit)
            self.rig.apply(self.rig.coordinator.markers_written(markers, markers.partitions, self.rig.now_ms))
            self.follow_log()

    def forget_the_oldest(self) -> None:
        """The network does not keep everything for ever; what has to be heard of is newer."""
        del self.late[:-KEPT]
        del self.on_the_way[:-KEPT]

    # The model

    def ask(self, fate: str, request: Callable[[], T], process: Process | None = None) -> T | None:
        """The answer, if it is heard."""
        before = len(self.rig.log)
        self.rig.append_fails = fate == "not written"
        answer = request()
        self.rig.append_fails = False
        self.follow()
        if process is not None and process.rank < self.rank:
            assert len(self.rig.log) == before, "a zombie has changed the log"
        return None if fate == "lost" else answer

    def open_of(self, me: Identity) -> int | None:
        """The open transaction of this identity."""
        last = self.last
        if last is None or last.state is not State.ONGOING or last.identity != me:
            return None
        return len(self.told) - 1

    def follow(self) -> None:
        """What was appended since; markers that are to be written belong to the transaction that was just prepared."""
        self.follow_log()
        self.on_the_way += [(markers, len(self.told) - 1) for markers in self.rig.markers]
        self.rig.markers.clear()

    def follow_log(self) -> None:
        for key, value in self.rig.log[self.read :]:
            record = decode_record(key, value)
            assert record is not None
            assert record.transaction is not None, "an id that is in use was forgotten"
            self.observe(record.transaction)
        self.read = len(self.rig.log)

    def observe(self, now: Transaction) -> None:
        before, self.last = self.last, now
        if before is not None:
            assert (before.state, now.state) in TRANSITIONS
        is_open = before is not None and before.state is State.ONGOING
        if now.state is State.ONGOING:
            if not is_open:
                self.told.append(Told())
            self.told[-1].partitions |= set(now.partitions)
        if now.state in PREPARED:
            self.observe_outcome(now, is_open)
        if now.state in COMPLETED:
            told = self.told[-1]
            assert not told.is_complete
            assert set(told.marked) == told.partitions, "complete without all markers"
            told.is_complete = True

    def observe_outcome(self, now: Transaction, is_open: bool) -> None:
        if not is_open:
            self.told.append(Told())
        told = self.told[-1]
        assert told.outcome is None, "a transaction has ended twice"
        assert told.partitions == set(now.partitions)
        told.outcome = now.state
        if now.protocol == PROTOCOL_2:
            identity = Identity(now.producer_id, now.epoch)
            assert identity not in self.raised, "two transactions have one epoch"
            self.raised.add(identity)

    # What always holds

    @invariant()
    def a_replay_gives_the_same_state(self) -> None:
        assert self.rig.replayed().hard_state() == self.rig.coordinator.hard_state()

    @invariant()
    def markers_say_what_was_prepared(self) -> None:
        for markers, transaction in self.on_the_way:
            told = self.told[transaction]
            assert told.outcome is (State.PREPARE_COMMIT if markers.is_commit else State.PREPARE_ABORT)
            assert set(markers.partitions) == told.partitions

    @invariant()
    def no_client_has_the_last_epoch(self) -> None:
        assert all(process.me is None or process.me.epoch <= LAST_CLIENT_EPOCH for process in self.processes)

    def teardown(self) -> None:
        """Nothing stays open, whatever happened."""
        self.crashes(is_compacted=False)
        for _ in range(2):
            self.writes_all_markers()
            self.rig.pass_time(TIMEOUT_MS + 1)
            self.follow()
        assert self.rig.coordinator.open_count == 0
        assert all(told.is_complete for told in self.told)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("seed", range(5))
def test_long_histories(seed: int) -> None:
    """The same rules, a thousand steps of them: Hypothesis finds short ways into trouble, this one long ones."""
    chance = Random(seed)
    machine = TransactionMachine()
    machine.begins_with(chance.choice([None, LAST_CLIENT_EPOCH - 40]))

    def fate() -> str:
        return chance.choice(["heard"] * 6 + ["lost", "not written"])

    def who() -> int:
        return chance.randrange(3)

    def shuffled() -> list[TopicPartition]:
        return chance.sample(PARTITIONS, 3)

    def comes_late() -> None:
        if machine.late:
            machine.comes_late(chance.randrange(KEPT))

    def writes_a_marker() -> None:
        if machine.on_the_way:
            machine.writes_a_marker(chance.randrange(KEPT), who(), fate(), again=True)

    steps: list[tuple[int, Callable[[], None]]] = [
        (2, lambda: machine.takes_the_place(who(), fate())),
        (6, lambda: machine.transacts(who(), shuffled(), chance.randint(1, 3), chance.choice([None, True, False]))),
        (3, lambda: machine.goes_on(who(), fate())),
        (4, lambda: machine.writes(who(), chance.choice(PARTITIONS), fate())),
        (6, lambda: machine.ends(who(), chance.random() < 0.5, fate(), chance.random() < 0.1)),
        (6, comes_late),
        (2, lambda: machine.passes_time(chance.choice([1, TIMEOUT_MS // 4, TIMEOUT_MS]))),
        (1, machine.cannot_abort_what_takes_too_long),
        (1, lambda: machine.crashes(chance.random() < 0.5)),
        (1, lambda: machine.is_verified(who(), chance.choice(PARTITIONS), 5)),
        (6, writes_a_marker),
        (3, machine.writes_all_markers),
    ]
    weights, actions = zip(*steps, strict=True)
    for number, action in enumerate(chance.choices(actions, weights, k=1_000)):
        action()
        machine.forget_the_oldest()
        machine.no_client_has_the_last_epoch()
        if number % 50 == 0:
            machine.a_replay_gives_the_same_state()
            machine.markers_say_what_was_prepared()
    machine.teardown()
    outcomes = Counter(told.outcome for told in machine.told)
    assert min(outcomes[State.PREPARE_COMMIT], outcomes[State.PREPARE_ABORT]) > 10
