"""What `oncelog produce` says while records wait: how many are stored, and why the others are not.

`StallWatch` decides when to speak; time and counts come in. `watching` is its thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oncelog.cli.output import note
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.client.metadata import NO_LEADER
from oncelog.errors import OncelogError

STALL_S = 3.0
"""How long nothing is stored, while something waits, before that is said."""
REPEAT_S = 10.0
LOOK_S = 0.5
ASK_MS = 2_000
MAX_NAMED = 5
"""Partitions that are named one by one."""


class StallWatch:
    def __init__(self) -> None:
        self._stored = -1
        self._since_s = 0.0
        self._told_at_s: float | None = None

    def look(self, now_s: float, sent: int, stored: int) -> str | None:
        """What to say now, if anything; a reason may be added to it while it stands still."""
        if stored != self._stored or sent <= stored:
            was_told, self._told_at_s = self._told_at_s is not None, None
            self._stored, self._since_s = stored, now_s
            return f"records are stored again: {stored:,} of {sent:,}" if was_told else None
        if now_s - self._since_s < STALL_S or (self._told_at_s is not None and now_s - self._told_at_s < REPEAT_S):
            return None
        self._told_at_s = now_s
        records = "record is" if sent == 1 else "records are"
        return f"{stored:,} of {sent:,} {records} stored; nothing for {now_s - self._since_s:.0f} s"

    @property
    def is_stalled(self) -> bool:
        return self._told_at_s is not None


@contextmanager
def watching(counts: Callable[[], tuple[int, int]], reason: Callable[[], str]) -> Iterator[None]:
    """Speak while the block runs. `counts` are the records sent and stored; `reason` is asked for when it stalls."""
    ended = threading.Event()

    def look_on() -> None:
        watch = StallWatch()
        while not ended.wait(LOOK_S):
            said = watch.look(time.monotonic(), *counts())
            if said is not None:
                said = f"{said}: {reason()}" if watch.is_stalled else said
                if not ended.is_set():
                    note(said)

    thread = threading.Thread(target=look_on, name="oncelog-produce-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def why_topic_waits(config: dict[str, object], topic: str) -> str:
    """Asks the brokers, on a connection of its own."""
    settings = {**config, "default.api.timeout.ms": ASK_MS, "request.timeout.ms": ASK_MS}
    try:
        with BlockingClient(ClientConfig.of(settings)) as client:
            partitions = client.topic(topic).partitions
    except (OncelogError, OSError) as error:
        return f"{error}; trying again"
    leaderless = [str(one.index) for one in partitions if one.leader == NO_LEADER]
    if not leaderless:
        return "every partition has a leader; waiting for answers"
    named = ", ".join(leaderless[:MAX_NAMED])
    more = f" and {len(leaderless) - MAX_NAMED} more" if len(leaderless) > MAX_NAMED else ""
    noun = "partition" if len(leaderless) == 1 else "partitions"
    verb = "is" if len(leaderless) == 1 else "are"
    return f"{noun} {named}{more} of {topic} {verb} offline (no leader; the broker's log says why); trying again"
