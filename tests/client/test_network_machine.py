"""Any order of events, and what the network promises for all of them: every request ends once, and in order."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oncelog.client.metadata import Node
from oncelog.client.network import bootstrap_nodes
from oncelog.client.network_events import Answered, Close, Connect, Event, LostKind
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.frame import RequestHeader
from tests.client.fake_broker import VERSIONS, api_versions_answer
from tests.client.network_scene import NODES, Scene
from tests.support.sizes import examples

MAX_IN_FLIGHT = 3
BOOTSTRAP = bootstrap_nodes([("one", 9092), ("balancer", 9092)])
CLUSTERS = [BOOTSTRAP, NODES, NODES[:1], [Node(1, "moved", 1), NODES[1]], [*NODES, *BOOTSTRAP]]

node_ids = st.sampled_from([1, 2, 3, -1, -2])
picks = st.integers(0, 10)


class NetworkMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(BOOTSTRAP, max_in_flight=MAX_IN_FLIGHT, connections_max_idle_ms=60_000)
        self.network = self.scene.network
        self.next_tag = 0
        self.pending: set[int] = set()
        self.link_of: dict[int, int] = {}  # of the requests whose bytes have left
        self.last_ended: dict[int, int] = defaultdict(lambda: -1)  # by link: requests end in the order of their tags
        self.connecting: list[int] = []
        self.open: list[int] = []
        self.ended: list[int] = []

    # --- the model ------------------------------------------------------------------------------------------------

    def perform(self) -> None:
        known = {link: len(questions) for link, questions in self.scene.questions.items()}
        for effect in self.scene.perform():
            if isinstance(effect, Connect):
                self.connecting.append(effect.link)
            elif isinstance(effect, Close):
                if effect.link not in self.ended:  # or it broke at the same time
                    self.end(effect.link)
            else:
                assert effect.link in self.open, "a write to a link that is not open"
        for link, questions in self.scene.questions.items():
            for header, body in questions[known.get(link, 0) :]:
                if header.api_key == ApiKey.METADATA:
                    self.link_of[tag_of(header, body)] = link

    def end(self, link: int) -> None:
        (self.connecting if link in self.connecting else self.open).remove(link)
        self.ended.append(link)

    def conclude(self, events: list[Event]) -> None:
        for event in events:
            self.pending.remove(event.tag)  # fails if it ended before
            link = self.link_of.get(event.tag)
            if isinstance(event, Answered):
                assert event.body["cluster_id"] == str(event.tag)
            else:
                assert (link is None) == (event.kind is LostKind.NEVER_SENT)
            if link is not None:
                assert event.tag > self.last_ended[link], "requests of one connection end in their order"
                self.last_ended[link] = event.tag

    # --- what may happen ------------------------------------------------------------------------------------------

    @rule(nodes=st.sampled_from(CLUSTERS))
    def learns(self, nodes: list[Node]) -> None:
        self.network.set_nodes(nodes)

    @rule(node_id=node_ids)
    def connect(self, node_id: int) -> None:
        self.network.connect(node_id, self.scene.now_ms)

    @rule(node_id=node_ids)
    def becomes_ready(self, node_id: int) -> None:
        """All that leads there at once; chance alone seldom takes so many steps in the right order."""
        before = len(self.scene.dialed)
        self.network.connect(node_id, self.scene.now_ms)
        self.perform()
        for effect in self.scene.dialed[before:]:
            self.opens(self.connecting.index(effect.link))
            self.perform()
            self.answers(self.open.index(effect.link))

    @rule()
    def want_any(self) -> None:
        node_id = self.network.least_loaded(self.scene.now_ms)
        assert node_id is None or self.scene.is_ready(node_id)

    @rule(timeout_ms=st.sampled_from([None, 100, 90_000]), pick=picks, count=st.integers(1, MAX_IN_FLIGHT))
    def send(self, timeout_ms: int | None, pick: int, count: int) -> None:
        for _ in range(count):
            ready = [node_id for node_id in (1, 2, 3, -1, -2) if self.scene.is_ready(node_id)]
            if ready:
                self._send_one(ready[pick % len(ready)], timeout_ms)

    def _send_one(self, node_id: int, timeout_ms: int | None) -> None:
        tag, self.next_tag = self.next_tag, self.next_tag + 1
        self.pending.add(tag)
        body = {"topics": [{"name": str(tag)}]}
        self.network.send(node_id, ApiKey.METADATA, body, self.scene.now_ms, tag=tag, timeout_ms=timeout_ms)

    @rule()
    def shell_works(self) -> None:
        self.perform()

    @precondition(lambda self: self.connecting)
    @rule(pick=picks)
    def opens(self, pick: int) -> None:
        link = self.connecting.pop(pick % len(self.connecting))
        self.open.append(link)
        self.network.opened(link, self.scene.now_ms)

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def answers(self, pick: int) -> None:
        link = self.open[pick % len(self.open)]
        if not self.scene.questions[link]:
            return
        header, body = self.scene.questions[link][0]
        if header.api_key == ApiKey.API_VERSIONS:
            self.conclude(self.scene.answer(link, api_versions_answer(VERSIONS)))
        else:
            self.conclude(self.scene.answer(link, {"cluster_id": str(tag_of(header, body))}))

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def answers_rubbish(self, pick: int) -> None:
        self.conclude(self.scene.feed(self.open[pick % len(self.open)], b"\xff" * 8))

    @precondition(lambda self: self.connecting or self.open)
    @rule(pick=picks)
    def breaks(self, pick: int) -> None:
        links = self.connecting + self.open
        link = links[pick % len(links)]
        self.conclude(self.scene.lose(link))
        self.end(link)

    @precondition(lambda self: self.open)
    @rule(pick=picks, is_paused=st.booleans())
    def stalls(self, pick: int, is_paused: bool) -> None:
        link = self.open[pick % len(self.open)]
        if is_paused:
            self.network.pause_writing(link, self.scene.now_ms)
        else:
            self.network.resume_writing(link)

    @precondition(lambda self: self.ended)
    @rule(pick=picks)
    def old_news(self, pick: int) -> None:
        link = self.ended[pick % len(self.ended)]
        self.network.opened(link, self.scene.now_ms)
        assert self.scene.feed(link, b"\0\0\0\5hello") == []
        assert self.scene.lose(link) == []

    @rule(node_id=node_ids, duration_ms=st.integers(1, 2_000))
    def throttles(self, node_id: int, duration_ms: int) -> None:
        self.network.throttle(node_id, self.scene.now_ms + duration_ms)

    @rule(duration_ms=st.sampled_from([0, 1, 50, 1_000, 10_000, 30_000, 60_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.scene.now_ms += duration_ms
        self.conclude(self.network.tick(self.scene.now_ms))
        deadline_ms = self.network.next_deadline_ms(self.scene.now_ms)
        assert deadline_ms is None or deadline_ms > self.scene.now_ms, "a driver would spin"

    # --- what always holds ----------------------------------------------------------------------------------------

    @invariant()
    def requests_in_flight_are_bounded(self) -> None:
        for node_id in (1, 2, 3, -1, -2):
            assert self.network.in_flight(node_id) <= MAX_IN_FLIGHT
        assert self.network.total_in_flight <= len(self.pending)

    @invariant()
    def whoever_waits_is_told_in_time(self) -> None:
        if self.pending:
            deadline_ms = self.network.next_deadline_ms(self.scene.now_ms)
            assert deadline_ms is not None
            assert deadline_ms <= self.scene.now_ms + 90_000

    def teardown(self) -> None:
        self.conclude(self.network.close())
        self.perform()
        assert not self.pending, "every request ends"
        assert not self.connecting
        assert not self.open


def tag_of(header: RequestHeader, body: bytes) -> int:
    return int(codec.decode_exactly("MetadataRequest", header.api_version, body)["topics"][0]["name"])


TestNetworkMachine = NetworkMachine.TestCase
TestNetworkMachine.settings = settings(max_examples=examples(150), stateful_step_count=60, deadline=None)
