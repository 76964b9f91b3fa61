"""Shows whether the interpreter's lock was given up: counts the turns that another thread had."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType

MAX_ATTEMPTS = 500


class Onlooker:
    """While it looks on, nobody is made to hand over the lock: whoever gets it was given it."""

    def __init__(self, on_turn: Callable[[], object] = lambda: None) -> None:
        self.turns = 0
        self._on_turn = on_turn
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._interval = sys.getswitchinterval()

    def _run(self) -> None:
        while not self._ended.wait(0.0001):
            self.turns += 1
            self._on_turn()
            self._begun.set()

    def __enter__(self) -> Onlooker:
        sys.setswitchinterval(100)
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        sys.setswitchinterval(self._interval)
