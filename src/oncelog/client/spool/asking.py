"""One question at a time to a broker, which is asked again after a pause until it is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncelog.client.network import Network
from oncelog.client.network_events import Answered, Event, LostKind
from oncelog.wire.api import ApiKey

ASK_AGAIN_MS: Final = 100

OnAnswer = Callable[[Answered], None]
OnUnsupported = Callable[[str], None]


class Asked:
    """Of one request in flight: who wants to hear its end."""

    __slots__ = ("handle",)

    def __init__(self, handle: Callable[[Event, int], None]) -> None:
        self.handle = handle


class Asking:
    def __init__(self, network: Network, on_lost: Callable[[], None]) -> None:
        self._network = network
        self._on_lost = on_lost
        self._is_waiting = False
        self._ask_at_ms = 0

    def is_free(self, now_ms: int) -> bool:
        return not self._is_waiting and now_ms >= self._ask_at_ms

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Whether the broker can be asked now; if not, a connection is on its way."""
        if self._network.is_ready(node_id, now_ms):
            return True
        if not self._network.is_connected(node_id):
            self._network.connect(node_id, now_ms)
        return False

    def ask(
        self,
        node_id: int,
        api_key: ApiKey,
        body: Any,
        now_ms: int,
        on_answer: OnAnswer,
        on_unsupported: OnUnsupported,
        max_version: int | None = None,
    ) -> None:
        def ended(event: Event, now_ms: int) -> None:
            self._is_waiting = False
            if isinstance(event, Answered):
                on_answer(event)
            elif event.kind is LostKind.UNSUPPORTED:
                on_unsupported(event.reason)
            else:
                self.again(now_ms)

        self._is_waiting = True
        self._network.send(node_id, api_key, body, now_ms, tag=Asked(ended), max_version=max_version)

    def again(self, now_ms: int) -> None:
        """The next question after a pause, perhaps to another broker."""
        self._ask_at_ms = now_ms + ASK_AGAIN_MS
        self._on_lost()
