"""What a driver runs, and the part of its work that is the same with threads and with asyncio."""

from __future__ import annotations

from typing import Protocol

from oncelog.client.network import Network
from oncelog.client.network_events import Event

MAX_POLL_MS = 10_000
"""How long a core may ask to be left alone."""


class Driven(Protocol):
    """A core that speaks through a `Network`, such as the producer's sender. Called by one thread at a time."""

    @property
    def network(self) -> Network: ...

    def poll(self, now_ms: int) -> int:
        """Does what is due. Returns the milliseconds until it wants to be polled again, if nothing happens before."""

    def handle(self, event: Event, now_ms: int) -> None:
        """One of its requests has ended. Followed by a `poll`."""

    def failed(self, error: BaseException) -> None:
        """The core (or its driver) has a bug: the driver ends with this call, and nothing will be sent any more."""

    @property
    def is_finished(self) -> bool:
        """It wants nothing more, and is not called any more."""


def advance(core: Driven, now_ms: int) -> int:
    """What time has decided, then what the core wants. Returns how many milliseconds it would wait."""
    for event in core.network.tick(now_ms):
        core.handle(event, now_ms)
    return MAX_POLL_MS if core.is_finished else core.poll(now_ms)


def sleep_ms(network: Network, asked_ms: int, now_ms: int) -> int:
    """How long to sleep once the effects are performed, if the core would wait for so long."""
    deadline_ms = network.next_deadline_ms(now_ms)
    wait_ms = asked_ms if deadline_ms is None else min(asked_ms, deadline_ms - now_ms)
    return max(0, min(wait_ms, MAX_POLL_MS))


def is_done(core: Driven) -> bool:
    """The core has finished, and what it sent without expecting an answer is on its way."""
    return core.is_finished and not core.network.is_flushing
