"""Every connection of one client, without the sockets: who is connected, who may be asked, and what became of it.

Owns connecting, backoff, the agreement on versions, the bound of requests in flight, throttling and every timeout.
Never opens a socket, never reads a clock, and never sends a request again: a request ends exactly once, as `Answered`
or as `Lost`, and what a loss means is for the core above to decide.

    network = Network(settings, random.random)
    network.set_nodes(bootstrap_nodes([("127.0.0.1", 9092)]))

The core above asks `is_ready` or `least_loaded`, and sends. The shell performs `take_effects()` and tells what
happened by the number of the link, which stands for one attempt to connect and all that follows from it: news of a
link that has ended is ignored, so that a shell need not be quicker than its sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from oncelog.client.connection import Answer, Connection
from oncelog.client.link import Link, Peer, Request, State
from oncelog.client.metadata import Node
from oncelog.client.network_events import Answered, Close, Connect, Effect, Event, Lost, LostKind, Write
from oncelog.client.network_settings import NetworkSettings
from oncelog.client.reachability import Reachability
from oncelog.errors import KafkaError, OncelogError, UnsupportedVersion
from oncelog.records.model import Buffer
from oncelog.wire.api import ApiKey
from oncelog.wire.frame_receiver import FrameMemory

NOT_SENT = -1
"""The version of a request that could not be sent; its loss is reported by the next `tick`."""

SLOW_CONNECT_MS = 1_000
"""How long `least_loaded` waits for one node before it tries another as well."""
OVERDUE_MS = 5_000
"""An answer that is so much later than a broker may take for it is a WARNING: people need not wait until the request is
given up to hear of a broker that hangs."""
MAX_DOUBLINGS = 32
"""Where a growing pause is certain to have reached its bound."""
MAX_REASONS = 5
"""How many nodes `why_unreachable` speaks of."""
MAX_THROTTLE_MS = 60_000
"""The longest pause that a node is given at once. Who means more says so again; who says more by mistake would silence
the client for weeks."""

CLOSED = "the client was closed"

_new: Any = tuple.__new__  # of a NamedTuple, without the call of its Python constructor
_JITTER = 0.2
_NEVER = 2**63 - 1
_RUBBISH_BIN = memoryview(bytearray(4096))
"""Where the bytes of ended links go."""


def bootstrap_nodes(servers: Iterable[tuple[str, int]]) -> list[Node]:
    """The servers that a user names, as nodes of a cluster that is not known yet."""
    return [Node(-number, host, port) for number, (host, port) in enumerate(servers, start=1)]


class Network:
    def __init__(self, settings: NetworkSettings, jitter: Callable[[], float]) -> None:
        self._settings = settings
        self._jitter = jitter
        self._reachability = Reachability(settings.client_id)
        self._max_in_flight = settings.max_in_flight
        self._memory = FrameMemory()
        self._peers: dict[int, Peer] = {}
        self._reserved: set[int] = set()
        self._links: dict[int, Link] = {}
        self._next_link = 0
        self._turn = 0  # of the nodes, in `least_loaded`
        self._effects: list[Effect] = []
        self._unreported: list[Event] = []
        self._has_made_room = False  # for more requests that nobody answers: no event tells of it
        self._alarm_ms = _NEVER  # never later than the next deadline, but perhaps earlier
        self._is_closed = False
        self.connections_made = 0
        self.connections_lost = 0
        self.connections_broken = 0
        """Those that had been ready, and ended by a fault: whoever left them may have lost its offices as well."""
        self.requests_sent = 0
        self.bytes_out = 0
        self.bytes_in = 0

    # --- for the core above: the cluster ---------------------------------------------------------------------------

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """The cluster as it is now. Connections to nodes that left or moved are closed; the next `tick` reports what
        was lost with them. The connection to a bootstrap server becomes that of the node at the same address, or is
        closed after its last answer."""
        known = self._peers
        self._peers = {node_id: known.pop(node_id) for node_id in self._reserved}
        for node_id, node in {node.node_id: node for node in nodes}.items():
            peer = known.get(node_id)
            if peer is None or _address(peer.node) != _address(node):
                peer = Peer(node)
            else:
                peer.node = node
                del known[node_id]
            self._peers[node_id] = peer
        for peer in known.values():
            if peer.link is not None:
                self._dismiss(peer.link)
        self._reachability.keep({_address(peer.node) for peer in self._peers.values()})

    def _dismiss(self, link: Link) -> None:
        gone = link.peer.node
        if gone.node_id < 0:
            for peer in self._peers.values():
                if peer.link is None and _address(peer.node) == _address(gone) and not self._is_reserved(peer):
                    peer.link, link.peer = link, peer
                    return
            if link.load:
                link.is_leaving = True
                return
        moved = self._peers.get(gone.node_id)
        reason = f"moved to {moved.node}" if moved else "left the cluster"
        self._unreported += self._end(link, reason, LostKind.CONNECTION)

    def reserve(self, node: Node) -> None:
        """A connection for one purpose alone, beside the one to the broker's own number: what waits on one does not
        delay the other. `node.node_id` is a number that no broker has; `set_nodes` and `least_loaded` pass it over."""
        known = self._peers.get(node.node_id)
        if known is not None and _address(known.node) == _address(node):
            return
        self.release(node.node_id)
        self._peers[node.node_id] = Peer(node)
        self._reserved.add(node.node_id)

    def release(self, node_id: int) -> None:
        """Ends what was reserved; the next `tick` reports what was lost with it."""
        if node_id not in self._reserved:
            return
        self._reserved.remove(node_id)
        link = self._peers.pop(node_id).link
        if link is not None:
            self._unreported += self._end(link, "not needed any more", LostKind.CONNECTION)

    def _is_reserved(self, peer: Peer) -> bool:
        return peer.node.node_id in self._reserved

    def knows(self, node_id: int) -> bool:
        return node_id in self._peers

    def add_node(self, node: Node) -> None:
        """A broker that another one names, before metadata does; `set_nodes` decides whether it stays."""
        assert node.node_id not in self._peers
        self._peers[node.node_id] = Peer(node)

    def connect(self, node_id: int, now_ms: int) -> None:
        """Wants a connection; does nothing if there is one, or if it is too early after the last failure."""
        peer = self._peers.get(node_id)
        if peer is None or peer.link is not None or now_ms < peer.retry_ms or self._is_closed:
            return
        settings = self._settings
        setup_ms = self._grown(
            settings.socket_connection_setup_timeout_ms, settings.socket_connection_setup_timeout_max_ms, peer.failures
        )
        connection = Connection(settings.client_id, max_answer_bytes=settings.max_answer_bytes, memory=self._memory)
        link = Link(self._next_link, peer, connection, now_ms, now_ms + setup_ms)
        self._next_link += 1
        self._links[link.number] = peer.link = link
        self._effects.append(Connect(link.number, peer.node.host, peer.node.port))
        self._wake_by(min(link.deadline_ms, now_ms + SLOW_CONNECT_MS))

    def least_loaded(self, now_ms: int) -> int | None:
        """The ready node with the fewest requests in flight. If none is ready, the next in turn is connected to."""
        peers = [peer for peer in self._peers.values() if not self._is_reserved(peer)]
        ready = [peer for peer in peers if self._is_ready(peer, now_ms)]
        if ready:
            return min(ready, key=_load).node.node_id
        if not any(self._is_promising(link, now_ms) for link in self._links.values()):
            self._connect_next(peers, now_ms)
        return None

    def _is_promising(self, link: Link, now_ms: int) -> bool:
        is_new = link.state is not State.READY and now_ms < link.used_ms + SLOW_CONNECT_MS
        return is_new and not self._is_reserved(link.peer)

    def _connect_next(self, peers: list[Peer], now_ms: int) -> None:
        for _ in peers:
            peer = peers[self._turn % len(peers)]
            self._turn += 1
            if peer.link is None and now_ms >= peer.retry_ms:
                self.connect(peer.node.node_id, now_ms)
                return

    def is_connected(self, node_id: int) -> bool:
        peer = self._peers.get(node_id)
        return peer is not None and peer.link is not None and peer.link.state is State.READY

    def is_unreachable(self, node_id: int, now_ms: int) -> bool:
        """Its connection failed, and it is too early for another attempt."""
        peer = self._peers.get(node_id)
        return peer is None or (peer.link is None and now_ms < peer.retry_ms)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """A request may be sent to this node now."""
        peer = self._peers.get(node_id)
        return peer is not None and self._is_ready(peer, now_ms)

    def _is_ready(self, peer: Peer, now_ms: int) -> bool:
        link = peer.link
        return (
            link is not None
            and link.state is State.READY
            and not link.is_paused
            and now_ms >= peer.throttled_until_ms
            and link.load < self._max_in_flight
        )

    def is_occupied(self, node_id: int) -> bool:
        """The node has as many requests as it may have, or its socket takes no more: it will be heard of."""
        peer = self._peers.get(node_id)
        if peer is None or peer.link is None or peer.link.state is not State.READY:
            return False
        return peer.link.is_paused or peer.link.load >= self._max_in_flight

    def in_flight(self, node_id: int) -> int:
        peer = self._peers.get(node_id)
        return 0 if peer is None else _load(peer)

    @property
    def total_in_flight(self) -> int:
        return sum(link.load for link in self._links.values())

    def gauges(self) -> dict[str, Callable[[], float]]:
        """What is read when metrics are asked for, under Kafka's names."""
        return {
            "requests-in-flight": lambda: self.total_in_flight,
            "connection-count": lambda: self.connections_made - self.connections_lost,
            "connection-creation-total": lambda: self.connections_made,
            "connection-close-total": lambda: self.connections_lost,
            "outgoing-byte-total": lambda: self.bytes_out,
            "incoming-byte-total": lambda: self.bytes_in,
            "request-total": lambda: self.requests_sent,
        }

    def throttle(self, node_id: int, until_ms: int) -> None:
        """The node asked for a pause, in an answer that has just come."""
        peer = self._peers.get(node_id)
        if peer is not None and peer.link is not None:
            until_ms = min(until_ms, peer.link.used_ms + MAX_THROTTLE_MS)
        if peer is not None and until_ms > peer.throttled_until_ms:
            peer.throttled_until_ms = until_ms
            self._wake_by(until_ms)

    def throttled_until(self, node_id: int) -> int:
        peer = self._peers.get(node_id)
        return 0 if peer is None else peer.throttled_until_ms

    def version_of(self, node_id: int, api_key: ApiKey, max_version: int | None = None) -> int:
        """The version in which a connected node is asked. Raises UnsupportedVersion."""
        return self._ready_link(node_id).connection.version_of(api_key, max_version)

    def features(self, node_id: int) -> Mapping[str, int]:
        """The finalized features of a connected node."""
        negotiated = self._ready_link(node_id).connection.negotiated
        assert negotiated is not None
        return negotiated.features

    def why_unreachable(self) -> str:
        """Why nodes are not connected, for people. Asked by other threads too, while nodes come and go."""
        reasons = {str(peer.node): peer.why_lost for peer in list(self._peers.values()) if peer.why_lost is not None}
        return "; ".join(list(reasons.values())[:MAX_REASONS])  # a broker may be known under several numbers

    def why_silent(self, now_ms: int) -> str:
        """Which connected nodes owe an answer, and since when, for people; empty if none does. For any thread."""
        waits: dict[str, int] = {}
        for link in list(self._links.values()):
            since_ms = _owes_since_ms(link)
            if since_ms is not None and since_ms <= now_ms:
                name = str(link.peer.node)
                waits[name] = max(waits.get(name, 0), now_ms - since_ms)
        longest = sorted(waits, key=lambda name: -waits[name])[:MAX_REASONS]
        return "; ".join(f"broker {name} has not answered for {waits[name] / 1000:.1f} s" for name in longest)

    def owes_since_ms(self, now_ms: int) -> int | None:
        """Since when a connected node has owed an answer that it could have given; None while none does. For any
        thread."""
        moments = [_owes_since_ms(link) for link in list(self._links.values())]
        return min((moment for moment in moments if moment is not None and moment <= now_ms), default=None)

    # --- for the core above: requests -------------------------------------------------------------------------------

    def send(
        self,
        node_id: int,
        api_key: ApiKey,
        body: Any,
        now_ms: int,
        *,
        tag: object,
        answered: bool = True,
        timeout_ms: int | None = None,
        max_version: int | None = None,
        held_ms: int = 0,
    ) -> int:
        """A request to a node that is ready; returns its version. It ends as `Answered` or `Lost` with this `tag`.
        `held_ms` is for how long the broker may keep it on purpose.

        `answered=False` is for what brokers do not answer (Produce with acks=0): neither event will come. Where the
        node speaks no version that this client knows, the result is NOT_SENT and the next `tick` reports the loss.
        """
        link = self._ready_link(node_id)
        assert link.load < self._max_in_flight, "more requests in flight than allowed"
        deadline_ms = now_ms + (self._settings.request_timeout_ms if timeout_ms is None else timeout_ms)
        request = Request(tag, node_id, now_ms, deadline_ms, held_ms)
        try:
            _, version, data, size_bytes = link.connection.send(
                api_key, body, max_version=max_version, answered=answered, tag=request
            )
        except UnsupportedVersion as error:
            self._unreported.append(Lost(tag, node_id, f"{link.peer.node}: {error}", LostKind.UNSUPPORTED))
            return NOT_SENT
        self._write(link, data)
        link.load += 1
        if answered:
            link.untaken += 1
            self._wake_by(min(deadline_ms, now_ms + held_ms + OVERDUE_MS))
        else:
            link.untaken_unanswered += 1
            link.has_unanswered = True
        link.used_ms = now_ms
        self.requests_sent += 1
        self.bytes_out += size_bytes
        return version

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `tick` must be called at the latest."""
        if self._unreported or self._has_made_room:
            return now_ms
        return None if self._alarm_ms == _NEVER else self._alarm_ms

    def is_due(self, now_ms: int) -> bool:
        """`tick` has something to tell, or the shell to do."""
        return bool(self._unreported or self._effects or self._has_made_room or now_ms >= self._alarm_ms)

    def tick(self, now_ms: int) -> list[Event]:
        """What time has decided: connections on which a request is overdue are closed, and all their requests lost."""
        events, self._unreported = self._unreported, []
        self._has_made_room = False
        if now_ms >= self._alarm_ms:
            for link in list(self._links.values()):
                events += self._expire(link, now_ms)
            self._alarm_ms = self._next_alarm_ms(now_ms)
        return events

    def close(self) -> list[Event]:
        """Ends every connection and loses every request; there will be no others. Only requests that nobody will
        answer are still written, if the shell gives them the time (`is_flushing`)."""
        self._is_closed = True
        events, self._unreported = self._unreported, []
        for link in list(self._links.values()):
            lose = self._lose_requests if link.is_flushing else self._end
            events += lose(link, CLOSED, LostKind.CONNECTION)
        return events

    # --- for the shell ----------------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """What the shell is to do, in this order. Taken once."""
        effects, self._effects = self._effects, []
        for effect in effects:
            if type(effect) is Write:
                link = self._links[effect.link]
                link.write = None
                link.untaken = 0
                if link.untaken_unanswered:
                    link.load -= link.untaken_unanswered
                    link.untaken_unanswered = 0
                    self._has_made_room = True
        return effects

    def opened(self, number: int, now_ms: int) -> None:
        """The socket is connected."""
        link = self._links.get(number)
        if link is None:
            return
        self.connections_made += 1
        link.state = State.AGREEING
        link.used_ms = link.heard_ms = now_ms
        link.deadline_ms = now_ms + self._settings.request_timeout_ms
        self._wake_by(min(link.deadline_ms, now_ms + OVERDUE_MS))
        self._write(link, [link.connection.start()])

    def get_buffer(self, number: int) -> memoryview:
        """Where to receive the link's next bytes; never empty."""
        link = self._links.get(number)
        return _RUBBISH_BIN if link is None or self._is_closed else link.connection.get_buffer()

    def received(self, number: int, count: int, now_ms: int) -> list[Event]:
        """`count` more bytes are in the link's buffer."""
        link = self._links.get(number)
        if link is None or self._is_closed:
            return []
        self.bytes_in += count
        link.used_ms = link.heard_ms = now_ms
        if link.is_silent:
            self._speaks(link)
        events: list[Event] = []
        try:
            for event in link.connection.received(count):
                if type(event) is Answer:
                    request: Request = event.tag
                    link.load -= 1
                    answered = (request.tag, request.node_id, event.api_key, event.version, event.body, request.sent_ms)
                    events.append(_new(Answered, answered))
                else:
                    self._agreed(link, now_ms)
        except OncelogError as error:
            reason = str(error) if isinstance(error, KafkaError) else f"does not speak Kafka's protocol: {error}"
            return events + self._fail(link, reason, LostKind.RUBBISH, now_ms)
        if link.state is State.AGREEING:
            self._ask_again(link)
        elif link.is_leaving and not link.load:
            self._end(link, "", LostKind.CONNECTION)
        return events

    def plain_answer(self, number: int, count: int, now_ms: int) -> Answered | None:
        """As `received`, if `count` more bytes are nothing but a Produce's success, and no other request is under way
        on the link. None, with nothing changed, for everything else."""
        link = self._links.get(number)
        if link is None or self._is_closed or link.state is not State.READY or link.is_leaving:
            return None
        found = link.connection.plain_answer(count)
        if found is None:
            return None
        self.bytes_in += count
        link.used_ms = link.heard_ms = now_ms
        if link.is_silent:
            self._speaks(link)
        link.load -= 1
        request: Request = found[0]
        version = link.connection.version_of(ApiKey.PRODUCE)
        answered: Answered = _new(
            Answered, (request.tag, request.node_id, ApiKey.PRODUCE, version, found[1], request.sent_ms)
        )
        return answered

    def lost(self, number: int, reason: str, now_ms: int) -> list[Event]:
        """The socket could not connect, or broke; the shell has closed it."""
        link = self._links.get(number)
        if link is None:
            return []
        events = self._fail(link, reason, LostKind.CONNECTION, now_ms)
        self._effects = [effect for effect in self._effects if effect.link != number]
        return events

    def pause_writing(self, number: int, now_ms: int) -> None:
        """The broker does not take all that was written: the node is not ready until it has, and lost if it never
        does."""
        link = self._links.get(number)
        if link is not None and not link.is_paused:
            link.is_paused = True
            link.deadline_ms = min(link.deadline_ms, now_ms + self._settings.request_timeout_ms)
            self._wake_by(link.deadline_ms)

    def resume_writing(self, number: int) -> None:
        """Everything that was written is on its way."""
        link = self._links.get(number)
        if link is not None and link.is_paused:
            link.is_paused = link.has_unanswered = False
            if link.state is State.READY:
                link.deadline_ms = _NEVER

    @property
    def is_flushing(self) -> bool:
        """Requests that nobody will answer have not left yet: too early to end."""
        return any(link.is_flushing for link in self._links.values())

    # --- the life of a link -----------------------------------------------------------------------------------------

    def _ready_link(self, node_id: int) -> Link:
        link = self._peers[node_id].link
        assert link is not None, f"node {node_id} is not connected"
        assert link.state is State.READY, f"node {node_id} is not connected"
        return link

    def _write(self, link: Link, buffers: list[Buffer]) -> None:
        if link.write is None:
            link.write = _new(Write, (link.number, buffers))
            self._effects.append(link.write)
        else:
            link.write.buffers.extend(buffers)

    def _ask_again(self, link: Link) -> None:
        question = link.connection.data_to_send()
        if question:
            self._write(link, [question])

    def _agreed(self, link: Link, now_ms: int) -> None:
        link.state = State.READY
        link.deadline_ms = _NEVER
        link.ready_ms = now_ms
        link.peer.why_lost = None
        self._reachability.reached(link.peer.node)
        self._wake_by(self._idle_ms(now_ms))

    def _fail(self, link: Link, reason: str, kind: LostKind, now_ms: int) -> list[Event]:
        """The link ends by a fault: its node is left alone for a while."""
        settings = self._settings
        peer = link.peer
        was_ready = link.state is State.READY
        if was_ready and now_ms - link.ready_ms >= settings.reconnect_backoff_max_ms:
            peer.failures = 0  # it was of use; one that agrees and fails at once, time and again, is none
        backoff_ms = self._grown(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, peer.failures)
        peer.failures += 1
        peer.retry_ms = now_ms + backoff_ms
        peer.why_lost = f"{peer.node}: {reason}"
        self.connections_broken += was_ready
        if not was_ready or kind is not LostKind.CONNECTION:  # one that breaks may be back at the next attempt
            self._reachability.failed(peer.node, reason, self._what_next(link, backoff_ms), now_ms)
        self._wake_by(peer.retry_ms)
        return self._end(link, reason, kind)

    def _what_next(self, failed: Link, backoff_ms: int) -> str:
        """For people."""
        most_ms = max(backoff_ms, self._settings.reconnect_backoff_max_ms)
        again = f"trying again in {backoff_ms} ms, then after pauses of up to {most_ms} ms"
        return f"{self._others(failed)}; {again}, until it answers or this client is closed"

    def _others(self, failed: Link) -> str:
        """Who is still there, for people. Several connections to one address are one broker."""
        at = _address(failed.peer.node)
        links = [link for link in self._links.values() if link.state is State.READY and not link.is_silent]
        count = len({_address(link.peer.node) for link in links} - {at})
        if not count:
            return "no other broker is connected"
        return f"{count} other broker{' is' if count == 1 else 's are'} connected"

    def _falls_silent(self, link: Link, waited_ms: int, deadline_ms: int, now_ms: int) -> None:
        link.is_silent = True
        left_s = max(0, deadline_ms - now_ms) / 1000
        what_next = f"{self._others(link)}; waiting for up to {left_s:.0f} s more, then connecting anew"
        self._reachability.silent(link.peer.node, waited_ms, what_next, now_ms)

    def _speaks(self, link: Link) -> None:
        link.is_silent = False
        if link.state is State.READY:  # else all it has to say may be that
            self._reachability.answered(link.peer.node)

    def _end(self, link: Link, reason: str, kind: LostKind) -> list[Event]:
        """The link is no more, and its requests are lost."""
        del self._links[link.number]
        if link.peer.link is link:
            link.peer.link = None
        unseen = {type(effect) for effect in self._effects if effect.link == link.number}
        if unseen:
            self._effects = [effect for effect in self._effects if effect.link != link.number]
        if Connect not in unseen:
            self._effects.append(Close(link.number))
        if link.state is not State.CONNECTING:
            self.connections_lost += 1
        return self._lose_requests(link, reason, kind)

    def _lose_requests(self, link: Link, reason: str, kind: LostKind) -> list[Event]:
        """Every request of the link, in the order in which they were sent."""
        if link.state is not State.READY:
            return []
        requests = link.connection.abandon()
        link.load -= len(requests)
        first_unsent = len(requests) - link.untaken
        text = f"{link.peer.node}: {reason}"
        return [
            Lost(request.tag, request.node_id, text, kind if place < first_unsent else LostKind.NEVER_SENT)
            for place, request in enumerate(requests)
        ]

    # --- time ---------------------------------------------------------------------------------------------------------

    def _expire(self, link: Link, now_ms: int) -> list[Event]:
        if now_ms >= link.deadline_ms:
            return self._fail(link, _OVERDUE[link.state], LostKind.TIMEOUT, now_ms)
        outstanding = link.connection.outstanding if link.state is State.READY else []
        for request in outstanding:
            if now_ms >= request.deadline_ms:
                reason = f"no answer within {request.deadline_ms - request.sent_ms} ms"
                return self._fail(link, reason, LostKind.TIMEOUT, now_ms)
        overdue_ms = _overdue_ms(link)
        if now_ms >= overdue_ms:
            last_ms = min((request.deadline_ms for request in outstanding), default=_NEVER)
            self._falls_silent(link, now_ms - overdue_ms + OVERDUE_MS, min(link.deadline_ms, last_ms), now_ms)
        if link.state is not State.READY:
            return []
        if not link.load and now_ms >= self._idle_ms(link.used_ms):
            return self._end(link, "idle", LostKind.CONNECTION)
        return []

    def _next_alarm_ms(self, now_ms: int) -> int:
        moments = [self._due_ms(link, now_ms) for link in self._links.values()]
        for peer in self._peers.values():
            moments += [moment for moment in (peer.retry_ms, peer.throttled_until_ms) if moment > now_ms]
        return min(moments, default=_NEVER)

    def _due_ms(self, link: Link, now_ms: int) -> int:
        if link.state is not State.READY:
            slow_ms = link.used_ms + SLOW_CONNECT_MS
            due_ms = min(link.deadline_ms, _overdue_ms(link))
            return min(due_ms, slow_ms) if slow_ms > now_ms else due_ms
        deadlines: list[int] = [request.deadline_ms for request in link.connection.outstanding]
        # A link that waits for an answer is idle no earlier than from now on.
        idle_ms = self._idle_ms(link.used_ms) if not deadlines else self._idle_ms(now_ms)
        return min(link.deadline_ms, idle_ms, _overdue_ms(link), *deadlines)

    def _idle_ms(self, used_ms: int) -> int:
        idle_ms = self._settings.connections_max_idle_ms
        return _NEVER if idle_ms < 0 else used_ms + idle_ms

    def _wake_by(self, moment_ms: int) -> None:
        self._alarm_ms = min(self._alarm_ms, moment_ms)

    def _grown(self, first_ms: int, most_ms: int, doublings: int) -> int:
        """A pause that doubles up to its bound, with jitter: clients that lost a broker together return one by one."""
        pause_ms = min(first_ms << min(doublings, MAX_DOUBLINGS), most_ms)
        return min(int(pause_ms * (1 - _JITTER + 2 * _JITTER * self._jitter())), most_ms)


_OVERDUE = {
    State.CONNECTING: "does not accept the connection",
    State.AGREEING: "does not answer which versions it speaks",
    State.READY: "does not take more data",
}


def _address(node: Node) -> tuple[str, int]:
    return node.host, node.port


def _owes_since_ms(link: Link) -> int | None:
    """Since when the broker could have answered; None if nothing is asked. Requests of a link are answered one after
    the other. For any thread."""
    if link.state is State.CONNECTING:
        return None  # the socket's own limit, and reason, apply
    if link.state is State.AGREEING:
        return link.used_ms
    request = link.connection.oldest
    return None if request is None else max(request.sent_ms, link.heard_ms) + request.held_ms


def _overdue_ms(link: Link) -> int:
    """When to say so."""
    since_ms = None if link.is_silent else _owes_since_ms(link)
    return _NEVER if since_ms is None else since_ms + OVERDUE_MS


def _load(peer: Peer) -> int:
    return 0 if peer.link is None else peer.link.load
