"""Groups through anything that can happen to them, in any order.

Clients of both protocols come, go, are slow and are lost; topics grow and vanish; the clock jumps; the coordinator is
killed and loaded from its log. Whatever happened, no partition is read twice, the log alone gives the same state again,
and as soon as everybody behaves, everything is read exactly once.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from oncelog.coordinator.consumer.group import ConsumerGroup
from oncelog.coordinator.consumer.member import STATIC_LEAVING_EPOCH
from tests.coordinator.consumer.clients import NewClient, OldClient
from tests.coordinator.consumer.support import GROUP, Coordinator, FakeTopics
from tests.support.sizes import examples

TOPIC_NAMES = ["orders", "payments", "refunds"]
MAX_CLIENTS = 5
SETTLING_ROUNDS = 100

Client = NewClient | OldClient
SUBSCRIPTIONS = st.sets(st.sampled_from(TOPIC_NAMES), min_size=1)


class Groups(RuleBasedStateMachine):
    clients = Bundle("clients")

    @initialize()
    def begin(self) -> None:
        self.topics = FakeTopics(orders=4, payments=3)
        self.coordinator = Coordinator(self.topics)
        self.members: list[Client] = []
        self._names = 0

    def _name(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def _admit(self, client: Client):
        if len(self.members) >= MAX_CLIENTS:
            return multiple()
        self.members.append(client)
        return client

    @rule(target=clients, topics=SUBSCRIPTIONS, is_static=st.booleans())
    def new_client(self, topics: set[str], is_static: bool):
        name = self._name()
        return self._admit(NewClient(self.coordinator, name, topics, f"instance-{name}" if is_static else None))

    @rule(target=clients, topics=SUBSCRIPTIONS, is_static=st.booleans(), is_cooperative=st.booleans())
    def old_client(self, topics: set[str], is_static: bool, is_cooperative: bool):
        name = self._name()
        instance_id = f"instance-{name}" if is_static else None
        return self._admit(OldClient(self.coordinator, name, topics, instance_id, is_cooperative=is_cooperative))

    @rule(client=clients)
    def act(self, client: Client) -> None:
        client.act()

    @rule(client=clients, is_silent=st.booleans(), is_lost=st.booleans())
    def beat(self, client: Client, is_silent: bool, is_lost: bool) -> None:
        client.beat(is_silent=is_silent, is_lost=is_lost)

    @rule(client=clients)
    def revoke(self, client: Client) -> None:
        client.revoke()

    @rule(client=clients, topics=SUBSCRIPTIONS)
    def subscribe(self, client: Client, topics: set[str]) -> None:
        client.subscribe(topics)

    @rule(client=consumes(clients))
    def leave(self, client: Client) -> None:
        client.leave()
        self.members.remove(client)

    @rule(client=clients)
    def leave_for_a_while(self, client: Client) -> None:
        client.leave(for_a_while=True)

    @rule(client=consumes(clients))
    def vanish(self, client: Client) -> None:
        self.members.remove(client)

    @rule(client=consumes(clients), target=clients)
    def change_protocol(self, client: Client):
        """A process is updated: its successor has its instance, and what it had is given up."""
        self.members.remove(client)
        client.leave(for_a_while=True)
        kind = OldClient if isinstance(client, NewClient) else NewClient
        return self._admit(kind(self.coordinator, self._name(), client.topics, client.instance_id))

    @rule(elapsed_ms=st.sampled_from([1_000, 5_000, 30_000, 50_000, 200_000]))
    def pass_time(self, elapsed_ms: int) -> None:
        self.coordinator.pass_time(elapsed_ms)

    @rule(name=st.sampled_from(TOPIC_NAMES), count=st.integers(1, 6))
    def create_or_grow(self, name: str, count: int) -> None:
        known = self.topics.partition_count(name)
        if known is None:
            self.topics.create(name, count)
        else:
            self.topics.grow(name, max(known, count))
        self.coordinator.topics_changed()

    @rule(name=st.sampled_from(TOPIC_NAMES))
    def delete(self, name: str) -> None:
        if self.topics.partition_count(name) is not None:
            self.topics.delete(name)
            self.coordinator.topics_changed()

    @rule(is_compacted=st.booleans())
    def crash(self, is_compacted: bool) -> None:
        before = self.coordinator.hard_state()
        if is_compacted:
            self.coordinator.compact()
        self.coordinator.load()
        for client in self.members:
            client.coordinator_crashed()
        assert self.coordinator.hard_state() == before

    @rule()
    def settle(self) -> None:
        """Everybody behaves: the group comes to rest, and everything is read."""
        for _ in range(SETTLING_ROUNDS):
            for client in self.members:
                client.act()
            self.coordinator.pass_time(1_000)
            if self._is_at_rest():
                break
        else:
            if self.members:
                states = [{**vars(client), "coordinator": None} for client in self.members]
                raise AssertionError(f"{self.coordinator.core._groups.get(GROUP)} does not come to rest: {states}")
        self._everything_is_read_once()

    def _is_at_rest(self) -> bool:
        group = self.coordinator.core._groups.get(GROUP)
        return (
            group is not None
            and group.state_name == "Stable"
            and all(client.is_in and not getattr(client, "waits", False) for client in self.members)
            and all(client.member_id in group.members for client in self.members)
            and len(group.members) == len(self.members)
            and all(not isinstance(client, NewClient) or client.has == client.assigned for client in self.members)
        )

    def _everything_is_read_once(self) -> None:
        read = [place for client in self.members for place in client.has]
        wanted = self.topics.places({name for client in self.members for name in client.topics})
        assert len(read) == len(set(read))
        assert {place for place in read if self.topics.topic_name(place[0])} == wanted

    @invariant()
    def nobody_reads_what_another_member_reads(self) -> None:
        """Of those whom the coordinator has not fenced; a fenced one finds out with its next heartbeat."""
        if not hasattr(self, "members"):
            return
        readers: dict[object, str] = {}
        for client in self.members:
            if not self._is_current(client):
                continue
            for place in client.has:
                assert place not in readers, f"{client.name} and {readers[place]} read {place}"
                readers[place] = client.name

    def _is_current(self, client: Client) -> bool:
        group = self.coordinator.core._groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return False
        member = group.members.get(client.member_id)
        return member is not None and member.epoch != STATIC_LEAVING_EPOCH and client.is_in

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        group = self.coordinator.core._groups.get(GROUP) if hasattr(self, "members") else None
        if not isinstance(group, ConsumerGroup):
            return
        held = [
            (topic_id, partition)
            for member in group.members.values()
            for part in (member.assigned, member.revoking)
            for topic_id, partitions in part.items()
            for partition in partitions
        ]
        assert len(held) == len(set(held))


Groups.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=35, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestGroups = Groups.TestCase
