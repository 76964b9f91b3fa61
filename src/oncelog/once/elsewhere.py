"""Calls to a server that may be away, made in another thread: whoever waits for one can be told that it takes long,
and what a signal's handler raises meanwhile is raised to the one who waits, never inside a library that would take it
for the server's.

Owns the threads. Never gives a call up: how long it takes is for the library's own timeouts and retries to say.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class _Call:
    __slots__ = ("act", "ended", "error", "result")

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act
        self.ended = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.act()
        except BaseException as error:  # whoever waits for it gets it
            self.error = error
        self.ended.set()


_Calls = SimpleQueue[_Call | None]


class Elsewhere:
    def __init__(self, name: str) -> None:
        self._name = name
        self._process = os.getpid()
        self._idle: list[_Calls] = []
        """Of threads that wait for their next call."""
        weakref.finalize(self, _dismiss, self._idle)

    def do(self, act: Callable[[], T], patience_s: float | None, on_slow: Callable[[], object]) -> T:
        """What `act` returns or raises. `on_slow` is called once, after that time, while it goes on."""
        if os.getpid() != self._process:  # a fork takes no threads along
            self._process, self._idle[:] = os.getpid(), []
        calls = self._idle.pop() if self._idle else self._new_thread()
        call = _Call(act)
        calls.put(call)
        try:
            if not call.ended.wait(patience_s):
                on_slow()
                call.ended.wait()
        except BaseException:
            calls.put(None)  # nobody waits for this call: its thread ends with it, and keeps no other one waiting
            raise
        self._idle.append(calls)
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def _new_thread(self) -> _Calls:
        calls: _Calls = SimpleQueue()
        threading.Thread(target=_serve, args=(calls,), name=self._name, daemon=True).start()
        return calls


def _serve(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call


def _dismiss(idle: list[_Calls]) -> None:
    for calls in idle:
        calls.put(None)
