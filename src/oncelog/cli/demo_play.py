"""How an act of the demo is played: the script's steps when they are due, until every order has arrived."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from oncelog.child_processes import children
from oncelog.cli.demo_chronicle import Chronicle
from oncelog.cli.demo_screen import Screen
from oncelog.cli.demo_script import Act, Script
from oncelog.cli.ending import AT_ONCE, INTERRUPTED
from oncelog.errors import OncelogError

WATCH_S = 0.05
STDERR = 2
STOPPING = f"interrupted: ending all processes and removing their data; {AT_ONCE}\n".encode()

interrupted: list[int] = []
"""The signals of Ctrl-C; a plain list, since an event's lock may be held by what the signal interrupts.

The exception alone may be lost: Python drops it where it comes up in a finalizer.
"""


def on_ctrl_c(number: int = signal.SIGINT, _: object = None) -> None:
    """The first ends the demo in order. Another kills all that it has started, and itself."""
    if interrupted:
        kill_children()
        os._exit(INTERRUPTED)
    interrupted.append(number)
    os.write(STDERR, STOPPING)  # at once; what prints may just be printing
    raise KeyboardInterrupt


def kill_children() -> None:
    """Each leads a process group of its own, so that Ctrl-C reached nobody but us."""
    for pid in children():
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


class DemoStalled(OncelogError):
    """Nothing was acknowledged, booked or shipped for a long time, although the broker runs."""


class Stage(Protocol):
    """Who plays, and what is done to them."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many orders are where; where they come first, all that were sent will be."""
        ...

    @property
    def reached(self) -> int:
        """How many orders are so far that the script goes by them."""
        ...

    def is_complete(self, records: int) -> bool: ...

    def perform(self, act: Act, screen: Screen) -> bool:
        """False if it has to wait: one thing at a time happens to the processes."""
        ...

    def tend(self, screen: Screen) -> None:
        """See to who is caught, and to who sleeps or starts."""
        ...


def play(stage: Stage, script: Script, screen: Screen, chronicle: Chronicle, stall_timeout_s: float) -> None:
    """Until the script is over and every order has arrived, or nothing happens any more."""
    seen, seen_at = stage.counts, time.monotonic()
    while not (script.is_over and stage.is_complete(script.records)):
        act = script.due(stage.reached)
        if act is not None and stage.perform(act, screen):
            script.done()
        stage.tend(screen)
        time.sleep(WATCH_S)
        if interrupted:
            raise KeyboardInterrupt
        counts = stage.counts
        screen.advance(*counts.values())
        chronicle.sample(counts)
        if counts != seen:
            seen, seen_at = counts, time.monotonic()
        elif time.monotonic() - seen_at > stall_timeout_s:
            sent = next(iter(counts.values()))
            if sent < script.records or not script.is_over:
                raise DemoStalled(f"nothing happened for {stall_timeout_s:.0f} s at {sent:,} acknowledged orders")
            break  # what has not arrived by now is lost, and the audit will say so
    screen.advance(*stage.counts.values())
