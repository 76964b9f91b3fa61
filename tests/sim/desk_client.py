"""A client of a broker without a socket, and that broker's disk: in memory, full or broken where a test wants it so."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from oncelog.broker.request import Pending, Piecewise, Stepwise, Wait
from oncelog.wire.frame import RequestHeader
from tests.broker.support import Desk
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.raw import RawClient

STEP_MS, LONGEST_WAIT_MS = 10, 10_000


class Disk(FaultyStorage):
    """Full for some folders, or unable to sync them, as long as the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.full: set[str] = set()
        self.broken: set[str] = set()

    def _begin(self, what: str, path: str) -> Fault | None:
        folder = path.rpartition("/")[0].rpartition("/")[2]
        if what == "append" and folder in self.full:
            raise OSError(errno.ENOSPC, "no space left", path)
        if what == "sync" and folder in self.broken:
            raise OSError(errno.EIO, "cannot be synced", path)
        return super()._begin(what, path)

    def survivor(self, power_loss_seed: int | None = None) -> Disk:
        """What the next process finds; there is room again, and what was broken works."""
        left = self.after_kill() if power_loss_seed is None else self.after_power_loss(power_loss_seed)
        disk = Disk()
        disk.__dict__.update(left.__dict__)
        return disk


class NotAnsweredError(Exception):
    """Nobody waits any longer."""


class DeskClient(RawClient):
    """Speaks to a broker without a socket. If an answer does not come at once, flushes end and time passes until it
    does; or (`is_hasty`) it is not awaited."""

    def __init__(self, desk: Desk) -> None:
        self._correlation_id = 0
        self._desk = desk
        self._frames: deque[bytes] = deque()
        self.sent: list[bytes] = []
        self.is_hasty = False

    def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)
        desk = self._desk
        header, answer = desk.dispatcher.dispatch(memoryview(bytearray(data[4:])), desk.alarms.time_ms)

        def keep(answer: Any) -> None:
            chunks = desk.dispatcher.frame(header, answer)
            whole = b"".join(chunk if isinstance(chunk, bytes) else chunk.read_all() for chunk in chunks)
            self._frames.append(whole[4:])

        answer = self._made(header, answer)
        if not isinstance(answer, Pending):
            keep(answer)
        elif self.is_hasty:
            answer.on_complete = lambda _: None
        else:
            answer.on_complete = keep
            self._await_answer()

    def _made(self, header: RequestHeader, answer: Any) -> Any:
        """To its end, if it comes in pieces or takes steps. What a step waits for comes as time passes."""
        while isinstance(answer, Piecewise | Stepwise):
            making = self._desk.dispatcher.make(header, answer) if isinstance(answer, Piecewise) else answer
            while (result := making.step()) is None or isinstance(result, Wait):
                if result is not None:
                    self._pass_time_until(partial(getattr, result, "is_over"))
            answer = result
        return answer

    def _await_answer(self) -> None:
        self._pass_time_until(lambda: bool(self._frames))

    def _pass_time_until(self, has_come: Callable[[], bool]) -> None:
        self._desk.threads.run_all()
        for _ in range(LONGEST_WAIT_MS // STEP_MS):
            if has_come():
                return
            self._desk.alarms.pass_time(STEP_MS)
            self._desk.threads.run_all()
        raise AssertionError("never answered")

    def receive_frame(self) -> bytes:
        if not self._frames:
            raise NotAnsweredError
        return self._frames.popleft()
