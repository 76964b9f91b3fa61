"""Which broker coordinates a group or a transactional id, and asking it, wherever it is by now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TypeVar

from oncelog.client.blocking import BlockingClient, BlockingConnection, ConnectionLost
from oncelog.client.leaders import raise_error
from oncelog.client.metadata import Node
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

T = TypeVar("T")


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1

    @property
    def noun(self) -> str:
        return "group" if self is KeyType.GROUP else "transactional id"


class CoordinatorAdmin:
    _client: BlockingClient

    def _at_coordinator(self, key_type: KeyType, key: str, ask: Callable[[Node], T]) -> T:
        """What the coordinator answers; asked again, and looked for again, for as long as that may help."""
        return self._client.retrying(lambda: ask(self._find_coordinator(key_type, key)))

    def _find_coordinator(self, key_type: KeyType, key: str, *, timeout_ms: int | None = None) -> Node:
        """Asks once."""
        request: Message = {"key": key, "key_type": key_type, "coordinator_keys": [key]}
        answer = self._client.request(ApiKey.FIND_COORDINATOR, request, timeout_ms=timeout_ms)
        found = answer if "coordinators" not in answer or not answer["coordinators"] else answer["coordinators"][0]
        raise_error(found, key, key_type.noun)
        return Node(found["node_id"], found["host"], found["port"])

    def _by_coordinator(self, key_type: KeyType, keys: Iterable[str]) -> dict[Node, list[str]]:
        """Asks once for all, which brokers understand since FindCoordinator 4."""
        request: Message = {"key_type": key_type, "coordinator_keys": list(keys)}
        grouped: dict[Node, list[str]] = {}
        for found in self._client.request(ApiKey.FIND_COORDINATOR, request)["coordinators"]:
            raise_error(found, found["key"], key_type.noun)
            node = Node(found["node_id"], found["host"], found["port"])
            grouped.setdefault(node, []).append(found["key"])
        return grouped

    def _connection_to(self, node: Node) -> BlockingConnection:
        """To hear which versions and features this very broker has."""
        try:
            return self._client.connection_to((node.host, node.port))
        except OSError as error:
            raise ConnectionLost(f"{node.host}:{node.port} is not reachable: {error}") from None
