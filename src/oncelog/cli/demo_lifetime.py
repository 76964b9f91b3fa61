"""Whatever the demo starts, it ends: also what Ctrl-C or an error finds half started."""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


class Lifetime(ABC):
    """Use as a context manager, in a `with` statement: Ctrl-C finds no gap between its start and the promise of its
    end. In ExitStack.enter_context there is one."""

    @abstractmethod
    def open(self) -> None:
        """Start all of it, each part `uncut`."""

    @abstractmethod
    def close(self) -> None:
        """End all that was started, however much that is. Closing twice is fine."""

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextmanager
def uncut() -> Iterator[None]:
    """Ctrl-C waits while a process or thread is started and noted: nobody could end what nobody knows of.

    The signal is not blocked: other threads would take it, and a new process inherit that it is deaf to it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C is the main thread's alone
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)
