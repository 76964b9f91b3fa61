"""Consumers that outlive a task: a Python worker runs one task after the other, and connecting anew costs each of them.

At most MAX_IDLE wait; one that waited longer than IDLE_S goes when another comes back. One that met an error is closed,
because nobody knows its state. The pool belongs to its process: a forked child begins with an empty one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from oncelog.consumer.consumer import Consumer

MAX_IDLE = 4
IDLE_S = 60.0
CLOSE_TIMEOUT_S = 5.0

Key = frozenset[tuple[str, str]]


class _Idle(NamedTuple):
    key: Key
    consumer: Consumer
    since: float


class ConsumerPool:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: list[_Idle] = []

    @contextmanager
    def consumer(self, settings: Mapping[str, str]) -> Iterator[Consumer]:
        """With nothing assigned. It comes back to the pool unless the block raises."""
        key: Key = frozenset(settings.items())
        consumer = self._taken(key) or Consumer(settings, auto_offset_reset="none", enable_auto_commit=False)
        try:
            yield consumer
            consumer.assign([])
        except GeneratorExit:  # whoever reads has had enough: all is well with the consumer
            consumer.assign([])
            self._put(_Idle(key, consumer, time.monotonic()))
            raise
        except BaseException:
            consumer.close(CLOSE_TIMEOUT_S)
            raise
        self._put(_Idle(key, consumer, time.monotonic()))

    def _taken(self, key: Key) -> Consumer | None:
        with self._lock:
            if self._process != os.getpid():
                self._process, self._idle = os.getpid(), []
            for place in reversed(range(len(self._idle))):
                if self._idle[place].key == key:
                    return self._idle.pop(place).consumer
        return None

    def _put(self, idle: _Idle) -> None:
        with self._lock:
            young = [one for one in self._idle if idle.since - one.since < IDLE_S]
            kept = [*young, idle][-MAX_IDLE:]
            old = [one for one in self._idle if one not in kept]
            self._idle = kept
        for one in old:
            one.consumer.close(CLOSE_TIMEOUT_S)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for one in idle:
            one.consumer.close(CLOSE_TIMEOUT_S)


POOL = ConsumerPool()
