"""Which brokers a client cannot reach, and who is told of it: one WARNING for each change, with what happens next.

Owns what was said about each address, and that a broker that comes and goes does not fill the log. Never decides when
to connect. One address counts once, whatever its broker is asked for and under whichever number.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from oncelog.client.metadata import Node
from oncelog.printable import printable

logger = logging.getLogger(__name__)

QUIET_MS = 30_000
"""After a WARNING about an address, the shortest time until it is said again that it cannot be reached."""

Address = tuple[str, int]


class _Said:
    __slots__ = ("at_ms", "is_unreachable", "times")

    def __init__(self) -> None:
        self.at_ms: int | None = None
        self.is_unreachable = False
        """What was said last."""
        self.times = 0
        """How often it could not be reached since then."""


class Reachability:
    def __init__(self, client_id: str | None) -> None:
        self._client = client_id or "a client without client.id"
        self._said: dict[Address, _Said] = {}

    def failed(self, node: Node, reason: str, what_next: str, now_ms: int) -> None:
        """It does not accept connections, does not answer, or answers nonsense."""
        said = self._said.setdefault((node.host, node.port), _Said())
        said.times += 1
        if said.is_unreachable or (said.at_ms is not None and now_ms < said.at_ms + QUIET_MS):
            return
        times = f", {said.times} times since the last warning" if said.times > 1 else ""
        said.at_ms, said.is_unreachable, said.times = now_ms, True, 0
        text = f"{self._client}: broker {node} cannot be reached: {reason}{times}; {what_next}"
        logger.warning("%s", printable(text))

    def silent(self, node: Node, waited_ms: int, what_next: str, now_ms: int) -> None:
        """It is connected, and an answer is overdue."""
        said = self._said.setdefault((node.host, node.port), _Said())
        if said.is_unreachable or (said.at_ms is not None and now_ms < said.at_ms + QUIET_MS):
            return
        said.at_ms, said.is_unreachable, said.times = now_ms, True, 0
        text = f"{self._client}: broker {node} has not answered for {waited_ms // 1000} s; {what_next}"
        logger.warning("%s", printable(text))

    def answered(self, node: Node) -> None:
        """What was silent speaks on the same connection."""
        self._is_there(node, "answers again")

    def reached(self, node: Node) -> None:
        """It said which versions it speaks."""
        self._is_there(node, "can be reached again")

    def _is_there(self, node: Node, what: str) -> None:
        said = self._said.get((node.host, node.port))
        if said is not None and said.is_unreachable:
            said.is_unreachable, said.times = False, 0
            logger.warning("%s", printable(f"{self._client}: broker {node} {what}"))

    def keep(self, addresses: Collection[Address]) -> None:
        """The others are not the cluster's any more."""
        if not self._said.keys() <= set(addresses):
            self._said = {address: said for address, said in self._said.items() if address in addresses}
