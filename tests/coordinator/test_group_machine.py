"""A classic group under random clients, clocks, crashes and disks that fail.

The clients of the machine behave as real ones do: they join, assign if they lead, sync, and believe what they are told.
Whatever happens, these hold:
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from oncelog.coordinator.effects import GroupSettings
from oncelog.coordinator.records import RecordType, decode_record
from oncelog.errors import MemberIdRequired, UnstableOffsetCommit
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from tests.coordinator.support import Rig, Ticket, protocols
from tests.support.sizes import examples

PARTITIONS = 4
LONG_ENOUGH_MS = 400_000
"""After which every round, session and first join is over."""

SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=1_000, group_max_size=4)


class Commit(NamedTuple):
    position: int
    """The later of two is further on in the log."""
    offset: int


NOTHING = Commit(-1, -1)


@dataclass
class Client:
    """A process that reads with the group, or would like to."""

    instance_id: str | None
    join_version: int
    member_id: str = ""
    generation: int = -1
    to_assign: list[str] | None = None
    join: Ticket | None = None
    sync: Ticket | None = None

    def start_anew(self) -> None:
        self.member_id, self.generation, self.to_assign = "", -1, None


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(SETTINGS)
        self.clients = [
            Client(None, 9),
            Client(None, 9),
            Client(None, 3),
            Client("a", 9),
            Client("b", 5),
            Client("a", 9),
        ]
        self.told: dict[tuple[int, int], str] = {}
        """Who was told to own a partition in a generation."""
        self.committed: dict[int, Commit] = {}
        self.pending: dict[int, dict[int, Commit]] = {}
        """Of producers, in their open transactions."""

    clients_drawn = st.integers(0, 5)
    producers_drawn = st.integers(1, 3)
    partitions_drawn = st.integers(0, PARTITIONS - 1)

    # What clients do

    @rule(index=clients_drawn, wish=st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")]))
    def joins(self, index: int, wish: tuple[str, ...]) -> None:
        client = self.clients[index]
        client.join = self.rig.join(
            member_id=client.member_id,
            version=client.join_version,
            group_instance_id=client.instance_id,
            protocols=protocols(*wish),
        )
        self.listen()

    @rule(index=clients_drawn)
    def syncs(self, index: int) -> None:
        client = self.clients[index]
        if client.generation < 0:
            return
        shares: dict[str, list[int]] = {member_id: [] for member_id in client.to_assign or ()}
        for partition in range(PARTITIONS if shares else 0):
            list(shares.values())[partition % len(shares)].append(partition)
        client.sync = self.rig.sync(
            client.member_id,
            client.generation,
            {member_id: json.dumps(share).encode() for member_id, share in shares.items()},
            version=4,
            group_instance_id=client.instance_id,
        )
        self.listen()

    @rule(indexes=st.lists(clients_drawn, min_size=1, max_size=4, unique=True))
    def a_round_goes_well(self, indexes: list[int]) -> None:
        """Left to chance, few groups would ever be stable."""
        for index in indexes:
            self.joins(index, ("range",))
            if self.clients[index].join is None and self.clients[index].generation < 0:
                self.joins(index, ("range",))
        self.time_passes(3_000)
        for index in indexes:
            self.syncs(index)

    @rule(index=clients_drawn)
    def beats(self, index: int) -> None:
        client = self.clients[index]
        self.rig.heartbeat(client.member_id, client.generation, group_instance_id=client.instance_id)

    @rule(index=clients_drawn)
    def leaves(self, index: int) -> None:
        client = self.clients[index]
        self.rig.leave(client.member_id)
        self.listen()
        client.start_anew()

    @rule(index=clients_drawn, partition=partitions_drawn, offset=st.integers(0, 1_000))
    def commits(self, index: int, partition: int, offset: int) -> None:
        client = self.clients[index]
        fields = {"group_instance_id": client.instance_id, "partition": partition}
        if self.rig.commit(offset, client.member_id, client.generation, **fields) == 0:
            self.committed[partition] = Commit(len(self.rig.log), offset)

    @rule(
        index=st.none() | clients_drawn,
        producer_id=producers_drawn,
        partition=partitions_drawn,
        offset=st.integers(0, 1_000),
    )
    def commits_in_a_transaction(self, index: int | None, producer_id: int, partition: int, offset: int) -> None:
        """As a member of the group, or as nobody."""
        client = Client(None, 0) if index is None else self.clients[index]
        code = self.rig.commit_in_transaction(
            producer_id,
            offset,
            client.member_id,
            client.generation,
            group_instance_id=client.instance_id,
            partition=partition,
        )
        if code == 0:
            self.pending.setdefault(producer_id, {})[partition] = Commit(len(self.rig.log), offset)
        assert code == 0 or index is not None

    @rule(producer_id=producers_drawn, is_commit=st.booleans())
    def a_transaction_ends(self, producer_id: int, is_commit: bool) -> None:
        self.rig.end_transaction(producer_id, is_commit=is_commit)
        for partition, commit in self.pending.pop(producer_id, {}).items():
            if is_commit:
                self.committed[partition] = max(commit, self.committed.get(partition, commit))

    @rule(index=clients_drawn)
    def loses_its_connection(self, index: int) -> None:
        client = self.clients[index]
        for ticket in (client.join, client.sync):
            if ticket is not None:
                self.rig.coordinator.forget(ticket)
        client.join = client.sync = None

    # What happens to the coordinator

    @rule(ms=st.sampled_from([0, 1, 999, 3_000, 9_999, 20_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.rig.pass_time(ms)
        self.listen()

    @rule()
    def crashes(self) -> None:
        self.rig.crash()
        for client in self.clients:
            client.join = client.sync = None

    @rule(index=clients_drawn)
    def the_disk_refuses_a_sync(self, index: int) -> None:
        """Whoever is in such a batch is answered with an error by the runtime."""
        self.rig.append_fails = True
        self.syncs(index)
        self.rig.append_fails = False
        for client in self.clients:
            if client.sync is not None and client.sync.answer is None:
                self.rig.tickets.remove(client.sync)
                client.sync = None

    @rule()
    def is_deleted(self) -> None:
        (result,) = self.rig.ask(ApiKey.DELETE_GROUPS, {"groups_names": ["g"]})["results"]
        if result["error_code"] == 0:
            self.told.clear()
            self.committed.clear()
            self.pending.clear()

    # What clients hear

    def listen(self) -> None:
        for client in self.clients:
            if client.join is not None and client.join.answer is not None:
                self.heard_join(client, client.join.answer)
                client.join = None
            if client.sync is not None and client.sync.answer is not None:
                if client.sync.answer["error_code"] == 0:
                    self.heard_assignment(client, client.sync.answer)
                client.sync = None

    def heard_join(self, client: Client, answer: Message) -> None:
        if answer["error_code"] == 0:
            client.member_id, client.generation = answer["member_id"], answer["generation_id"]
            leads = answer["leader"] == client.member_id and not answer["skip_assignment"]
            client.to_assign = [member["member_id"] for member in answer["members"]] if leads else None
        elif answer["error_code"] == MemberIdRequired.code:
            client.member_id = answer["member_id"]
        else:
            client.start_anew()

    def heard_assignment(self, client: Client, answer: Message) -> None:
        assignment = bytes(answer["assignment"])
        self.is_durable(client, assignment)
        owner = client.instance_id or client.member_id
        for partition in json.loads(assignment or b"[]"):
            known = self.told.setdefault((client.generation, partition), owner)
            assert known == owner, f"{known} and {owner} own {partition} in generation {client.generation}"

    def is_durable(self, client: Client, assignment: bytes) -> None:
        """Nobody is told what the log does not say."""
        records = [decode_record(entry.key, entry.value) for entry in self.rig.records]
        groups = [record.value for record in records if record and record.type is RecordType.GROUP_METADATA]
        assert any(
            group["generation"] == client.generation
            and (member["member_id"], bytes(member["assignment"])) == (client.member_id, assignment)
            for group in groups
            if group is not None
            for member in group["members"]
        )

    # What always holds

    @invariant()
    def a_replay_of_the_log_gives_the_same_state(self) -> None:
        assert self.rig.replayed().hard_state() == self.rig.coordinator.hard_state()

    @invariant()
    def an_accepted_commit_is_kept(self) -> None:
        for partition in range(PARTITIONS):
            assert self.rig.committed(partition=partition) == self.committed.get(partition, NOTHING).offset

    @invariant()
    def nobody_builds_upon_what_an_open_transaction_may_change(self) -> None:
        group = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": list(range(PARTITIONS))}]}
        answer = self.rig.ask(ApiKey.OFFSET_FETCH, {"groups": [group], "require_stable": True})
        parts = answer["groups"][0]["topics"][0]["partitions"]
        unstable = {part["partition_index"] for part in parts if part["error_code"] == UnstableOffsetCommit.code}
        assert unstable == {partition for commits in self.pending.values() for partition in commits}

    def teardown(self) -> None:
        """Every ticket is answered at last, and a group whose members are silent is empty."""
        self.rig.pass_time(LONG_ENOUGH_MS)
        assert [ticket for ticket in self.rig.tickets if ticket.answer is None] == []
        assert self.rig.state() in ("Empty", "Dead")


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
