"""The way to the coordinator of a group, or of a transactional id: which broker it is, and a connection to it that
nothing else uses.

Owns the search (FindCoordinator), when it is repeated, and who may send now. A broker works on the requests of one
connection in their order, so a JoinGroup that waits for other members would hold up all behind it: while such an
exclusive request is under way the link is not ready, and fetches, which wait as well, have connections of their own.
Never sends a request again: what a loss means is for the asker to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from oncelog.client.membership.backoff import Backoff
from oncelog.client.membership.membership import MAX_POLL_MS
from oncelog.client.metadata import Node
from oncelog.client.network import Network
from oncelog.client.network_events import Answered, Event, Lost, LostKind
from oncelog.errors import NONE, KafkaError, UnsupportedVersion, error_for_code
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

GROUP_KEY, TRANSACTION_KEY = 0, 1
MAX_NODE_ID = 2**31 - 1
"""A coordinator's connection has the number that is as far below this as the broker's is above 0."""
KEY_TYPE_SHIFT = 29
"""Coordinators of different kinds that are one broker have a connection each."""

COURTESY_MS = 1_000
"""How long a coordinator that is not connected is looked for with what it finds out by itself in time: that we leave a
group, or end a transaction that nobody goes on with."""

Done = Callable[[Event, int], None]


class _Ask(NamedTuple):
    link: CoordinatorLink
    done: Done
    is_exclusive: bool


class CoordinatorLink:
    def __init__(self, key_type: int, key: str, network: Network, backoff: Backoff) -> None:
        self.refusal: KafkaError | None = None
        """Why the brokers last refused to name a coordinator, in a way that waiting does not mend."""
        self.refusals = 0
        """How often they did. Whoever waited fails; for whoever asks afterwards the search begins again."""
        self._key_type = key_type
        self._key = key
        self._network = network
        self._backoff = backoff
        self._coordinator: Node | None = None
        self._is_searching = False
        self._search_at_ms = 0
        self._is_taken = False
        self._forgotten_why = ""
        self._away_since_ms: int | None = None

    @property
    def is_known(self) -> bool:
        return self._coordinator is not None

    @property
    def is_taken(self) -> bool:
        """An exclusive request is under way."""
        return self._is_taken

    @property
    def is_live(self) -> bool:
        """The coordinator is connected, or a broker that is connected is asked who it is."""
        if self._coordinator is None:
            return self._is_searching
        return self._network.is_connected(self._coordinator.node_id)

    def look(self, now_ms: int) -> None:
        """Now and then, and whenever a connection came or went."""
        if self.is_live:
            self._away_since_ms = None
        elif self._away_since_ms is None:
            self._away_since_ms = now_ms

    def hopeless_ms(self) -> int | None:
        """From when on nobody is to be waited for any more, as far as is known; None while somebody is there."""
        return None if self._away_since_ms is None else self._away_since_ms + COURTESY_MS

    @property
    def why_not_ready(self) -> str:
        reasons = (self._forgotten_why, self._network.why_unreachable())
        return "; ".join(reason for reason in reasons if reason) or "the coordinator is not known yet"

    @property
    def why_silent(self) -> str | None:
        """The same of a question that waits; None if the coordinator has it, or could have."""
        node = self._coordinator
        return None if node is not None and self._network.is_connected(node.node_id) else self.why_not_ready

    def is_ready(self, now_ms: int) -> bool:
        """A request may be sent now. If not, what helps is under way when this returns: search, or connection."""
        if self._is_taken:
            return False
        node = self._coordinator
        if node is None:
            self._search(now_ms)
            return False
        if self._network.is_ready(node.node_id, now_ms):
            return True
        if not self._network.is_connected(node.node_id):
            self._network.connect(node.node_id, now_ms)
            if self._network.is_unreachable(node.node_id, now_ms):
                self.forget("its connection failed", now_ms)
        return False

    def wait_ms(self, now_ms: int) -> int:
        """How long until `is_ready` may change by time alone."""
        if self._coordinator is not None or self._is_searching:
            return MAX_POLL_MS
        return max(0, min(self._search_at_ms - now_ms, MAX_POLL_MS)) or MAX_POLL_MS

    def version_of(self, api_key: ApiKey) -> int:
        """The version in which the coordinator is asked, when it is ready. Raises UnsupportedVersion."""
        assert self._coordinator is not None
        return self._network.version_of(self._coordinator.node_id, api_key)

    def send(
        self,
        api_key: ApiKey,
        body: Message,
        now_ms: int,
        done: Done,
        *,
        exclusive: bool = False,
        timeout_ms: int | None = None,
        max_version: int | None = None,
        held_ms: int = 0,
    ) -> int:
        """A request to the coordinator, which is ready; `done` is called with its end. Returns its version."""
        assert self._coordinator is not None
        assert not self._is_taken
        self._is_taken = exclusive
        tag = _Ask(self, done, exclusive)
        return self._network.send(
            self._coordinator.node_id,
            api_key,
            body,
            now_ms,
            tag=tag,
            timeout_ms=timeout_ms,
            max_version=max_version,
            held_ms=held_ms,
        )

    def handle(self, event: Event, now_ms: int) -> bool:
        """Whether the event was one of this link's; then its asker knows it."""
        ask = event.tag
        if type(ask) is not _Ask or ask.link is not self:
            return False
        if ask.is_exclusive:
            self._is_taken = False
        if isinstance(event, Lost):
            if self._is_current(event.node_id) and event.kind is not LostKind.UNSUPPORTED:
                self.forget(event.reason, now_ms)
        else:
            self._obey(event, now_ms)
        ask.done(event, now_ms)
        return True

    def forget(self, why: str, now_ms: int) -> None:
        """The coordinator is another broker, or does not answer: it is searched again after a pause."""
        if self._coordinator is None:
            return
        self._network.release(self._coordinator.node_id)
        self._coordinator = None
        self._forgotten_why = why
        self._search_at_ms = now_ms + self._backoff.next_ms()

    # --- the search -------------------------------------------------------------------------------------------------

    def _search(self, now_ms: int) -> None:
        if self._is_searching or now_ms < self._search_at_ms:
            return
        node_id = self._network.least_loaded(now_ms)
        if node_id is None:
            return
        question: Message = {"key": self._key, "key_type": self._key_type, "coordinator_keys": [self._key]}
        self._is_searching = True
        tag = _Ask(self, self._found, False)
        self._network.send(node_id, ApiKey.FIND_COORDINATOR, question, now_ms, tag=tag)

    def _found(self, event: Event, now_ms: int) -> None:
        self._is_searching = False
        if isinstance(event, Lost):
            if event.kind is LostKind.UNSUPPORTED:
                self._refused(UnsupportedVersion(event.reason))
            self._search_later(event.reason, now_ms)
            return
        body = event.body
        answer = body if event.version < 4 else next(iter(body["coordinators"]), None)
        if answer is None:
            self._search_later("a broker left the coordinator out of its answer", now_ms)
        elif answer["error_code"] != NONE:
            error = error_for_code(answer["error_code"], answer["error_message"])
            if not error.retriable:
                self._refused(error)
            self._search_later(f"{error.name}: {error}", now_ms)
        else:
            broker = Node(answer["node_id"], answer["host"], answer["port"])
            if broker.node_id >= 0:
                self._learn(broker)
            else:
                self._search_later(f"the coordinator is said to be broker {broker.node_id}", now_ms)

    def _refused(self, error: KafkaError) -> None:
        self.refusal = error
        self.refusals += 1

    def _learn(self, broker: Node) -> None:
        number = MAX_NODE_ID - (self._key_type << KEY_TYPE_SHIFT) - broker.node_id
        self._coordinator = Node(number, broker.host, broker.port)
        self._network.reserve(self._coordinator)

    def _search_later(self, why: str, now_ms: int) -> None:
        self._forgotten_why = why
        self._search_at_ms = now_ms + self._backoff.next_ms()

    def _obey(self, event: Answered, now_ms: int) -> None:
        """An answer is the sign that all is well; where it asks for a pause, the coordinator gets it."""
        if self._is_current(event.node_id):
            self._backoff.reset()
            self._forgotten_why = ""
        throttle_ms = event.body.get("throttle_time_ms", 0)
        if throttle_ms > 0:
            self._network.throttle(event.node_id, now_ms + throttle_ms)

    def _is_current(self, node_id: int) -> bool:
        return self._coordinator is not None and self._coordinator.node_id == node_id
