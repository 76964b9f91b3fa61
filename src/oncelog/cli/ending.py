"""How a command ends that was told to: what it waits for is said within a moment, and another Ctrl-C does not wait."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oncelog.cli.output import note

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""
MOMENT_S = 0.5
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
AT_ONCE = "press Ctrl-C again to stop at once"


@contextmanager
def ending(what: Callable[[], str]) -> Iterator[None]:
    """Around what may wait: if it does, `what` is said. Ctrl-C ends it by KeyboardInterrupt, as anything else."""
    timer = threading.Timer(MOMENT_S, lambda: note(f"{what()}; {AT_ONCE}"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def stop_signals() -> Iterator[Callable[[], None]]:
    """From here on SIGTERM and Ctrl-C are noted; what is given waits for the first of them, past or to come.

    The signal is written into a pipe, by Python itself, before any of its code is run: a lock of `threading` that a
    handler sets may be held by the very code that the signal has interrupted, and waiting for one may begin just after
    the signal came. Either would wait for ever.
    """
    arrived, notes = os.pipe()
    os.set_blocking(notes, False)
    before = {number: signal.signal(number, _noted) for number in STOP_SIGNALS}
    wakeup = signal.set_wakeup_fd(notes, warn_on_full_buffer=False)
    try:
        yield lambda: _await_one_of(STOP_SIGNALS, arrived)
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(arrived)
        os.close(notes)


def _noted(*_: object) -> None:
    """From now on Ctrl-C ends the process as it does one that knows nothing of it, whatever it is at."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _await_one_of(numbers: tuple[int, ...], arrived: int) -> None:
    while not set(os.read(arrived, 1)) & set(numbers):
        pass  # another signal that has a handler
