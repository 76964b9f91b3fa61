"""The processes that this one has started, also those that whoever started them has lost sight of. Linux tells."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROCESSES = Path("/proc")


def children() -> set[int]:
    """Empty where nobody tells."""
    found = set()
    for entry in PROCESSES.glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):  # it has just ended
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(entry.name))
    return found


@contextmanager
def none_left_by_an_interruption() -> Iterator[None]:
    """What is started in the block and not finished starting, because Ctrl-C came in between, is killed."""
    before = children()
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception):
            for pid in children() - before:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        raise
