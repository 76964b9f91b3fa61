"""The brokers of a client: who they are, whom to ask, and the questions about topics. Shared by producer and consumer.

Owns when metadata is asked and what its answer does to the network's nodes. Never decides which topics matter: its
users tell the `MetadataCache` what they want.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.client.metadata import ClusterMetadata, Node
from oncelog.client.metadata_cache import MetadataCache
from oncelog.client.network import Network, bootstrap_nodes
from oncelog.client.network_events import Event, Lost
from oncelog.wire.api import ApiKey

REBOOTSTRAP_AFTER_MS = 5_000
"""Without any connection for so long, the bootstrap servers are tried again."""


class Cluster:
    def __init__(self, network: Network, metadata: MetadataCache, servers: Iterable[tuple[str, int]]) -> None:
        self.metadata = metadata
        self.nodes: list[Node]
        self.lacks_node = False
        """Nobody could be asked when somebody wanted to; the network wakes us when that changes."""
        self._network = network
        self._bootstrap = bootstrap_nodes(servers)
        self._last_connected_ms: int | None = None
        self._broken_seen = 0
        self.nodes = list(self._bootstrap)
        network.set_nodes(self._bootstrap)

    @property
    def is_connected(self) -> bool:
        return any(self._network.is_connected(node.node_id) for node in self.nodes)

    @property
    def connected_to(self) -> list[str]:
        """The addresses of those that are."""
        return sorted({str(node) for node in self.nodes if self._network.is_connected(node.node_id)})

    def any_node(self, now_ms: int) -> int | None:
        """Whom to ask what every broker knows; None while none is ready."""
        node_id = self._network.least_loaded(now_ms)
        self.lacks_node = node_id is None
        return node_id

    def refresh(self, now_ms: int) -> None:
        """Asks for metadata if that is due. The answer carries the tag `ApiKey.METADATA`."""
        self.lacks_node = False
        if self._broken_seen != self._network.connections_broken:  # even if nothing was under way, as Kafka's clients
            self._broken_seen = self._network.connections_broken
            self.metadata.mark_stale()
        due_ms = self.metadata.due_ms()
        if due_ms is None or due_ms > now_ms:
            return
        node_id = self.any_node(now_ms)
        if node_id is None:
            self._rebootstrap(now_ms)
            return
        self._last_connected_ms = now_ms
        self._network.send(node_id, ApiKey.METADATA, self.metadata.question(now_ms), now_ms, tag=ApiKey.METADATA)

    def arrived(self, event: Event, now_ms: int) -> ClusterMetadata | None:
        """What a broker told; None if the question was lost."""
        if isinstance(event, Lost):
            self.metadata.failed()
            return None
        told = self.metadata.learn(event.body, now_ms)
        if told.nodes:
            self.nodes = list(told.nodes.values())
            self._network.set_nodes(self.nodes)
        return told

    def due_ms(self) -> int | None:
        """When the next question is due; None while there is nobody to ask, or an answer is awaited."""
        return None if self.lacks_node else self.metadata.due_ms()

    def _rebootstrap(self, now_ms: int) -> None:
        """Every broker we knew may have moved; the servers that the user named are still worth a try."""
        if self._last_connected_ms is None:
            self._last_connected_ms = now_ms
        if now_ms - self._last_connected_ms < REBOOTSTRAP_AFTER_MS or self.is_connected:
            return
        self._last_connected_ms = now_ms
        self._network.set_nodes([*self.nodes, *(node for node in self._bootstrap if node not in self.nodes)])


def connection_text(connected_to: Iterable[str], servers: Iterable[tuple[str, int]]) -> str:
    """Where a client is connected, for people: `connected to 10.0.0.1:9092`, or `not connected (tries HOST:PORT)`."""
    addresses = ", ".join(connected_to)
    if addresses:
        return f"connected to {addresses}"
    return f"not connected (tries {', '.join(f'{host}:{port}' for host, port in servers)})"
